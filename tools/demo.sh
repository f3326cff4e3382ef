#!/bin/sh
# What deltascope does, in a minute or two, on the model that ships with it. usage: demo.sh BIN
bin=${1:-bin}
bold="" plain=""
if [ -t 1 ]; then bold=$(printf '\033[1m') plain=$(printf '\033[0m'); fi
say() { printf '\n%s%s%s\n' "$bold" "$1" "$plain"; }

say '$ deltascope run -p "Alice was beginning to get very tired" --echo -n 48'
"$bin"/deltascope run -p "Alice was beginning to get very tired" --echo -n 48 || exit 1
say '$ deltascope bench --prefill 512 --profile --reps 3      (where the time of a prefill goes)'
"$bin"/deltascope bench --prefill 512 --profile --reps 3 || exit 1
say '$ deltascope ladder --prefill 256,512,1024      (what each stage costs, by leaving it out)'
"$bin"/deltascope ladder --prefill 256,512,1024 || exit 1
say '$ deltascope check      (the fast path computes what the plain one does)'
"$bin"/deltascope check || exit 1
