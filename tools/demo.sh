#!/bin/sh
# What deltascope does, in two minutes, on the model that ships with it. usage: demo.sh BIN
bin=${1:-bin}
say() { printf '\n\033[1m%s\033[0m\n' "$1"; [ -t 1 ] || printf ''; }

say '$ deltascope run -p "Alice was beginning to get very tired" --echo -n 48'
"$bin"/deltascope run -p "Alice was beginning to get very tired" --echo -n 48 || exit 1
say '$ deltascope bench --prefill 512 --profile --reps 3      (where the time of a prefill goes)'
"$bin"/deltascope bench --prefill 512 --profile --reps 3 || exit 1
say '$ deltascope ladder --prefill 256,512,1024      (what each stage costs, by leaving it out)'
"$bin"/deltascope ladder --prefill 256,512,1024 || exit 1
say '$ deltascope check      (the fast path computes what the plain one does)'
"$bin"/deltascope check || exit 1
