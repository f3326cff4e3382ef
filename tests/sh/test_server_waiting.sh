#!/bin/sh
# What the server does while an answer takes long: tests/server/waiting_cases.py.
cd "$(dirname "$0")/../.." || exit 1
TMP=$(mktemp -d) || exit 1
trap 'rm -rf "$TMP"' EXIT
export TMP
PYTHONDONTWRITEBYTECODE=1 python3 tests/server/waiting_cases.py "$@"
