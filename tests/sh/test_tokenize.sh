#!/bin/sh
# deltascope tokenize: ids, pieces, the way back, and what is refused.
. "$(dirname "$0")/harness.sh"

tok() { "$DS_BIN/deltascope" tokenize "$@"; }
refused() {     # CODE WORDS ARGUMENTS...: exit code, one sentence on stderr, nothing on stdout
    code=$1 words=$2
    shift 2
    rc=0
    tok "$@" >"$TMP/out" 2>"$TMP/err" || rc=$?
    [ $rc = "$code" ] || fail "exit code $rc for $*, expected $code"
    [ ! -s "$TMP/out" ] || fail "standard output is not empty for $*"
    [ "$(wc -l <"$TMP/err")" = 1 ] || fail "not one sentence: $(cat "$TMP/err")"
    grep -qF -e "$words" "$TMP/err" || fail "'$(cat "$TMP/err")' does not say '$words'"
}

tokenize_ids() {
    [ "$(tok -p 'Hello, world!')" = "39 531 78 11 974 0" ]
    [ "$(printf 'Hello, world!' | tok -f -)" = "39 531 78 11 974 0" ]
    printf 'Hello, world!' >"$TMP/in"
    [ "$(tok -f "$TMP/in")" = "39 531 78 11 974 0" ]
    [ "$(tok -p '')" = "" ]
    [ "$(tok -f /dev/null)" = "" ]
}

tokenize_special() {
    [ "$(tok --special -p '<|im_start|>user')" = "$(tok --special --json -p '<|im_start|>user' | sed 's/.*"ids":\[\([^]]*\)\].*/\1/; s/,/ /g')" ]
    case $(tok --special -p '<|im_start|>user') in 4088\ *) ;; *) fail "no special id" ;; esac
    case " $(tok -p '<|im_start|>user') " in *" 4088 "*) fail "a special id without --special" ;; esac
}

tokenize_json() {
    [ "$(tok --json -p "It's <think>" --special)" = '{"ids":[895,377,220,4090],"pieces":["It","'"'"'s","Ġ","<think>"]}' ]
    [ "$(tok --json -p '')" = '{"ids":[],"pieces":[]}' ]
    [ "$(tok --json --decode 895,377)" = '{"ids":[895,377],"pieces":["It","'"'"'s"],"text":"It'"'"'s"}' ]
}

tokenize_round_trip() {
    # Every byte, malformed UTF-8 and line ends survive.
    printf 'a\r\n\000\001\377\376 \303\251 \360\237\230 \344\270\255\n\n  x' >"$TMP/in"
    tok --decode "$(tok -f "$TMP/in")" >"$TMP/out"
    cmp "$TMP/in" "$TMP/out"
    tok --decode '' >"$TMP/out"
    [ ! -s "$TMP/out" ]
    [ "$(tok --decode ' 895, 377,
        220 ')" = "It's " ]
    [ "$(tok --decode '895 , 377,220')" = "It's " ]
}

tokenize_refuses() {
    refused 2 "expected one of -p, -f and --decode"
    refused 2 "expected one of -p, -f and --decode" -p a -f b
    refused 2 "'4096' is no id, expected a whole number below 4096" --decode 1,4096
    refused 2 "'-1' is no id" --decode=-1
    refused 2 "'1x' is no id" --decode 1x
    refused 2 "'99999999999999999999' is no id" --decode 99999999999999999999
    for list in '1,,2' '1,' ',1' ',' '1, ,2' '1,2,' '0x1' '+1' '1 ,, 2' '1;2'; do refused 2 "is no id" --decode "$list"; done
    refused 2 "-f ''" -f ''
    refused 2 "-m ''" -m '' -p a
    refused 2 "unknown option '--nonsense'" --nonsense
    refused 1 "$TMP/none: cannot be read: No such file or directory" -f "$TMP/none"
    refused 1 "$TMP: cannot be read: Is a directory" -f "$TMP"
    refused 1 "$TMP/none" -m "$TMP/none" -p a
}

run_cases "tokenize_ids tokenize_special tokenize_json tokenize_round_trip tokenize_refuses" "$@"
