#!/bin/sh
# The ladder: its rungs, blank cells, what a merge takes and refuses, two records side by side, the picture.
. "$(dirname "$0")/harness.sh"
. tests/sh/tools.sh

# One measured ladder serves most cases.
measured() {
    [ -s "$TMP/l/ladder.json" ] && return
    expect 0 "$ds" ladder -m "$mini" --prefill 24,48 --reps 2 --out "$TMP/l"
    cp "$TMP/out" "$TMP/l/stdout.md"
}

# change FILE SCRIPT: writes the ladder with SCRIPT applied to each record r (index i) and to all records R.
change() {
    python3 - "$TMP/l/ladder.json" "$1" "$2" <<'END'
import json, sys
doc = json.load(open(sys.argv[1]))
R = doc["records"]
exec(sys.argv[3])
json.dump(doc, open(sys.argv[2], "w"))
END
}

rungs_and_records() {
    measured
    for f in ladder.md ladder.json ladder.svg; do [ -s "$TMP/l/$f" ] || fail "$f is missing"; done
    cmp "$TMP/l/ladder.md" "$TMP/l/stdout.md" || fail "stdout and ladder.md differ"
    py '
R = d[0]["records"]
cells = [(r["rung"], r["P"], r["ubatch"]) for r in R]
assert len(set(cells)) == len(cells)
for P in (24, 48):
    for rung in (0, 1, 2, 3, 4): assert (rung, P, 512) in cells, (rung, P)
    for u in (256, 512, 1024, 2048): assert (5, P, u) in cells, (5, P, u)
assert len(cells) == 18
for r in R:
    for k in ("name", "ms", "median_ms", "stages_ms", "machine", "backend", "placement", "commit", "model_hash", "command", "date", "clock", "busy",
              "phase", "kv", "gdn", "profile", "skip", "flags", "gemm_classes"):
        assert k in r, k
    for k in ("peak_int8_gops", "peak_f32_gflops", "peak_float_product_gflops", "read_gbs", "copy_gbs"): assert r["machine"][k] > 0, k
    assert {c["class"] for c in r["gemm_classes"]} >= {"qkv", "z", "gates", "ssm_out", "attention", "mlp", "head"}
    assert len(r["ms"]) == 2 and r["median_ms"] == min(r["ms"]), "the lower middle of two"
    s = r["stages_ms"]
    assert sorted(s) == sorted(STAGES)
    total = sum(v for k, v in s.items() if k != "qk-norm")
    assert abs(total - r["median_ms"]) < 0.02 * r["median_ms"], "stages are those of the median repetition"
    assert ("TIMING ONLY" in r["flags"]) == (r["rung"] in (1, 2, 3))
    assert r["command"].startswith("deltascope ladder -m ")
    assert r["machine"]["cpu"] and r["machine"]["threads"] > 0
at = lambda rung, P: next(r for r in R if r["rung"] == rung and r["P"] == P)
for P in (24, 48):
    assert at(1, P)["stages_ms"]["gdn-recurrence"] < at(0, P)["stages_ms"]["gdn-recurrence"]
    assert at(2, P)["stages_ms"]["full-attn"] < at(0, P)["stages_ms"]["full-attn"]
    assert at(3, P)["stages_ms"]["gdn-recurrence"] < at(0, P)["stages_ms"]["gdn-recurrence"]
    assert at(4, P)["ms"] == at(0, P)["ms"]
' "$TMP/l/ladder.json"
    for word in '| rung' 'P=24' 'P=48' baseline 'no GDN' 'no attention' 'matmul-only floor' 'qk-norm timer' 'ubatch 2048' 'TIMING ONLY' 'latency only'; do
        grep -qF -e "$word" "$TMP/l/ladder.md" || fail "the table lacks '$word'"
    done
    if grep -q 'not measured' "$TMP/l/ladder.md"; then fail "a full ladder has blank cells"; fi
    expect 0 "$ds" ladder -m "$mini" --prefill 24 --reps 1 --json
    py 'assert len(d[0]["records"]) == 9' "$TMP/out"
    [ ! -s "$TMP/err" ] || fail "stderr is not silent: $(cat "$TMP/err")"
}

