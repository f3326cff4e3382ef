"""Many requests at once: none fails but by a limit, and none notices another."""
import random
import statistics
import sys
import threading
import time

from prose import HEAVY, words
from serving import CRAWL, SANITIZED, Server, check, run_cases


def at_once(n, work):
    """work(i) for every i < n, all at the same time; the results, or the first error."""
    results, errors = [None] * n, []

    def one(i):
        try:
            results[i] = work(i)
        except Exception as e:      # any of them fails the case
            errors.append(e)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]
    return results


def company_changes_nothing():
    """What each of several requests is answered is what it is answered alone, by a server that knows nothing."""
    lengths = random.Random(5)
    prompts = [words(300 + i, lengths.choice((3, 40, 200, 700))) for i in range(8)]
    with Server("--snapshot-mem", "1M", "--parallel", 1) as s:
        alone = [s.text(p, max_tokens=24, temperature=0) for p in prompts]
    for parallel in (4, 8, 1):
        with Server("--parallel", parallel) as s:
            for again in range(2):                  # the second time everything is stored
                together = at_once(len(prompts), lambda i: s.text(prompts[i], max_tokens=24, temperature=0))
                for i, text in enumerate(together):
                    check(text == alone[i], "request", i, "of", parallel, "at once, time", again, repr(text), "alone:", repr(alone[i]))


def short_requests_without_end():
    """64 connections at any time. Memory is flat after the first half, and the sanitizer finds no leak at the end."""
    total = 10000 if HEAVY else 192 if SANITIZED else 960
    with Server("--snapshot-mem", "48M") as s:
        left, lock, sizes = iter(range(total)), threading.Lock(), []

        def worker(number):
            rng = random.Random(number)
            while True:
                with lock:
                    i = next(left, None)
                    if i is None:
                        return
                    if i % (total // 8) == 0:
                        sizes.append(rss(s))
                s.text(words(rng.random(), rng.randint(1, 12)), max_tokens=rng.randint(1, 4), temperature=0)

        start = time.monotonic()
        at_once(64, worker)
        took = time.monotonic() - start
        sizes.append(rss(s))
        print("  %d requests in %.1f s; resident MB: %s" % (total, took, " ".join("%.0f" % (b / 1e6) for b in sizes)))
        t = s.idle()["totals"]
        check(t["finished"] == total and t["failed"] == t["cancelled"] == 0, t)
        check(SANITIZED or sizes[-1] <= sizes[4] + (8 << 20), "memory grows", sizes)


def rss(s):
    with open("/proc/%d/status" % s.process.pid) as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS:")) * 1024


def words_a_second(s):
    prompt = words(7, 60)                           # the book is made now, not within the time
    start = time.monotonic()
    s.text(prompt, max_tokens=1)
    return 60 / (time.monotonic() - start)


def first_bytes_beside_a_long_prefill():
    """A prefill that takes long on purpose: its client hears something every 6 s, and others get their headers within 50 ms."""
    with Server(*CRAWL, "--ubatch", 64, "--parallel", 2, ctx=8192, threads=1) as s:
        seconds = 40 if HEAVY else 8
        n = max(100, min(5000, int(words_a_second(s) * seconds)))
        long = s.running(" ".join(words(k, 100) for k in range(n // 100)), max_tokens=1, stream_options={"include_usage": True})
        reader = threading.Thread(target=long.rest)
        reader.start()
        s.wait_for(lambda st: any(r["processed"] > 0 for r in st["requests"]))
        first, others = [], []
        while len(first) < 9 and any(r["phase"] == "prefill" for r in s.status()["requests"]):
            others.append(s.stream("Alice %d" % len(first), max_tokens=1))
            others[-1].read_some()
            first.append(others[-1].at[0] * 1e3)
            time.sleep(0.1)
        check(len(first) >= 3, "the prefill was no test")
        for x in others:
            x.rest()
        reader.join()
        n = long.events()[-1]["usage"]["prompt_tokens"]
        print("  %d tokens in %.1f s; own first byte %.2f ms, longest silence %.2f s; first bytes beside it, ms: median %.2f (%.2f-%.2f)"
              % (n, long.at[-1], long.at[0] * 1e3, max(long.silences()), statistics.median(first), min(first), max(first)))
        check(max(long.silences()) < 6, long.silences())
        check(SANITIZED or statistics.median(first) < 50, first)


CASES = [company_changes_nothing, short_requests_without_end, first_bytes_beside_a_long_prefill]
if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1:]))
