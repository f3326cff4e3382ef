#!/bin/sh
# The programs: help, exit codes, bad usage, JSON, the profile, skips, environment names.
. "$(dirname "$0")/harness.sh"
. tests/sh/tools.sh

help_of_every_tool() {
    for c in info run tokenize bench ladder check synth; do
        expect 0 "$ds" $c --help
        grep -q '^usage: deltascope '$c "$TMP/out" || fail "$c --help prints no usage line"
        [ ! -s "$TMP/err" ] || fail "$c --help wrote to stderr"
        expect 0 "$ds" $c --version
        grep -q '^deltascope [0-9.]* (' "$TMP/out"
    done
    expect 0 "$ds" bench --help
    grep -q -e '--skip' "$TMP/out" || fail "bench --help does not list --skip"
    for c in run check ladder; do
        expect 0 "$ds" $c --help
        if grep -q -e '--skip' "$TMP/out"; then fail "$c --help lists --skip, which it refuses"; fi
    done
    expect 0 "$ds" --help
    for c in info run tokenize bench ladder check synth; do grep -q "^  $c " "$TMP/out" || fail "--help does not list $c"; done
    expect 0 "$ds" --version
    expect 0 "$mb" --help
    grep -q -e -prefill-sizes "$TMP/out"
    expect 0 "$mb" -help
    expect 2 "$ds"
    grep -q '^usage:' "$TMP/err"
}

bad_usage_is_one_sentence() {
    refuses 2 "unknown command 'bnch'" "$ds" bnch
    refuses 2 "unknown option '--prefil'" "$ds" bench --prefil 5
    refuses 2 "--prefill needs a value" "$ds" bench --prefill
    refuses 2 "--prefill '0'" "$ds" bench --prefill 0
    refuses 2 "--prefill '256,'" "$ds" bench --prefill 256,
    refuses 2 "--prefill '256,x'" "$ds" bench --prefill 256,x
    for list in 8,,9 8, ,8 , ' 8' '8 ' '8, 9' 0x8 1e1 nan; do refuses 2 "--prefill '$list'" "$ds" bench --prefill "$list"; done
    for list in gdn,,attn gdn, ,gdn ''; do refuses 2 "--skip '$list'" "$ds" bench --skip "$list"; done
    refuses 2 "--prefill '99999999999999999999'" "$ds" bench --prefill 99999999999999999999
    refuses 2 "--reps '-1'" "$ds" bench --reps -1
    refuses 2 "--reps '1.5'" "$ds" bench --reps=1.5
    refuses 2 "--threads '0'" "$ds" bench --threads 0
    refuses 2 "--threads ''" "$ds" bench --threads ''
    refuses 2 "--ubatch '70000'" "$ds" bench --ubatch 70000
    refuses 2 "--ctx '-5'" "$ds" bench --ctx -5
    refuses 2 "--backend 'tpu'" "$ds" bench --backend tpu
    refuses 2 "--placement 'half'" "$ds" info --placement half
    refuses 2 "--isa 'avx9'" "$ds" bench --isa avx9
    for gpu in "--gemm fp8" "--weights blocks" "--gpu-work 5"; do
        # shellcheck disable=SC2086
        refuses 2 "but the backend is 'cpu'" "$ds" check -m "$mini" --backend cpu $gpu
    done
    refuses 2 "--kv 'f8'" "$ds" bench --kv f8
    refuses 2 "--skip 'mlp'" "$ds" bench --skip mlp
    refuses 2 "--profile 'often'" "$ds" bench --profile=often
    refuses 2 "--json takes no value" "$ds" bench --json=maybe
    refuses 2 "unexpected argument 'x.gguf'" "$ds" bench x.gguf
    refuses 2 "exclude each other" "$ds" bench -m "$mini" --like qwen3.5-0.8b
    refuses 2 "need --like" "$ds" bench -m "$mini" --type q8_0
    refuses 2 "--like 'gpt'" "$ds" bench --like gpt
    refuses 2 "--layers '0'" "$ds" bench --like qwen3.5-0.8b --layers 0
    refuses 2 "two models" "$ds" info -m "$mini" "$mini"
    refuses 2 "-m ''" "$ds" info -m ''
    refuses 2 "argument 1 is empty" "$ds" info ''
    refuses 2 "-m ''" "$ds" bench --model=
    refuses 2 "-gguf ''" "$mb" -gguf ''
    refuses 2 "--oracle ''" "$ds" check -m "$mini" --oracle ''
    refuses 2 "-o ''" "$ds" synth --like qwen3.5-0.8b -o ''
    refuses 2 "--out ''" "$ds" ladder -m "$mini" --out ''
    refuses 2 "--before ''" "$ds" ladder -m "$mini" --before ''
    refuses 2 "argument 2 is empty" "$ds" ladder --merge a.json ''
    refuses 2 "-o is missing" "$ds" synth --like qwen3.5-0.8b
    refuses 2 "--like is missing" "$ds" synth -o "$TMP/x"
    refuses 2 "-prefill-sizes 'a'" "$mb" -prefill-sizes a
    refuses 2 "-lean=false" "$mb" -gguf "$mini" -lean=false
    refuses 2 "exclude each other" "$mb" -gguf "$mini" -metal -backend cpu
    refuses 2 "unknown option '-m'" "$mb" -m "$mini"
    for with in --profile --profile=drain '--profile --json' '--profile --decode 2'; do
        refuses 2 "--bare and --profile" "$ds" bench -m "$mini" --prefill 20 --reps 1 --bare $with
    done
    refuses 2 "FAK_QPROFILE=1) exclude each other" env FAK_QPROFILE=1 "$ds" bench -m "$mini" --prefill 20 --reps 1 --bare
}

