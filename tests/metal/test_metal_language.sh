#!/bin/sh
# What Metal's compiler would refuse, as far as it can be known without it: shaders in the intersection of C++14 and Metal,
# pointers in the right address space, and the rules of docs/metal.md. Then the same with mistakes in copies of the shaders.
. "$(dirname "$0")/../sh/harness.sh"

SIM=tests/metal-sim
CXX=${CXX:-c++}

# compiles FOLDER FILE: by the rules, as plain C++14, and with clang's address spaces.
compiles() {
    python3 $SIM/wrap.py "$1/$2" "$TMP/$2.cpp" || return 1
    $CXX -std=c++14 -pedantic-errors -fsyntax-only -Wall -Wextra -Werror -Wno-unused-function -Wno-unused-variable -Wdouble-promotion \
        -I$SIM -Isrc -I"$1" "$TMP/$2.cpp" || return 1
    clang++ -std=c++14 -pedantic-errors -fsyntax-only --target=aarch64-linux-gnu -nostdinc -DSIM_CHECK_SPACES -Wall -Wextra -Werror \
        -Wno-unused-function -Wno-unused-const-variable -Wdouble-promotion -I$SIM -Isrc -I"$1" "$TMP/$2.cpp"
}

shaders_compile_in_both_readings() {
    n=0
    for f in src/backend/metal/shaders/*.metal; do
        compiles src/backend/metal/shaders "$(basename "$f")" || fail "$f"
        n=$((n + 1))
    done
    [ $n -ge 8 ] || fail "$n shaders"
}

# refuses FILE SHADER OLD NEW SAID: the shader no longer passes when FILE (it or a header) has NEW for OLD, and says so.
refuses() {
    rm -rf "$TMP/shaders"
    cp -r src/backend/metal/shaders "$TMP/shaders"
    python3 - "$TMP/shaders/$1" "$3" "$4" <<'EOF'
import sys
path, old, new = sys.argv[1:]
text = open(path).read()
assert text.count(old) >= 1, f"{path} has no '{old}'"
open(path, "w").write(text.replace(old, new, 1))
EOF
    if compiles "$TMP/shaders" "$2" >"$TMP/said" 2>&1; then fail "$1: '$4' passed"; fi
    grep -qE "$5" "$TMP/said" || fail "$1: '$4': $(head -5 "$TMP/said")"
}

wrong_address_space_is_refused() {
    refuses common.h pointwise.metal 'threadgroup float *scratch' 'device float *scratch' 'address_space|no matching function'
    refuses gdn_chunk.metal gdn_chunk.metal 'device const float *from' 'threadgroup const float *from' 'address_space|no matching function'
    refuses gemm.metal gemm.metal 'threadgroup float pool[pool_size<half>::floats];' 'float pool[pool_size<half>::floats];' 'no matching function|from one address space'
    refuses gemm.metal gemm.metal 'wt = (threadgroup typename W::tile *)pool' 'wt = (device typename W::tile *)pool' 'from one address space'
    refuses quant.h gemv.metal 'thread float (&v)[16]' 'device float (&v)[16]' 'changes address space'
    refuses attn.metal attn.metal 'threadgroup T *spare, uint lane' 'constant T *spare, uint lane' 'const|address'
}

pointer_without_address_space_is_refused() {
    refuses common.h pointwise.metal 'threadgroup float *scratch' 'float *scratch' 'names its address space'
    refuses pointwise.metal pointwise.metal 'device float *row = is_q' 'float *row = is_q' 'names its address space'
}

language_beyond_both_is_refused() {
    refuses pointwise.metal pointwise.metal 'float s = 1.0f;' 'float s = 1.0;' 'suffix'
    refuses common.h gdn.metal 'return x * sigmoid(x);' 'return x * 1.0 * sigmoid(x);' 'suffix'
    refuses gdn.metal gdn.metal 'const bool is_q' 'const double is_q' 'no such word'
    refuses gdn.metal gdn.metal 'const int t = int' 'const size_t t = int' 'uint or ulong'
    refuses gdn.metal gdn.metal 'softplus(ga' 'log1p(ga' 'no such function'
    refuses gemm.metal gemm.metal 'if (checked)' 'if constexpr (true)' 'Metal 4'
    refuses moe.metal moe.metal 'min(at - i, uint(DS_METAL_TILE_TOKENS))' 'min(at - i, 32)' 'ambiguous'
    refuses attn.metal attn.metal 'T(w0)' 'w0 - INFINITY' 'finite'
}

kernel_signatures_are_checked() {
    refuses pointwise.metal pointwise.metal 'uint tid [[thread_index_in_threadgroup]])' 'ushort tid [[thread_index_in_threadgroup]])' 'is uint'
    refuses pointwise.metal pointwise.metal 'uint3 group [[threadgroup_position_in_grid]]' 'uint2 group [[threadgroup_position_in_grid]]' 'is uint3'
    refuses pointwise.metal pointwise.metal 'device float *h [[buffer(3)]]' 'device float *h [[buffer(2)]]' 'one buffer index'
    refuses pointwise.metal pointwise.metal 'device float *h [[buffer(3)]]' 'device float *h' 'without an attribute'
    refuses gdn.metal gdn.metal 'kernel void gdn_seq(' '[[max_total_threads_per_threadgroup(32)]] kernel void gdn_seq(' '64 or more'
}

run_cases "shaders_compile_in_both_readings wrong_address_space_is_refused pointer_without_address_space_is_refused
language_beyond_both_is_refused kernel_signatures_are_checked" "$@"
