#!/usr/bin/env python3
"""A prefill that takes long: the client hears from the server, may leave at any time, and loses nothing by it."""
import statistics
import threading
import time

from harness import HEAVY, SANITIZED, Server, check, run_cases, run_tool, wait_until, words

SLOW = ["--isa", "scalar", "--threads", "1", "--ubatch", "64"]      # 200 tokens a second
CHUNK_S = 0.4


def completion(prompt, n, **more):
    return {"prompt": prompt, "max_tokens": n, "temperature": 0, "stream_options": {"include_usage": True}, **more}


def play(client, body):
    """The text, the usage and the times at which anything came."""
    text, usage, times = "", None, [0.0]
    stream = client.stream("/v1/completions", body)
    stream.headers()
    times.append(stream.first_byte_s)
    for at, name, event in stream:
        times.append(at)
        if name != "comment":
            usage = event.get("usage") or usage
            text += event["choices"][0]["text"] if event["choices"] else ""
    return text, usage, times


def silence(times):
    return max(b - a for a, b in zip(times, times[1:]))


def never_silent():
    prompt = words(1, 7000 if HEAVY else 1800)
    with Server(None, *SLOW) as server:
        long = {}
        thread = threading.Thread(target=lambda: long.update(played=play(server.client, completion(prompt, 2))))
        thread.start()
        time.sleep(0.5)
        first, waiting = [], []
        for i in range(7):                          # these wait or take turns with it
            stream = server.client.stream("/v1/completions", completion(words(2 + i, 20), 1))
            stream.headers()
            first.append(stream.first_byte_s)
            waiting.append(stream)
            time.sleep(0.2)
        for stream in waiting:
            stream.close()
        thread.join()
        _, usage, times = long["played"]
        print(f"  {usage['prompt_tokens']} tokens in {times[-1]:.1f} s; longest silence {silence(times):.2f} s; first byte {times[1] * 1e3:.1f} ms,"
              f" beside it median {statistics.median(first) * 1e3:.1f} ms ({min(first) * 1e3:.1f}-{max(first) * 1e3:.1f})")
        check(times[-1] > (30 if HEAVY else 7), "the model is too fast for this case:", times[-1], "s")
        check(statistics.median(first) < 0.05, "first bytes after", first)
        check(silence(times) < 6, "silent for", silence(times), "s")


def leaves_at(server, share, seed):
    """Returns what was computed when the client left, how long the engine went on, and the retry's usage."""
    body = completion(words(seed, 500), 8, return_progress=True)
    stream = server.client.stream("/v1/completions", body)
    stream.headers()
    done = 0
    if share > 0:
        for _, name, event in stream:
            progress = event.get("prompt_progress") if name != "comment" else None
            if progress:
                done = progress["processed"]
            if done and done >= share * progress["total"]:
                break
    stream.close()
    freed = wait_until(lambda: idle(server), 10, "an idle engine")
    return done, freed, play(server.client, body)


def idle(server):
    load = server.status()["load"]
    return load["running"] + load["waiting"] == 0


def client_leaves():
    with Server(None, *SLOW, "--parallel", 1) as server:
        for i, share in enumerate((0, 0.25, 0.5, 0.75, 1.0)):
            done, freed, (text, usage, _) = leaves_at(server, share, 100 + i)
            cached = usage["prompt_tokens_details"]["cached_tokens"]
            print(f"  left at {share:.0%} with {done} of {usage['prompt_tokens']} tokens: freed after {freed:.2f} s, the retry takes {cached} from the store")
            check(SANITIZED or freed < max(1, CHUNK_S), "the engine went on for", freed, "s")
            check(cached >= min(done, usage["prompt_tokens"] - 1), "computed", done, "but the retry has", cached)
            check(text == run_tool(words(100 + i, 500), 8, *SLOW), "another answer after", share)


def queued_client_leaves():
    prompts = [words(200 + i, 150) for i in range(3)]
    alone = [run_tool(p, 8, *SLOW) for p in prompts]
    with Server(None, *SLOW, "--parallel", 1) as server:
        got = {}
        threads = []
        for i in (0, 2):
            threads.append(threading.Thread(target=lambda i=i: got.update({i: play(server.client, completion(prompts[i], 8))})))
        threads[0].start()
        time.sleep(0.1)
        leaver = server.client.stream("/v1/completions", completion(prompts[1], 8))
        leaver.headers()
        threads[1].start()
        time.sleep(0.1)
        leaver.close()
        for t in threads:
            t.join()
        for i in (0, 2):
            check(got[i][0] == alone[i], "request", i, "answered", got[i][0], "alone", alone[i])
        wait_until(lambda: idle(server), 5, "an idle engine")


run_cases([never_silent, client_leaves, queued_client_leaves])
