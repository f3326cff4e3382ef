#!/bin/sh
# What the tree promises about itself: layers, names, flags, files.
. "$(dirname "$0")/harness.sh"

layering() { sh tests/layering.sh; }

# The check itself must be able to fail.
layering_catches_violations() {
    mkdir -p "$TMP/src/kernels" "$TMP/src/quant" "$TMP/src/gguf" "$TMP/src/engine" "$TMP/tools" "$TMP/include"
    plant() {
        printf '%s\n' "$2" >"$TMP/$1"
        if sh tests/layering.sh "$TMP" >"$TMP/said"; then fail "$1 with $2 passed"; fi
        grep -q "^$1:1:" "$TMP/said" || fail "$1: the message does not name the line: $(cat "$TMP/said")"
        rm "$TMP/$1"
    }
    echo '#include "quant/type.h"' >"$TMP/src/quant/fine.c"
    sh tests/layering.sh "$TMP"
    plant src/kernels/x.c '#include "backend/backend.h"'
    plant src/quant/x.c '#include "gguf/gguf.h"'
    plant src/quant/x.c '#include "../gguf/gguf.h"'
    plant src/gguf/x.h '#  include "model/model.h"'
    plant src/engine/x.c '#include "kernels/kernels.h"'
    plant src/engine/x.c '#include <unistd.h>'
    plant src/gguf/x.c '#include <immintrin.h>'
    plant tools/x.c '#include "engine/engine.h"'
    plant tools/x.c '#include <sys/stat.h>'
    plant include/x.h '#include "gguf/gguf.h"'
}

# Names that the archive gives to the world. Sanitizers add some of their own, which start with two underscores.
exported() { nm -g "$1" 2>/dev/null | awk '$2 ~ /^[A-TV-Z]$/ { print $3 }' | sed 's/^_ds_/ds_/' | grep -v '^__' | sort -u; }

symbols_start_with_ds() {
    exported "$DS_BUILD/libdeltascope.a" >"$TMP/names"
    [ "$(wc -l <"$TMP/names")" -gt 0 ] || fail "nm found no symbol in $DS_BUILD/libdeltascope.a"
    if grep -v '^ds_' "$TMP/names"; then fail "these global names lack the prefix"; fi
}

# Undefined names of objects, with the object: "file.o: name".
wanted() { nm -u -A "$@" 2>/dev/null | awk '{ print $1 " " $NF }' | sed 's/:[^ ]*:* / /; s/@.*//'; }

library_never_prints_or_exits() {
    objects=$(find "$DS_BUILD/src" -name '*.o' ! -name 'os_*.o')
    # shellcheck disable=SC2086
    wanted $objects >"$TMP/wanted"
    [ -s "$TMP/wanted" ] || fail "nm found no undefined name in $DS_BUILD/src"
    # The one trap: an op that wants more scratch than it reserved is our own mistake, and going on would overwrite memory.
    grep -v 'backend/cpu/cpu\.o _*abort$' "$TMP/wanted" >"$TMP/rest"; mv "$TMP/rest" "$TMP/wanted"
    if grep -E ' _?(_*printf(_chk)?|_*fprintf(_chk)?|_*vprintf|_*vfprintf|puts|putchar|perror|exit|_exit|abort|__assert_(fail|rtn)|getenv|system|stdout|stderr)$' "$TMP/wanted"
    then fail "the library must not print, exit or read the environment"; fi
}

kernels_do_not_allocate_or_lock() {
    objects=$(find "$DS_BUILD/src" -path '*/kernels/*.o' ! -name peaks.o -o -path '*/quant/*.o')     # peaks.c times the whole machine
    [ -n "$objects" ] || return 0
    # shellcheck disable=SC2086
    wanted $objects >"$TMP/wanted"
    if grep -E ' _?(malloc|calloc|realloc|free|aligned_alloc|posix_memalign|pthread_.*|ds_mem_.*|ds_pool_.*)$' "$TMP/wanted"
    then fail "kernels and storage types are pure functions"; fi
}

# gcc 12 takes a function that does nothing but prefetch for one without effects, and drops its calls unless it is always inlined.
prefetches_survive() {
    command -v objdump >/dev/null || return 0
    for o in "$DS_BUILD"/src/kernels/x86/gemm_*.o; do
        [ -f "$o" ] || continue
        objdump -d "$o" 2>/dev/null >"$TMP/code"
        grep -q '<gemm>:' "$TMP/code" || continue
        grep -q 'prefetcht0' "$TMP/code" || fail "$o: no prefetch is left of those around a tile"
    done
}

no_march_native() {
    if grep -rnE -e '-(march|mcpu|mtune)=native' Makefile tools src include bench .ci; then fail "a binary must run on any machine of its kind"; fi
}

