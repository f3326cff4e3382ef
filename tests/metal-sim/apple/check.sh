#!/bin/sh
# Syntax and types of mtl_apple.m against minimal declarations, for Apple's target, so that a selector spelt or typed wrongly,
# or one newer than macOS 14 outside of an @available, is an error.
#   check.sh [FILE]       FILE: another one in its place (tests plant errors)
here=$(dirname "$0")
root=$here/../../..
exec clang --target=arm64-apple-macos14 -fsyntax-only -x objective-c -std=gnu11 -fblocks -ffreestanding -nostdinc \
    -Wall -Wextra -Werror -isystem "$(clang -print-resource-dir)/include" -isystem "$here/libc" -I"$here" -I"$root/src" \
    "${1:-$root/src/backend/metal/mtl_apple.m}"
