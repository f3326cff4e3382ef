#!/bin/sh
# Checks and times the CUDA backend on this machine in one call of at most ten minutes; records go to OUT.
#   sh bench/cuda.sh [--force] OUT [LIKE]      after make CUDA=1 all tests; LIKE: the geometry to time (qwen3.6-27b)
# Refuses (exit code 3) while another process computes on the card, unless forced.
force=""
if [ "$1" = --force ]; then force=1; shift; fi
[ $# -ge 1 ] || { sed -n '2,4s/^# *//p' "$0"; exit 2; }
out=$1 like=${2:-qwen3.6-27b}
cd "$(dirname "$0")/.." || exit 1
dir=${DS_BUILD:-build/cuda-release}
ds=$dir/bin/deltascope ops=$dir/tests/kernels/check_backend
for program in "$ds" "$ops"; do
    [ -x "$program" ] || { echo "cuda: $program is not built; make CUDA=1 all tests builds it" >&2; exit 2; }
done

refuse() {
    if [ -n "$force" ]; then echo "cuda: $*; going on because of --force" >&2; return 0; fi
    echo "cuda: $*; --force measures anyway" >&2
    exit 3
}
if ! others=$(nvidia-smi --query-compute-apps=pid,process_name,used_memory --format=csv,noheader 2>/dev/null); then
    refuse "nvidia-smi does not tell whether another process computes on the card"
elif [ -n "$others" ]; then
    refuse "another process computes on the card: $(echo "$others" | tr '\n' ';')"
fi
mkdir -p "$out" || exit 1

failed=0
# step SECONDS COMMAND...: goes on after a failure
step() {
    limit=$1; shift
    echo "== $*"
    start=$(date +%s)
    timeout -k 5 "$limit" "$@" || { failed=$((failed + 1)); echo "FAILED ($?): $*"; }
    echo "-- $(($(date +%s) - start)) s"
}

tales="$ds check -m models/tales-q8_0.gguf --oracle tests/fixtures/tales.oracle.gguf --backend cuda"
step 60 "$ops" --backend cuda
step 60 "$ops" --backend cuda --gemm fp8
step 60 $tales
step 60 $tales --placement gemm
step 60 $tales --weights blocks
# How far the 8-bit products move a small model's logits is a figure to report, not a condition.
for set in fp8 fp8:ffn fp8:ffn-in fp8:ffn-down fp8:gdn-in fp8:gdn-out fp8:attn-in fp8:attn-out; do
    echo "== --gemm $set"
    timeout -k 5 60 $tales --gemm $set
done >"$out/check-fp8.txt" 2>&1
if command -v compute-sanitizer >/dev/null 2>&1; then
    step 60 compute-sanitizer --error-exitcode 1 --tool memcheck "$ops" --backend cuda
    step 60 compute-sanitizer --error-exitcode 1 --tool memcheck "$ops" --backend cuda --gemm fp8 backend.f8
    step 60 compute-sanitizer --error-exitcode 1 --tool racecheck "$ops" --backend cuda backend.gdn_random backend.attn backend.matmul_types
fi
step 60 "$ops" --backend cuda --bench
# bench NAME OPTIONS...: a record NAME.json
bench() {
    name=$1; shift
    step 90 sh -c "$ds bench --like $like --backend cuda $* --json >$out/$name.json"
}
bench bench-q8_0 --type q8_0 --ctx 33000 --prefill 256,512,1024,4096,16384,32768 --decode 32 --reps 3
bench bench-q8_0-bare --type q8_0 --ctx 9000 --prefill 256,512,1024,4096 --bare
bench bench-q8_0-fp8 --type q8_0 --ctx 17000 --prefill 256,512,1024,4096,16384 --gemm fp8
bench bench-q4_k --type q4_k --ctx 9000 --prefill 512,4096 --decode 32
bench bench-q8_0-blocks --type q8_0 --ctx 9000 --prefill 1024,4096 --decode 8 --weights blocks --reps 3
step 90 "$ds" ladder --like "$like" --type q8_0 --backend cuda --reps 3 --prefill 256,512,1024,4096 --out "$out/ladder-full"
step 150 "$ds" ladder --like "$like" --type q8_0 --backend cuda --placement gemm --reps 1 --prefill 256,512,1024,4096 --out "$out/ladder-gemm"
echo "$failed steps failed"
[ "$failed" = 0 ]
