"""How a server ends and starts again: signals, session files, many requests, failing disks."""
import json
import os
import shutil
import signal
import sys
import threading
import time

from serving import ALICE, BUILD, CRAWL, LONG_WINDOW, SANITIZED, SLOW, Failed, Server, check, run_cases, slow_prompt

TMP = os.environ["TMP"]
LONG = ALICE + " of sitting by her sister on the bank, and of having nothing to do:" * 40
MARGIN = 20 if SANITIZED else 5


def cached(s, prompt):
    return s.complete(prompt, max_tokens=1)["usage"]["prompt_tokens_details"]["cached_tokens"]


def fresh(name):
    path = os.path.join(TMP, name)
    shutil.rmtree(path, ignore_errors=True)
    return path


def signals_end_it_in_time():
    """With answers under way, a prefill, a queue and idle sockets; each client gets an end that is no answer."""
    for sig in (signal.SIGTERM, signal.SIGINT):
        s = Server(*SLOW, "--parallel", 2, ctx=LONG_WINDOW)
        idle = s.connect()
        idle.request("GET", "/health")
        idle.getresponse().read()
        streams = s.hold(2) + [s.stream(slow_prompt(9), max_tokens=5000, ignore_eos=True) for _ in range(2)]
        c = s.connect()
        c.request("POST", "/v1/completions", json.dumps(dict(prompt=slow_prompt(9), max_tokens=5000, ignore_eos=True)))
        s.wait_for(lambda st: st["load"]["running"] == 2 and st["load"]["waiting"] == 3)
        took = s.stop(sig=sig)
        check(took < MARGIN, "ended after", took)
        for x in streams:
            try:
                x.rest()
            except ConnectionError:
                pass
            check(not x.whole and b"[DONE]" not in x.raw, x.raw[-200:])
            check(b"shutting down" in x.raw, x.raw[-300:])
        try:
            body = c.getresponse().read()
            raise Failed("half an answer looks whole: %r" % body)
        except (ConnectionError, OSError, Exception) as e:
            check(not isinstance(e, Failed), e)


