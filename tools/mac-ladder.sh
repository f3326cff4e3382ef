#!/bin/sh
# Builds deltascope for this Mac, checks it, and measures the ladder in both placements.
#
#   sh tools/mac-ladder.sh [options] [OUT]
#
#   -m MODEL         GGUF file (default: random weights in the geometry of Qwen3.6-27B, type q4_k)
#   --service LABEL  a launchd service to stop before and start again afterwards, however this script ends: LABEL for one of
#                    yours, system/LABEL for one of the system's (run as root then)
#   --reps N         repetitions per cell (3)
#   --force          measure although something below says no
#
# Refuses while another process uses the GPU, on battery power, and when the system limits its speed (pmset -g therm).
# Records go to OUT (default: bench/results/NAME-OF-THE-CHIP). Exit codes: 0 measured, 1 failed, 2 bad usage, 3 refused.

cd "$(dirname "$0")/.." || exit 1
usage() { sed -n '2,14s/^# \{0,1\}//p' "$0"; exit "${1:-2}"; }
say() { echo "mac-ladder: $*" >&2; }

model="" service="" reps=3 force="" out=""
while [ $# -gt 0 ]; do
    case $1 in
        -m|--service|--reps) [ $# -ge 2 ] || usage; value=$2 ;;
    esac
    case $1 in
        -m) model=$value; shift ;;
        --service) service=$value; shift ;;
        --reps) reps=$value; shift ;;
        --force) force=1 ;;
        --help|-h) usage 0 ;;
        -*) usage ;;
        *) [ -z "$out" ] || usage; out=$1 ;;
    esac
    shift
done
[ "$(uname -s)" = Darwin ] || { say "this is $(uname -s); the script is for macOS"; exit 2; }
[ -z "$model" ] || [ -f "$model" ] || { say "there is no file '$model'"; exit 2; }
chip=$(sysctl -n machdep.cpu.brand_string 2>/dev/null)
out=${out:-bench/results/$(echo "${chip:-mac}" | sed 's/^Apple //' | tr 'A-Z ' 'a-z-')}
ds=${DS_BUILD:-build/metal-release}/bin/deltascope

# --- the service: stopped first, started again in every case ------------------------------------------

stopped="" child=""
plist="" domain="" label=""

# Where launchd keeps it: without that it could not be started again, so it is not stopped either.
find_service() {
    case $service in
        system/*|gui/*/*|user/*/*) domain=${service%/*} label=${service##*/} ;;
        *) domain=gui/$(id -u) label=$service ;;
    esac
    if ! launchctl print "$domain/$label" >"$tmp/service" 2>&1; then
        say "the service $domain/$label is not running: nothing to stop"
        return 1
    fi
    plist=$(sed -n 's/^[[:space:]]*path = \(.*\.plist\)$/\1/p' "$tmp/service" | head -n 1)
    [ -n "$plist" ] || { say "launchd names no file of the service $domain/$label, so it could not be started again"; exit 3; }
}

restore_command() { echo "launchctl bootstrap $domain '$plist'"; }

stop_service() {
    find_service || return 0
    say "stopping $domain/$label; should this script be killed, start it again with: $(restore_command)"
    stopped=1                                    # from here on it is started again, even if this line is the last that runs
    launchctl bootout "$domain/$label" || say "launchctl bootout said no"
    tries=0
    while launchctl print "$domain/$label" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt 30 ] || { say "the service $domain/$label does not stop"; exit 1; }
        sleep 1
    done
}

# A start too soon after the stop can fail, so it is tried again.
restore() {
    [ -n "$stopped" ] || return 0
    stopped=""
    tries=0
    while [ $tries -lt 10 ]; do
        launchctl bootstrap "$domain" "$plist" 2>/dev/null
        if launchctl print "$domain/$label" >/dev/null 2>&1; then
            say "started $domain/$label again"
            return 0
        fi
        tries=$((tries + 1))
        sleep 1
    done
    say "the service $domain/$label could not be started again; do it by hand: $(restore_command)"
    return 1
}

