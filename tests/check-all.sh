#!/bin/sh
# Everything that takes longer than `make test`: sanitizers, fuzzing, other compilers, other processors, memory checks.
#
#   tests/check-all.sh [STEP...]      (make check-all S=STEP)
#
# A step is a function below. It passes when its commands do; what it prints goes to build/check/STEP.log, whose end is
# shown when it fails. Test programs that a step runs are counted case by case, anything else counts as one.
# The last line is `N passed, N failed`.

cd "$(dirname "$0")/.." || exit 1
JOBS=${JOBS:-2}
logs=build/check
fuzz_seconds=${FUZZ_SECONDS:-60}        # all fuzzers together

build() { ${MAKE:-make} -s --no-print-directory -j"$JOBS" "$@"; }
# tests_of CONF [options of run.sh] PROGRAM...
tests_of() {
    conf=$1; shift
    DS_BIN=$(bin_of "$conf") DS_BUILD=build/$conf sh tests/run.sh "$@"
}
bin_of() { if [ "$1" = release ]; then echo bin; else echo "build/$1/bin"; fi; }
# programs CONF NAME...: where the test programs of that configuration lie; NAME like unit or unit/test_base
programs() {
    conf=$1; shift
    for d in "$@"; do ls tests/"$d"/test_*.c tests/"$d"/fuzz_*.c tests/"$d"*.c 2>/dev/null; done | sed "s|^|build/$conf/|; s|\.c\$||"
}

scripts() { for name in "$@"; do echo "tests/sh/test_$name.sh"; done; }

# Another compiler, another reading of the language: no warning, same results.
clang_build() {
    build CONF=clang WERROR=1 all tests || return 1
    # shellcheck disable=SC2046
    tests_of clang $(programs clang unit kernels model fuzz)
}

# Reads and writes out of bounds, use after free, leaks, undefined behaviour.
asan() {
    build CONF=asan all tests || return 1
    # The scripts that lead through code of ours which no program above does; those that mostly wait, or try scripts, are left out.
    # shellcheck disable=SC2046
    ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
        tests_of asan -t 900 $(programs asan unit kernels model fuzz) $(scripts run session tokenize tools ladder \
            server_requests server_ending server_load)
}

# Data races, in what uses threads: the pool, a few forward passes, the server (whole test programs take too long under this sanitizer).
tsan() {
    build CONF=tsan all build/tsan/tests/unit/test_base_pool build/tsan/tests/model/test_hybrid || return 1
    status=0
    TSAN_OPTIONS=halt_on_error=1
    export TSAN_OPTIONS
    tests_of tsan build/tsan/tests/unit/test_base_pool || status=1
    for name in oracle_minis_in_placement_gemm cancel_keeps_the_tokens_done parts_make_the_same_session; do
        tests_of tsan -n $name build/tsan/tests/model/test_hybrid || status=1
    done
    for model in models/tales-q8_0.gguf tests/fixtures/mini-dense.gguf tests/fixtures/mini-moe.gguf; do
        build/tsan/bin/deltascope run -m $model -p "Alice was beginning to get very tired of sitting" -n 8 --threads 3 || status=1
    done
    for name in usage_and_progress numbers_agree methods_and_paths; do
        tests_of tsan -n $name tests/sh/test_server_requests.sh || status=1
    done
    for name in signals_end_it_in_time a_stream_of_requests; do
        tests_of tsan -n $name tests/sh/test_server_ending.sh || status=1
    done
    tests_of tsan -n many_connections tests/sh/test_server_waiting.sh || status=1
    return $status
}

# Hostile bytes, a bounded while. A crash leaves its input beside the log; put it into the corpus with the fix.
fuzzing() {
    targets=$(ls tests/fuzz/fuzz_*.c 2>/dev/null | sed 's|.*/||; s|\.c$||')
    [ -n "$targets" ] || return 0
    build CONF=fuzz fuzzers || return 1
    n=$(echo "$targets" | wc -l)
    rounds=$(((n + JOBS - 1) / JOBS))
    good=0 bad=0
    for t in $targets; do
        corpus=$logs/corpus-$t
        mkdir -p "$corpus" "tests/fuzz/corpus/${t#fuzz_}"
        ( build/fuzz/tests/fuzz/"$t" -max_total_time=$((fuzz_seconds / rounds)) -rss_limit_mb=2048 -malloc_limit_mb=1024 -timeout=10 \
            -print_final_stats=1 -artifact_prefix="$logs/$t-" "$corpus" "tests/fuzz/corpus/${t#fuzz_}" >"$logs/$t.log" 2>&1
          echo $? >"$logs/$t.code" ) &
        running=$((${running:-0} + 1))
        if [ "$running" -ge "$JOBS" ]; then wait; running=0; fi
    done
    wait
    for t in $targets; do
        if [ "$(cat "$logs/$t.code")" = 0 ]; then good=$((good + 1)); echo "ok $t: $(grep -c . "$logs/$t.log") lines, $(grep 'number_of_executed_units' "$logs/$t.log")"
        else bad=$((bad + 1)); echo "FAIL $t"; tail -40 "$logs/$t.log"; fi
    done
    echo "$good $bad" >>"$DS_TALLY"
    [ $bad = 0 ]
}

