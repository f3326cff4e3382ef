#!/bin/sh
# tools/mac-ladder.sh with a fake Mac around it: what it measures, when it refuses, and that the service is always back.
. "$(dirname "$0")/harness.sh"

root=$PWD
plist=/Library/LaunchAgents/org.model.plist

# fake NAME: a program of that name first on PATH; its text on stdin.
fake() { { echo '#!/bin/sh'; cat; } >"$TMP/mac/$1"; chmod +x "$TMP/mac/$1"; }

# A Mac on mains power with an idle GPU, a loaded service, and a deltascope that measures at once. FACTS are files to change.
mac() {
    rm -rf "$TMP/mac" "$TMP/f" "$TMP/out"
    mkdir -p "$TMP/mac" "$TMP/f" "$TMP/build/bin" "$TMP/out"
    echo loaded >"$TMP/f/service"
    : >"$TMP/f/log"
    echo "Now drawing from 'AC Power'" >"$TMP/f/batt"
    printf 'Note: No thermal warning level has been recorded\nCPU_Scheduler_Limit\t= 100\nCPU_Speed_Limit \t= 100\n' >"$TMP/f/therm"
    echo '    "PerformanceStatistics" = {"In use system memory"=300000000,"Device Utilization %"=3,"Tiler Utilization %"=90}' >"$TMP/f/gpu"
    F=$TMP/f
    export F
    fake uname <<'END'
echo Darwin
END
    fake id <<'END'
echo 501
END
    fake sysctl <<'END'
echo "Apple M3 Pro"
END
    fake sleep <<'END'
exec /bin/sleep 0.02
END
    fake sw_vers <<'END'
echo "ProductVersion: 15.5"
END
    fake make <<'END'
echo "make $*" >>"$F/log"
END
    fake pmset <<'END'
case "$*" in "-g batt") cat "$F/batt" ;; "-g therm") cat "$F/therm" ;; esac
END
    fake ioreg <<'END'
cat "$F/gpu"
END
    fake launchctl <<'END'
echo "launchctl $* [$(cat "$F/service")]" >>"$F/log"
case $1 in
    print) [ "$(cat "$F/service")" = loaded ] || exit 113
           printf 'gui/501/org.model = {\n\tpath = %s\n\tstate = running\n}\n' "$(cat "$F/plist" 2>/dev/null || echo /Library/LaunchAgents/org.model.plist)" ;;
    bootout) [ -e "$F/stays" ] || echo gone >"$F/service" ;;
    bootstrap) if [ -e "$F/busy" ]; then rm "$F/busy"; exit 37; fi
               [ -e "$F/broken" ] && exit 5
               echo loaded >"$F/service" ;;
esac
END
    cat >"$TMP/build/bin/deltascope" <<'END'
#!/bin/sh
echo "deltascope $* [$(cat "$F/service")]" >>"$F/log"
[ "$1" = "$(cat "$F/hang" 2>/dev/null)" ] && { echo $$ >"$F/pid"; exec /bin/sleep 60; }
[ "$1" != "$(cat "$F/fails" 2>/dev/null)" ]
END
    chmod +x "$TMP/build/bin/deltascope"
}

# ladder CODE WORDS...: runs the script, expects that exit code.
ladder() {
    want=$1; shift
    code=0
    PATH=$TMP/mac:$PATH DS_BUILD=$TMP/build sh "$root/tools/mac-ladder.sh" "$@" "$TMP/out" >"$TMP/said" 2>&1 || code=$?
    [ $code = "$want" ] || { cat "$TMP/said"; fail "exit code $code, expected $want"; }
}
said() { grep -q -e "$1" "$TMP/said" || { cat "$TMP/said"; fail "it does not say: $1"; }; }
logged() { grep -q -e "$1" "$F/log" || { cat "$F/log"; fail "not done: $1"; }; }
not_logged() { if grep -q -e "$1" "$F/log"; then cat "$F/log"; fail "done: $1"; fi; }
back() { [ "$(cat "$F/service")" = loaded ] || fail "the service is not back"; }

success_measures_both_placements() {
    mac
    ladder 0 --service org.model
    back
    logged 'launchctl bootout gui/501/org.model'
    logged "launchctl bootstrap gui/501 $plist"
    logged 'make METAL=1'
    for p in gemm full; do
        logged "deltascope check -m models/tales-q8_0.gguf --oracle tests/fixtures/tales.oracle.gguf --backend metal --placement $p \[gone\]"
        logged "deltascope ladder --like .* --backend metal --placement $p --prefill 256,512,1024 --reps 3 --out .*/ladder-$p \[gone\]"
    done
    said 'ladder-gemm/ladder.json and .*ladder-full/ladder.json'
    said 'launchctl bootstrap gui/501'                     # the way back is printed before the service stops
    grep -q 'after placement full' "$TMP/out/machine.txt"
}

the_service_is_optional() {
    mac
    ladder 0
    not_logged 'launchctl'
    mac
    echo gone >"$F/service"
    ladder 0 --service org.model
    said 'is not running'
    not_logged 'bootout\|bootstrap'
}

failure_brings_the_service_back() {
    for what in check ladder; do
        mac
        echo $what >"$F/fails"
        ladder 1 --service org.model
        back
        said "failed: .* $what "
    done
}

