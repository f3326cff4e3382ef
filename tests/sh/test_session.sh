#!/bin/sh
# deltascope run --session: saved, resumed, refused.
. "$(dirname "$0")/harness.sh"

run() { "$DS_BIN/deltascope" run "$@"; }
alice="Alice was beginning to get very tired"

refused() {     # CODE WORDS ARGUMENTS...
    code=$1 words=$2
    shift 2
    rc=0
    run "$@" >"$TMP/out" 2>"$TMP/err" </dev/null || rc=$?
    [ $rc = "$code" ] || fail "exit code $rc for $*, expected $code: $(cat "$TMP/err")"
    [ ! -s "$TMP/out" ] && [ "$(wc -l <"$TMP/err")" = 1 ] || fail "not one sentence: $(cat "$TMP/out" "$TMP/err")"
    grep -qF -e "$words" "$TMP/err" || fail "'$(cat "$TMP/err")' does not say '$words'"
}

# Resumed in three runs, the answer is that of one.
session_goes_on() {
    run -p "$alice" -n 30 >"$TMP/whole"
    run -p "$alice" -n 10 --session "$TMP/a" >"$TMP/parts"
    run -p "" -n 1 --session "$TMP/a" >>"$TMP/parts"
    run -p "" -n 19 --session "$TMP/a" --json >"$TMP/json"
    sed 's/.*"text":"\(.*\)","finish".*/\1/' "$TMP/json" | tr -d '\n' >>"$TMP/parts"
    cmp "$TMP/whole" "$TMP/parts"
    grep -q '"prompt_tokens":0,"resumed_tokens":[1-9]' "$TMP/json"
    case $(ls -l "$TMP/a") in -rw-------*) ;; *) fail "others may read the file: $(ls -l "$TMP/a")" ;; esac
    [ ! -e "$TMP/a.tmp" ]
}

session_adds_text() {
    run -p "$alice" -n 0 --session "$TMP/b"
    run -p " of sitting by her sister on" -n 8 --session "$TMP/b" >"$TMP/out"
    printf ' the bank, and of having' | cmp -n 16 - "$TMP/out"
    run --chat -p "Who is Alice?" -n 4 --session "$TMP/c" >"$TMP/out"
    run --chat -p "And the cat?" -n 4 --session "$TMP/c" --json >"$TMP/json"
    grep -q '"resumed_tokens":[1-9]' "$TMP/json"
}

session_refuses() {
    run -p "$alice" -n 4 --session "$TMP/d" >"$TMP/out"
    cp "$TMP/d" "$TMP/kept"
    refused 1 "another model or KV type" -p x --session "$TMP/d" --kv f32
    refused 1 "the window holds 5" -p x --session "$TMP/d" --ctx 5
    refused 2 "TIMING ONLY" -p x --session "$TMP/d" --skip gdn
    cmp "$TMP/d" "$TMP/kept"
    head -c 5000 "$TMP/kept" >"$TMP/d"
    refused 1 "$TMP/d" -p x --session "$TMP/d"
    [ "$(wc -c <"$TMP/d")" = 5000 ]
    refused 1 "$TMP" -p x --session "$TMP"
}

# A path where nothing can be saved is refused before anything is computed, and what lies there stays.
session_knows_its_place_at_once() {
    refused 1 "$TMP/none/e: no session can be saved there: $TMP/none/e.tmp: cannot be created: No such file" -p x --session "$TMP/none/e"
    refused 1 "/proc/e: no session can be saved there" -p x --session /proc/e
    run -p "$alice" -n 2 --session "$TMP/good" >"$TMP/out"
    for kind in text empty damaged prefix.dsprefix; do
        case $kind in
            text) echo "my notes" >"$TMP/$kind"; why="too few for a session file" ;;
            empty) : >"$TMP/$kind"; why="has 0 bytes" ;;
            damaged) { printf 'X'; tail -c +2 "$TMP/good"; } >"$TMP/$kind"; why="is not a session file" ;;
            *) cp "$TMP/good" "$TMP/$kind"; why="are those of a server's prefixes" ;;
        esac
        cp "$TMP/$kind" "$TMP/before"
        refused 1 "$TMP/$kind: " -p x --session "$TMP/$kind"
        grep -qF -e "$why" "$TMP/err" || fail "$kind: $(cat "$TMP/err")"
        cmp "$TMP/$kind" "$TMP/before"
    done
    refused 1 "are those of a server's prefixes" -p x --session "$TMP/new.dsprefix"
    ln -s prefix.dsprefix "$TMP/by_link"
    refused 1 "are those of a server's prefixes" -p x --session "$TMP/by_link"
    echo "my draft" >"$TMP/f.tmp"
    refused 1 "$TMP/f.tmp: is no part of a session file" -p x --session "$TMP/f"
    [ "$(cat "$TMP/f.tmp")" = "my draft" ] && [ ! -e "$TMP/f" ]
    head -c 3000 "$TMP/good" >"$TMP/f.tmp"                     # what a run that was killed leaves
    run -p "$alice" -n 2 --session "$TMP/f" >"$TMP/out"
    cmp "$TMP/f" "$TMP/good"
    [ ! -e "$TMP/f.tmp" ]
}

# Links stay links, what is no file stays what it is, and that is known before the model answers.
session_keeps_what_is_there() {
    mkdir "$TMP/far"
    ln -s far/real "$TMP/link"
    run -p "$alice" -n 2 --session "$TMP/link" >"$TMP/out"
    [ -L "$TMP/link" ] && [ -f "$TMP/far/real" ] && [ ! -e "$TMP/far/real.tmp" ] && [ ! -e "$TMP/link.tmp" ]
    cp "$TMP/far/real" "$TMP/first"
    run -p "" -n 2 --session "$TMP/link" >"$TMP/out"
    [ -L "$TMP/link" ] && ! cmp -s "$TMP/far/real" "$TMP/first"
    mkfifo "$TMP/pipe"
    refused 1 "$TMP/pipe" -p x --session "$TMP/pipe"
    [ -p "$TMP/pipe" ]
    if mknod "$TMP/null" c 1 3 2>/dev/null; then
        refused 1 "$TMP/null" -p x --session "$TMP/null"
        [ -c "$TMP/null" ]
    fi
}

run_cases "session_goes_on session_adds_text session_refuses session_knows_its_place_at_once session_keeps_what_is_there" "$@"
