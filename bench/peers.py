#!/usr/bin/env python3
"""deltascope and llama.cpp on the same file, the same tokens and the same threads, in turn.

    python3 bench/peers.py MODEL.gguf [--prefill 256,512,1024] [--decode 32] [--depth 256] [--threads N] [--reps 7]

Needs the Python package llama-cpp-python, built for this machine (pip install llama-cpp-python). llama.cpp stays loaded in
a process of its own that sleeps while deltascope runs; `deltascope bench` is started for each turn and gives the token ids.
In a turn either side does the whole pass once, untimed, and then once timed. The order within a pair alternates (AB BA AB ...). Ratios are of speed,
deltascope / llama.cpp, above 1 means that deltascope is faster; their spread is that of the pairs. Processor time that other
work took meanwhile is measured: a run with more than a few percent says that it is not to be quoted. The record goes to
bench/results/NAME.json with everything that produced it. With --add its pairs join those that the record already has, so that a
record can be collected in several short quiet windows; each window drops its first pair and notes its own share of other work.
"""
import argparse
import ctypes
import datetime
import json
import os
import pathlib
import resource
import shlex
import statistics
import subprocess
import sys
import time

sys.dont_write_bytecode = True
from served import ROOT, shown  # noqa: E402


# --- llama.cpp: a worker that answers one JSON line per request line ----------------------------------------------------

def worker(model_path, threads, ubatch, ctx_tokens):
    import llama_cpp as lc
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)                                   # the library prints on stdout now and then
    quiet = lc.llama_log_callback(lambda level, text, data: None)
    lc.llama_log_set(quiet, ctypes.c_void_p(0))
    lc.llama_backend_init()
    mp = lc.llama_model_default_params()
    mp.n_gpu_layers = 0
    started = time.perf_counter()
    model = lc.llama_model_load_from_file(os.fsencode(model_path), mp)
    if not model:
        raise SystemExit(f"llama.cpp could not load {model_path}")
    cp = lc.llama_context_default_params()
    cp.n_ctx, cp.n_batch, cp.n_ubatch = ctx_tokens, max(ubatch, ctx_tokens), ubatch
    cp.n_threads = cp.n_threads_batch = threads
    cp.no_perf = True
    ctx = lc.llama_init_from_model(model, cp)
    if not ctx:
        raise SystemExit("llama.cpp could not make a context")
    memory = lc.llama_get_memory(ctx)
    vocab_size = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(model))

    def decode(ids):                                # one batch; logits of its last token
        array = (lc.llama_token * len(ids))(*ids)
        if lc.llama_decode(ctx, lc.llama_batch_get_one(array, len(ids))) != 0:
            raise SystemExit("llama_decode failed")
        logits = lc.llama_get_logits_ith(ctx, -1)
        return logits[0]

    def prefill(ids):
        lc.llama_memory_clear(memory, True)
        t = time.perf_counter()
        decode(ids)
        return (time.perf_counter() - t) * 1e3

    def steps(ids, depth, n):
        prefill(ids[:depth])
        t = time.perf_counter()
        for i in range(n):
            decode([ids[(depth + i) % len(ids)]])
        return (time.perf_counter() - t) * 1e3 / n

    print(json.dumps({
        "version": lc.__version__, "vocab": vocab_size, "load_ms": (time.perf_counter() - started) * 1e3,
        "system": lc.llama_print_system_info().decode().strip(),
    }), file=answers, flush=True)
    for line in sys.stdin:
        ask = json.loads(line)
        ids = ask["ids"]
        if ask["op"] == "prefill":
            prefill(ids)
            ms = prefill(ids)
        else:
            steps(ids, ask["depth"], 2)
            ms = steps(ids, ask["depth"], ask["n"])
        print(json.dumps({"ms": ms}), file=answers, flush=True)


class Llama:
    name = "llama.cpp"

    def __init__(self, model, threads, ubatch, ctx_tokens):
        self.process = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), "--worker", str(model), str(threads), str(ubatch), str(ctx_tokens)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.about = self.read()

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit("peers: the llama.cpp worker ended; its words are above")
        return json.loads(line)

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self.read()["ms"]

    def prefill(self, ids):
        return self.ask(op="prefill", ids=ids)

    def decode(self, ids, depth, n):
        return self.ask(op="decode", ids=ids, depth=depth, n=n)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