# signalled SIGNAL CODE: the script gets it while the ladder runs.
signalled() {
    mac
    echo ladder >"$F/hang"
    # the signal must not be ignored, as it would be in a background job of this shell
    PATH=$TMP/mac:$PATH DS_BUILD=$TMP/build python3 - "$root/tools/mac-ladder.sh" "$1" "$F/pid" "$TMP/out" >"$TMP/said" 2>&1 <<'END' || { cat "$TMP/said"; fail "$1"; }
import os, signal, subprocess, sys, time
sig = getattr(signal, "SIG" + sys.argv[2])
p = subprocess.Popen(["sh", sys.argv[1], "--service", "org.model", sys.argv[4]],
                     preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
end = time.time() + 60
while not os.path.exists(sys.argv[3]) and time.time() < end: time.sleep(0.05)
time.sleep(0.1)
start = time.time()
p.send_signal(sig)
code = p.wait(timeout=40)
assert code == 128 + sig, code
assert time.time() - start < 30, "it waited for the measurement"
pid = int(open(sys.argv[3]).read())
try: os.kill(pid, 0)
except ProcessLookupError: pass
else: raise SystemExit("the measurement still runs")
END
    back
}
ctrl_c_brings_the_service_back() { signalled INT; }
term_brings_the_service_back() { signalled TERM; }

a_start_that_fails_at_first_is_tried_again() {
    mac
    : >"$F/busy"
    ladder 0 --service org.model
    back
}

a_service_that_cannot_be_started_is_said() {
    mac
    : >"$F/broken"
    ladder 1 --service org.model
    said "do it by hand: launchctl bootstrap gui/501 '$plist'"
}

a_service_without_a_file_is_not_stopped() {
    mac
    echo '(submitted by launchctl.1)' >"$F/plist"
    ladder 3 --service org.model
    said 'could not be started again'
    not_logged bootout
}

a_service_that_does_not_stop_ends_the_run() {
    mac
    : >"$F/stays"
    ladder 1 --service org.model
    said 'does not stop'
    not_logged 'deltascope'
    back
}

# refused WORDS [first]: with the service given; nothing is measured, and it is there. --force measures.
refused() {
    ladder 3 --service org.model
    said "$1"
    said '--force measures anyway'
    not_logged 'deltascope'
    back
    ladder 0 --service org.model --force
    said "$1.*; going on"
    logged 'deltascope ladder'
    back
}
refuses_on_battery() { mac; echo "Now drawing from 'Battery Power'" >"$F/batt"; refused 'runs on battery'; }
refuses_when_throttled() {
    mac
    printf 'CPU_Scheduler_Limit\t= 100\nCPU_Available_CPUs\t= 11\nCPU_Speed_Limit \t= 70\n' >"$F/therm"
    refused 'limits its speed to 70 %'
}
refuses_while_the_gpu_is_busy() {
    mac
    echo '"PerformanceStatistics" = {"In use system memory"=300000000,"Device Utilization %"=48}' >"$F/gpu"
    refused 'busy at 48 %'
}
refuses_while_the_gpu_s_memory_is_held() {
    mac
    echo '"PerformanceStatistics" = {"In use system memory"=18000000000,"Device Utilization %"=0}' >"$F/gpu"
    refused 'holds 16 GiB'
}
refuses_when_the_gpu_says_nothing() { mac; : >"$F/gpu"; refused 'does not tell'; }

wrong_words_are_usage() {
    mac
    for words in --nonsense --service '-m /nowhere.gguf'; do
        # shellcheck disable=SC2086
        ( PATH=$TMP/mac:$PATH; export PATH; code=0; sh tools/mac-ladder.sh $words >"$TMP/said" 2>&1 || code=$?; [ $code = 2 ] ) || fail "$words"
    done
    for words in --help -h; do
        sh tools/mac-ladder.sh $words >"$TMP/said" 2>&1 || fail "$words is refused"
        said '--service LABEL'
    done
    not_logged .
    code=0
    sh tools/mac-ladder.sh "$TMP/out" >"$TMP/said" 2>&1 || code=$?
    [ "$(uname -s)" = Darwin ] || { [ $code = 2 ] && said 'for macOS'; }
}

# The tables of docs/metal.md, one per placement, as the tool writes them from no records.
the_empty_ladder_in_the_docs_is_the_tool_s() {
    for p in gemm full; do
        "$DS_BIN/deltascope" ladder --merge --machine "M3 Pro" --backend metal --placement $p | sed -n 's/^## /### /; /^###/,/Nothing was/p' >"$TMP/table"
        [ "$(wc -l <"$TMP/table")" -gt 20 ]
        python3 -c 'import sys; sys.exit(open(sys.argv[1]).read() not in open("docs/metal.md").read())' "$TMP/table" || fail "placement $p"
    done
}

run_cases "the_empty_ladder_in_the_docs_is_the_tool_s success_measures_both_placements the_service_is_optional failure_brings_the_service_back ctrl_c_brings_the_service_back
term_brings_the_service_back a_start_that_fails_at_first_is_tried_again a_service_that_cannot_be_started_is_said
a_service_without_a_file_is_not_stopped a_service_that_does_not_stop_ends_the_run refuses_on_battery refuses_when_throttled
refuses_while_the_gpu_is_busy refuses_while_the_gpu_s_memory_is_held refuses_when_the_gpu_says_nothing wrong_words_are_usage" "$@"