# More threads than there are: said once on stderr by whatever takes the option.
threads_are_limited() {
    for run in "$ds info $mini" "$ds info $mini --json" "$ds run -m $mini -p x -n 1" "$ds bench -m $mini --prefill 16 --reps 1 --json" \
        "$mb -gguf $mini -prefill-sizes 16 -reps 1 -json" "$ds check -m $mini --ctx 64" "$ds ladder -m $mini --prefill 8 --reps 1"; do
        expect 0 $run --threads 1
        [ ! -s "$TMP/err" ] || fail "$run: $(cat "$TMP/err")"
        expect 0 $run --threads 1024
        grep -qE -e '^[a-z ]+: --threads 1024: this machine gives ([0-9]+), using \1$' "$TMP/err" && [ "$(wc -l <"$TMP/err")" = 1 ] ||
            fail "$run: $(cat "$TMP/err")"
        if grep -q 'this machine gives' "$TMP/out"; then fail "$run: said on stdout"; fi
    done
    refuses 2 "--threads '1025'" "$ds" info "$mini" --threads 1025
}

failures_are_one_sentence() {
    refuses 1 "$TMP/absent.gguf" "$ds" info "$TMP/absent.gguf"
    refuses 1 "$TMP/absent.gguf" "$ds" bench -m "$TMP/absent.gguf"
    refuses 1 "$TMP/absent.gguf" "$mb" -gguf "$TMP/absent.gguf"
    printf 'no model' >"$TMP/text"
    refuses 1 "$TMP/text" "$ds" info "$TMP/text"
    refuses 1 "$TMP/text" "$ds" check -m "$mini" --oracle "$TMP/text"
}

# says_once WHERE COMMAND...: stdout cannot take what COMMAND writes, and that is said once.
says_once() {
    where=$1 got=0
    shift
    case $where in
        full) "$@" >/dev/full 2>"$TMP/err" </dev/null || got=$? ;;
        closed) "$@" >&- 2>"$TMP/err" </dev/null || got=$? ;;
    esac
    [ $got = 1 ] || fail "$where stdout: $*: exit code $got"
    [ "$(grep -c 'standard output: the output could not be written' "$TMP/err")" = 1 ] && [ "$(wc -l <"$TMP/err")" = 1 ] ||
        fail "$where stdout: $*: $(cat "$TMP/err")"
}

lost_output_is_said_once() {
    measured=$TMP/lost
    expect 0 "$ds" ladder -m "$mini" --prefill 16 --reps 1 --json
    cp "$TMP/out" "$measured"
    for where in closed full; do
        [ $where = closed ] || [ -c /dev/full ] || continue
        says_once $where "$ds" --help
        says_once $where "$ds" --version
        says_once $where "$ds" info --help
        says_once $where "$mb" --help
        says_once $where "$ds" info "$mini"
        says_once $where "$ds" info "$mini" --json
        says_once $where "$ds" run -m "$mini" -p x -n 2
        says_once $where "$ds" run -m "$mini" -p x -n 0 --echo
        says_once $where "$ds" run -m "$mini" -p x -n 2 --json
        says_once $where "$ds" tokenize -m "$mini" -p x
        says_once $where "$ds" tokenize -m "$mini" --decode 40,41
        says_once $where "$ds" bench -m "$mini" --prefill 16 --reps 1
        says_once $where "$ds" bench -m "$mini" --prefill 16 --reps 1 --json
        says_once $where "$mb" -gguf "$mini" -prefill-sizes 16 -reps 1
        says_once $where "$ds" ladder --merge "$measured"
        says_once $where "$ds" ladder --merge "$measured" --json
        says_once $where "$ds" check -m "$mini" --oracle tests/fixtures/mini-dense.oracle.gguf
        says_once $where "$ds" check -m "$mini" --oracle tests/fixtures/mini-dense.oracle.gguf --json
    done
    # Nothing to say is nothing to lose.
    "$ds" run -m "$mini" -p x -n 0 >&- 2>"$TMP/err" </dev/null
    [ ! -s "$TMP/err" ] || fail "$(cat "$TMP/err")"
}

