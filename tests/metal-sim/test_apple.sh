#!/bin/sh
# mtl_apple.m against minimal declarations of Apple's interfaces; what is wrong in it is an error there.
. "$(dirname "$0")/../sh/harness.sh"

file=src/backend/metal/mtl_apple.m
check() { sh tests/metal-sim/apple/check.sh "$@"; }

it_compiles() { check; }

# planted WORDS SCRIPT: a copy changed by sed is refused with those words.
planted() {
    sed "$2" $file >"$TMP/planted.m"
    if cmp -s $file "$TMP/planted.m"; then fail "nothing was changed by $2"; fi
    if check "$TMP/planted.m" >"$TMP/said" 2>&1; then fail "it compiles: $2"; fi
    grep -q "$1" "$TMP/said" || { cat "$TMP/said"; fail "it does not say $1"; }
}
mistakes_are_refused() {
    planted 'not found' 's/waitUntilCompleted\]/waitUntilComplete]/'
    planted 'not found' 's/offset:off atIndex/atOffset:off atIndex/'
    planted 'only available on macOS 15' 's/@available(macOS 15.0, \*)/1/'
    planted 'incompatible\|initializing\|assigning' 's/\[d->device newCommandQueue\]/[d->queue commandBuffer]/'
    planted 'no visible\|not found\|unused\|incompatible' 's/\[c->enc endEncoding\]/[c->b endEncoding]/'
}

# What is compiled on a Mac: every shader whole, its headers spliced in once, and the same kernels.
shaders_are_embedded_whole() {
    sh tools/metal-sources.sh src/backend/metal/shaders/*.metal >"$TMP/sources.c"
    cat >"$TMP/print.c" <<'END'
#include "backend/metal/sources.h"
#include <stdio.h>
int main(void)
{
    for (const struct ds_metal_source *s = ds_metal_sources; s->name; s++) printf("//// %s\n%s", s->name, s->text);
    return 0;
}
END
    ${CC:-cc} -std=c11 -Isrc -o "$TMP/print" "$TMP/print.c" "$TMP/sources.c"
    "$TMP/print" >"$TMP/text"
    if grep -n '#[ ]*include[ ]*"' "$TMP/text"; then fail "a header is left out"; fi
    kernels='^kernel void\|^template.*host_name'
    [ "$(grep -c "$kernels" "$TMP/text")" = "$(cat src/backend/metal/shaders/*.metal | grep -c "$kernels")" ] || fail "a kernel is missing"
    set -- src/backend/metal/shaders/*.metal
    [ "$(grep -c 'struct ds_metal_gemm {' "$TMP/text")" = $# ] || fail "args.h is not in each of them once"
}

run_cases "it_compiles mistakes_are_refused shaders_are_embedded_whole" "$@"
