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

step 60 "$ops" --backend cuda
step 60 "$ds" check -m models/tales-q8_0.gguf --oracle tests/fixtures/tales.oracle.gguf --backend cuda
step 60 "$ds" check -m models/tales-q8_0.gguf --oracle tests/fixtures/tales.oracle.gguf --backend cuda --placement gemm
if command -v compute-sanitizer >/dev/null 2>&1; then
    step 60 compute-sanitizer --error-exitcode 1 --tool memcheck "$ops" --backend cuda
    step 60 compute-sanitizer --error-exitcode 1 --tool racecheck "$ops" --backend cuda backend.gdn_random backend.attn backend.matmul_types
fi
step 60 "$ops" --backend cuda --bench
for type in q8_0 q4_k; do
    step 90 sh -c "$ds bench --like $like --type $type --backend cuda --ubatch 4096 --ctx 17000 --prefill 256,512,1024,4096,16384 --decode 32 --json >$out/bench-$type.json"
done
step 90 "$ds" ladder --like "$like" --type q8_0 --backend cuda --reps 3 --out "$out/ladder-full"
step 120 "$ds" ladder --like "$like" --type q8_0 --backend cuda --placement gemm --reps 1 --prefill 256,512,1024 --out "$out/ladder-gemm"
echo "$failed steps failed"
[ "$failed" = 0 ]
