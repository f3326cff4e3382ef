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

run_cases "it_compiles mistakes_are_refused" "$@"