# Names that macOS lacks; a compiler there is not at hand for most who change this. What has a guard of its own is not among them.
linux_only='SOCK_CLOEXEC|SOCK_NONBLOCK|MSG_NOSIGNAL|MSG_MORE|O_TMPFILE|O_PATH|MAP_POPULATE|CLOCK_BOOTTIME|accept4|pipe2|dup3|ppoll|epoll_[a-z0-9]+|eventfd|signalfd|timerfd_[a-z]+|memfd_create|sendfile|getrandom|prctl|gettid|strchrnul|mempcpy|memrchr|secure_getenv|explicit_bzero|fallocate|posix_fallocate|fdatasync'
names_that_macos_has() {
    if grep -rnE "\\b($linux_only)\\b" src tools bench tests --include='*.c' --include='*.h' --include='*.m' | grep -v '^tests/metal-sim/'; then
        fail "macOS has no such name"
    fi
}

tracked() { git ls-files 2>/dev/null || find . -type f ! -path './.git/*' ! -path './build/*' ! -path './bin/*'; }

only_fixtures_are_binary() {
    tracked | while IFS= read -r f; do
        case $f in models/*.gguf|tests/fixtures/*|tests/fuzz/corpus/*|docs/*.png) continue ;; esac
        [ -f "$f" ] && [ -s "$f" ] || continue
        LC_ALL=C grep -Iq . "$f" || echo "$f is binary"
        case $f in *.o|*.a|*.so|*.d|*.orig|*.rej|*.log|*.pyc) echo "$f is made by a tool" ;; esac
    done >"$TMP/found"
    if [ -s "$TMP/found" ]; then cat "$TMP/found"; fail "generated or binary files in the repository"; fi
}

source_style() {
    find src include tools tests \( -name '*.c' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' -o -name '*.m' \) >"$TMP/files"
    while IFS= read -r f; do
        awk -v f="$f" '
            length($0) > 160      { print f ":" FNR ": " length($0) " columns" }
            /\t/                  { print f ":" FNR ": a tab" }
            /[ \t\r]$/            { print f ":" FNR ": space at the end of the line" }
            /TODO|FIXME|XXX|#if 0/ { print f ":" FNR ": unfinished: " $0 }' "$f"
    done <"$TMP/files" >"$TMP/found"
    if [ -s "$TMP/found" ]; then cat "$TMP/found"; fail "see CONTRIBUTING.md, style"; fi
}

# A path that a document names in backticks or a link must exist; words in capitals stand for something else.
documents_name_real_files() {
    for doc in *.md docs/*.md bench/*.md; do
        grep -oE '(`|\]\()(src|tests|tools|include|docs|bench|models)/[A-Za-z0-9_./*-]+' "$doc" | sed 's/^`//; s/^](//' | sort -u |
        while IFS= read -r path; do
            case $path in *[A-Z][A-Z]*|bench/results*) continue ;; esac
            # shellcheck disable=SC2086
            ls -d $path >/dev/null 2>&1 || echo "$doc names $path"
        done
    done >"$TMP/found"
    if [ -s "$TMP/found" ]; then cat "$TMP/found"; fail "no such file"; fi
}

# The runner must count a failure, a crash and a silent end as what they are.
runner_counts_failures() {
    cat >"$TMP/t.sh" <<'END'
[ "$*" = --list ] && { printf 'good\nbad\nlost\n'; exit 0; }
echo "ok good"; echo "FAIL bad"; kill -SEGV $$
END
    if DS_TALLY= sh tests/run.sh "$TMP/t.sh" >"$TMP/said"; then fail "a crash passed"; fi
    [ "$(tail -1 "$TMP/said")" = "1 passed, 2 failed" ] || fail "counted: $(tail -1 "$TMP/said")"
    if DS_TALLY= sh tests/run.sh -n nothing_like_it "$TMP/t.sh" >"$TMP/said" 2>&1; then fail "an unknown name passed"; fi
    [ "$(head -1 "$TMP/said")" = "no test is called 'nothing_like_it'" ]
    if DS_TALLY= sh tests/run.sh -n goo "$TMP/t.sh" >"$TMP/said" 2>&1; then fail "a part of a name passed"; fi
    [ "$(head -1 "$TMP/said")" = "no test is called 'goo'; close to it: good" ]
    echo '[ "$*" = --list ] && { echo good; exit 0; }; echo "ok good"; exit 3' >"$TMP/t.sh"
    if DS_TALLY= sh tests/run.sh "$TMP/t.sh" >"$TMP/said"; then fail "an exit code of 3 passed"; fi
    echo '[ "$*" = --list ] && { echo slow; exit 0; }; sleep 30' >"$TMP/t.sh"
    if DS_TALLY= sh tests/run.sh -t 3 "$TMP/t.sh" >"$TMP/said"; then fail "a hang passed"; fi
    [ "$(tail -1 "$TMP/said")" = "0 passed, 1 failed" ]
}

run_cases "layering layering_catches_violations symbols_start_with_ds library_never_prints_or_exits
    kernels_do_not_allocate_or_lock prefetches_survive no_march_native names_that_macos_has only_fixtures_are_binary source_style documents_name_real_files runner_counts_failures" "$@"
