#!/usr/bin/env python3
"""`deltascope bench` and deltascope-server on the same tokens, in turn: what HTTP, JSON and the session store cost.

    python3 bench/through_http.py [MODEL.gguf] [--prefill 512,2048] [--decode 64] [--depth 512] [--threads N] [--reps 7]

For each turn the server is started anew, so that nothing is stored, and warmed up twice with as many other tokens; then one request with
one new token is timed until that token is here. bench warms up and times one pass likewise. Decoding is timed from the first streamed token
to the last. The order within a pair alternates, the first pair is thrown away. Ratios are of speed, server / bench. The record goes to
bench/results/NAME.json.
"""
import argparse
import datetime
import json
import os
import pathlib
import shlex
import socket
import statistics
import sys
import time

sys.dont_write_bytecode = True
from peers import Deltascope, OtherWork, alternate  # noqa: E402
from served import ROOT, Server, ServerFailed, shown  # noqa: E402


class OverHTTP:
    name = "server"

    def __init__(self, model, options):
        self.model, self.options = model, options

    def times(self, ids, n):
        """Seconds until the first of n new tokens was here, and the last. What comes is looked at only when all is there: this client must not
        take the processor from the server."""
        with Server(self.model, *self.options) as server:
            for prompt in (ids[1:] + ids[:1], ids[2:] + ids[:2], ids):
                body = json.dumps({"prompt": prompt, "max_tokens": n, "temperature": 0, "ignore_eos": True, "stream": True,
                                   "stream_options": {"include_usage": True}}).encode()
                head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode()
                came, started = [], time.perf_counter()
                with socket.create_connection(server.client.address) as s:
                    s.sendall(head + body)
                    while got := s.recv(1 << 16):
                        came.append((time.perf_counter() - started, got))
            raw = b"".join(got for _, got in came)
            usage = json.loads(raw[raw.rindex(b'"usage":') + 8:raw.rindex(b',"timings"')])
            if usage["prompt_tokens"] != len(ids) or usage["completion_tokens"] != n or usage["prompt_tokens_details"]["cached_tokens"]:
                raise ServerFailed(f"asked for {len(ids)} tokens and {n} new ones, nothing stored; usage says {usage}")
            return next(at for at, got in came if b"data: {" in got), came[-1][0]

    def prefill(self, ids):
        return self.times(ids, 1)[0] * 1e3

    def decode(self, ids, depth, n):
        first, last = self.times(ids[:depth], n + 1)
        return (last - first) * 1e3 / n


def summary(bench, server):
    pairs = [b / s for b, s in zip(bench, server)]
    return {"bench_ms": [round(v, 3) for v in bench], "server_ms": [round(v, 3) for v in server],
            "bench_median_ms": round(statistics.median(bench), 3), "server_median_ms": round(statistics.median(server), 3),
            "speed_ratio": round(statistics.median(bench) / statistics.median(server), 4),
            "speed_ratio_min": round(min(pairs), 4), "speed_ratio_max": round(max(pairs), 4)}


def show(label, row):
    def cell(name):
        return f"{row[name + '_median_ms']:10.3f} ({min(row[name + '_ms']):.3f}-{max(row[name + '_ms']):.3f})"
    print(f"| {label:<14} | {cell('bench'):<28} | {cell('server'):<28} |"
          f" {row['speed_ratio']:.3f} ({row['speed_ratio_min']:.3f}-{row['speed_ratio_max']:.3f}) |", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", nargs="?", default=ROOT / "models" / "tales-q8_0.gguf")
    p.add_argument("--prefill", default="512,2048", help="prompt lengths; empty for none")
    p.add_argument("--decode", type=int, default=64, help="tokens to decode; 0 for none")
    p.add_argument("--depth", type=int, default=512, help="tokens before the decoded ones")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())
    p.add_argument("--ubatch", type=int, default=512)
    p.add_argument("--reps", type=int, default=7)
    p.add_argument("--server", default="", metavar="OPTIONS", help="more options for the server")
    p.add_argument("--name", help="bench/results/NAME.json (default: through-http-MODEL)")
    o = p.parse_args()
    lengths = [int(v) for v in o.prefill.split(",") if v]
    common = ["--threads", str(o.threads), "--ubatch", str(o.ubatch), "--parallel", "1"]     # bench has one session, too
    others = OtherWork()
    bench = Deltascope(ROOT / "bin" / "deltascope", o.model, o.threads, o.ubatch, [])
    server = OverHTTP(o.model, common + shlex.split(o.server))
    ids = bench.ids(max(lengths + [o.depth + o.decode]))
    record = {
        "kind": "through_http", "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "command": " ".join(["bench/through_http.py"] + [pathlib.Path(a).name if os.path.exists(a) else a for a in sys.argv[1:]]),
        "protocol": "warm-up and one timed pass per turn, a new process each, turns alternate AB BA, first pair dropped, medians",
        "threads": o.threads, "ubatch": o.ubatch, "reps": o.reps, "prefill": [], "decode": None,
    }
    print("| ms             | bench                        | server                       | speed ratio (pairs)  |")
    print("|----------------|------------------------------|------------------------------|----------------------|")
    try:
        for n in lengths:
            row = {"P": n, **summary(*alternate(bench, server, o.reps, lambda side, n=n: side.prefill(ids[:n])))}
            record["prefill"].append(row)
            show(f"prefill {n}", row)
        if o.decode:
            row = {"depth": o.depth, "steps": o.decode, **summary(*alternate(bench, server, o.reps, lambda side: side.decode(ids, o.depth, o.decode)))}
            record["decode"] = row
            show(f"decode @{o.depth}", row)
    except (ServerFailed, OSError) as e:
        sys.exit(f"through_http: {e}")
    share = others.share()
    record["other_work_share"] = None if share is None else round(share, 3)
    about = dict(bench.about)
    about["model"]["path"] = pathlib.Path(about["model"]["path"]).name
    record.update(about)
    out = ROOT / "bench" / "results" / ((o.name or f"through-http-{pathlib.Path(o.model).stem}") + ".json")
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(record, indent=1) + "\n")
    if share is None or share > 0.05:
        print("\nOther work used the processors meanwhile: do not quote this run.")
    print(f"\nwritten: {shown(out)}")


if __name__ == "__main__":
    main()