default_model_is_found() {
    expect 0 "$ds" info --json
    py 'assert d[0]["params"] > 1e7 and d[0]["path"].endswith("models/tales-q8_0.gguf"), d[0]["path"]' "$TMP/out"
    # from another folder the one beside the program's folder is taken
    mkdir -p "$TMP/install/bin" "$TMP/install/models" "$TMP/cwd/models" "$TMP/alone"
    cp "$ds" "$TMP/install/bin/"
    cp "$mini" "$TMP/install/models/tales-q8_0.gguf"
    (cd "$TMP/cwd" && "$TMP/install/bin/deltascope" info --json >"$TMP/out")
    py 'assert "install" in d[0]["path"], d[0]["path"]' "$TMP/out"
    # then that in the working directory
    mv "$TMP/install/models/tales-q8_0.gguf" "$TMP/cwd/models/"
    (cd "$TMP/cwd" && "$TMP/install/bin/deltascope" info --json >"$TMP/out")
    py 'assert d[0]["path"] == "models/tales-q8_0.gguf", d[0]["path"]' "$TMP/out"
    (cd "$TMP/alone" && refuses 2 "no model is named" "$TMP/install/bin/deltascope" info)
}

info_adds_up() {
    expect 0 "$ds" info "$mini" --json --ctx 512
    py '
i = d[0]
for k in ("arch", "geometry", "types", "tensors", "params", "plan_bytes", "kernels"): assert k in i, k
assert sum(i["types"].values()) == i["tensors"]
p = i["plan_bytes"]
for k in ("weights", "kv", "state", "snapshots", "scratch"): assert p[k] >= 0, k
assert p["total"] == sum(v for k, v in p.items() if k != "total")
g = i["geometry"]
assert g["n_gdn"] + g["n_attn"] == g["n_layer"] and i["ctx"] == 512
assert p["kv"] == g["n_attn"] * 2 * g["n_kv"] * g["head_dim"] * 2 * 512, p["kv"]
channels = 2 * g["gdn_key_heads"] * g["gdn_dk"] + g["gdn_value_heads"] * g["gdn_dv"]
state = g["n_gdn"] * 4 * (g["gdn_value_heads"] * g["gdn_dk"] * g["gdn_dv"] + (g["conv_kernel"] - 1) * channels)
assert p["state"] == state, (p["state"], state)
assert set(i["kernels"]) >= {"qkv", "z", "gates", "ssm_out", "attention", "mlp", "head"}, i["kernels"]
' "$TMP/out"
    expect 0 "$ds" info "$mini" --ctx 512
    for word in memory 'KV cache' kernels 'runs on' snapshot; do grep -q "$word" "$TMP/out" || [ "$word" = kernels ] || fail "no '$word'"; done
    expect 0 "$ds" info -m "$mini"
}

bench_json_fields() {
    expect 0 "$ds" bench -m "$mini" --prefill 20,70 --depth 30 --reps 4 --decode 5 --json
    py '
b = d[0]
for k in ("cpu", "cores", "threads", "isa", "gpu", "peak_int8_gops", "peak_f32_gflops", "read_gbs"): assert k in b["machine"], k
for k in ("path", "hash", "arch", "type", "params", "file_bytes"): assert k in b["model"], k
for k in ("backend", "placement", "commit", "date", "load_ms", "peak_rss_bytes", "plan_bytes", "command"): assert b[k], k
assert [p["P"] for p in b["prefill"]] == [20, 70]
for p in b["prefill"]:
    assert p["depth"] == 30 and p["cold"] is False and p["ubatch"] == 512 and len(p["ms"]) == 4
    assert p["median_ms"] == lower_median(p["ms"])
    s = p["stages_ms"]
    assert sorted(s) == sorted(STAGES)
    total = sum(v for k, v in s.items() if k != "qk-norm")
    assert abs(total - p["median_ms"]) < 0.02 * p["median_ms"], (total, p["median_ms"])
    assert s["qk-norm"] <= s["full-attn"]
    assert p["tok_s"] is None and "latency" in p["flags"]
    assert 0 < p["peak_share"] < 1
    for c in p["gemm_classes"]:
        assert sorted(c) == sorted(["class", "kernel", "ms", "gflop", "gb", "bound_ms"])
        assert c["kernel"] and c["bound_ms"] > 0
    assert {c["class"] for c in p["gemm_classes"]} >= {"qkv", "z", "gates", "ssm_out", "attention", "mlp", "head"}
    assert abs(sum(c["ms"] for c in p["gemm_classes"]) - s["gemm+roundtrip"]) < 0.01 * s["gemm+roundtrip"] + 0.01
c = b["decode"]
assert c["depth"] == 30 and c["steps"] == 5 and c["ms_per_token"] > 0 and "bandwidth_share" in c
assert abs(c["tok_s"] * c["ms_per_token"] - 1000) < 1e-6
assert abs(c["ms_per_token"] - lower_median(c["ms"]) / 5) < 1e-9
' "$TMP/out"
    [ ! -s "$TMP/err" ] || fail "stderr is not silent: $(cat "$TMP/err")"
}