empty_ladder_is_blank() {
    expect 0 "$ds" ladder --merge --machine "M3 Pro" --backend metal --placement gemm --out "$TMP/blank"
    grep -q '^## M3 Pro, metal/gemm$' "$TMP/out" || fail "the machine is not named"
    # every number cell of every row of three lengths
    awk -F'|' '/^\| *[0-9]? *\|/ && !/rung/ { for (i = 4; i <= 6; i++) { n++; if ($i !~ /^ *not measured *$/) bad++ } } END { exit !(n == 54 && !bad) }' \
        "$TMP/out" || fail "a cell is not blank: $(cat "$TMP/out")"
    py 'assert d[0]["records"] == []' "$TMP/blank/ladder.json"
    [ "$(grep -c 'not measured' "$TMP/blank/ladder.svg")" = 3 ] || fail "the picture does not say what is missing"
    measured
    expect 0 "$ds" ladder --merge "$TMP/l/ladder.json" --machine "M3 Pro" --backend metal
    [ "$(grep -c '^## ' "$TMP/out")" = 2 ] || fail "expected an empty and a filled section"
}

missing_records_stay_blank() {
    measured
    change "$TMP/part.json" 'doc["records"] = [r for r in R if not (r["rung"] == 1 and r["P"] == 48) and not (r["rung"] == 0 and r["P"] == 24)]'
    expect 0 "$ds" ladder --merge "$TMP/part.json"
    python3 - "$TMP/out" <<'END'
import sys
rows = [[c.strip() for c in l.split("|")[1:-1]] for l in open(sys.argv[1]) if l.startswith("| ")]
cell = {(label, P): v for _, label, *v2 in rows[1:] for P, v in zip((24, 48), v2)}
blank = "not measured"
assert cell["baseline, ms", 24] == blank and cell["baseline, ms", 48] != blank
assert cell["gemm+roundtrip, ms", 24] == blank
assert cell["no GDN, ms (TIMING ONLY)", 24] != blank and cell["no GDN, ms (TIMING ONLY)", 48] == blank
assert cell["baseline above the floor, ms", 24] == blank, "derived from a baseline that is missing"
assert cell["baseline above the floor, ms", 48] != blank
END
}

merge_takes_several_machines() {
    measured
    change "$TMP/other.json" '
for r in R: r["machine"]["cpu"] = "Another CPU"; r["placement"] = "gemm"; r["backend"] = "cuda"; r["machine"]["gpu"] = "A <GPU> & more"'
    expect 0 "$ds" ladder --merge "$TMP/l/ladder.json" "$TMP/other.json" --out "$TMP/two"
    [ "$(grep -c '^## ' "$TMP/out")" = 2 ] || fail "expected two sections: $(grep '^## ' "$TMP/out")"
    grep -q 'Another CPU + A <GPU> & more, .*cuda/gemm' "$TMP/out"
    py 'assert len(d[0]["records"]) == 36' "$TMP/two/ladder.json"
    well_formed "$TMP/two/ladder.svg"
    # A merge of a merge loses nothing.
    expect 0 "$ds" ladder --merge "$TMP/two/ladder.json" --json
    py 'assert d[0] == d[1]' "$TMP/out" "$TMP/two/ladder.json"
    # The same cell twice: the later one is shown, and that is said.
    change "$TMP/later.json" '
for r in R:
    r["stages_ms"]["other"] += 7777 - r["median_ms"]
    r["date"] = "2999-01-01T00:00:00Z"; r["ms"] = [7777.0]; r["median_ms"] = 7777.0'
    expect 0 "$ds" ladder --merge "$TMP/later.json" "$TMP/l/ladder.json"
    grep -q '7777.0' "$TMP/out"
    grep -q 'measured again later' "$TMP/out"
}

