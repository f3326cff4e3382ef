"""What happens while an answer takes long: silence, leaving, queueing, sockets that stand still."""
import json
import socket
import sys
import threading
import time

from serving import ALICE, CRAWL, LONG_WINDOW, SLOW, Server, Stream, check, run_cases, slow_prompt


def speed(s):
    """Prompt tokens a second."""
    t = time.monotonic()
    s.complete(slow_prompt(256, 99), max_tokens=1)
    return 256 / (time.monotonic() - t)


def silence_is_broken():
    """A long prefill, two more requests in the queue behind it: headers at once, and bytes at least every 6 s, for 16 s."""
    with Server(*SLOW, *CRAWL, "--parallel", 1, ctx=LONG_WINDOW, threads=1) as s:
        streams = []
        for k in (1, 2, 3):
            streams.append(Stream(s, dict(prompt=slow_prompt(30000, k), max_tokens=1, stream=k < 3)))
            s.wait_for(lambda st: len(st["requests"]) == k)

        def read(x):
            while time.monotonic() - streams[-1].start < 16:
                try:
                    x.read_some(1)
                except TimeoutError:
                    pass

        threads = [threading.Thread(target=read, args=(x,)) for x in streams]
        for t in threads:
            t.start()
        live = s.wait_for(lambda st: st["requests"][0]["processed"] > 0)["requests"]
        check(len(live) == 3 and live[0]["phase"] == "prefill", live)
        check([r["phase"] for r in live[1:]] == ["queued"] * 2 and [r["place"] for r in live[1:]] == [1, 2], live)
        for t in threads:
            t.join()
        live = s.status()["requests"]
        check([r["phase"] for r in live] == ["prefill", "queued", "queued"], "the prefill was no test:", live)
        for x in streams:
            check(x.code() == 200 and not x.ended)
            check(x.at[0] < 0.5, "headers after", x.at[0])
            check(len(x.at) >= 3 and max(x.silences()) < 6, "silences", x.silences())
            x.leave()
        check(streams[0].body().count(b": keepalive\n\n") >= 2 and streams[2].body().strip(b"\n") == b"")


def leaving_frees_the_engine():
    """At any point of a prefill, streamed or not; the retry goes on where it stopped."""
    with Server(*SLOW, "--parallel", 1, ctx=8192) as s:
        rate = speed(s)
        n, chunk = max(640, min(int(rate * 1.5), 4000)), 64 / rate
        for k, share in enumerate((0.0, 0.25, 0.5, 0.75, 1.0)):
            for stream in (True, False):
                prompt = slow_prompt(n, 10 + 2 * k + stream)
                body = dict(prompt=prompt, max_tokens=4000, ignore_eos=True, stream=stream)
                before = s.status()["totals"]["cancelled"]
                c = s.connect()
                c.request("POST", "/v1/completions", json.dumps(body))
                if share < 1:
                    s.wait_for(lambda st: any(r["processed"] >= share * n or r["phase"] == "decode" for r in st["requests"]))
                else:
                    s.wait_for(lambda st: any(r["generated"] > 2 for r in st["requests"]))
                reached = s.status()["requests"][0]["processed"]
                c.close()
                left = time.monotonic()
                s.idle()
                took = time.monotonic() - left
                check(took < 1.5 + 4 * chunk, "freed after", took, "at", share, "where a chunk takes", chunk)
                check(s.status()["totals"]["cancelled"] == before + 1)
                again = s.complete(prompt, max_tokens=1)["usage"]["prompt_tokens_details"]["cached_tokens"]
                check(again >= min(reached, n - 1) - 64 and again >= reached - 64, "retry had", again, "of", reached)


def leaving_the_queue_changes_nothing():
    """The one in the middle of three leaves, while the slot is held by an answer that ends when it is told to."""
    with Server(*SLOW, "--parallel", 1, ctx=LONG_WINDOW) as s:
        alone = [s.complete(slow_prompt(k, k), max_tokens=8)["choices"][0]["text"] for k in (300, 301)]
        held, = s.hold(1)
        first, leaver, last = (s.behind(slow_prompt(k, k), max_tokens=8) for k in (300, 302, 301))
        leaver.leave()
        live = s.wait_for(lambda st: st["load"]["waiting"] == 2)["requests"]
        check([(r["phase"], r["prompt"]) for r in live] == [("decode", 3), ("queued", 300), ("queued", 301)], live)
        held.leave()
        check(first.rest().whole and last.rest().whole)
        check([first.text(), last.text()] == alone)
        gone = {r["prompt"]: r for r in s.idle()["recent"] if r["end"] == "cancelled"}
        check(sorted(gone) == [3, 302] and gone[302]["prefilled"] == 0 and gone[302]["generated"] == 0, gone)