rates_start_at_256() {
    expect 0 "$ds" bench -m "$mini" --prefill 255,256 --reps 1 --json
    py '
a, b = d[0]["prefill"]
assert a["tok_s"] is None and "latency" in a["flags"]
assert abs(b["tok_s"] - 256e3 / b["median_ms"]) < 1e-6 * b["tok_s"] and "latency" not in b["flags"]
assert d[0]["decode"] is None' "$TMP/out"
}

cold_runs_have_no_warm_up() {
    expect 0 "$ds" bench -m "$mini" --prefill 20 --reps 2 --cold --json
    py 'assert d[0]["prefill"][0]["cold"] is True and d[0]["warm_up_tokens"] == 0 and len(d[0]["prefill"][0]["ms"]) == 2' "$TMP/out"
    expect 0 "$ds" bench -m "$mini" --prefill 20 --reps 2 --json
    py 'assert d[0]["warm_up_tokens"] >= 16' "$TMP/out"
}

line='^\[cpuprof-hybrid P=[0-9]+\] total=[0-9]+\.[0-9]  gemm\+roundtrip=[0-9]+\.[0-9]  gdn-recurrence=[0-9]+\.[0-9]  full-attn=[0-9]+\.[0-9]  qk-norm=[0-9]+\.[0-9]  norm\+act=[0-9]+\.[0-9] ms$'

# lines N COMMAND...: exactly N profile lines on stderr, none on stdout.
lines() {
    count=$1
    shift
    expect 0 "$@"
    [ "$(grep -cE "$line" "$TMP/err" || true)" = "$count" ] || fail "$*: expected $count profile lines: $(cat "$TMP/err")"
    [ "$(grep -c 'prof-hybrid' "$TMP/err" || true)" = "$count" ] || fail "$*: a profile line of another form: $(cat "$TMP/err")"
    if grep -q 'prof-hybrid' "$TMP/out"; then fail "$*: a profile line on stdout"; fi
}

# One line per timed prefill: not for the warm-up, not for the tokens that make the depth.
profile_lines() {
    lines 6 "$ds" bench -m "$mini" --prefill 20,40 --reps 3 --depth 10 --profile
    grep -q '\[cpuprof-hybrid P=40\]' "$TMP/err"
    lines 6 env FAK_QPROFILE=1 "$ds" bench -m "$mini" --prefill 20,40 --reps 3
    lines 4 env FAK_QPROFILE=1 "$mb" -gguf "$mini" -prefill-sizes 20,40 -reps 2
    grep -q '^ *20 ' "$TMP/out" || fail "modelbench prints no result table"
    lines 4 env FAK_QPROFILE=1 "$mb" -gguf "$mini" -prefill-sizes 20,40 -reps 2 -decode-steps 3
    lines 0 "$ds" bench -m "$mini" --prefill 20 --reps 2
    lines 0 env FAK_QPROFILE=0 "$mb" -gguf "$mini" -prefill-sizes 20 -reps 2
    lines 0 env FAK_QPROFILE= "$mb" -gguf "$mini" -prefill-sizes 20 -reps 2
    lines 1 "$ds" bench -m "$mini" --prefill 20 --reps 1 --profile --json
    py 'assert d[0]["profile"] == "stamp"' "$TMP/out"
    # A bare run has none, whatever else it does; the bytes of a decode step are counted all the same.
    for with in --json '--json --cold' '--json --skip gdn,attn' '--json --decode 2'; do
        lines 0 env FAK_QPROFILE=0 "$ds" bench -m "$mini" --prefill 20 --reps 1 --bare $with
        py 'assert d[0]["profile"] == "off" and "no profile" in d[0]["prefill"][0]["flags"] and (not d[0]["decode"] or d[0]["decode"]["gb_per_token"] > 0)' "$TMP/out"
    done
}

profile_table() {
    expect 0 "$ds" bench -m "$mini" --prefill 40 --reps 1 --profile
    for word in gemm+roundtrip gdn-recurrence full-attn 'of which qk-norm' norm+act other 'x bound' qkv ssm_out attention mlp head gates; do
        grep -q -e "$word" "$TMP/out" || fail "the table lacks '$word'"
    done
    grep -q 'mode: time stamps' "$TMP/out"
    if grep -q 'TIMING ONLY' "$TMP/out" "$TMP/err"; then fail "a full run is marked TIMING ONLY"; fi
    expect 0 "$ds" bench -m "$mini" --prefill 40 --reps 1 --profile=drain --json
    grep -q 'mode: drain' "$TMP/err"
    py 'assert d[0]["profile"] == "drain" and "drain" in d[0]["prefill"][0]["flags"]' "$TMP/out"
}

