#!/bin/sh
# What the project needs beyond a shell and make, and how to get it.
#
#   deps.sh need SET       says in a sentence what is missing and fails; installs nothing
#   deps.sh install SET    installs what is missing: by apt-get when root, else prints the one command
#
# SET: compiler, build (+ utf8proc, libmicrohttpd, jansson), test (+ nm, python3), check (+ clang, emulators, valgrind). A set holds those before it.
# CC and CPPFLAGS are those of the build. Things are probed by using them, not by asking a package manager.

CC=${CC:-cc}
need=""      # what is missing, in words
debian=""    # the packages that bring it
brew=""

missing() { need="$need${need:+, }$1"; debian="$debian${debian:+ }$2"; brew="$brew${brew:+ }$3"; }
compiles() { printf '%s\n' "$1" | $CC $CPPFLAGS -x c -fsyntax-only - >/dev/null 2>&1; }
links_with() { printf 'int main(void){return 0;}\n' | "$@" -x c -o /dev/null - >/dev/null 2>&1; }
have() { command -v "$1" >/dev/null 2>&1; }

probe_compiler() {
    compiles '#include <stdio.h>' && return
    case $CC in
        cc|gcc) missing "a C compiler ($CC)" "gcc libc6-dev" "gcc" ;;
        clang) missing "the compiler clang" "clang libc6-dev" "llvm" ;;
        *) echo "deltascope: the compiler '$CC' does not work here." >&2; exit 1 ;;
    esac
}
probe_build() {
    probe_compiler
    compiles '#include <utf8proc.h>' || missing "the header utf8proc.h" "libutf8proc-dev" "utf8proc"
    compiles '#include <microhttpd.h>' || missing "the header microhttpd.h" "libmicrohttpd-dev" "libmicrohttpd"
    compiles '#include <jansson.h>' || missing "the header jansson.h" "libjansson-dev" "jansson"
}
probe_test() {
    probe_build
    have nm || missing "nm" "binutils" "binutils"
    python3 -c 'import http.client, json, socket, subprocess' 2>/dev/null || missing "python3" "python3" "python3"
}
probe_check() {
    probe_test
    [ "$(uname -s)" = Linux ] || return 0       # the emulators and valgrind below are for Linux; check-all says what it skips
    fuzzer='int LLVMFuzzerTestOneInput(const unsigned char *p, unsigned long n){return p && n > 8;}'
    printf '%s\n' "$fuzzer" | clang -fsanitize=fuzzer,address -x c -o /dev/null - >/dev/null 2>&1 ||
        missing "clang with libFuzzer" "clang$(apt_has libclang-rt-dev && echo ' libclang-rt-dev')" "llvm"
    links_with aarch64-linux-gnu-gcc -static || missing "a cross compiler for arm64" "gcc-aarch64-linux-gnu libc6-dev-arm64-cross" ""
    have qemu-aarch64 || missing "qemu-aarch64" "qemu-user" ""
    have valgrind || missing "valgrind" "valgrind" ""
}
apt_has() { have apt-cache && apt-cache show "$1" >/dev/null 2>&1; }

# Brings the missing packages, quietly; their own words are shown only when it fails.
apt_install() {
    log=$(mktemp) || exit 1
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086
    if { apt-get install -y --no-install-recommends $debian || { apt-get update && apt-get install -y --no-install-recommends $debian; }; } >"$log" 2>&1
    then rm -f "$log"
    else cat "$log" >&2; rm -f "$log"; echo "deps: apt-get could not install: $debian" >&2; exit 1
    fi
}

[ $# = 2 ] || { echo "usage: deps.sh need|install compiler|build|test|check" >&2; exit 2; }
case $2 in
    compiler|build|test|check) probe_"$2" ;;
    *) echo "deps: no set is called '$2' (compiler, build, test, check)" >&2; exit 2 ;;
esac
[ -n "$need" ] || exit 0

if have apt-get; then how="apt-get install -y $debian"
elif [ "$(uname -s)" = Darwin ]; then how="brew install $brew"
else how=""
fi
case $1 in
    need)
        echo "deltascope: missing here: $need.${how:+ \`make deps\` installs it, or: $how}" >&2
        exit 1 ;;
    install)
        if have apt-get && [ "$(id -u)" = 0 ]; then
            echo "installing $debian"
            apt_install
            need=""; debian=""; brew=""
            probe_"$2"
            [ -z "$need" ] || { echo "deps: still missing after the installation: $need" >&2; exit 1; }
        elif have apt-get; then
            echo "deltascope: missing here: $need. Run this once, then make again:" >&2
            echo "    sudo $how" >&2
            exit 1
        elif [ -n "$how" ]; then
            echo "deltascope: missing here: $need. Run this once, then make again:" >&2
            echo "    $how" >&2
            exit 1
        else
            echo "deltascope: missing here: $need. Install it with this system's package manager, then make again." >&2
            exit 1
        fi ;;
    *) echo "deps: '$1' is neither need nor install" >&2; exit 2 ;;
esac
