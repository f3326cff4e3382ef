"""A server under test and a client for it, of the standard library alone."""
import atexit
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

BIN = os.environ.get("DS_BIN", "bin")
BUILD = os.environ.get("DS_BUILD", "build/release")
SANITIZED = any(name in BUILD for name in ("asan", "tsan"))
ALICE = "Alice was beginning to get very tired"

# A model that takes its time, by a published geometry with random weights and small chunks. LONG_WINDOW tokens decoded one after another take
# ten seconds and more on any machine, and CRAWL as a prefill minutes: whoever waits for something beside them ends them, not the clock.
SLOW = ("--like", "qwen3.5-0.8b", "--type", "q8_0", "--layers", "4", "--vocab", "512", "--ubatch", "64")
CRAWL = ("--isa", "scalar")
LONG_WINDOW = 32768


def slow_prompt(n, seed=1):
    return [(seed * 7919 + i * 31 + i * i) % 512 for i in range(n)]


signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))     # so that a test that is ended ends its servers


class Failed(Exception):
    pass


def check(condition, *words):
    if not condition:
        raise Failed(" ".join(str(w) for w in words) or "a check failed")


class Server:
    """bin/deltascope-server on a free port; ends with exit code 0 and without a sanitizer's report, or the case fails."""

    def __init__(self, *args, ctx=2048, threads=2):
        self.err = open(os.path.join(os.environ["TMP"], "server-%d.log" % time.monotonic_ns()), "w+")
        command = [BIN + "/deltascope-server", "--port", "0", "--threads", str(threads)]
        if ctx:
            command += ["--ctx", str(ctx)]
        self.process = subprocess.Popen(command + [str(a) for a in args], stderr=self.err, stdin=subprocess.DEVNULL)
        atexit.register(self.process.kill)      # after a check that failed; does nothing to one that ended
        self.port = self._port()

    def _port(self, seconds=180):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for line in self.log().splitlines():
                if line.startswith("listening on http://"):
                    return int(line.rsplit(":", 1)[1])
            if self.process.poll() is not None:
                raise Failed("the server ended at once: " + self.log())
            time.sleep(0.05)
        raise Failed("the server does not listen")

    def log(self):
        with open(self.err.name) as f:
            return f.read()

    def stop(self, code=0, sig=signal.SIGTERM):
        start = time.monotonic()
        if self.process.poll() is None:
            self.process.send_signal(sig)
        try:
            got = self.process.wait(120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise Failed("the server does not end") from None
        check(got == code, "exit code", got, self.log()[-3000:])
        check("Sanitizer" not in self.log(), self.log()[-6000:])
        return time.monotonic() - start

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is None:
            self.stop()
        elif self.process.poll() is None:
            print(self.log()[-2000:], file=sys.stderr)
            self.process.kill()
            self.process.wait()

    # --- requests

    def connect(self, timeout=240):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def call(self, method, path, body=None, headers=None):
        """(status, headers, bytes)"""
        c = self.connect()
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        c.request(method, path, body, headers or {})
        r = c.getresponse()
        data = r.read()
        c.close()
        return r.status, r.headers, data

    def get(self, path):
        status, _, data = self.call("GET", path)
        check(status == 200, path, status, data[:300])
        return json.loads(data)

    def post(self, path, body, want=200):
        status, _, data = self.call("POST", path, body)
        check(status == want, path, str(body)[:200], "gave", status, data[:500])
        return json.loads(data)

    def complete(self, prompt=ALICE, want=200, **more):
        return self.post("/v1/completions", dict(prompt=prompt, **more), want)

    def text(self, prompt=ALICE, **more):
        return self.complete(prompt, **more)["choices"][0]["text"]

    def stream(self, prompt=ALICE, **more):
        return Stream(self, dict(prompt=prompt, stream=True, **more))

    def status(self):
        return self.get("/status")

    def metrics(self):
        status, _, data = self.call("GET", "/metrics")
        check(status == 200)
        return data.decode()

    def metric(self, name):
        for line in self.metrics().splitlines():
            if line.startswith("deltascope_" + name + " "):
                return float(line.split()[1])
        raise Failed("no metric " + name)

    def wait_for(self, condition, seconds=120):
        """condition(status) becomes true; the limit is for what never comes, and no measure of anything"""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            s = self.status()
            if condition(s):
                return s
            time.sleep(0.02)
        raise Failed("waited in vain: " + json.dumps(s)[:1500])

    def idle(self):
        return self.wait_for(lambda s: s["load"]["running"] == 0 and s["load"]["waiting"] == 0)

    # Requests on two connections have no order unless the second is sent after the first was seen to be taken.

    def running(self, prompt=ALICE, **more):
        """A streamed request that is the next to run."""
        already = self.status()["load"]["running"]
        x = self.stream(prompt, **more)
        self.wait_for(lambda s: s["load"]["running"] == already + 1)
        return x

    def behind(self, prompt=ALICE, **more):
        """A streamed request that is the last in the queue; every slot is held."""
        already = self.status()["load"]["waiting"]
        x = self.stream(prompt, **more)
        self.wait_for(lambda s: s["load"]["waiting"] == already + 1)
        return x

    def hold(self, n):
        """n answers that go on until they are left: for a server of SLOW and LONG_WINDOW."""
        return [self.running(slow_prompt(3, 90 + k), max_tokens=LONG_WINDOW, ignore_eos=True) for k in range(n)]


class Stream:
    """A streamed answer, read event by event; `at` are the times at which bytes came, from the request on."""

    def __init__(self, server, body, path="/v1/completions", headers=None):
        self.s = socket.create_connection(("127.0.0.1", server.port), timeout=240)
        data = json.dumps(body).encode()
        head = "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n" % (path, len(data))
        for k, v in (headers or {}).items():
            head += "%s: %s\r\n" % (k, v)
        self.start = time.monotonic()
        self.s.sendall(head.encode() + b"\r\n" + data)
        self.raw = b""
        self.at = []
        self.ended = False

    def read_some(self, timeout=240):
        self.s.settimeout(timeout)
        got = self.s.recv(65536)
        self.at.append(time.monotonic() - self.start)
        self.raw += got
        self.ended = not got
        return got

    def read_until(self, mark, timeout=240):
        while mark not in self.raw:
            if not self.read_some(timeout):
                raise Failed("the stream ended before %r: %r" % (mark, self.raw[-500:]))

    def rest(self):
        """To the end of the chunked body, or of the connection."""
        while not self.raw.endswith(b"0\r\n\r\n") and self.read_some():
            pass
        return self

    @property
    def whole(self):
        return self.raw.endswith(b"\r\n0\r\n\r\n")

    def body(self):
        head, _, left = self.raw.partition(b"\r\n\r\n")
        out = b""
        while left:
            size, _, left = left.partition(b"\r\n")
            n = int(size or b"0", 16)
            out, left = out + left[:n], left[n + 2:]
        return out

    def code(self):
        return int(self.raw.split(b" ", 2)[1])

    def events(self):
        out = []
        for line in self.body().decode().split("\n"):
            if line.startswith("data: ") and line != "data: [DONE]":
                out.append(json.loads(line[6:]))
        return out

    def text(self):
        return "".join(e["choices"][0]["text"] for e in self.events() if e.get("choices"))

    def silences(self):
        times = [0.0] + self.at
        return [b - a for a, b in zip(times, times[1:])]

    def leave(self):
        self.s.close()


class Stalls(threading.Thread):
    """Notices that this machine gave nobody any time for a while: what a case timed then says nothing."""

    def __init__(self):
        super().__init__(daemon=True)
        self.longest = 0.0

    def run(self):
        while True:
            before = time.monotonic()
            time.sleep(0.1)
            self.longest = max(self.longest, time.monotonic() - before)


def told(e):
    """Where in the case it happened, and what."""
    where = e.__traceback__
    while where.tb_next and where.tb_next.tb_frame.f_code.co_filename.endswith("_cases.py"):
        where = where.tb_next
    return "line %d: %s: %s" % (where.tb_lineno, type(e).__name__, e)


def run_case(case, stalls):
    """The exception that it ended with, or None. Once more, twice at most, when the machine stood still meanwhile."""
    for left in (2, 1, 0):
        stalls.longest = 0.0
        try:
            return case()
        except Exception as e:      # whatever goes wrong is this case's failure, not the next one's
            if stalls.longest < 1.5 or not left:
                return e
            print("  %s; the machine stood still for %.1f s; again" % (told(e), stalls.longest), flush=True)


def run_cases(cases, argv):
    """The protocol of tests/run.sh: --list, or names to run; none: all."""
    names = [c.__name__ for c in cases]
    if argv == ["--list"]:
        print("\n".join(names))
        return 0
    failed = 0
    stalls = Stalls()
    stalls.start()
    for c in cases:
        if argv and c.__name__ not in argv:
            continue
        start = time.monotonic()
        e = run_case(c, stalls)
        if e is None:
            print("ok %s  %.1f s" % (c.__name__, time.monotonic() - start), flush=True)
            continue
        failed += 1
        print("  " + told(e))
        print("FAIL %s" % c.__name__, flush=True)
    return failed != 0