def chunk_of_seconds(args, seconds=5):
    """The chunk, in tokens, that takes this server some seconds on this machine in this build."""
    with Server(*args, threads=1) as s:
        t = time.monotonic()
        s.complete(slow_prompt(64), max_tokens=1)
        rate = 64 / (time.monotonic() - t)
    return max(64, min(2048, int(rate * seconds) // 64 * 64))


def a_chunk_that_takes_long_is_left():
    """Chunks of many seconds: one whose client leaves, and one that a signal meets; what came before them is kept."""
    args = SLOW if SANITIZED else SLOW + CRAWL
    chunk = chunk_of_seconds(args)
    prompt = slow_prompt(3 * chunk)
    args += ("--ubatch", chunk, "--session-dir", fresh("slow"))
    s = Server(*args, ctx=8192, threads=1)
    s.complete(prompt[64:128], max_tokens=1)
    leaver = s.stream(prompt, max_tokens=1)
    s.wait_for(lambda st: any(r["processed"] == chunk for r in st["requests"]))
    one = s.status()["requests"][0]["running_ms"] / 1e3
    time.sleep(one / 10)
    leaver.leave()
    left = time.monotonic()
    s.idle()
    took = time.monotonic() - left
    check(took < one / 2, "freed after", took, "where a chunk takes", one)
    again = s.stream(prompt, max_tokens=1)
    s.wait_for(lambda st: any(r["phase"] == "prefill" for r in st["requests"]))
    check(s.status()["requests"][0]["cached"] == chunk, s.status()["requests"])
    time.sleep(one / 10)
    took = s.stop()
    check(took < MARGIN, took)
    try:
        again.rest()
    except ConnectionError:
        pass
    check(b"shutting down" in again.raw, again.raw[-200:])
    with Server(*args, ctx=8192) as s:
        check(cached(s, prompt[:chunk + 64]) == chunk)


def no_room_at_all():
    """0 is no memory and no files, not the defaults."""
    folder = fresh("none")
    with Server("--snapshot-mem", 0, "--session-dir", folder, "--session-disk", 0) as s:
        want = s.text(LONG, max_tokens=4)
        check(s.text(ALICE, max_tokens=1) and s.text(LONG, max_tokens=4) == want)
        st = s.status()["store"]
        check(st["mem_used"] < 1 << 20 and st["snapshots"] == 0 and st["disk_limit"] == 0, st)
    check(not os.path.exists(folder), folder)


def a_signal_that_comes_twice():
    """From timeout or a terminal to the process and to its group: one end, and all is saved."""
    folder = fresh("twice")
    with Server("--session-dir", folder) as s:
        s.text(LONG, max_tokens=1)
        for sig in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
            s.process.send_signal(sig)
    check(any(n.endswith(".dsprefix") for n in os.listdir(folder)), os.listdir(folder))


def an_end_with_a_sequence_that_finishes():
    s = Server()
    x = s.stream(max_tokens=4 if SANITIZED else 60, ignore_eos=True)
    x.read_until(b'"text"')
    s.stop()
    check(x.rest().whole and b"[DONE]" in x.raw, "a short answer is finished first", x.raw[-200:])


def sessions_survive_a_restart():
    folder = fresh("kept")
    s = Server("--session-dir", folder)
    want = s.text(LONG, max_tokens=24)
    n = s.complete(LONG, max_tokens=1)["usage"]["prompt_tokens"]
    check(os.stat(folder).st_mode & 0o777 == 0o700)
    took = s.stop()
    check(took < MARGIN, took)
    with Server("--session-dir", folder) as s:
        answer = s.complete(LONG, max_tokens=24)
        check(answer["choices"][0]["text"] == want)
        check(answer["usage"]["prompt_tokens_details"]["cached_tokens"] >= n - 1, answer["usage"], n)
        check(s.status()["totals"]["lookups"]["disk"] == 1)
        check(cached(s, LONG + " again") >= n - 512, "the next turn")


def idle_sessions_are_written():
    folder = fresh("idle")
    with Server("--session-dir", folder) as s:
        s.text(LONG, max_tokens=4)
        s.wait_for(lambda st: st["store"]["unsaved"] == 0 and st["store"]["files"] > 0)
        s.process.kill()
        s.process.wait()
        s.process.returncode = 0
    with Server("--session-dir", folder) as s:
        check(cached(s, LONG) > 500, "after SIGKILL")


def a_folder_that_cannot_be_used():
    """Two servers on one folder, a file in its place: a warning, and on without."""
    folder = fresh("shared")
    with Server("--session-dir", folder) as one, Server("--session-dir", folder, "--quiet") as two, Server("--quiet") as three:
        check("sessions: " in two.log(), "a warning is no line about a request", two.log())
        check(one.text(max_tokens=3) == two.text(max_tokens=3))
        check(two.status()["store"]["disk_limit"] == 0 and "request=" not in two.log(), two.log())
        said = [[s.status()["store"][k] for k in ("dir", "dir_open")] for s in (one, two, three)]
        check(said == [[folder, True], [folder, False], [None, False]], said)
    path = os.path.join(TMP, "file")
    with open(path, "w") as f:
        f.write("x")
    with Server("--session-dir", path) as s:
        check("sessions: " in s.log() and s.text(max_tokens=3) == " of sitting by")


def names_that_are_taken():
    """A folder where a file should be: that prefix alone is not written. Where no file can be, the end says why."""
    folder = fresh("taken")
    with Server("--session-dir", folder) as s:
        s.text(LONG, max_tokens=4)
    names = [n for n in os.listdir(folder) if n.endswith(".dsprefix")]
    check(names, os.listdir(folder))
    for name in names:
        os.remove(os.path.join(folder, name))
        os.mkdir(os.path.join(folder, name))
    with Server("--session-dir", folder) as s:
        s.text(LONG, max_tokens=4)
        s.text("Another " + LONG, max_tokens=4)
        s.wait_for(lambda st: st["store"]["unsaved"] == 0 and st["store"]["files"] > 0)
        check("has this name; the prefix is not written" in s.log() and "for a minute" not in s.log(), s.log())
    s = Server("--session-dir", folder)
    os.mkdir(os.path.join(folder, "writing.tmp"))
    s.text("Third " + LONG, max_tokens=4)
    s.stop(code=1)
    check("not every prefix is in a file: " in s.log() and "writing.tmp" in s.log().split("in a file: ")[1], s.log())


def a_stream_of_requests():
    """64 connections at once, short requests one after another: each answered, memory within the plan."""
    total = int(os.environ.get("DS_SERVER_REQUESTS", "128" if "tsan" in BUILD else "384" if SANITIZED else "1600"))
    failures = []
    with Server("--quiet", "--snapshot-mem", "32M") as s:
        want = {k: s.text(ALICE[:10 + k], max_tokens=2) for k in range(8)}

        def client(number):
            c = s.connect()
            for i in range(total // 64):
                k = (number + i) % 8
                c.request("POST", "/v1/completions", json.dumps(dict(prompt=ALICE[:10 + k], max_tokens=2)))
                r = c.getresponse()
                data = r.read()
                if r.status != 200 or json.loads(data)["choices"][0]["text"] != want[k]:
                    failures.append((r.status, data))
            c.close()

        threads = [threading.Thread(target=client, args=(k,)) for k in range(64)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        check(not failures, len(failures), failures[:2])
        st = s.idle()
        check(st["totals"]["finished"] == total // 64 * 64 + 8, st["totals"])
        check(st["store"]["mem_used"] <= 32 << 20, st["store"])


def memory_stays_within_the_plan():
    """Forty turns of a growing conversation and side requests."""
    if SANITIZED:
        return
    with Server("--quiet", "--snapshot-mem", "24M", "--parallel", 2, ctx=8192) as s:
        prompt = ALICE
        for turn in range(40):
            prompt += s.text(prompt, max_tokens=20, ignore_eos=True) + " And then, said turn %d, the Rabbit ran on." % turn * 8
            s.complete("Write a title: turn %d" % turn, max_tokens=4)
        m = s.idle()["memory_bytes"]
        check(m["snapshot"] <= 24 << 20)
        base = 24 << 20                      # the program itself, its libraries and threads
        check(m["peak_rss"] <= (m["planned"] + base) * 1.05, m)


CASES = [signals_end_it_in_time, no_room_at_all, a_signal_that_comes_twice, a_chunk_that_takes_long_is_left, an_end_with_a_sequence_that_finishes,
         sessions_survive_a_restart, idle_sessions_are_written, a_folder_that_cannot_be_used, names_that_are_taken, a_stream_of_requests,
         memory_stays_within_the_plan]
if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1:]))
