#!/bin/sh
# Who may use the server: tests/server/access_cases.py.
cd "$(dirname "$0")/../.." || exit 1
TMP=$(mktemp -d) || exit 1
trap 'rm -rf "$TMP"' EXIT
export TMP
PYTHONDONTWRITEBYTECODE=1 python3 tests/server/access_cases.py "$@"
