"""The agent's session of bench/replay.py: what it may cost."""
import json
import os
import subprocess
import sys
import tempfile

from prose import HEAVY
from serving import BIN, SANITIZED, check, run_cases

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "..", "bench"))
from served import ROOT, shown  # noqa: E402


def replay(*options):
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [sys.executable, "-B", "bench/replay.py", "--bin", BIN + "/deltascope-server", "--out", out.name, *options]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        print("  " + "\n  ".join(done.stdout.splitlines()[-4:-1]))
        check(done.returncode == 0, done.stdout)
        return json.load(out)


def a_record_may_go_anywhere():
    with tempfile.TemporaryDirectory() as folder:
        name = os.path.join(folder, "elsewhere")
        command = [sys.executable, "-B", "bench/replay.py", "--bin", BIN + "/deltascope-server", "--scale", "0.01", "--name", name]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        check(done.returncode == 0 and not done.stderr, done.stderr)
        check(done.stdout.endswith(f"written: {name}.json\n"), done.stdout[-200:])
    check(shown(ROOT / "bench" / "results" / "x.json") == "bench/results/x.json", "a path within the tree")
    for tool in ("peers", "replay", "through_http"):
        text = (ROOT / "bench" / (tool + ".py")).read_text()
        check("shown(out)" in text and "relative_to" not in text, tool, "tells where its record is in another way")


def a_turn_costs_its_new_tokens():
    for api in ("messages", "chat"):
        total = replay("--api", api)["total"]
        check(total["reuse_share"] >= 0.95, api, "reuses", total["reuse_share"])


def restart_costs_an_interval():
    record = replay("--restart")
    restart = record["total"]["restart"]
    turn = [r for r in record["requests"] if r["turn"] == 14][0]
    before = [r for r in record["requests"] if r["turn"] == 13][-1]
    new = turn["prompt"] - before["prompt"]
    check(restart["stop_s"] < (20 if SANITIZED else 5), "SIGTERM took", restart["stop_s"], "s")
    check(restart["recomputed"] <= max(0, new) + 512, restart, "of these new:", new)


def five_times_faster_than_cold():
    if SANITIZED or not HEAVY:
        print("  not compared: times of half a minute; DS_HEAVY=1 does it")
        return
    total = replay("--cold")["total"]
    check(total["wall_ratio"] >= 5, "cold takes only", total["wall_ratio"], "times as long")


CASES = [a_record_may_go_anywhere, a_turn_costs_its_new_tokens, restart_costs_an_interval, five_times_faster_than_cold]
if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1:]))
