# What tests of the programs share. Sourced after harness.sh.

ds=$DS_BIN/deltascope
mb=$DS_BIN/modelbench
mini=tests/fixtures/mini-dense.gguf
unset FAK_QPROFILE FAK_PREFILL_NO_GDN FAK_PREFILL_NO_ATTN

# expect CODE COMMAND...: runs it, output in $TMP/out and $TMP/err.
expect() {
    want=$1
    shift
    got=0
    "$@" >"$TMP/out" 2>"$TMP/err" </dev/null || got=$?
    [ "$got" = "$want" ] || fail "$*: exit code $got, expected $want; stderr: $(cat "$TMP/err")"
}
# The same for a refusal: nothing on stdout, one sentence on stderr that holds WORDS.
refuses() {
    want=$1 words=$2
    shift 2
    expect "$want" "$@"
    [ ! -s "$TMP/out" ] || fail "$*: wrote to stdout: $(cat "$TMP/out")"
    [ "$(wc -l <"$TMP/err")" = 1 ] || fail "$*: expected one line on stderr: $(cat "$TMP/err")"
    grep -qF -e "$words" "$TMP/err" || fail "$*: '$words' is not in: $(cat "$TMP/err")"
}
# py SCRIPT FILE...: a few lines of Python that see the parsed JSON of each FILE as d[0], d[1], ...
py() {
    script=$1
    shift
    python3 - "$script" "$@" <<'END'
import json, math, sys
d = [json.load(open(f)) for f in sys.argv[2:]]
STAGES = ["gemm+roundtrip", "gdn-recurrence", "full-attn", "qk-norm", "norm+act", "other"]
lower_median = lambda v: sorted(v)[(len(v) - 1) // 2]
exec(sys.argv[1])
END
}