merge_refuses() {
    measured
    fields="rung name phase P ubatch ms median_ms stages_ms gemm_classes skip profile runs_of_rung warm_up_tokens flags machine backend placement
        kv gdn commit model model_hash command date clock busy busy_why"
    for key in $fields; do
        change "$TMP/bad.json" "del R[5]['$key']"
        refuses 1 "bad.json: record 5: '$key' is missing" "$ds" ladder --merge "$TMP/l/ladder.json" "$TMP/bad.json"
        change "$TMP/bad.json" "R[5]['$key'] = [[1]] if not isinstance(R[5]['$key'], list) else 'words'"
        refuses 1 "bad.json: record 5: '$key'" "$ds" ladder --merge "$TMP/bad.json"
    done
    for key in cpu cores threads isa gpu peak_int8_gops peak_f32_gflops peak_float_product_gflops read_gbs copy_gbs; do
        change "$TMP/bad.json" "del R[5]['machine']['$key']"
        refuses 1 "record 5: 'machine.$key' is missing" "$ds" ladder --merge "$TMP/bad.json"
        change "$TMP/bad.json" "R[5]['machine']['$key'] = {}"
        refuses 1 "record 5: 'machine.$key'" "$ds" ladder --merge "$TMP/bad.json"
    done
    for key in class kernel ms gflop gb bound_ms; do
        change "$TMP/bad.json" "del R[5]['gemm_classes'][1]['$key']"
        refuses 1 "record 5: 'gemm_classes.$key' is missing" "$ds" ladder --merge "$TMP/bad.json"
        for value in None '"a\nb"' -1e-9; do
            change "$TMP/bad.json" "R[5]['gemm_classes'][1]['$key'] = $value"
            refuses 1 "record 5: 'gemm_classes.$key'" "$ds" ladder --merge "$TMP/bad.json"
        done
    done
    for key in gflop gb; do
        for value in 0 1e-320 9e-10; do
            change "$TMP/bad.json" "R[5]['gemm_classes'][1]['$key'] = $value"
            refuses 1 "record 5: 'gemm_classes.$key' is not a number from 1e-9 up" "$ds" ladder --merge "$TMP/bad.json"
        done
    done
    # The products are the whole stage: none left out, none added, and no time but that of the stage.
    for script in 'del C[0]' 'del C[3]' 'del C[-1]' 'C.append(C[0])' 'C[0]["ms"] = 1e308' 'C[0]["ms"] = C[1]["ms"] = 1.7e308' 'C[2]["ms"] = 0' \
        'C[2]["ms"] += 1e-5 * r["stages_ms"]["gemm+roundtrip"]'; do
        change "$TMP/bad.json" "r = R[5]; C = r['gemm_classes']; $script"
        refuses 1 "record 5: 'gemm_classes' add up to" "$ds" ladder --merge "$TMP/bad.json"
    done
    change "$TMP/good.json" 'r = R[5]; r["gemm_classes"][0]["ms"] += 1e-7 * r["stages_ms"]["gemm+roundtrip"]'
    expect 0 "$ds" ladder --merge "$TMP/good.json"
    # What goes onto a terminal is text.
    for key in commit command date model_hash backend model busy_why clock; do
        change "$TMP/bad.json" "R[5]['$key'] = 'a\x1b[31m'"
        refuses 1 "record 5: '$key' holds a control character" "$ds" ladder --merge "$TMP/bad.json"
    done
    change "$TMP/bad.json" 'R[5]["clock"] = {"before": "a\x7f", "after": None}'
    refuses 1 "record 5: 'clock' holds a control character" "$ds" ladder --merge "$TMP/bad.json"
    for key in cpu isa gpu; do
        change "$TMP/bad.json" "R[5]['machine']['$key'] = 'a\0b'"
        refuses 1 "record 5: 'machine.$key' holds a control character" "$ds" ladder --merge "$TMP/bad.json"
    done
    for script in 'doc["kind"] = ""' 'doc["kind"] = None' 'doc["kind"] = "bench"' 'doc["kind"] = ["prefill-ladder"]' 'del doc["kind"]'; do
        change "$TMP/bad.json" "$script"
        refuses 1 "bad.json: 'kind' is not 'prefill-ladder'" "$ds" ladder --merge "$TMP/bad.json"
    done
    # The tool's own records hold, whatever the file is called.
    cp "$mini" "$TMP/a$(printf '\t\033')b.gguf"
    expect 0 "$ds" ladder -m "$TMP/a$(printf '\t\033')b.gguf" --prefill 8 --reps 1
    grep -qF 'a??b.gguf' "$TMP/out" || fail "$(cat "$TMP/out")"
    for key in commit command date model_hash backend kv gdn profile name phase; do
        change "$TMP/bad.json" "R[2]['$key'] = ''"
        refuses 1 "$key" "$ds" ladder --merge "$TMP/bad.json"
        change "$TMP/bad.json" "R[2]['$key'] = None"
        refuses 1 "$key" "$ds" ladder --merge "$TMP/bad.json"
    done
    change "$TMP/bad.json" 'for r in R: r["model_hash"] = "feedfeedfeedfeed"'
    refuses 1 "model hash feedfeedfeedfeed" "$ds" ladder --merge "$TMP/l/ladder.json" "$TMP/bad.json"
    expect 0 "$ds" ladder --merge "$TMP/bad.json"
    change "$TMP/bad.json" 'R[7]["model_hash"] = "feedfeedfeedfeed"'
    refuses 1 "model hash" "$ds" ladder --merge "$TMP/bad.json"
    for script in 'R[0]["phase"] = "decode"' 'R[0]["decode"] = True' 'R[0]["kind"] = "decode"' 'R[0]["ms_per_token"] = 3.5' \
        'R[0]["command"] = "modelbench -gguf x -decode-steps 8"'; do
        change "$TMP/bad.json" "$script"
        refuses 1 "decode" "$ds" ladder --merge "$TMP/bad.json"
    done
    four='m = R[3]["median_ms"]; R[3]["ms"] = [3 * m, m, 2 * m, 4 * m]; R[3]["stages_ms"] = {k: f * v for k, v in R[3]["stages_ms"].items()}
for c in R[3]["gemm_classes"]: c["ms"] *= f
'
    change "$TMP/bad.json" "f = 3; $four
R[3]['median_ms'] = f * m"
    refuses 1 "median" "$ds" ladder --merge "$TMP/bad.json"
    change "$TMP/good.json" "f = 2; $four
R[3]['median_ms'] = f * m"
    expect 0 "$ds" ladder --merge "$TMP/good.json"
    change "$TMP/bad.json" 'R[3]["ms"] = [-1.0]; R[3]["median_ms"] = -1.0'
    refuses 1 "ms" "$ds" ladder --merge "$TMP/bad.json"
    for script in 'R[0]["rung"] = 6' 'R[0]["rung"] = 1.5' 'R[0]["P"] = 0' 'R[0]["P"] = "256"' 'R[0]["machine"] = "fast"' 'doc["records"][0] = 5' 'doc["records"] = {}' \
        'R[0]["machine"]["threads"] = None' 'R[0]["busy"] = "no"' 'R[0]["clock"] = 3; R[0]["ms"] = {}'; do
        change "$TMP/bad.json" "$script"
        refuses 1 "bad.json" "$ds" ladder --merge "$TMP/bad.json"
    done
    # Of the rungs: 0, 1, 2, 3 at two lengths, then 4, then 5.
    for script in 'R[0]["skip"] = "gdn"' 'R[0]["skip"] = "gdn"; R[0]["flags"] = ["TIMING ONLY"]' 'R[2]["skip"] = None' 'R[2]["skip"] = "attn"' \
        'R[4]["skip"] = "gdn,attn"' 'R[6]["skip"] = "gdn"' 'R[8]["skip"] = "attn"' 'R[12]["skip"] = "gdn"'; do
        change "$TMP/bad.json" "$script"
        refuses 1 "'skip' is" "$ds" ladder --merge "$TMP/bad.json"
    done
    for script in 'R[0]["flags"] = ["TIMING ONLY"]' 'R[2]["flags"] = []' 'R[0]["flags"] = [1]'; do
        change "$TMP/bad.json" "$script"
        refuses 1 "'flags'" "$ds" ladder --merge "$TMP/bad.json"
    done
    for script in 'R[0]["name"] = "floor"' 'R[2]["rung"] = 0' 'R[0]["runs_of_rung"] = 3' 'R[8]["runs_of_rung"] = 4'; do
        change "$TMP/bad.json" "$script"
        refuses 1 "bad.json: record" "$ds" ladder --merge "$TMP/bad.json"
    done
    # The stages add up to the wall within 2 %.
    for f in 1.03 0.97; do
        change "$TMP/bad.json" "R[1]['stages_ms'] = {k: $f * v for k, v in R[1]['stages_ms'].items()}"
        refuses 1 "'stages_ms' add up to" "$ds" ladder --merge "$TMP/bad.json"
    done
    change "$TMP/bad.json" 's = R[1]["stages_ms"]; s["norm+act"] += 100; s["other"] -= 100'
    refuses 1 "negative time" "$ds" ladder --merge "$TMP/bad.json"
    change "$TMP/good.json" 'k = R[1]["stages_ms"]; k["other"] += 0.018 * R[1]["median_ms"] - sum(v for n, v in k.items() if n != "qk-norm") + R[1]["median_ms"]'
    expect 0 "$ds" ladder --merge "$TMP/good.json"
    # Nothing is faster than its machine: all times, one repetition, or the stage of the products; by so much that a machine under load shows it.
    faster='
r = R[1]
r["ms"] = [x * f for x in r["ms"]]; r["median_ms"] *= f; r["stages_ms"] = {k: v * f for k, v in r["stages_ms"].items()}'
    change "$TMP/bad.json" "f = 1e-6$faster"
    refuses 1 "own peak" "$ds" ladder --merge "$TMP/bad.json"
    change "$TMP/bad.json" 'R[1]["ms"] = [R[1]["median_ms"], R[1]["median_ms"] * 1e-6, max(R[1]["ms"])]'
    refuses 1 "own peak" "$ds" ladder --merge "$TMP/bad.json"
    change "$TMP/bad.json" 'k = R[1]["stages_ms"]; k["other"] += 0.999999 * k["gemm+roundtrip"]; k["gemm+roundtrip"] *= 1e-6'
    refuses 1 "own peak" "$ds" ladder --merge "$TMP/bad.json"
    change "$TMP/bad.json" 'for k in R[1]["machine"]: R[1]["machine"][k] = R[1]["machine"][k] * 1e-6 if k.startswith("peak") else R[1]["machine"][k]'
    refuses 1 "own peak" "$ds" ladder --merge "$TMP/bad.json"
    change "$TMP/bad.json" 'R[1]["machine"]["peak_int8_gops"] = 0; R[1]["gemm_classes"][0]["kernel"] = "q8_0 avx2"'
    refuses 1 "no peak for a kernel" "$ds" ladder --merge "$TMP/bad.json"
    change "$TMP/bad.json" 'R[1]["gemm_classes"] = []'
    refuses 1 "names no product" "$ds" ladder --merge "$TMP/bad.json"
    echo '{"prefill": []}' >"$TMP/bad.json"
    refuses 1 "no ladder" "$ds" ladder --merge "$TMP/bad.json"
    echo '{"records": [' >"$TMP/bad.json"
    refuses 1 "bad.json" "$ds" ladder --merge "$TMP/bad.json"
    : >"$TMP/bad.json"
    refuses 1 "bad.json" "$ds" ladder --merge "$TMP/bad.json"
    refuses 1 "absent.json" "$ds" ladder --merge "$TMP/absent.json"
}