# --- deltascope ---------------------------------------------------------------------------------------------------------

class Deltascope:
    name = "deltascope"

    def __init__(self, binary, model, threads, ubatch, extra):
        self.command = [str(binary), "bench", "-m", str(model), "--threads", str(threads), "--ubatch", str(ubatch), "--reps", "1", "--json"]
        self.command += extra
        self.about = None

    def bench(self, *more):
        done = subprocess.run(self.command + list(more), stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"peers: {' '.join(self.command + list(more))} ended with code {done.returncode}")
        record = json.loads(done.stdout)
        self.about = {k: record.get(k) for k in ("machine", "model", "backend", "placement", "commit", "load_ms", "peak_rss_bytes")}
        self.about["model"]["path"] = os.path.basename(self.about["model"]["path"])      # folders are this machine's own
        return record

    def prefill(self, ids):
        return self.bench("--prefill", str(len(ids)), "--reps", "2")["prefill"][0]["ms"][1]

    def decode(self, ids, depth, n):
        return self.bench("--prefill", "1", "--depth", str(depth), "--decode", str(n))["decode"]["ms_per_token"]

    def ids(self, n):                               # those that its bench runs on: seeded, the same for every length
        return self.bench("--prefill", str(n), "--ids")["ids"]


# --- other work on the machine ---------------------------------------------------------------------------------------------

class OtherWork:
    """Processor time that others used since the start, as a share of all processors; None where the system does not tell."""

    def __init__(self):
        self.start = self.busy()
        self.since = time.monotonic()

    @staticmethod
    def busy():
        try:
            with open("/proc/stat") as f:
                user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, f.readline().split()[1:9])
        except (OSError, ValueError):
            return None
        return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")

    def share(self):                                # after the children have ended: only then does the system count them as ours
        if self.start is None:
            return None
        ours = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        wall = time.monotonic() - self.since
        return max(0.0, (self.busy() - self.start - ours) / wall / os.cpu_count())


# --- comparison ---------------------------------------------------------------------------------------------------------

def alternate(a, b, reps, measure):
    """reps pairs after one pair that is thrown away; returns the two lists."""
    times = {a.name: [], b.name: []}
    for r in range(-1, reps):
        for side in ((a, b) if r % 2 else (b, a)):
            time.sleep(0.3)                         # idle threads of the other side stop spinning
            ms = measure(side)
            if r >= 0:
                times[side.name].append(ms)
    return times[a.name], times[b.name]


def summary(ours, theirs):
    pairs = [t / o for o, t in zip(ours, theirs)]
    row = {}
    for name, values in (("deltascope", ours), ("llama_cpp", theirs)):
        row[name + "_ms"] = [round(v, 3) for v in values]
        row[name + "_median_ms"] = round(statistics.median(values), 3)
    row["speed_ratio"] = round(statistics.median(theirs) / statistics.median(ours), 3)
    row["speed_ratio_min"] = round(min(pairs), 3)
    row["speed_ratio_max"] = round(max(pairs), 3)
    return row


def show(label, row):
    def cell(name):
        values = row[name + "_ms"]
        return f"{row[name + '_median_ms']:10.2f} ({min(values):.2f}-{max(values):.2f})"
    print(f"| {label:<14} | {cell('deltascope'):<28} | {cell('llama_cpp'):<28} |"
          f" {row['speed_ratio']:.2f} ({row['speed_ratio_min']:.2f}-{row['speed_ratio_max']:.2f}) |", flush=True)


def merge_row(rows, key, new):
    """new into rows: the pairs of an equal row are joined."""
    for i, old in enumerate(rows):
        if all(old[k] == new[k] for k in key):
            ours, theirs = (old[side + "_ms"] + new[side + "_ms"] for side in ("deltascope", "llama_cpp"))
            rows[i] = {**{k: new[k] for k in key}, **summary(ours, theirs)}
            return rows[i]
    rows.append(new)
    return new


