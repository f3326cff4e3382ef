#!/bin/sh
# deltascope run: what it prints, how it ends, chats, and what it refuses.
. "$(dirname "$0")/harness.sh"

run() { "$DS_BIN/deltascope" run "$@"; }
alice="Alice was beginning to get very tired"
book=" of sitting by her sister on the bank, and of having nothing to do: once or twice she had peeped into the"

refused() {     # CODE WORDS ARGUMENTS...: exit code, one sentence on stderr, nothing on stdout
    code=$1 words=$2
    shift 2
    rc=0
    run "$@" >"$TMP/out" 2>"$TMP/err" </dev/null || rc=$?
    [ $rc = "$code" ] || fail "exit code $rc for $*, expected $code: $(cat "$TMP/err")"
    [ ! -s "$TMP/out" ] || fail "standard output is not empty for $*"
    [ "$(wc -l <"$TMP/err")" = 1 ] || fail "not one sentence: $(cat "$TMP/err")"
    grep -qF -e "$words" "$TMP/err" || fail "'$(cat "$TMP/err")' does not say '$words'"
}
field() { sed 's/.*"'"$1"'":\("[^"]*"\|[^,}]*\).*/\1/' "$TMP/json"; }

run_continues_the_book() {
    run -p "$alice" -n 24 --temp 0 >"$TMP/out" 2>"$TMP/err"
    printf '%s' "$book" | cmp - "$TMP/out"
    [ ! -s "$TMP/err" ]
    printf '%s' "$alice" | run -f - -n 24 >"$TMP/out"
    printf '%s' "$book" | cmp - "$TMP/out"
    run -p "$alice" -n 24 --echo >"$TMP/out"
    printf '%s%s' "$alice" "$book" | cmp - "$TMP/out"
    run -p "$alice" -n 0 >"$TMP/out"
    [ ! -s "$TMP/out" ]
}

run_counts_tokens_exactly() {
    for n in 1 2 7; do
        run -p "$alice" -n $n --json >"$TMP/json" 2>"$TMP/err"
        [ ! -s "$TMP/err" ]
        [ "$(wc -l <"$TMP/json")" = 1 ]
        count=$(sed 's/.*"ids":\[\([^]]*\)\].*/\1/' "$TMP/json" | tr ',' '\n' | wc -l)
        [ "$count" = $n ] || fail "$count ids, expected $n"
        [ "$(field finish)" = '"length"' ]
        [ "$(field prompt_tokens)" = 7 ]
    done
}

run_stops_at_strings() {
    # " her sister on" spans tokens; the first of several counts; what only looks like one is printed.
    run -p "$alice" -n 24 --stop "r sister o" >"$TMP/out"
    [ "$(cat "$TMP/out")" = " of sitting by he" ]
    run -p "$alice" -n 24 --stop "nothing" --stop "the bank," >"$TMP/out"
    [ "$(cat "$TMP/out")" = " of sitting by her sister on " ]
    run -p "$alice" -n 24 --stop "peeped into there" >"$TMP/out"
    printf '%s' "$book" | cmp - "$TMP/out"
    run -p "$alice" -n 24 --stop "sister" --json >"$TMP/json"
    [ "$(field finish)" = '"stop"' ]
    [ "$(field text)" = '" of sitting by her "' ]
}

run_samples_by_seed() {
    run -p "$alice" -n 12 --temp 4 --seed 1 >"$TMP/a"
    run -p "$alice" -n 12 --temp 4 --seed 1 >"$TMP/b"
    cmp "$TMP/a" "$TMP/b"
    run -p "$alice" -n 12 --temp 4 --seed 2 >"$TMP/b"
    ! cmp -s "$TMP/a" "$TMP/b" || fail "two seeds, one text"
    run -p "$alice" -n 24 --temp 1.5 --top-k 1 >"$TMP/a"       # one candidate: as greedy
    printf '%s' "$book" | cmp - "$TMP/a"
    run -p "$alice" -n 24 --temp 0 --repeat-penalty 1.5 >"$TMP/a"
    [ -s "$TMP/a" ]
    ! [ "$(cat "$TMP/a")" = "$book" ] || fail "the penalty changes nothing"
}

run_chat_turns() {
    run --chat -p "Who are you?" -n 8 --temp 0 --json >"$TMP/json"
    want=$("$DS_BIN/deltascope" tokenize --special --json -p '<|im_start|>user
Who are you?<|im_end|>
<|im_start|>assistant
<think>

</think>

' | sed 's/.*"ids":\[\([^]]*\)\].*/\1/' | tr ',' '\n' | wc -l)
    [ "$(field prompt_tokens)" = "$want" ]
    run --chat --system "Be brief." -p "Who are you?" -n 8 --temp 0 --json >"$TMP/json"
    [ "$(field prompt_tokens)" -gt "$want" ]
    # Lines are turns: the first answer equals that of a chat of one turn, and the session goes on.
    run --chat -p "Who are you?" -n 8 --temp 0 >"$TMP/one"
    printf 'Who are you?\n\nAnd then?\n' | run --chat -n 8 --temp 0 >"$TMP/two" 2>"$TMP/err"
    [ ! -s "$TMP/err" ]
    head -c "$(wc -c <"$TMP/one")" "$TMP/two" | cmp - "$TMP/one"
    [ "$(wc -c <"$TMP/two")" -gt "$(($(wc -c <"$TMP/one") + 2))" ]
}