before_and_after() {
    measured
    change "$TMP/old.json" '
for r in R:
    r["ms"] = [2 * x for x in r["ms"]]; r["median_ms"] *= 2; r["commit"] = "0ld"; r["placement"] = "gemm"
    r["stages_ms"] = {k: 2 * v for k, v in r["stages_ms"].items()}
    for c in r["gemm_classes"]: c["ms"] *= 2'
    expect 0 "$ds" ladder --merge "$TMP/l/ladder.json" --before "$TMP/old.json" --out "$TMP/cmp"
    grep -q '^## before: .*cpu/gemm' "$TMP/out"
    grep -q '^## after: .*cpu/full' "$TMP/out"
    python3 - "$TMP/out" <<'END'
import sys
rows = [[c.strip() for c in l.split("|")[1:-1]] for l in open(sys.argv[1]) if l.startswith("| ")]
base = next(r for r in rows if r[1] == "baseline, ms")
assert base[4] == base[7] == "0.500", base
END
    well_formed "$TMP/cmp/ladder.svg"
    expect 0 "$ds" ladder -m "$mini" --prefill 24 --reps 1 --before "$TMP/old.json"
    grep -q 'after/before' "$TMP/out"
    change "$TMP/bad.json" 'for r in R: r["machine"]["cpu"] = "Another CPU"'
    refuses 1 "no record of this machine" "$ds" ladder --merge "$TMP/l/ladder.json" --before "$TMP/bad.json"
    change "$TMP/bad.json" 'for r in R: r["model_hash"] = "feedfeedfeedfeed"'
    refuses 1 "model hash" "$ds" ladder --merge "$TMP/l/ladder.json" --before "$TMP/bad.json"
    change "$TMP/bad.json" 'for r in R: r["machine"]["cpu"] = "Another CPU"'
    refuses 2 "one machine" "$ds" ladder --merge "$TMP/l/ladder.json" "$TMP/bad.json" --before "$TMP/old.json"
}

