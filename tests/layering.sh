#!/bin/sh
# Fails when an #include points upward, or when a system header is used where it may not be.
#   layering.sh [TREE]     checks src/, tools/ and include/ of TREE (default: this repository)

tree=${1:-$(dirname "$0")/..}
cd "$tree" || exit 1

# What the files of a folder may include, by folder of the included header. This list is the architecture.
may_include() {
    case $1 in
        base)          echo base ;;
        quant)         echo quant base ;;
        gguf)          echo gguf quant base ;;
        token)         echo token gguf base ;;
        kernels|kernels/*) echo "$1" kernels quant base ;;
        prof)          echo prof api base ;;
        backend)       echo backend prof gguf quant base ;;
        backend/cpu)   echo backend/cpu backend kernels gguf quant base ;;
        backend/split) echo backend/split backend gguf quant base ;;
        backend/metal/shaders) echo backend/metal backend/metal/shaders ;;
        backend/*)     echo "$1" backend gguf quant base ;;
        synth)         echo synth api gguf quant base ;;
        model)         echo model backend prof gguf quant base ;;
        engine)        echo engine api synth model backend prof token gguf quant base ;;
        store)         echo store api base ;;
        answer)        echo answer api base ;;
        server)        echo server chat api base ;;
        chat)          echo chat api token gguf base ;;
        api)           echo api base ;;
        tools|tools/*) echo api base tools ;;
        *)             echo "" ;;
    esac
}

c11=" assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdalign stdarg stdatomic \
stdbool stddef stdint stdio stdlib stdnoreturn string tgmath threads time uchar wchar wctype "

# Headers beyond the C11 library: FOLDER or FILE, and what it may use.
may_use() {
    case $1:$2 in
        src/base/os_*.c:*) return 0 ;;
        src/base/cpu*.c:cpuid.h|src/base/cpu*.c:sys/auxv.h|src/base/cpu*.c:sys/sysctl.h) return 0 ;;
        src/base/*:immintrin.h|src/base/*:arm_neon.h) return 1 ;;
        src/kernels/*.h:immintrin.h|src/kernels/*.h:arm_neon.h) return 0 ;;      # shared by the variants of each architecture
        src/kernels/x86/*:immintrin.h|src/kernels/arm/*:arm_neon.h|src/kernels/arm/*:arm_acle.h) return 0 ;;
        src/token/*:utf8proc.h) return 0 ;;
        src/chat/*:jansson.h) return 0 ;;
        src/backend/cuda/*|src/backend/metal/*) return 0 ;;
        src/server/*:jansson.h|src/server/*:pthread.h|src/server/http.c:microhttpd.h) return 0 ;;
    esac
    return 1
}

group_of_file() {
    case $1 in
        include/*) echo api ;;
        src/*) dirname "${1#src/}" ;;
        tools/*) dirname "$1" ;;
    esac
}
group_of_header() {
    case $1 in
        deltascope*.h) echo api ;;
        common/*|cmd/*|tools/*) echo tools ;;
        */*) dirname "$1" ;;
        *) echo own ;;            # "x.h" beside the file
    esac
}

bad=0
files=$(find include src tools -name '*.c' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' -o -name '*.m' 2>/dev/null | sort)
[ -n "$files" ] || { echo "layering: no sources under $tree"; exit 1; }
includes=$(mktemp) || exit 1
trap 'rm -f "$includes"' EXIT
# shellcheck disable=SC2086
grep -nE '^[[:space:]]*#[[:space:]]*(include|import)' /dev/null $files >"$includes"
while IFS= read -r line; do
    file=${line%%:*}
    rest=${line#*:}
    number=${rest%%:*}
    case $rest in
        *'"'*'"'*)
            header=${rest#*\"}; header=${header%%\"*}
            from=$(group_of_file "$file")
            to=$(group_of_header "$header")
            case $header in *..*) to="outside" ;; esac
            [ "$to" = own ] && continue
            # A registry knows the header of each backend that it lists.
            case $file:$to in src/backend/registry.c:backend/*) continue ;; esac
            case " $(may_include "$from") " in
                *" $to "*) ;;
                *) echo "$file:$number: $from may not include \"$header\" ($to); it may include: $(may_include "$from")"; bad=1 ;;
            esac ;;
        *'<'*'>'*)
            header=${rest#*<}; header=${header%%>*}
            case "$c11" in *" ${header%.h} "*) continue ;; esac
            case $file in tools/*) [ "${file#tools/server}" = "$file" ] || continue ;; esac
            may_use "$file" "$header" ||
                { echo "$file:$number: <$header> is not of the C11 library; system calls live in src/base/os_*.c"; bad=1; } ;;
    esac
done <"$includes"
exit $bad