# The profiler compiled out: same tests, and the same numbers in every digit.
no_profile() {
    build CONF=noprof WERROR=1 all tests || return 1
    # shellcheck disable=SC2046
    tests_of noprof $(programs noprof unit model) || return 1
    for bin in bin build/noprof/bin; do
        $bin/deltascope check -m models/tales-q8_0.gguf --oracle tests/fixtures/tales.oracle.gguf --json || return 1
    done >"$logs/both.json"
    half=$(($(wc -l <"$logs/both.json") / 2))
    head -n $half "$logs/both.json" >"$logs/with.json"
    tail -n $half "$logs/both.json" >"$logs/without.json"
    cmp "$logs/with.json" "$logs/without.json"
}

small="unit/test_base unit/test_quant"       # what the arm64 build holds besides kernels: no text, no model

# arm64 kernels against the reference: NEON alone; products also with dot-product and matrix instructions.
arm64() {
    build CONF=arm64 WERROR=1 tests || return 1
    status=0
    # shellcheck disable=SC2046,SC2086
    emulated arm64 "qemu-aarch64 -cpu cortex-a53" $(programs arm64 kernels/test_ $small) || status=1
    for cpu in neoverse-n1 max; do
        # shellcheck disable=SC2046
        emulated arm64 "qemu-aarch64 -cpu $cpu" $(programs arm64 kernels/test_gemm unit/test_base_cpu) || status=1
    done
    return $status
}

# The ordinary x86 build on a processor with AVX2 alone, and on one without: an instruction above its level would end the program.
old_x86() {
    status=0
    # shellcheck disable=SC2046
    emulated release "qemu-x86_64 -cpu max" $(programs release kernels/test_ unit/test_base_cpu) || status=1
    # shellcheck disable=SC2046,SC2086
    emulated release "qemu-x86_64 -cpu Nehalem" $(programs release kernels/test_norm kernels/test_conv $small) || status=1
    qemu-x86_64 -cpu Nehalem bin/deltascope run -p "Alice was beginning" -n 4 || status=1
    return $status
}

emulated() { conf=$1 cpu=$2; shift 2; echo "--- $cpu"; DS_EMULATED=1 tests_of "$conf" -t 900 -w "$cpu" "$@"; }

# The witness at every instruction set level of this machine, on every small model.
isa_levels() {
    good=0 bad=0
    for isa in scalar avx2 avxvnni avx512 avx512vnni avx512bf16 neon dotprod i8mm; do
        for model in models/tales-q8_0.gguf tests/fixtures/mini-*.gguf; do
            case $model in *.oracle.gguf) continue ;; esac
            name=$(basename "$model" .gguf)
            oracle=tests/fixtures/${name%-q8_0}.oracle.gguf
            bin/deltascope check -m "$model" --oracle "$oracle" --isa $isa >"$logs/isa.out" 2>&1
            code=$?
            if [ $code = 0 ]; then good=$((good + 1)); echo "ok $isa $name"
            elif grep -q "instruction set '$isa': this machine lacks" "$logs/isa.out"; then echo "not here: $isa"; break
            else bad=$((bad + 1)); echo "FAIL $isa $name (exit code $code)"; cat "$logs/isa.out"
            fi
        done
    done
    echo "$good $bad" >>"$DS_TALLY"
    [ $bad = 0 ] && [ $good -gt 0 ]
}

# Values that were never written, which no sanitizer above sees.
memcheck() {
    for model in mini-dense mini-moe; do
        for isa in scalar avx2; do
            valgrind -q --error-exitcode=9 --leak-check=full bin/deltascope run -m tests/fixtures/$model.gguf -p ab -n 2 --isa $isa --threads 2 ||
                return 1
        done
    done
}

# The CUDA backend compiles and links, with no ptxas remark that means lost speed; its host side runs over a device that only counts.
cuda() {
    build CUDA=1 all build/cuda-release/tests/kernels/check_backend build/cuda-release/tests/cuda/test_cuda_host || return 1
    tests_of cuda-release build/cuda-release/tests/cuda/test_cuda_host
}

