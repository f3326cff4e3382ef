#!/bin/sh
# bench/cuda.sh measures on a card that nobody else computes on.
. "$(dirname "$0")/harness.sh"

fake() { { echo '#!/bin/sh'; cat; } >"$1"; chmod +x "$1"; }

# card APPS CODE: nvidia-smi says APPS and exits with CODE; programs under test that only log.
card() {
    mkdir -p "$TMP/path" "$TMP/build/bin" "$TMP/build/tests/kernels"
    rm -f "$TMP/log"
    printf 'printf "%%s" "%s"\nexit %s\n' "$1" "$2" | fake "$TMP/path/nvidia-smi"
    for p in bin/deltascope tests/kernels/check_backend; do echo "echo $p >>'$TMP/log'" | fake "$TMP/build/$p"; done
    echo 'exit 0' | fake "$TMP/path/compute-sanitizer"
}
# measure CODE WORDS...
measure() {
    want=$1; shift
    code=0
    PATH=$TMP/path:$PATH DS_BUILD=$TMP/build sh bench/cuda.sh "$@" >"$TMP/said" 2>&1 || code=$?
    [ $code = "$want" ] || { cat "$TMP/said"; fail "exit code $code, expected $want"; }
}

a_free_card_is_measured() {
    card "" 0
    measure 0 "$TMP/out"
    grep -q deltascope "$TMP/log"
}
a_card_in_use_is_refused() {
    card "4711, python3, 20480 MiB" 0
    measure 3 "$TMP/out"
    grep -q 'another process computes on the card: 4711, python3, 20480 MiB' "$TMP/said"
    [ ! -e "$TMP/log" ]
    measure 0 --force "$TMP/out"
    grep -q deltascope "$TMP/log"
}
a_card_that_cannot_be_asked_is_refused() {
    card "" 9
    measure 3 "$TMP/out"
    grep -q 'does not tell' "$TMP/said"
    [ ! -e "$TMP/log" ]
}

# Nothing is asked of the card before the programs are there; the sentence names the one that is not and what builds it.
programs_that_are_not_built_are_named() {
    for p in bin/deltascope tests/kernels/check_backend; do
        card "" 0
        rm "$TMP/build/$p"
        measure 2 --force "$TMP/absent"
        grep -qx "cuda: $TMP/build/$p is not built; make CUDA=1 all tests builds it" "$TMP/said"
        [ ! -e "$TMP/log" ] && [ ! -e "$TMP/absent" ]
    done
}

run_cases "programs_that_are_not_built_are_named a_free_card_is_measured a_card_in_use_is_refused a_card_that_cannot_be_asked_is_refused" "$@"
