#!/bin/sh
# Runs test programs and shell tests, counts their cases, shows the output of what fails.
#
#   tests/run.sh [-n NAME] [-w WRAPPER] [-t SECONDS] PROGRAM...
#
# A PROGRAM is an executable or a script (*.sh) that lists its cases with --list, runs the named ones or all, and
# prints `ok CASE` or `FAIL CASE` for each. A case that was listed and never reported (a crash, a time-out) has failed.
#   -n NAME       only this case, or the program or script of this name; empty: everything
#   -w WRAPPER    runs programs under it ("qemu-aarch64 -cpu max")
#   -t SECONDS    limit per program (300)
# The last line is `N passed, N failed`; DS_TALLY names a file that gets "passed failed" appended.

cd "$(dirname "$0")/.." || exit 1
only="" wrapper="" limit=300
while getopts n:w:t: o; do
    case $o in
        n) only=$OPTARG ;;
        w) wrapper=$OPTARG ;;
        t) limit=$OPTARG ;;
        *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
passed=0 failed=0 matched=0

limited() {
    if command -v timeout >/dev/null 2>&1; then timeout -k 5 "$limit" "$@"
    else perl -e 'alarm shift; exec @ARGV or exit 127' "$limit" "$@"
    fi
}
run() {
    case $1 in
        *.sh) limited sh "$@" ;;
        *) # shellcheck disable=SC2086
           limited $wrapper "$@" ;;
    esac
}

for program in "$@"; do
    short=$(basename "$program" .sh)
    if ! run "$program" --list >"$tmp/list" 2>"$tmp/out" || [ ! -s "$tmp/list" ]; then
        [ -z "$only" ] || [ "$only" = "$short" ] || continue
        matched=1 failed=$((failed + 1))
        echo "FAIL $short: it does not list its cases"
        sed 's/^/    /' "$tmp/out"
        continue
    fi
    sort "$tmp/list" | uniq -d >"$tmp/twice"
    names=""
    if [ -n "$only" ] && [ "$only" != "$short" ] && [ "$only" != "${short#test_}" ]; then
        grep -qxF -e "$only" "$tmp/list" || { cat "$tmp/list" >>"$tmp/all"; continue; }
        names=$only
        echo "$only" >"$tmp/list"
    fi
    matched=1
    start=$(date +%s)
    # shellcheck disable=SC2086
    run "$program" $names >"$tmp/out" 2>&1
    code=$?
    seconds=$(($(date +%s) - start))
    awk '$1 == "ok" || $1 == "FAIL" { print $2 }' "$tmp/out" | sort -u >"$tmp/told"
    sort -u "$tmp/list" | comm -23 - "$tmp/told" >"$tmp/silent"
    good=$(awk '$1 == "ok" { n++ } END { print n + 0 }' "$tmp/out")
    bad=$(awk '$1 == "FAIL" { n++ } END { print n + 0 }' "$tmp/out")
    lost=$(($(wc -l <"$tmp/silent") + $(wc -l <"$tmp/twice")))
    [ $code = 0 ] || [ $((bad + lost)) -gt 0 ] || lost=1        # a leak or a race reported after the last case
    passed=$((passed + good)) failed=$((failed + bad + lost))
    if [ $((bad + lost)) = 0 ]; then
        printf '%-28s %4d ok  %3d s\n' "$short" "$good" "$seconds"
    else
        printf '%-28s %4d ok  %3d s  %d FAILED\n' "$short" "$good" "$seconds" $((bad + lost))
        tail -n 200 "$tmp/out" | sed 's/^/    /'
        case $code in
            0) ;;
            124|137|142) echo "    stopped after $limit s (exit code $code)" ;;
            *) echo "    exit code $code" ;;
        esac
        sed 's/^/    not reached: /' "$tmp/silent"
        sed 's/^/    listed twice: /' "$tmp/twice"
    fi
done

if [ -n "$only" ] && [ $matched = 0 ]; then
    near=$(grep -iF -e "$only" "$tmp/all" 2>/dev/null | head -8 | paste -sd ' ' -)
    echo "no test is called '$only'${near:+; close to it: $near}" >&2
    failed=$((failed + 1))
fi
[ -z "$DS_TALLY" ] || echo "$passed $failed" >>"$DS_TALLY"
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed -gt 0 ]