# The Metal backend without a Mac: shaders alone, then every op, the oracle files, failing devices and a hybrid's products over the
# software device; mtl_apple.m by its syntax.
metal() {
    sim=build/metal-sim-release
    build metal-tests || return 1
    build METAL=sim all $sim/tests/kernels/check_backend $sim/tests/model/test_hybrid $sim/tests/metal-sim/test_metal_device \
        $sim/tests/metal-sim/test_metal_oracle $sim/tests/metal-sim/test_metal_check || return 1
    status=0
    # shellcheck disable=SC2046
    tests_of release $(programs release metal) tests/metal/test_*.sh tests/metal-sim/test_*.sh || status=1
    tests_of metal-sim-release -t 1800 $sim/tests/metal-sim/test_metal_device $sim/tests/metal-sim/test_metal_oracle \
        $sim/tests/metal-sim/test_metal_check || status=1
    DS_TEST_DEVICE=metal tests_of metal-sim-release -t 900 -n qwen35_hybrid_via_mm_matches_cpu_template $sim/tests/model/test_hybrid || status=1
    $sim/tests/kernels/check_backend --backend metal >"$logs/ops.out" || status=1
    cat "$logs/ops.out"
    echo "$(grep -c '^ok' "$logs/ops.out") $(grep -c '^FAIL' "$logs/ops.out")" >>"$DS_TALLY"
    return $status
}

# What `make install` leaves works from there, and nothing else is needed.
installed() {
    rm -rf "$logs/prefix"
    build install PREFIX="$PWD/$logs/prefix" || return 1
    (cd / && "$OLDPWD/$logs/prefix/bin/deltascope" run -p "Alice was beginning" -n 4)
}

# The official Python clients of both APIs against the server. The first python that has them: CLIENTS_PYTHON, the one that .ci/run
# makes, or the system's.
clients_python() {
    for python in "$CLIENTS_PYTHON" build/clients/bin/python python3; do
        [ -n "$python" ] && "$python" -c 'import anthropic, openai' 2>/dev/null && { echo "$python"; return; }
    done
    echo "a python3 with the packages openai and anthropic (python3 -m venv build/clients && build/clients/bin/pip install openai anthropic)"
}
clients() {
    TMP=$PWD/$logs/clients
    mkdir -p "$TMP" && export TMP
    DS_BIN=bin PYTHONDONTWRITEBYTECODE=1 timeout 120 "$(clients_python)" tests/server/clients.py >"$logs/clients.out" 2>&1
    code=$?
    cat "$logs/clients.out"
    echo "$(grep -c '^ok ' "$logs/clients.out") $(grep -c '^FAIL ' "$logs/clients.out")" >>"$DS_TALLY"
    return $code
}

all="clang_build asan tsan fuzzing no_profile arm64 old_x86 isa_levels memcheck clients cuda metal installed"
needs() {                               # the program that a step cannot do without
    case $1 in
        clang_build|fuzzing) echo clang ;;
        arm64) echo qemu-aarch64 ;;
        old_x86) echo qemu-x86_64 ;;
        memcheck) echo valgrind ;;
        clients) clients_python ;;
        metal) echo clang++ ;;
        cuda) echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" ;;
        *) echo sh ;;
    esac
}

mkdir -p "$logs"
build all tests >"$logs/release.log" 2>&1 || { tail -40 "$logs/release.log"; echo "0 passed, 1 failed"; exit 1; }
passed=0 failed=0
for step in ${*:-$all}; do
    case " $all " in *" $step "*) ;; *) echo "no step is called '$step': $all" >&2; exit 2 ;; esac
    if ! command -v "$(needs "$step")" >/dev/null 2>&1; then
        echo "$(printf '%-14s' "$step") skipped: $(needs "$step") is not here"
        continue
    fi
    DS_TALLY=$logs/$step.tally
    export DS_TALLY
    : >"$DS_TALLY"
    start=$(date +%s)
    "$step" >"$logs/$step.log" 2>&1
    code=$?
    counted=$(awk '{ p += $1; f += $2 } END { print p + 0, f + 0 }' "$DS_TALLY")
    p=${counted% *} f=${counted#* }
    if [ $code != 0 ] && [ "$f" = 0 ]; then f=1; fi
    if [ $code = 0 ] && [ "$p" = 0 ]; then p=1; fi
    passed=$((passed + p)) failed=$((failed + f))
    printf '%-14s %4d ok  %4d failed  %4d s\n' "$step" "$p" "$f" $(($(date +%s) - start))
    [ $code = 0 ] || tail -n 60 "$logs/$step.log" | sed 's/^/    /'
done
unset DS_TALLY
echo "$passed passed, $failed failed"
[ $failed = 0 ]