skips_are_marked() {
    expect 0 "$ds" bench -m "$mini" --prefill 40 --reps 1
    cp "$TMP/out" "$TMP/full"
    expect 0 "$ds" bench -m "$mini" --prefill 40 --reps 1 --skip gdn,attn --profile
    grep -q 'TIMING ONLY' "$TMP/err" || fail "no notice: $(cat "$TMP/err")"
    for words in 'TIMING ONLY (gdn,attn left out): the output is no model answer' \
        'prefill of 40 tokens on cpu, placement full; mode: time stamps at stage borders (no added waiting)'; do
        grep -qxF "$words" "$TMP/out" || fail "the table's head lacks '$words': $(cat "$TMP/out")"
    done
    expect 0 "$ds" bench -m "$mini" --prefill 40 --reps 1 --json
    cp "$TMP/out" "$TMP/full"
    # The flags and the environment names mean the same; empty and 0 mean off.
    for how in "--skip gdn" "FAK_PREFILL_NO_GDN=1" "--skip attn" "FAK_PREFILL_NO_ATTN=yes"; do
        case $how in
            --*) # shellcheck disable=SC2086
                 expect 0 "$ds" bench -m "$mini" --prefill 40 --reps 1 --json $how ;;
            *) expect 0 env "$how" "$ds" bench -m "$mini" --prefill 40 --reps 1 --json ;;
        esac
        cp "$TMP/out" "$TMP/skipped"
        grep -q 'TIMING ONLY' "$TMP/err" || fail "$how: no notice"
        case $how in *gdn|*GDN*) gone=gdn-recurrence kept=full-attn ;; *) gone=full-attn kept=gdn-recurrence ;; esac
        py "
p, q = d[0]['prefill'][0], d[1]['prefill'][0]
assert 'TIMING ONLY' in q['flags'] and 'TIMING ONLY' not in p['flags']
work = lambda x: sum(c['gflop'] for c in x['gemm_classes'])
assert abs(work(p) - work(q)) < 1e-9, 'a skip must leave every matrix product in'
assert q['stages_ms']['$gone'] < p['stages_ms']['$gone'], '$gone'
assert q['stages_ms']['$kept'] > 0" "$TMP/full" "$TMP/skipped"
    done
    for off in FAK_PREFILL_NO_GDN=0 FAK_PREFILL_NO_GDN= FAK_PREFILL_NO_ATTN=0 FAK_PREFILL_NO_ATTN=; do
        expect 0 env "$off" "$ds" bench -m "$mini" --prefill 20 --reps 1
        [ ! -s "$TMP/err" ] || fail "$off: $(cat "$TMP/err")"
    done
    expect 0 env FAK_PREFILL_NO_GDN=1 "$mb" -gguf "$mini" -prefill-sizes 20 -reps 1
    grep -q 'TIMING ONLY' "$TMP/out"
}

skips_are_no_answer() {
    refuses 2 "TIMING ONLY" "$ds" check -m "$mini" --skip gdn
    refuses 2 "TIMING ONLY" env FAK_PREFILL_NO_ATTN=1 "$ds" check -m "$mini"
    refuses 2 "TIMING ONLY" "$ds" run -m "$mini" -p x -n 1 --skip attn
    refuses 2 "TIMING ONLY" env FAK_PREFILL_NO_GDN=1 "$ds" run -m "$mini" -p x -n 1
    refuses 2 "unfilled" "$ds" bench -m "$mini" --skip gdn --decode 4
    refuses 2 "unfilled" env FAK_PREFILL_NO_GDN=1 "$mb" -gguf "$mini" -decode-steps 4
    expect 0 env FAK_PREFILL_NO_GDN=0 "$ds" run -m "$mini" -p x -n 1
}

modelbench_flags() {
    expect 0 "$mb" -gguf "$mini" -prefill-sizes 20,300 -lean -threads 1 -backend cpu -reps 3 -json
    py '
b = d[0]
assert [p["P"] for p in b["prefill"]] == [20, 300] and b["machine"]["threads"] == 1 and b["backend"] == "cpu"
assert all(len(p["ms"]) == 3 for p in b["prefill"]) and b["decode"] is None and b["warm_up_tokens"] >= 16
assert b["command"].startswith("modelbench -gguf ")' "$TMP/out"
    expect 0 "$mb" -gguf "$mini" -prefill-sizes 20 -reps 1 -decode-steps 4 -decode-reps 3 -json
    py 'assert d[0]["decode"]["steps"] == 4 and len(d[0]["decode"]["ms"]) == 3' "$TMP/out"
    expect 0 "$mb" -gguf="$mini" -prefill-sizes=20 -reps=1 -lean=true -decode-reps 2 -json
    py 'assert d[0]["decode"]["steps"] > 0 and len(d[0]["decode"]["ms"]) == 2' "$TMP/out"
    expect 0 "$mb" --gguf "$mini" --prefill-sizes 20 --reps 1
    [ "$(uname -s)" = Darwin ] || refuses 2 metal "$mb" -gguf "$mini" -prefill-sizes 20 -metal
}