# That other work held the machine stands above the numbers too, in a table of one record and of two.
busy_is_said_first() {
    measured
    change "$TMP/calm.json" 'for r in R: r["busy"] = False'
    expect 0 "$ds" ladder --merge "$TMP/calm.json"
    if grep -q '^BUSY' "$TMP/out"; then fail "a calm machine is called busy"; fi
    change "$TMP/busy.json" 'for i, r in enumerate(R): r["busy"] = i < 4'
    for with in '' "--before $TMP/calm.json"; do
        expect 0 "$ds" ladder --merge "$TMP/busy.json" $with
        awk '/^BUSY: .* 4 of 18 records/ { b = NR } /^\| *rung/ && !t { t = NR } END { exit !(b && b < t) }' "$TMP/out" || fail "$(head -12 "$TMP/out")"
    done
    expect 0 "$ds" ladder --merge "$TMP/calm.json" --before "$TMP/busy.json"
    grep -q '^BUSY: ' "$TMP/out" || fail "a busy record beside it is not told"
}

# Rung 5 takes the attention term out and flags lengths that differ by more than 5 %.
divergence_is_flagged() {
    measured
    set_per_token='
for r in R:
    if r["rung"] == 5:
        attention = 3.0 * r["P"] ** 2 / 48 ** 2
        wall = per[r["P"]] * r["P"] + attention + 0.25
        r["ms"] = [wall]; r["median_ms"] = wall
        r["stages_ms"]["full-attn"] = attention + 0.25 + 0.5
        r["stages_ms"]["qk-norm"] = 0.5
        r["stages_ms"]["other"] += wall - sum(v for k, v in r["stages_ms"].items() if k != "qk-norm")'
    change "$TMP/even.json" "per = {24: 1.0, 48: 1.04}$set_per_token"
    expect 0 "$ds" ladder --merge "$TMP/even.json"
    grep -q '1\.000 .*1\.040' "$TMP/out" || fail "the attention term was not taken out: $(grep ubatch "$TMP/out")"
    if grep -q 'diverges' "$TMP/out"; then fail "4 % was flagged"; fi
    change "$TMP/uneven.json" "per = {24: 1.0, 48: 1.06}$set_per_token"
    expect 0 "$ds" ladder --merge "$TMP/uneven.json"
    [ "$(grep -c '1\.060 (diverges, +6\.0 %)' "$TMP/out")" = 4 ] || fail "6 % was not flagged: $(grep ubatch "$TMP/out")"
    change "$TMP/noisy.json" "per = {24: 1.0, 48: 1.06}$set_per_token
        r['ms'] = [0.9 * wall, wall, 1.1 * wall]; r['min_ms'] = 0.9 * wall; r['max_ms'] = 1.1 * wall"
    expect 0 "$ds" ladder --merge "$TMP/noisy.json"
    [ "$(grep -c '1\.060 (diverges, +6\.0 %; runs spread by 22 %)' "$TMP/out")" = 4 ] || fail "noise is not told: $(grep ubatch "$TMP/out")"
}