run_ends_with_the_window() {
    rc=0
    run -p "$alice" -n 24 --ctx 16 >"$TMP/out" 2>"$TMP/err" || rc=$?
    [ $rc = 1 ]
    grep -q "the window of 16 tokens is full after 9 new ones" "$TMP/err"
    [ -s "$TMP/out" ]
    run -p "$alice" -n 9 --ctx 16 >"$TMP/out" 2>"$TMP/err"      # as many as were asked for and fit
    [ ! -s "$TMP/err" ]
}

run_refuses() {
    refused 2 "no prompt"
    refused 2 "-p and -f exclude each other" -p a -f b
    refused 2 "TIMING ONLY" -p a --skip gdn
    refused 2 "--stop ''" -p a --stop ''
    for number in x 0x1 ' 0.5' '0.5 ' nan inf -inf 1e999 '' . 1e 1,5 0.5f; do
        refused 2 "--temp '$number'" -p a --temp "$number"
        refused 2 "--top-p '$number'" -p a "--top-p=$number"
        refused 2 "--threads '$number'" -p a --threads "$number"
        refused 2 "--seed '$number'" -p a --seed "$number"
    done
    for number in .5 5e-1 +0.5 0.5 0; do run -p "$alice" -n 1 --temp "$number" --seed 1 >"$TMP/out"; done
    refused 2 "-f ''" -f ''
    refused 2 "-m ''" -m '' -p a
    refused 2 "--session ''" --session '' -p a
    refused 2 "--json and --echo need a prompt" --chat --json
    refused 2 "--system and --thinking need --chat" -p a --thinking on
    run -p a --chat -n 1 --thinking on --temp 0 >"$TMP/out" 2>"$TMP/err"
    grep -q "no such switch" "$TMP/err" || fail "--thinking is passed over in silence: $(cat "$TMP/err")"
    refused 1 "the prompt is empty" -p ''
    refused 1 "the prompt is empty" -f /dev/null
    refused 1 "$TMP/none: cannot be read: No such file or directory" -f "$TMP/none"
    head -c 100000 /dev/zero | tr '\0' '7' >"$TMP/huge"
    refused 1 "100000" -f "$TMP/huge"
    grep -q 8192 "$TMP/err"
    export FAK_PREFILL_NO_ATTN=1
    refused 2 "TIMING ONLY" -p a
}

run_profile_line() {
    run -p "$alice" -n 2 --profile >"$TMP/out" 2>"$TMP/err"
    grep -q '^\[cpuprof-hybrid P=7\] total=[0-9.]*  gemm+roundtrip=[0-9.]*  gdn-recurrence=' "$TMP/err"
    FAK_QPROFILE=1 run -p "$alice" -n 2 >"$TMP/other" 2>"$TMP/err"
    grep -q '^\[cpuprof-hybrid P=7\]' "$TMP/err"
    cmp "$TMP/out" "$TMP/other"
}

run_stops_on_interrupt() {
    rm -f "$TMP/out"
    # A background job of a shell ignores SIGINT, so the signal is SIGTERM here; both take the same path.
    "$DS_BIN/deltascope" run -p "$alice" -n 8000 --isa scalar >"$TMP/out" 2>"$TMP/err" &
    pid=$!
    i=0
    while [ ! -s "$TMP/out" ] && [ $i -lt 1200 ]; do sleep 0.1; i=$((i + 1)); done
    kill -TERM $pid
    rc=0
    wait $pid || rc=$?
    [ $rc = 130 ] || fail "exit code $rc, expected 130"
    [ -s "$TMP/out" ]
}

run_terminal_chat() {
    # A terminal without a prompt is a chat: answers and prompts end with whole lines.
    cat >"$TMP/typist.py" <<'END'
import os, pty, select, sys
pid, fd = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
seen, typed = b"", [b"Hello\n", b"\004"]
while select.select([fd], [], [], 120)[0]:
    try: data = os.read(fd, 65536)
    except OSError: break
    if not data: break
    seen += data
    while typed and seen.count(b"> ") > 2 - len(typed): os.write(fd, typed.pop(0))      # one line for each prompt
sys.stdout.buffer.write(seen)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
END
    python3 "$TMP/typist.py" "$DS_BIN/deltascope" run -n 4 --temp 0 >"$TMP/out"
    grep -q "Each line is a turn" "$TMP/out"
    [ "$(grep -c '> ' "$TMP/out")" = 2 ] || fail "$(cat "$TMP/out")"
}

run_cases "run_continues_the_book run_counts_tokens_exactly run_stops_at_strings run_samples_by_seed run_chat_turns \
run_ends_with_the_window run_refuses run_profile_line run_stops_on_interrupt run_terminal_chat" "$@"