def load_record(path, base, model_hash):
    """The record to add to, or a new one. Refuses to mix files, commits or settings."""
    if not path.exists():
        return {**base, "prefill": [], "decode": [], "windows": []}
    record = json.loads(path.read_text())
    about = record["deltascope"]
    was = {**{k: record[k] for k in base}, "file": about["model"]["hash"], "commit": about["commit"]}
    now = {**base, "file": model_hash[0], "commit": model_hash[1]}
    wrong = [k for k in now if was[k] != now[k]]
    if wrong:
        sys.exit(f"peers: {path.name} was made with another {' and '.join(wrong)} ({', '.join(str(was[k]) for k in wrong)}): use another --name")
    return record


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("--prefill", default="256,512,1024", help="prompt lengths; empty for none")
    p.add_argument("--decode", type=int, default=32, help="tokens to decode; 0 for none")
    p.add_argument("--depth", type=int, default=256, help="tokens before the decoded ones")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())
    p.add_argument("--ubatch", type=int, default=512)
    p.add_argument("--reps", type=int, default=7, help="pairs that count; with --add fewer than five will do if the record has the rest")
    p.add_argument("--bin", default=ROOT / "bin" / "deltascope")
    p.add_argument("--isa", help="passed on to deltascope")
    p.add_argument("--name", help="bench/results/NAME.json (default: peers-MODEL-tN)")
    p.add_argument("--add", action="store_true", help="add to that record instead of replacing it")
    o = p.parse_args()
    if o.reps < 5 and not o.add:
        p.error("--reps: five pairs at least; one run is not a measurement")
    try:
        import llama_cpp  # noqa: F401  only to say what is missing before anything starts
    except ImportError:
        sys.exit("peers: the package llama-cpp-python is missing: pip install llama-cpp-python (it compiles llama.cpp for this machine)")
    lengths = [int(v) for v in o.prefill.split(",") if v]
    window = max(lengths + [o.depth + o.decode + 8])

    others = OtherWork()
    theirs = Llama(o.model, o.threads, o.ubatch, window)
    ours = Deltascope(o.bin, o.model, o.threads, o.ubatch, ["--isa", o.isa] if o.isa else [])
    ids = ours.ids(window)
    out = ROOT / "bench" / "results" / ((o.name or f"peers-{pathlib.Path(o.model).stem}-t{o.threads}") + ".json")
    base = {
        "kind": "peers", "protocol": "warm-up and one timed pass per turn, turns alternate AB BA, first pair of a window dropped, medians",
        "threads": o.threads, "ubatch": o.ubatch,
    }
    if not o.add:
        out.unlink(missing_ok=True)
    record = load_record(out, base, (ours.about["model"]["hash"], ours.about["commit"]))
    print("| ms             | deltascope                   | llama.cpp                    | speed ratio (pairs) |")
    print("|----------------|------------------------------|------------------------------|---------------------|")
    touched = []
    for n in lengths:
        row = {"P": n, **summary(*alternate(ours, theirs, o.reps, lambda side, n=n: side.prefill(ids[:n])))}
        touched.append(merge_row(record["prefill"], ["P"], row))
        show(f"prefill {n}", touched[-1])
    if o.decode:
        row = {"depth": o.depth, "steps": o.decode,
               **summary(*alternate(ours, theirs, o.reps, lambda side: side.decode(ids, o.depth, o.decode)))}
        touched.append(merge_row(record["decode"], ["depth", "steps"], row))
        show(f"decode @{o.depth}", touched[-1])
    theirs.close()
    share = others.share()
    record["windows"].append({
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "command": shlex.join(["bench/peers.py"] + [pathlib.Path(a).name if os.path.exists(a) else a for a in sys.argv[1:]]),
        "pairs": o.reps, "other_work_share": None if share is None else round(share, 3),
    })
    record["deltascope"] = ours.about
    record["llama_cpp"] = {"package": "llama-cpp-python", **theirs.about}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(record, indent=1) + "\n")
    if share is None or share > 0.05:
        print(f"\nOther work used {'an unknown share' if share is None else f'{share:.0%}'} of the processors meanwhile. Threads that wait for each other suffer"
              "\nmost from it, and llama.cpp's spin: do not quote this run.")
    if any(len(row["deltascope_ms"]) < 5 for row in touched):
        print("\nFewer than five pairs so far: not a measurement yet.")
    print(f"\nwritten: {shown(out)}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2], *map(int, sys.argv[3:6]))
    else:
        main()