check_reports() {
    expect 0 "$ds" check -m "$mini" --oracle tests/fixtures/mini-dense.oracle.gguf --json
    py '
c = d[0]
assert c["pass"] is True and c["backend"] == "cpu" and c["placement"] == "full" and c["isa"] and c["model"] and len(c["cases"]) > 0
for k in c["cases"]:
    assert k["n"] > 0 and k["logits_cosine"] > 0.999 and 0 <= k["argmax_agreement"] <= 1
    a, b = k["greedy_agreement"].split("/")
    assert int(a) <= int(b) == 32
    for cache in ("kv_max_abs", "conv_max_abs", "recurrent_max_abs"): assert k[cache] is None or k[cache] >= 0
' "$TMP/out"
    expect 0 "$ds" check -m "$mini"
    grep -q '^PASS: 7 of 7 cases pass$' "$TMP/out"
    tail -n 1 "$TMP/out" | grep -q '^limits: end to end: logits cosine at least 0.999999, every greedy token, caches within 1e-05' ||
        fail "the last line names no limits: $(cat "$TMP/out")"
    for words in 'kv max abs' 'conv max abs' 'recurrent max abs' 'max abs: the largest absolute difference'; do
        grep -qF "$words" "$TMP/out" || fail "what the columns are is not said: $(cat "$TMP/out")"
    done
    if grep -q "^'-'" "$TMP/out"; then fail "a legend for '-', which the table does not hold"; fi
    # Cells that decide nothing are marked, and so in JSON.
    tales="-m models/tales-q8_0.gguf --oracle tests/fixtures/tales.oracle.gguf"
    # shellcheck disable=SC2086
    expect 0 "$ds" check $tales
    grep -qE '^ +1 .* \([0-9]+/32\) +- +- +-  ok$' "$TMP/out" && grep -qE '^ +64 .* 32/32 +- +- +-  ok$' "$TMP/out" &&
        grep -q "^'-'" "$TMP/out" && grep -q '^in parentheses' "$TMP/out" || fail "$(cat "$TMP/out")"
    tail -n 1 "$TMP/out" | grep -q '^limits: .* 0.999, every greedy token after prompts of 64 tokens and more$' || fail "$(cat "$TMP/out")"
    # shellcheck disable=SC2086
    expect 0 "$ds" check $tales --json
    py '
assert "after prompts of 64 tokens" in d[0]["limits"] and d[0]["left_out"] == 0
for c in d[0]["cases"]: assert c["greedy_judged"] == (c["n"] >= 64) and not c["argmax_judged"] and not c["caches_judged"], c' "$TMP/out"
    # A window leaves longer prompts out, and says so; one that holds none is refused.
    expect 0 "$ds" check -m "$mini" --ctx 40
    grep -q '^4 longer prompts left out' "$TMP/out" && grep -q '^PASS: 3 of 3' "$TMP/out" || fail "$(cat "$TMP/out")"
    refuses 2 "a window of 4 tokens is too small for the cases" "$ds" check -m "$mini" --ctx 4
    refuses 2 "a window of 4 tokens is too small for the cases" "$ds" check -m models/tales-q8_0.gguf --ctx 4
    # Another model's vectors must not pass.
    expect 1 "$ds" check -m tests/fixtures/mini-moe.gguf --oracle tests/fixtures/mini-dense.oracle.gguf --json
    py 'assert d[0]["pass"] is False and any(not c["pass"] and c["why"] for c in d[0]["cases"])' "$TMP/out"
    expect 1 "$ds" check -m tests/fixtures/mini-moe.gguf --oracle tests/fixtures/mini-dense.oracle.gguf
    grep -q '^FAIL' "$TMP/out"
}

synth_meets_the_limit_of_a_files_size() {
    mkdir "$TMP/limit"
    rc=0
    ( ulimit -f 100; "$ds" synth --like qwen3.5-0.8b --type q8_0 --layers 4 --vocab 4096 -o "$TMP/limit/s.gguf" 2>"$TMP/err" ) || rc=$?
    [ $rc = 1 ] && [ "$(wc -l <"$TMP/err")" = 1 ] || fail "exit code $rc: $(cat "$TMP/err")"
    grep -qF "s.gguf.part: cannot be written: File too large" "$TMP/err" || fail "$(cat "$TMP/err")"
    [ -z "$(ls "$TMP/limit")" ] || fail "left behind: $(ls "$TMP/limit")"
}