finish() {
    code=$?
    trap '' INT TERM HUP
    if [ -n "$child" ]; then
        kill -TERM "$child" 2>/dev/null
        wait "$child" 2>/dev/null
    fi
    restore || [ $code != 0 ] || code=1
    rm -rf "$tmp"
    exit $code
}
tmp=$(mktemp -d) || exit 1
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# In the background and waited for, because a shell lets a signal wait as long as a command runs in front.
run() {
    "$@" &
    child=$!
    wait "$child"
    code=$?
    child=""
    return $code
}

# --- conditions -----------------------------------------------------------------------------------------

refuse() {
    if [ -n "$force" ]; then say "$*; going on because of --force"; return 0; fi
    say "$*; --force measures anyway"
    exit 3
}

on_battery() { ! pmset -g batt 2>/dev/null | head -n 1 | grep -q "'AC Power'"; }

# The lowest of the limits in percent; 100 when none is named.
speed_limit() {
    pmset -g therm 2>/dev/null | awk -F= '/[Ll]imit/ && NF == 2 && $2 + 0 < low { low = $2 + 0 } BEGIN { low = 100 } END { print low }'
}

# What the GPU's driver says of itself, the largest of three looks: NAME is "Device Utilization %" or "In use system memory".
gpu_value() {
    sed -n "s/.*\"$1\"=\([0-9][0-9]*\).*/\1/p" "$tmp/gpu" | sort -n | tail -n 1
}

check_gpu() {
    : >"$tmp/gpu"
    for look in 1 2 3; do
        ioreg -r -d 1 -w 0 -c IOAccelerator >>"$tmp/gpu" 2>/dev/null
        [ $look = 3 ] || sleep 1
    done
    busy=$(gpu_value 'Device Utilization %') held=$(gpu_value 'In use system memory')
    if [ -z "$busy" ]; then refuse "ioreg does not tell whether another process uses the GPU"
    elif [ "$busy" -ge 10 ]; then refuse "another process uses the GPU: it is busy at $busy %"
    elif [ "$((${held:-0} / 1073741824))" -ge 4 ]; then refuse "another process holds $((held / 1073741824)) GiB of the GPU's memory"
    fi
}

check_power() {
    if on_battery; then refuse "this Mac runs on battery"; fi
    limit=$(speed_limit)
    if [ "$limit" -lt 100 ]; then refuse "the system limits its speed to $limit % (pmset -g therm)"; fi
}

# --- measuring --------------------------------------------------------------------------------------------

state() {
    echo "== $1: $(date -u +%Y-%m-%dT%H:%M:%SZ)"
    sw_vers 2>/dev/null
    sysctl -n machdep.cpu.brand_string hw.memsize iogpu.wired_limit_mb 2>/dev/null
    pmset -g batt 2>/dev/null | head -n 1
    pmset -g therm 2>/dev/null
    pmset -g 2>/dev/null | grep -i lowpowermode
}

step() {
    say "$*"
    run "$@" || { say "failed: $*"; exit 1; }
}

witness() {
    step "$ds" check -m models/tales-q8_0.gguf --oracle tests/fixtures/tales.oracle.gguf --backend metal --placement "$1"
    [ -z "$model" ] || step "$ds" check -m "$model" --backend metal --placement "$1"
}

ladder() {
    set -- "$1" --backend metal --placement "$1" --prefill 256,512,1024 --reps "$reps" --out "$out/ladder-$1"
    place=$1; shift
    if [ -n "$model" ]; then set -- -m "$model" "$@"; else set -- --like qwen3.6-27b --type q4_k "$@"; fi
    state "before placement $place" >>"$out/machine.txt"
    step "$ds" ladder "$@"
    state "after placement $place" >>"$out/machine.txt"
}

check_power
if [ -n "$service" ]; then stop_service; fi
check_gpu
step make METAL=1
mkdir -p "$out" || exit 1
command -v caffeinate >/dev/null 2>&1 && caffeinate -i -w $$ &
for p in gemm full; do witness $p; done
for p in gemm full; do ladder $p; done
limit=$(speed_limit)
[ "$limit" = 100 ] || say "the system limited its speed to $limit % meanwhile: let the Mac cool and measure again"
say "measured. Records: $out/ladder-gemm/ladder.json and $out/ladder-full/ladder.json, the machine's state in $out/machine.txt."
say "Send the folder $out as it is; in a clone it is already where it belongs: git add $out"
