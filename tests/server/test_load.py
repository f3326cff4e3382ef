#!/usr/bin/env python3
"""Many requests: none fails but by a limit, none sees another, and memory stays where it was promised."""
import random
import tempfile
import threading
import time

from harness import HEAVY, SANITIZED, Client, Server, at_once, check, run_cases, run_tool, wait_until, words


def ask(client, prompt, n, **more):
    status, answer = client.post("/v1/completions", {"prompt": prompt, "max_tokens": n, "temperature": 0, **more})
    check(status == 200, status, answer)
    return answer["choices"][0]["text"]


def company_changes_nothing():
    rng = random.Random(5)
    prompts = [words(300 + i, rng.choice((3, 40, 200, 700))) for i in range(8)]
    alone = [run_tool(p, 24) for p in prompts]
    for parallel in (4, 1):
        with Server(None, "--parallel", parallel) as server:
            for _ in range(2):                      # the second time everything is stored
                together = at_once(len(prompts), lambda i: ask(server.client, prompts[i], 24))
                for i, text in enumerate(together):
                    check(text == alone[i], "request", i, "of", parallel, "at once:", repr(text), "alone:", repr(alone[i]))


def many_short_requests():
    """64 connections all the time."""
    total = 10000 if HEAVY else 192 if SANITIZED else 640
    with Server(None, "--snapshot-mem", "64M") as server:
        left = iter(range(total))
        lock = threading.Lock()
        sizes = []

        def worker(_):
            rng = random.Random(_)
            while True:
                with lock:
                    i = next(left, None)
                    if i is None:
                        return
                    if i % (total // 8) == 0:
                        sizes.append(server.rss())
                ask(server.client, words(rng.random(), rng.randint(1, 12)), rng.randint(1, 4))
        started = time.monotonic()
        at_once(64, worker)
        print(f"  {total} requests in {time.monotonic() - started:.1f} s; memory {[round(s / 1e6, 1) for s in sizes]} MB")
        check(SANITIZED or sizes[-1] <= sizes[len(sizes) // 2] * 1.05 + (4 << 20), "memory grows:", sizes)
        code, _ = server.stop()
        check(code == 0, "ended with code", code, server.log()[-3000:])


def memory_stays_within_the_plan():
    """40 turns that never share a prefix with more than the turn before: the store fills up and evicts."""
    with Server(None, "--snapshot-mem", "96M", "--ctx", 4096) as server:
        limit = server.status()["memory_bytes"]["planned"]
        most = 0
        text = ""
        for turn in range(40):
            text = (text if turn % 8 else f"{turn} ") + words(400 + turn, 300)
            ask(server.client, text, 16)
            most = max(most, server.rss())
        print(f"  most {most / 1e6:.1f} MB of {limit / 1e6:.1f} MB stated")
        check(SANITIZED or most <= limit * 1.05, most, "bytes, stated:", limit)


def sigterm_saves():
    prompt = words(7, 1500)
    with tempfile.TemporaryDirectory(prefix="sigterm-") as folder:
        with Server(None, "--session-dir", folder) as server:
            stream = server.client.stream("/v1/completions", {"prompt": prompt, "max_tokens": 4000, "temperature": 0, "ignore_eos": True})
            for _ in zip(range(20), stream):
                pass
            code, seconds = server.stop()
            stream.close()
            print(f"  ended after {seconds:.2f} s")
            check(code == 0 and seconds < 5, "code", code, "after", seconds, "s:", server.log()[-3000:])
        with Server(None, "--session-dir", folder) as server:
            status, answer = server.client.post("/v1/completions", {"prompt": prompt, "max_tokens": 1, "temperature": 0})
            check(status == 200, answer)
            usage = answer["usage"]
            check(usage["prompt_tokens_details"]["cached_tokens"] >= usage["prompt_tokens"] - 512, "after the restart:", usage)


run_cases([company_changes_nothing, many_short_requests, memory_stays_within_the_plan, sigterm_saves])