well_formed() {
    python3 - "$1" <<'END'
import sys, xml.etree.ElementTree as E
root = E.parse(sys.argv[1]).getroot()
ns = "{http://www.w3.org/2000/svg}"
assert root.tag == ns + "svg"
w, h = float(root.get("width")), float(root.get("height"))
for r in root.iter(ns + "rect"):
    x, y, rw, rh = (float(r.get(k)) for k in ("x", "y", "width", "height"))
    assert rw >= 0 and rh >= 0 and x >= 0 and y >= 0 and x + rw <= w + 0.2 and y + rh <= h + 0.2, (x, y, rw, rh)
for t in root.iter(ns + "text"):
    assert 0 <= float(t.get("x")) <= w and 0 <= float(t.get("y")) <= h
assert root.find(ns + "title").text
END
}

picture() {
    measured
    well_formed "$TMP/l/ladder.svg"
    for word in gemm+roundtrip gdn-recurrence full-attn norm+act other floor P=24 P=48; do
        grep -qF -e "$word" "$TMP/l/ladder.svg" || fail "the picture lacks '$word'"
    done
    [ "$(grep -c stroke-dasharray "$TMP/l/ladder.svg")" = 3 ] || fail "expected a floor line per length and one in the legend"
    # Bars are as high as their records say: the stages of a bar add up to its wall.
    python3 - "$TMP/l/ladder.svg" "$TMP/l/ladder.json" <<'END'
import json, sys, xml.etree.ElementTree as E
ns = "{http://www.w3.org/2000/svg}"
rects = [r for r in E.parse(sys.argv[1]).getroot().iter(ns + "rect")]
width = [float(r.get("width")) for r in rects]
bars = [r for r, w in zip(rects, width) if 13 < w < 400]
R = [r for r in json.load(open(sys.argv[2]))["records"] if r["rung"] == 0]
assert len(bars) == 5 * len(R), len(bars)
for i in range(len(R)):          # each stage stands on the one below it
    for low, high in zip(bars[5 * i:5 * i + 4], bars[5 * i + 1:5 * i + 5]):
        assert abs(float(high.get("y")) + float(high.get("height")) - float(low.get("y"))) < 0.3
heights = [sum(float(r.get("height")) for r in bars[5 * i:5 * i + 5]) for i in range(len(R))]
walls = [r["median_ms"] / r["P"] for r in R]
assert abs(heights[0] / heights[1] - walls[0] / walls[1]) < 0.05 * walls[0] / walls[1], (heights, walls)
END
}

