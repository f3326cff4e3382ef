"""Who may use the server, and what is left for others when somebody takes all connections."""
import json
import os
import socket
import subprocess
import sys
import time

from serving import ALICE, BIN, LONG_WINDOW, SLOW, Server, check, run_cases, slow_prompt

BODY = dict(prompt=ALICE, max_tokens=1)


def said(answer):
    return json.loads(answer[2])["error"]["message"]


def keys():
    with Server("--api-key", "sesame") as s:
        for headers, words in (({}, "is wanted"), ({"Authorization": "Bearer sesamE"}, "not the one"), ({"Authorization": "sesame"}, "expected 'Bearer KEY'"),
                               ({"Authorization": "Basic sesame"}, "expected 'Bearer KEY'"), ({"x-api-key": ""}, "not the one"),
                               ({"x-api-key": "sesames"}, "not the one"), ({"x-api-key": "sesam"}, "not the one"), ({"Authorization": "Bearer "}, "key")):
            for path in ("/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages", "/tokenize"):
                a = s.call("POST", path, BODY, headers)
                check(a[0] == 401 and json.loads(a[2])["error"]["type"] == "authentication_error" and words in said(a), headers, a[0], a[2])
        for headers in ({"Authorization": "Bearer sesame"}, {"x-api-key": "sesame"}, {"Authorization": "bearer sesame"}, {"Authorization": "BEARER   sesame"},
                        {"Authorization": "Basic x", "x-api-key": "sesame"}):
            check(s.call("POST", "/v1/completions", BODY, headers)[0] == 200, headers)
        check(s.call("GET", "/status")[0] == s.call("GET", "/metrics")[0] == s.call("GET", "/v1/models")[0] == s.call("GET", "/no")[0] == 401)
        check(s.call("GET", "/health")[0] == s.call("GET", "/")[0] == 200)
    with Server("--host", "0.0.0.0", "--api-key", "k") as s:
        check(s.call("GET", "/health")[0] == 200, "other addresses with a key")


def written(name, data):
    path = os.path.join(os.environ["TMP"], name)
    with open(path, "wb") as f:
        f.write(data)
    return path


def keys_off_the_command_line():
    """Other users see command lines: a file, or the environment."""
    for data in (b"sesame", b"sesame\n", b"sesame\r\n"):
        with Server("--api-key-file", written("key", data)) as s:
            check(s.call("GET", "/status")[0] == 401 and s.call("GET", "/status", headers={"x-api-key": "sesame"})[0] == 200, data)
    os.environ["DELTASCOPE_API_KEY"] = "sesame"
    try:
        with Server() as s:
            check(s.call("GET", "/status")[0] == 401 and s.call("GET", "/status", headers={"x-api-key": "sesame"})[0] == 200)
        with Server("--api-key", "other") as s:
            check(s.call("GET", "/status", headers={"x-api-key": "other"})[0] == 200, "the command line comes first")
    finally:
        del os.environ["DELTASCOPE_API_KEY"]


def refuses(args, words, **env):
    r = subprocess.run([BIN + "/deltascope-server", "--port", "0", *args], capture_output=True, text=True, timeout=60, env={**os.environ, **env})
    check(r.returncode == 2 and words in r.stderr and r.stderr.count("\n") == 1 and not r.stdout, args, r)


def options_that_are_refused():
    for args, words in ((["--host", "0.0.0.0"], "needs --api-key"), (["--host", "::"], "needs --api-key"), (["--api-key", ""], "--api-key"),
                        (["--snapshot-every", "100"], "multiple of 64"), (["--parallel", "0"], "--parallel"), (["--host", "nowhere.invalid"], "nowhere.invalid"),
                        (["--host", "127.0.0.1.5"], "'127.0.0.1.5' is no address"), (["--host", ""], "is empty"),
                        (["--snapshot-mem", "100000T"], "GiB of memory"), (["--api-key", "a", "--api-key-file", "b"], "exclude each other"),
                        (["--api-key-file", written("empty", b"\n")], "expected one line"), (["--api-key-file", written("two", b"a\nb\n")], "expected one line"),
                        (["--api-key-file", written("nul", b"a\0b")], "expected one line"), (["--api-key-file", written("long", b"a" * 5000)], "more than a key"),
                        (["--api-key-file", "/nowhere/key"], "/nowhere/key: No such file"), (["--api-key-file", "/"], "--api-key-file /")):
        refuses(args, words)
    refuses([], "DELTASCOPE_API_KEY is set, but empty", DELTASCOPE_API_KEY="")
    for origin in ("foo", "", "https://", "https://a.example/", "https://a.example/x", "a.example", "https://A.example", "https://a.example:", "https://a.example:x",
                   "https://a b", "https://a.example https://b.example", "://a", "null", "**", "https://[::1", "https://*.example"):
        refuses(["--cors-origin", origin], "--cors-origin")


