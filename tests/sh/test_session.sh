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

# A run that has the session and waits for its prompt, written to descriptor 7.
begin_run() {   # FILE
    rm -f "$TMP/prompt"
    mkfifo "$TMP/prompt"
    "$DS_BIN/deltascope" run --session "$1" -f - -n 2 <"$TMP/prompt" >"$TMP/first.out" 2>"$TMP/first.err" &
    first=$!
    exec 7>"$TMP/prompt"
    tries=0
    while [ ! -e "$1.tmp" ]; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || fail "the first run does not begin: $(cat "$TMP/first.err")"
        sleep 0.1
    done
}

session_has_one_run() {
    run -p "$alice" -n 2 --session "$TMP/two" >"$TMP/out"
    for file in two new; do
        if [ -e "$TMP/$file" ]; then cp "$TMP/$file" "$TMP/before"; else rm -f "$TMP/before"; fi
        begin_run "$TMP/$file"
        refused 1 "$TMP/$file: another process is using this session" -p x --session "$TMP/$file"
        [ ! -e "$TMP/before" ] || cmp "$TMP/$file" "$TMP/before"
        echo " of sitting" >&7
        exec 7>&-
        wait $first || fail "the first run: $(cat "$TMP/first.err")"
        [ ! -e "$TMP/$file.tmp" ] && ! cmp -s "$TMP/$file" "$TMP/before"
        run -p x -n 1 --session "$TMP/$file" --json >"$TMP/json"
        grep -q '"resumed_tokens":[1-9]' "$TMP/json"
    done
    cp "$TMP/two" "$TMP/before"
    begin_run "$TMP/two"
    kill -9 $first
    wait $first || true
    exec 7>&-
    cmp "$TMP/two" "$TMP/before"
    run -p x -n 1 --session "$TMP/two" >"$TMP/out"             # what was killed holds nothing
    [ ! -e "$TMP/two.tmp" ]
}

session_survives_runs_at_once() {
    run -p "$alice" -n 2 --session "$TMP/base" >"$TMP/out"
    for turn in 1 2 3 4 5 6 7 8 9 10; do
        cp "$TMP/base" "$TMP/at_once"
        run -p "Alpha" -n 3 --session "$TMP/at_once" >"$TMP/out" 2>"$TMP/err1" & one=$!
        run -p "Beta" -n 2 --session "$TMP/at_once" >"$TMP/out2" 2>"$TMP/err2" & two=$!
        rc1=0 rc2=0
        wait $one || rc1=$?
        wait $two || rc2=$?
        case $rc1$rc2 in
            00) ;;
            01|10) grep -qF "at_once: another process is using this session" "$TMP/err1" "$TMP/err2" || fail "$(cat "$TMP/err1" "$TMP/err2")" ;;
            *) fail "exit codes $rc1 and $rc2: $(cat "$TMP/err1" "$TMP/err2")" ;;
        esac
        run -p x -n 1 --session "$TMP/at_once" >"$TMP/out" 2>"$TMP/err" || fail "turn $turn: $(cat "$TMP/err")"
        [ ! -e "$TMP/at_once.tmp" ]
    done
}

# A file that may not grow: one sentence, and everything as it was.
session_meets_the_limit_of_a_files_size() {
    run -p "$alice" -n 2 --session "$TMP/small" >"$TMP/out"
    cp "$TMP/small" "$TMP/before"
    rc=0
    ( ulimit -f 8; "$DS_BIN/deltascope" run -p x -n 1 --session "$TMP/small" >"$TMP/out" 2>"$TMP/err" ) || rc=$?
    [ $rc = 1 ] && [ "$(wc -l <"$TMP/err")" = 1 ] || fail "exit code $rc: $(cat "$TMP/err")"
    grep -qF "small.tmp: cannot be written: File too large" "$TMP/err" || fail "$(cat "$TMP/err")"
    cmp "$TMP/small" "$TMP/before"
    [ ! -e "$TMP/small.tmp" ]
}

run_cases "session_has_one_run session_survives_runs_at_once session_meets_the_limit_of_a_files_size session_goes_on session_adds_text session_refuses session_knows_its_place_at_once session_keeps_what_is_there" "$@"