ladder_refuses_bad_usage() {
    refuses 2 "by itself" "$ds" ladder -m "$mini" --skip gdn
    refuses 2 "by itself" env FAK_PREFILL_NO_GDN=1 "$ds" ladder -m "$mini"
    refuses 2 "needs files" "$ds" ladder --merge
    refuses 2 "--merge" "$ds" ladder --machine "M3 Pro"
    refuses 2 "lengths must rise" "$ds" ladder -m "$mini" --prefill 48,24
    refuses 2 "unexpected argument 'a.json'" "$ds" ladder -m "$mini" a.json
    : >"$TMP/file"
    refuses 1 "$TMP/file: is not a folder" "$ds" ladder --merge --machine X --out "$TMP/file"
    refuses 1 "/dev/null: is not a folder" "$ds" ladder --merge --machine X --out /dev/null
    refuses 1 "the folder cannot be made" "$ds" ladder --merge --machine X --out "$TMP/absent/l"
    # What a merge does not read is refused, given in any form.
    for with in "-m $mini" "--model=$mini" '--like qwen3.5-0.8b' '--reps 3' '--reps=5' '--threads 1' '-t 1' '--ubatch 64' '--ctx 512' '--kv f16' \
        '--gdn seq' '--isa scalar' '--seed 1' '--profile' '--backend cpu' '--placement full'; do
        refuses 2 "does nothing with --merge" "$ds" ladder --merge a.json $with
    done
    refuses 2 "--reps does nothing with --merge" "$ds" ladder --reps 3 --merge --machine X --backend cpu
    refuses 2 "--machine: expected a name" "$ds" ladder --merge --machine ''
    for byte in '\n' '\t' '\033' '\177' '\001'; do
        refuses 2 "--machine: expected a name" "$ds" ladder --merge --machine "a$(printf "${byte}b")"
    done
    expect 0 "$ds" ladder --merge --machine 'Größe 1'
}

# Known before anything is measured; and a link in the folder stays one.
ladder_writes_files_only() {
    mkdir -p "$TMP/out.d" "$TMP/real.d"
    mkfifo "$TMP/out.d/ladder.svg"
    refuses 1 "$TMP/out.d/ladder.svg: is a device, a pipe" "$ds" ladder -m "$mini" --prefill 8 --reps 1 --out "$TMP/out.d"
    [ -p "$TMP/out.d/ladder.svg" ] && [ ! -e "$TMP/out.d/ladder.md" ] || fail "$(ls -l "$TMP/out.d")"
    rm "$TMP/out.d/ladder.svg"
    mkdir "$TMP/out.d/ladder.json"
    refuses 1 "$TMP/out.d/ladder.json: is a folder" "$ds" ladder --merge --machine X --out "$TMP/out.d"
    rmdir "$TMP/out.d/ladder.json"
    ln -s ../real.d/records "$TMP/out.d/ladder.json"
    expect 0 "$ds" ladder --merge --machine X --out "$TMP/out.d"
    [ -L "$TMP/out.d/ladder.json" ] && [ -s "$TMP/real.d/records" ] || fail "$(ls -l "$TMP/out.d" "$TMP/real.d")"
    [ -z "$(find "$TMP/out.d" "$TMP/real.d" -name '*.tmp')" ] || fail "a temporary file was left"
}

run_cases "rungs_and_records empty_ladder_is_blank missing_records_stay_blank merge_takes_several_machines merge_refuses before_and_after
    divergence_is_flagged busy_is_said_first picture ladder_refuses_bad_usage
    ladder_writes_files_only" "$@"