def turns_are_fair():
    """Short requests are answered while a long prefill runs, and what they say is what they say alone."""
    with Server(*SLOW, "--parallel", 4, ctx=LONG_WINDOW) as s:
        alone = [s.complete(slow_prompt(40, k), max_tokens=12)["choices"][0]["text"] for k in range(3)]
        n = 30000                                   # 470 turns of a chunk, where the others need some 14 beside it
        long = s.stream(slow_prompt(n, 50), max_tokens=1)
        s.wait_for(lambda st: any(r["processed"] > 0 for r in st["requests"]))
        t = time.monotonic()
        beside = [s.stream(slow_prompt(40, k), max_tokens=12) for k in range(3)]
        texts = [x.rest().text() for x in beside]
        took = time.monotonic() - t
        st = s.status()
        check(any(r["phase"] == "prefill" and r["prompt"] == n for r in st["requests"]), "the long one ended first", took)
        check(texts == alone, texts, alone)
        long.leave()


def many_wait():
    """128 in the queue and more; the next is told so; every answer is right."""
    prompt = slow_prompt(8)
    with Server(*SLOW, "--parallel", 2, "--queue", 128, ctx=LONG_WINDOW) as s:
        want = s.text(prompt, max_tokens=3)
        hold = s.hold(2)
        rest = [s.stream(prompt, max_tokens=3) for _ in range(128)]
        s.wait_for(lambda st: st["load"]["waiting"] == 128)
        status, headers, data = s.call("POST", "/v1/completions", dict(prompt=prompt))
        check(status == 503 and b"queue is full" in data and headers["Retry-After"], status, data)
        check(s.status()["load"]["running"] == 2, "the slots were held meanwhile")
        for h in hold:
            h.leave()
        texts = {x.rest().text() for x in rest}
        check(texts == {want}, texts, want)
        check(s.call("POST", "/v1/completions", dict(prompt=prompt, max_tokens=1))[0] == 200)


def many_connections():
    """256 and more that say nothing yet, half of one request among them, and the server goes on."""
    with Server() as s:
        idle = [socket.create_connection(("127.0.0.1", s.port)) for _ in range(300)]
        for c in idle[::2]:
            c.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Le")
        check(s.text(max_tokens=3) == " of sitting by")
        s.wait_for(lambda st: st["load"]["connections"] >= 300)
        for c in idle:
            c.close()
        s.wait_for(lambda st: st["load"]["connections"] < 10)


def half_open_ones_are_dropped():
    """After 30 s: nothing said, half a head, a head in drops, a body that stands still."""
    with Server() as s:
        halves = [b"", b"POST /v1/compl", b"GET /health HTTP/1.1\r\nX: ", b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{"]
        conns = [socket.create_connection(("127.0.0.1", s.port)) for _ in halves]
        for c, h in zip(conns, halves):
            c.sendall(h)
            c.settimeout(0.01)
        start = time.monotonic()
        ended = {}
        while len(ended) < len(conns) and time.monotonic() - start < 45:
            time.sleep(0.5)
            for i, c in enumerate(conns):
                if i in ended:
                    continue
                try:
                    if i == 2:
                        c.sendall(b"x")
                    if not c.recv(999):
                        ended[i] = time.monotonic() - start
                except socket.timeout:
                    pass
                except OSError:
                    ended[i] = time.monotonic() - start
        check(len(ended) == len(conns) and all(25 < t < 38 for t in ended.values()), ended)
        check(s.text(max_tokens=3) == " of sitting by")


def slow_readers_block_nobody():
    """Clients that never read: others get their answers, and the engine is not held."""
    with Server("--parallel", 2, ctx=8192) as s:
        t = time.monotonic()
        s.stream(max_tokens=300, ignore_eos=True, logprobs=20).rest()
        own = 10 * (time.monotonic() - t)           # what one of them costs when it is read
        lazy = []
        for _ in range(3):
            c = socket.socket()
            c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            c.connect(("127.0.0.1", s.port))
            body = json.dumps(dict(prompt=ALICE, max_tokens=3000, ignore_eos=True, stream=True, logprobs=20)).encode()
            c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            lazy.append(c)
        s.wait_for(lambda st: st["load"]["running"] == 2)
        t = time.monotonic()
        check(s.text(max_tokens=3) == " of sitting by")
        took = time.monotonic() - t
        s.idle()
        for c in lazy:
            c.close()
        s.wait_for(lambda st: st["load"]["connections"] < 5)
        check(took < 60 + 12 * own, took, "where each of three takes", own)


CASES = [silence_is_broken, leaving_frees_the_engine, leaving_the_queue_changes_nothing, turns_are_fair, many_wait, many_connections,
         half_open_ones_are_dropped, slow_readers_block_nobody]
if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1:]))