synth_writes_models() {
    expect 0 "$ds" synth --like qwen3.5-0.8b --type q8_0 --layers 4 --vocab 4096 --seed 3 -o "$TMP/s.gguf"
    [ ! -s "$TMP/out" ] || fail "stdout is not silent"
    cp "$TMP/s.gguf" "$TMP/first.gguf"
    refuses 2 "exists already" "$ds" synth --like qwen3.5-0.8b --type q8_0 --layers 4 --vocab 4096 --seed 4 -o "$TMP/s.gguf"
    cmp "$TMP/s.gguf" "$TMP/first.gguf" || fail "a refused synth changed the file"
    expect 0 "$ds" synth --like qwen3.5-0.8b --type q8_0 --layers 4 --vocab 4096 --seed 3 -o "$TMP/s.gguf" --force
    cmp "$TMP/s.gguf" "$TMP/first.gguf" || fail "the same seed gave another file"
    expect 0 "$ds" synth --like qwen3.5-0.8b --type q8_0 --layers 4 --vocab 4096 --seed 4 -o "$TMP/s.gguf" --force
    if cmp -s "$TMP/s.gguf" "$TMP/first.gguf"; then fail "another seed gave the same file"; fi
    expect 0 "$ds" info "$TMP/first.gguf" --json --ctx 512
    cp "$TMP/out" "$TMP/file.json"
    expect 0 "$ds" info --like qwen3.5-0.8b --type q8_0 --layers 4 --vocab 4096 --seed 3 --json --ctx 512
    py 'for k in ("geometry", "types", "type_bytes", "tensors", "params", "file_bytes", "plan_bytes", "kernels", "ctx", "ubatch"): assert d[0][k] == d[1][k], k
assert d[0]["hash"] and d[1]["hash"] is None and d[0]["available_bytes"] is None and d[1]["available_bytes"] > 0' "$TMP/file.json" "$TMP/out"
    refuses 2 "" "$ds" synth --like qwen3.5-0.8b --type q9_9 -o "$TMP/t.gguf"
    [ ! -e "$TMP/t.gguf" ] || fail "a file was left behind"
    refuses 1 "" "$ds" synth --like qwen3.5-0.8b --type q8_0 --layers 4 --vocab 4096 -o "$TMP/no/such/folder/t.gguf"
}

synth_writes_files_only() {
    small="--like qwen3.5-0.8b --type q8_0 --layers 1 --vocab 300"
    mkfifo "$TMP/pipe"
    ln -s pipe "$TMP/to-pipe"
    mkdir "$TMP/dir"
    mknod "$TMP/null" c 1 3 2>/dev/null || true
    for there in pipe to-pipe dir null; do
        [ -e "$TMP/$there" ] || continue
        for force in "" --force; do
            # shellcheck disable=SC2086
            refuses 1 "$TMP/$there: is a" "$ds" synth $small -o "$TMP/$there" $force
        done
    done
    [ -p "$TMP/pipe" ] && [ -L "$TMP/to-pipe" ] && [ -d "$TMP/dir" ] || fail "$(ls -l "$TMP")"
    [ ! -e "$TMP/null" ] || [ -c "$TMP/null" ] || fail "a device was replaced"
    mkdir "$TMP/far"
    ln -s far/real.gguf "$TMP/link.gguf"
    # shellcheck disable=SC2086
    expect 0 "$ds" synth $small -o "$TMP/link.gguf"
    # shellcheck disable=SC2086
    refuses 2 "exists already" "$ds" synth $small -o "$TMP/link.gguf"
    cp "$TMP/far/real.gguf" "$TMP/before"
    # shellcheck disable=SC2086
    expect 0 "$ds" synth $small --seed 9 -o "$TMP/link.gguf" --force
    [ -L "$TMP/link.gguf" ] && [ -f "$TMP/far/real.gguf" ] || fail "$(ls -l "$TMP")"
    if cmp -s "$TMP/far/real.gguf" "$TMP/before"; then fail "the file behind the link is as before"; fi
    [ -z "$(find "$TMP" -name '*.part')" ] || fail "a part was left"
}

