# Shell tests. A script sources this file, defines one function per case, and ends with
#     run_cases "first_case second_case" "$@"
# It runs in the repository root. A case fails when one of its commands does (set -e), or by `fail WORDS`; its output is
# shown then. $DS_BIN holds the programs under test, $DS_BUILD their build folder, $TMP a folder of this script's own.

cd "$(dirname "$0")/../.." || exit 1
DS_BIN=${DS_BIN:-bin}
DS_BUILD=${DS_BUILD:-build/release}

fail() { echo "$*"; exit 1; }

run_cases() {
    all=$1
    shift
    if [ "$*" = --list ]; then printf '%s\n' $all; exit 0; fi
    TMP=$(mktemp -d) || exit 1
    trap 'rm -rf "$TMP"' EXIT
    status=0
    for name in ${*:-$all}; do
        ( set -e; "$name" ) >"$TMP/case.log" 2>&1
        if [ $? = 0 ]; then echo "ok $name"
        else sed 's/^/  /' "$TMP/case.log"; echo "FAIL $name"; status=1
        fi
    done
    exit $status
}