def origins():
    good, bad = "https://app.example", "https://evil.example"
    ask = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    with Server() as s:
        check(s.call("GET", "/health", headers={"Origin": good})[1]["Access-Control-Allow-Origin"] is None)
        check(s.call("OPTIONS", "/v1/completions", headers={"Origin": good, **ask})[0] == 403)
        own = "http://127.0.0.1:%d" % s.port
        for origin, want in ((good, 403), ("null", 403), ("http://127.0.0.1", 403), (own + "1", 403), (own, 200), ("http://localhost:%d" % s.port, 403)):
            for path in ("/v1/completions", "/tokenize"):           # as a page can without asking first: a simple request
                a = s.call("POST", path, json.dumps(dict(BODY, content="a")), {"Origin": origin, "Content-Type": "text/plain"})
                check(a[0] == want and (want == 200 or "--cors-origin" in said(a)), origin, path, a[0], a[2])
        a = s.call("POST", "/v1/messages", "{}", {"Origin": bad})
        check(a[0] == 403 and json.loads(a[2])["type"] == "error", "in the API's own shape", a[2])
        check(s.status()["totals"]["requests"] == 1, "the others computed nothing")
    with Server("--cors-origin", good, "--cors-origin", "http://localhost:3000", "--cors-origin", "http://[::1]:3000", "--api-key", "k") as s:
        status, h, _ = s.call("OPTIONS", "/v1/completions", headers={"Origin": good, **ask})
        check(status == 204 and h["Access-Control-Allow-Origin"] == good and "POST" in h["Access-Control-Allow-Methods"], status, h)
        check(s.call("OPTIONS", "/v1/completions", headers={"Origin": bad, **ask})[0] == 403)
        check(s.call("GET", "/health", headers={"Origin": good})[1]["Access-Control-Allow-Origin"] == good)
        status, h, _ = s.call("GET", "/health", headers={"Origin": bad})
        check(status == 200 and h["Access-Control-Allow-Origin"] is None and h["Vary"] == "Origin")
        for origin, want in ((good, 200), (bad, 403), ("http://[::1]:3000", 200)):
            check(s.call("POST", "/v1/completions", BODY, {"Origin": origin, "x-api-key": "k"})[0] == want, origin)
    with Server("--cors-origin", "*") as s:
        check(s.call("POST", "/v1/completions", BODY, {"Origin": bad})[0] == 200)


def hosts():
    """A page whose name was made to point here says its own name in Host (DNS rebinding)."""
    names = {"localhost": 200, "localhost:%d": 200, "LOCALHOST": 200, "127.0.0.1:%d": 200, "127.1.2.3": 200, "[::1]:%d": 200, "[::1]": 200, "llm.localhost": 200,
             "evil.example": 403, "evil.example:%d": 403, "127.0.0.1.evil.example": 403, "localhost.evil.example": 403, "127.evil.0.1": 403, "evil:127.0.0.1": 403,
             "notlocalhost": 403, "192.168.0.1": 403, ".localhost": 403, "": 403}
    with Server() as s:
        for name, want in names.items():
            for method, path in (("GET", "/health"), ("GET", "/"), ("GET", "/status"), ("POST", "/v1/completions")):
                a = s.call(method, path, BODY if method == "POST" else None, {"Host": name % s.port if "%d" in name else name})
                check(a[0] == want and (want == 200 or "the Host header names" in said(a)), name, path, a[0], a[2][:200])
        c = socket.create_connection(("127.0.0.1", s.port))
        c.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        check(c.recv(100).startswith(b"HTTP/1.") and b" 200 " in c.recv(100) + b" 200 ", "none at all: no browser")
        c.close()
    with Server("--api-key", "k") as s:
        check(s.call("GET", "/status", headers={"Host": "llm.example", "x-api-key": "k"})[0] == 200, "with a key any name will do")


def idle_connections_make_room():
    """The longest silent first, so that whoever comes is answered at once."""
    with Server() as s:
        idle = [socket.create_connection(("127.0.0.1", s.port)) for _ in range(530)]
        for _ in range(3):
            t = time.monotonic()
            check(s.call("GET", "/health")[0] == 200 and s.text(max_tokens=3) == " of sitting by")
            check(time.monotonic() - t < 20, "answered after", time.monotonic() - t)     # at 30 s they would be dropped anyway
        idle[0].settimeout(60)
        check(idle[0].recv(1) == b"", "the oldest was told to go")
        idle[-1].sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        check(idle[-1].recv(15) == b"HTTP/1.1 200 OK", "the youngest was not")
        for c in idle:
            c.close()
        s.wait_for(lambda st: st["load"]["connections"] < 10)


def all_connections_at_work():
    """The next is told so at once, and health is still told; a long answer keeps the others waiting meanwhile."""
    with Server(*SLOW, "--parallel", 1, "--queue", 600, ctx=LONG_WINDOW, threads=1) as s:
        busy = s.hold(1)
        busy += [s.stream(slow_prompt(3), max_tokens=2000, ignore_eos=True) for _ in range(511)]
        for x in busy:
            x.read_until(b"HTTP/1.1 200")
        t = time.monotonic()
        a = s.call("POST", "/v1/completions", BODY)
        check(a[0] == 503 and a[1]["Retry-After"] and "all 512 are in use" in said(a), a[0], a[2])
        check(s.call("GET", "/health")[0] == 200 and time.monotonic() - t < 20, "at once", time.monotonic() - t)
        for x in busy:
            x.leave()


CASES = [keys, keys_off_the_command_line, options_that_are_refused, origins, hosts, idle_connections_make_room,
         all_connections_at_work]
if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1:]))