# send_signal.py SIGNAL SECONDS COMMAND...: the signal comes so long after the command catches it (Linux tells); one sentence, 130, no output.
write_send_signal() {
    cat >"$TMP/send_signal.py" <<'END'
import signal, subprocess, sys, time
number, later = int(sys.argv[1]), float(sys.argv[2])
p = subprocess.Popen(sys.argv[3:], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
def caught():
    try: lines = open("/proc/%d/status" % p.pid).read().split("\n")
    except OSError: return time.sleep(0.3) or True
    return any(l.startswith("SigCgt:") and int(l.split()[1], 16) >> (number - 1) & 1 for l in lines)
while p.poll() is None and not caught(): time.sleep(0.002)
time.sleep(later)
p.send_signal(number)
out, err = p.communicate()
if b"of memory are available here" in err: sys.exit(0)
assert p.returncode == 130, (p.returncode, err)
assert out == b"" and err.count(b"\n") == 1 and (b"stopped after" in err or b"interrupted" in err), (out, err)
END
}

# A signal while weights are made: one sentence, 130, no file.
weights_can_be_interrupted() {
    write_send_signal
    big="--like qwen3.5-9b --type q2_k"
    for number in 2 15; do
        # shellcheck disable=SC2086
        python3 "$TMP/send_signal.py" $number 0 "$ds" synth $big -o "$TMP/big.gguf"
        # shellcheck disable=SC2086
        python3 "$TMP/send_signal.py" $number 0 "$ds" bench $big --prefill 8 --reps 1
    done
    # shellcheck disable=SC2086
    python3 "$TMP/send_signal.py" 2 0 "$ds" check $big
    # shellcheck disable=SC2086
    python3 "$TMP/send_signal.py" 2 0 "$ds" ladder $big --prefill 8
    [ -z "$(find "$TMP" -name 'big.gguf*')" ] || fail "left behind: $(find "$TMP" -name 'big.gguf*')"
}

# A signal while a long text, or one long word, becomes ids.
long_texts_can_be_interrupted() {
    write_send_signal
    python3 -c 'import sys
open(sys.argv[1], "w").write("the cat, 12 of \xe9 them; " * 4000000)
open(sys.argv[2], "w").write("thecatofthem" * 2000000)' "$TMP/text" "$TMP/word"
    for text in text word; do
        python3 "$TMP/send_signal.py" 2 0.1 "$ds" tokenize -f "$TMP/$text"
        python3 "$TMP/send_signal.py" 15 0.1 "$ds" tokenize --json --special -f "$TMP/$text"
    done
    python3 "$TMP/send_signal.py" 2 0.1 "$ds" run -n 1 -f "$TMP/text"
    rm "$TMP/text" "$TMP/word"
}

# The plan of a model that may not fit here, without making it.
plan_needs_no_weights() {
    python3 - "$ds" <<'END'
import json, resource, subprocess, sys, time
run = lambda *a: subprocess.run([sys.argv[1], "info", *a], capture_output=True, check=True).stdout.decode()
start = time.time()
i = json.loads(run("--like", "qwen3.6-27b", "--type", "q8_0", "--ctx", "4096", "--json"))
took = time.time() - start
p = i["plan_bytes"]
assert took < 5, "took %.1f s" % took
assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 400000 * (1024 if sys.platform == "darwin" else 1)
assert p["weights"] > 28.5e9 and p["kv"] == 16 * 2 * 4 * 256 * 2 * 4096 and i["params"] == 26895998464 and i["hash"] is None
giant = ("--like", "qwen3.6-27b", "--type", "f32", "--layers", "512")
text, i = run(*giant), json.loads(run(*giant, "--json"))
fits = i["plan_bytes"]["total"] <= i["available_bytes"]
assert ("DOES NOT FIT" in text) == (not fits), text
assert fits or i["ctx"] == i["geometry"]["ctx_model"]
END
    refuses 2 "window of 999999" "$ds" info --like qwen3.6-27b --ctx 999999
}

# On a terminal: a bar after two seconds, gone before anything else is printed; Ctrl-C stops within a chunk.
bar_and_interrupt() {
    cat >"$TMP/terminal.py" <<'END'
import os, pty, select, signal, sys, time
pid, fd = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
seen, start, sent, stopped = b"", time.time(), 0, None
while True:
    ready, _, _ = select.select([fd], [], [], 0.1)
    if ready:
        try: data = os.read(fd, 65536)
        except OSError: break
        if not data: break
        seen += data
    if not sent and b"tok/s" in seen:
        sent = time.time()
        os.kill(pid, signal.SIGINT)
    if time.time() - start > 120: os.kill(pid, signal.SIGKILL); sys.exit("no bar within two minutes: %r" % seen[-300:])
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
took = time.time() - sent
text = seen.decode()
assert code == 130, (code, text[-300:])
assert took < 30, "took %.1f s to stop" % took
assert "left" in text and "[#" in text or "[." in text, text
tail = text.rstrip("\r\n").split("\r\x1b[K")[-1]
assert tail.startswith("deltascope bench:") and "\n" not in tail, "the bar was not cleaned: %r" % text[-300:]
END
    python3 "$TMP/terminal.py" "$ds" bench -m models/tales-q8_0.gguf --prefill 512 --reps 1000
    # Not a terminal: silence, also when the bar would long be there.
    write_send_signal
    python3 "$TMP/send_signal.py" 2 3 "$ds" bench -m models/tales-q8_0.gguf --prefill 512 --reps 1000
}

# Headings are bold on a terminal only: in a file they would be escape codes.
the_demo_writes_plain_text_to_a_file() {
    mkdir "$TMP/demo"
    printf '#!/bin/sh\necho "ran $1"\n' >"$TMP/demo/deltascope"
    chmod +x "$TMP/demo/deltascope"
    expect 0 sh tools/demo.sh "$TMP/demo"
    [ "$(grep -c '^\$ deltascope' "$TMP/out")" = 4 ] && [ "$(grep -c '^ran ' "$TMP/out")" = 4 ] || fail "$(cat "$TMP/out")"
    if grep -q "$(printf '\033')" "$TMP/out"; then fail "escape codes in a file"; fi
}

run_cases "help_of_every_tool bad_usage_is_one_sentence failures_are_one_sentence lost_output_is_said_once default_model_is_found info_adds_up
    bench_json_fields rates_start_at_256 cold_runs_have_no_warm_up profile_lines profile_table threads_are_limited skips_are_marked skips_are_no_answer
    modelbench_flags check_reports synth_meets_the_limit_of_a_files_size synth_writes_models synth_writes_files_only
    weights_can_be_interrupted long_texts_can_be_interrupted plan_needs_no_weights
    bar_and_interrupt the_demo_writes_plain_text_to_a_file" "$@"
