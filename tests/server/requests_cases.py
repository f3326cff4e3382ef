"""Requests and answers of /v1/completions and of the small routes."""
import json
import os
import socket
import struct
import subprocess
import sys

from gguf import SHIPPED, File
from serving import ALICE, BIN, SANITIZED, Server, Stream, check, run_cases


def of_run(prompt, n, *more):
    return subprocess.run([BIN + "/deltascope", "run", "-p", prompt, "-n", str(n), *more], capture_output=True, text=True, check=True).stdout


def completions_say_what_run_says():
    with Server() as s:
        for stream in (False, True):
            got = s.stream(max_tokens=24).rest().text() if stream else s.text(max_tokens=24)
            check(got == of_run(ALICE, 24), "stream" if stream else "json", repr(got))
        ids = s.post("/tokenize", {"content": ALICE})["tokens"]
        check(s.text(ids, max_tokens=24) == of_run(ALICE, 24), "a prompt of ids")
        check(s.text(max_tokens=24, echo=True) == ALICE + of_run(ALICE, 24), "echo")
        check(s.text(max_tokens=12, temperature=1, seed=7) == of_run(ALICE, 12, "--temp", "1", "--seed", "7"), "sampled")
        penalised = of_run(ALICE, 24, "--repeat-penalty", "1.5")
        check(s.text(max_tokens=24, repetition_penalty=1.5) == penalised and penalised != of_run(ALICE, 24), "penalty")


def small_routes():
    with Server() as s:
        check(s.get("/health") == {"status": "ok"})
        m = s.get("/v1/models")["data"][0]
        check(m["id"] == "tales-q8_0" and m["context_window"] == 2048, m)
        check(s.get("/v1/models/tales-q8_0")["id"] == m["id"])
        check(s.call("GET", "/v1/models/other")[0] == 404)
        text = "Alice \u2014 caf\u00e9 \U0001F600\n"
        t = s.post("/tokenize", {"content": text, "pieces": True})
        check(t["count"] == len(t["tokens"]) == len(t["pieces"]) > 3, t)
        check(s.post("/detokenize", {"tokens": t["tokens"]})["content"] == text)
        check(s.complete(model="gpt-99", max_tokens=1)["model"] == "gpt-99", "the model's name is echoed")


def usage_and_progress():
    with Server("--ubatch", 64) as s:
        prompt = ALICE + " of sitting by her sister" * 40
        first = s.complete(prompt, max_tokens=2)["usage"]
        check(first["prompt_tokens_details"]["cached_tokens"] == 0 and first["completion_tokens"] == 2, first)
        plain = s.stream(prompt, max_tokens=2).rest().events()
        check(not any("prompt_progress" in e or "usage" in e for e in plain), "nobody asked")
        e = s.stream(prompt + " again" * 100, max_tokens=2, return_progress=True, stream_options={"include_usage": True}).rest().events()
        p = [x["prompt_progress"] for x in e if "prompt_progress" in x]
        check(p and all(x["total"] == p[0]["total"] for x in p) and p[-1]["processed"] == p[0]["total"], p)
        check(p[0]["processed"] == p[0]["cache"] > 0 and sorted(x["processed"] for x in p) == [x["processed"] for x in p], p)
        check(len(p) >= 3 and sorted(x["time_ms"] for x in p) == [x["time_ms"] for x in p], p)
        u = [x["usage"] for x in e if "usage" in x][-1]
        check(u["prompt_tokens"] == p[0]["total"] and u["prompt_tokens_details"]["cached_tokens"] == p[0]["cache"], u)


def sampling_fields():
    with Server() as s:
        free = s.text(max_tokens=16)
        id_of = lambda text: s.post("/tokenize", {"content": text})["tokens"]
        of, sitting = id_of(" of")[0], id_of(" sitting")[0]
        check(not s.text(max_tokens=4, logit_bias={str(of): -100}).startswith(" of"), "a banned token")
        check(s.text(max_tokens=3, logit_bias={str(sitting): 100}) == " sitting" * 3, "a forced token")
        forced = dict(max_tokens=8, logit_bias={str(sitting): 30})
        check(s.text(**forced) == " sitting" * 8, "biased, no penalty")
        check(s.text(frequency_penalty=2, **forced) == " sitting" * 8, "2 x 7 does not outweigh 30")
        check(s.text(frequency_penalty=2, max_tokens=30, logit_bias={str(sitting): 30}) != " sitting" * 30, "2 x 29 does")
        check(len({s.text(max_tokens=8, temperature=3, seed=k) for k in range(5)}) > 1, "seeds differ")
        check(len({s.text(max_tokens=8, temperature=3, seed=5) for _ in range(3)}) == 1, "one seed is one answer")
        check(s.text(max_tokens=8, temperature=1, top_k=1) == free[:len(s.text(max_tokens=8))], "top_k 1 is greedy")
        check(s.complete(max_tokens=0)["choices"][0] == {"index": 0, "text": "", "logprobs": None, "finish_reason": "length"})
        long = s.complete("THE END", max_tokens=3000, ignore_eos=True)
        check(long["choices"][0]["finish_reason"] == "length" and long["usage"]["total_tokens"] == 2048,
              "without end tokens it goes on to the end of the window", long["usage"])


def probabilities():
    with Server() as s:
        p = s.complete(max_tokens=5, logprobs=3)["choices"][0]["logprobs"]
        check("".join(p["tokens"]) == s.text(max_tokens=5) and all(len(p[k]) == 5 for k in p), p)
        for token, value, top in zip(p["tokens"], p["token_logprobs"], p["top_logprobs"]):
            check(len(top) == 3 and abs(top[token] - value) < 1e-6 and value == max(top.values()) <= 0, top)
            check(sum(2.718281828 ** v for v in top.values()) <= 1.0001)
        e = s.stream(max_tokens=5, logprobs=3).rest().events()
        streamed = [x["choices"][0]["logprobs"] for x in e if x["choices"][0]["logprobs"]]
        check([x["token_logprobs"][0] for x in streamed] == p["token_logprobs"] and [x["text_offset"][0] for x in streamed] == p["text_offset"])


def stop_strings_never_show():
    with Server() as s:
        free = s.text(max_tokens=24)
        for stop in ("sister", "r sister o", " bank", "n th", [" zebra", "by her"], "peeped into there"):
            cut = min((free.find(x) for x in ([stop] if isinstance(stop, str) else stop) if x in free), default=len(free))
            for stream in (True, False):
                if stream:
                    events = s.stream(max_tokens=24, stop=stop).rest().events()
                    text, finish = "".join(e["choices"][0]["text"] for e in events), events[-1]["choices"][0]["finish_reason"]
                else:
                    c = s.complete(max_tokens=24, stop=stop)["choices"][0]
                    text, finish = c["text"], c["finish_reason"]
                check(text == free[:cut], stop, repr(text))
                check(finish == ("stop" if cut < len(free) else "length"), stop, finish)


def characters_stay_whole():
    """Tokens that are single bytes: what is streamed is characters, and what never becomes one is U+FFFD."""
    with Server() as s:
        ids = s.post("/tokenize", {"content": "\u00fd", "pieces": True})["tokens"]
        check(len(ids) == 2, "two byte tokens were expected", ids)
        for forced, want in (([ids[0]], "\ufffd" * 4), ([ids[1]], "\ufffd" * 4)):
            e = s.stream(max_tokens=4, logit_bias={str(i): 100 for i in forced}).rest().events()
            check("".join(x["choices"][0]["text"] for x in e) == want, e)


def wrong_requests():
    """Each is refused with 4xx in OpenAI's shape, and names its field."""
    wrong = [
        ("prompt", {}), ("prompt", dict(prompt=None)), ("prompt", dict(prompt=5)), ("prompt", dict(prompt="")), ("prompt", dict(prompt={})),
        ("prompt", dict(prompt=["a", "b"])), ("prompt", dict(prompt=[1, -1])), ("prompt", dict(prompt=[1, 10 ** 12])),
        ("prompt", dict(prompt=[1, 2.5])), ("prompt", dict(prompt=[1, "a"])), ("prompt", dict(prompt=[])),
        ("max_tokens", dict(max_tokens=-1)), ("max_tokens", dict(max_tokens=1e99)), ("max_tokens", dict(max_tokens="4")),
        ("max_tokens", dict(max_tokens=1.5)), ("max_tokens", dict(max_tokens=True)), ("temperature", dict(temperature=-0.1)),
        ("temperature", dict(temperature="hot")), ("temperature", dict(temperature=[])), ("top_p", dict(top_p=1.1)),
        ("top_k", dict(top_k=-2)), ("min_p", dict(min_p=7)), ("seed", dict(seed="x")), ("n", dict(n=2)), ("n", dict(n=0)),
        ("best_of", dict(best_of=3)), ("suffix", dict(suffix="end")), ("logprobs", dict(logprobs=99)), ("echo", dict(echo="yes")),
        ("stop", dict(stop=5)), ("stop", dict(stop=[""])), ("stop", dict(stop=["a"] * 17)), ("stop", dict(stop=[["a"]])),
        ("presence_penalty", dict(presence_penalty=3)), ("frequency_penalty", dict(frequency_penalty=-3)),
        ("repetition_penalty", dict(repetition_penalty=0)), ("logit_bias", dict(logit_bias=[1])), ("logit_bias", dict(logit_bias={"x": 1})),
        ("logit_bias", dict(logit_bias={"99999999": 1})), ("logit_bias", dict(logit_bias={"5": 101})), ("stream", dict(stream="true")),
        ("stream_options", dict(stream_options=1)), ("stream_options.include_usage", dict(stream_options=dict(include_usage=1))), ("model", dict(model=4)),
        ("return_progress", dict(return_progress=0)), ("max_tokens", dict(max_tokens=10 ** 20)), ("seed", dict(seed=2 ** 63)),
        ("logit_bias", dict(logit_bias={" 1": 1})), ("logit_bias", dict(logit_bias={"1.0": 1})), ("user", dict(user=5)),
        ("prompt", dict(prompt=[1, 2 ** 64])), ("logprobs", dict(echo=True, logprobs=1)), ("suffix", dict(suffix="a\0")), ("special", dict(special="no")),
        ("special", dict(special=1, prompt=[1])), ("ignore_eos", dict(ignore_eos=1)),
    ]
    with Server() as s:
        for param, body in wrong:
            body = dict(body)
            if param != "prompt":
                body.setdefault("prompt", "a")
            e = s.post("/v1/completions", body, 400)["error"]
            check(e["param"] == param and param in e["message"] and e["type"] == "invalid_request_error", body, e)
        check(s.complete(future_field={"a": [1]}, max_tokens=1), "an unknown field is nobody's business")
        check(s.complete(max_tokens=4.0)["usage"]["completion_tokens"] == 4, "a whole number with a point")


def wrong_tokens():
    with Server() as s:
        for path, param, body in (("tokenize", "content", {}), ("tokenize", "content", dict(content=None)), ("tokenize", "content", dict(content=[1])),
                                  ("tokenize", "special", dict(content="a", special=1)), ("tokenize", "pieces", dict(content="a", pieces="x")),
                                  ("detokenize", "tokens", {}), ("detokenize", "tokens", dict(tokens="a")), ("detokenize", "tokens", dict(tokens=["1"])),
                                  ("detokenize", "tokens", dict(tokens=[1.5])), ("detokenize", "tokens", dict(tokens=[-1])),
                                  ("detokenize", "tokens", dict(tokens=[2 ** 64])), ("detokenize", "tokens", dict(tokens=[10 ** 7]))):
            e = s.post("/" + path, body, 400)["error"]
            check(e["param"] == param and param in e["message"] and e["type"] == "invalid_request_error", path, body, e)
        for path in ("chat/completions", "responses", "messages", "messages/count_tokens", "completions"):
            status, _, data = s.call("POST", "/v1/" + path, '{"max_tokens": 1e400, "model": "m"}')
            check(status == 400 and b"'max_tokens' holds the number 1e400" in data, path, status, data)


def parts_of_one_call(seed, bias):
    """The same question to the three APIs: path, body, where usage and the end stand in an answer and in a stream's events."""
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    common = dict(model="m", temperature=1, seed=seed, logit_bias=bias, ignore_eos=True)
    function = {"name": "read", "parameters": schema}
    yield ("/v1/chat/completions",
           dict(common, messages=[{"role": "user", "content": "Alice"}], max_tokens=60, stream_options={"include_usage": True},
                tools=[{"type": "function", "function": function}], tool_choice={"type": "function", "function": {"name": "read"}}),
           lambda o: (o["usage"]["completion_tokens"], o["choices"][0]["finish_reason"]),
           lambda e: (e[-1]["usage"]["completion_tokens"], [c["finish_reason"] for x in e for c in x["choices"] if c["finish_reason"]][0]))
    yield ("/v1/messages",
           dict(common, messages=[{"role": "user", "content": "Alice"}], max_tokens=60, tools=[{"name": "read", "input_schema": schema}],
                tool_choice={"type": "tool", "name": "read"}),
           lambda o: (o["usage"]["output_tokens"], o["stop_reason"]),
           lambda e: [(x["usage"]["output_tokens"], x["delta"]["stop_reason"]) for x in e if x["type"] == "message_delta"][0])
    yield ("/v1/responses",
           dict(common, input="Alice", max_output_tokens=60, tool_choice={"type": "function", "name": "read"},
                tools=[dict(function, type="function")]),
           lambda o: (o["usage"]["output_tokens"], o["status"], [i["type"] for i in o["output"]]),
           lambda e: (e[-1]["response"]["usage"]["output_tokens"], e[-1]["response"]["status"], [i["type"] for i in e[-1]["response"]["output"]]))


def the_only_call_ends_the_answer():
    with Server("--tools-template", "generic") as s:
        end = s.post("/tokenize", {"content": "</tool_call>", "special": True})["tokens"]
        check(len(end) == 1, end)
        lengths = {}
        for seed in range(20):
            bias = {str(end[0]): 8 + seed % 5 * 4}
            for path, body, of_json, of_events in parts_of_one_call(seed, bias):
                one = of_json(s.post(path, body))
                parts = of_events(Stream(s, dict(body, stream=True), path).rest().events())
                check(one == parts, path, seed, "in one piece", one, "in a stream", parts)
                lengths.setdefault(path, set()).add(one[0])
        check(all(min(n) < 60 for n in lengths.values()), lengths)


def odd_bodies():
    with Server() as s:
        for body in (b"", b"{", b'{"prompt": "a', b"[]", b"5", b"null", b'"x"', b"{'prompt': 1}", b'{"prompt": "\xff\xfe"}', b"\x00" * 100,
                     b'{"prompt": "a", "max_tokens": 1e999}', b'{"prompt": "a", "max_tokens": 99999999999999999999}',
                     b"[" * 10000 + b"]" * 10000, b'{"a":' * 10000 + b"1" + b"}" * 10000, b'{"prompt": "\xed\xa0\x80"}',
                     b'{"prompt": "\xc0\xaf"}', b"{\"prompt\": [" + b"1," * 9000000 + b"1]}"):
            status, _, data = s.call("POST", "/v1/completions", body)
            check(status == 400 and json.loads(data)["error"]["message"], body[:40], status, data[:200])
        for text in ('"a\\u0000b"', '"\\ud800"', '"\\udc00x"', '"\\ud83d\\ude00"', '"\\ud800\\ud800"', '"\\\\ud800"'):
            status, _, data = s.call("POST", "/v1/completions", '{"max_tokens": 1, "prompt": %s}' % text)
            check(status == 200, text, data)
        t = s.call("POST", "/tokenize", '{"content": "\\ud83d\\ude00 \\ud800 \\\\ud800"}')[2]
        back = s.post("/detokenize", {"tokens": json.loads(t)["tokens"]})["content"]
        check(back == "\U0001F600 \ufffd \\ud800", ascii(back))


def names_of_models():
    """Any, but as short as a name: each piece of an answer repeats it."""
    with Server() as s:
        check(s.complete(ALICE, model="m" * 256, max_tokens=1)["model"] == "m" * 256)
        chat = dict(messages=[dict(role="user", content="a")], max_tokens=1)
        for path, body in (("completions", dict(prompt=ALICE)), ("chat/completions", chat), ("responses", dict(input="a")), ("messages", chat)):
            body = dict(body, model="m" * 257)
            status, _, data = s.call("POST", "/v1/" + path, body)
            check(status == 400 and b"'model' has 257 bytes" in data, path, status, data[:300])


def prompts_past_the_window():
    """Counted, and refused with both numbers, however long; what leaves room for a token is taken."""
    with Server(ctx=512) as s:
        for n in (512, 513, 3000000):
            e = s.complete([5] * n, want=400)["error"]
            check(str(n) in e["message"] and ("512" if n > 512 else "511") in e["message"] and e["code"] == "context_length_exceeded", e)
        e = s.complete("a b " * 2000000, want=400)["error"]
        check("512" in e["message"] and any(int(w) > 1000000 for w in e["message"].split() if w.isdigit()), e)
        check(s.complete([5] * 512, max_tokens=0)["usage"]["total_tokens"] == 512, "nothing is to be answered")
        for prompt in (511, 500):
            for stream in (False, True):
                more = dict(max_tokens=50, ignore_eos=True)
                c = s.stream([5] * prompt, stream_options={"include_usage": True}, **more).rest().events() if stream else [s.complete([5] * prompt, **more)]
                check(c[-1]["usage"]["total_tokens"] == 512 and c[-1]["usage"]["completion_tokens"] == 512 - prompt, prompt, c[-1])
                check([e["choices"][0]["finish_reason"] for e in c if e["choices"]][-1] == "length", c[-2:])


def large_bodies():
    """Up to 64 MiB; beyond that 413, whether the length is told or not."""
    mib = 1 << 20
    with Server() as s:
        pad = lambda n: b'{"prompt":"Alice","max_tokens":1,"pad":"' + b"x" * (n - 42) + b'"}'
        check(s.call("POST", "/v1/completions", pad(64 * mib))[0] == 200, "64 MiB are taken")
        status, _, data = s.call("POST", "/v1/completions", pad(64 * mib + 4096))
        check(status == 413 and b"67108864" in data, status, data)

        def pieces():
            for _ in range(66):
                yield b" " * mib
        c = s.connect()
        c.request("POST", "/v1/completions", pieces(), {"Transfer-Encoding": "chunked"}, encode_chunked=True)
        check(c.getresponse().status == 413, "no length told")
        c = s.connect()
        c.putrequest("POST", "/v1/completions")
        c.putheader("Content-Length", str(10 ** 15))
        c.endheaders()
        check(c.getresponse().status == 413, "an absurd length is refused before it comes")
        check(s.text(max_tokens=3) == " of sitting by")


def many_values():
    """1 Mi values and 8 Mi numbers in a body; what many took is given back."""
    rss = lambda s: int([x for x in open("/proc/%d/status" % s.process.pid) if x.startswith("VmRSS")][0].split()[1]) >> 10
    with Server() as s:
        def post(n):        # n values beside the one number: n - 4 of them are objects of the array
            return s.call("POST", "/v1/completions", b'{"prompt":"Alice","max_tokens":1,"z":[' + b"{}," * (n - 5) + b"{}]}")
        check(post(100)[0] == 200)
        before = rss(s) if os.path.exists("/proc/self/status") else 0
        check(post(1 << 20)[0] == 200)
        status, _, data = post((1 << 20) + 1)
        check(status == 400 and b"more than 1048576 values" in data, status, data)
        status, _, data = s.call("POST", "/v1/completions", b'{"max_tokens":1,"prompt":[' + b"5," * ((8 << 20) - 1) + b"5]}")
        check(status == 400 and b"more than 8388608 numbers" in data, status, data)
        if before and not SANITIZED and b"glibc" in subprocess.run(["getconf", "GNU_LIBC_VERSION"], capture_output=True).stdout:
            check(rss(s) < before + 40, "memory stays taken", before, rss(s), "MiB")


def methods_and_paths():
    with Server() as s:
        for method, path, allow in (("GET", "/v1/completions", "POST"), ("DELETE", "/v1/completions", "POST"), ("POST", "/v1/models", "GET"),
                                    ("PUT", "/health", "GET"), ("POST", "/", "GET"), ("OPTIONS", "/status", "GET")):
            status, headers, data = s.call(method, path, b"{}" if method == "PUT" else None)
            check(status == 405 and headers["Allow"] == allow and json.loads(data)["error"]["message"], method, path, status, headers)
        for path in ("/v1/nothing", "/v1/completions/x", "//", "/v1/models/", "/../etc/passwd", "/" + "a" * 5000):
            status, headers, data = s.call("GET", path)
            check(status in (404, 405) and json.loads(data)["error"]["message"], path, status)
        status, headers, data = s.call("HEAD", "/health")
        check(status == 200 and data == b"")
        check(s.call("GET", "/health?x=1")[0] == 200, "a query is no part of the path")


def error_shapes():
    """Anthropic's for whoever speaks its API, on every path; in OpenAI's the code is a string or null."""
    version = {"anthropic-version": "2023-06-01"}
    with Server() as s:
        for method, path, headers, want in (("POST", "/v1/messages/batches", {}, 404), ("GET", "/v1/messages/", {}, 404), ("GET", "/v1/messages", {}, 405),
                                            ("GET", "/v1/nothing", version, 404), ("GET", "/v1/models/none", version, 404), ("POST", "/v1/messages", {}, 400)):
            status, _, data = s.call(method, path, b"{}" if method == "POST" else None, headers)
            e = json.loads(data)
            kind = "not_found_error" if want == 404 else "invalid_request_error"
            check(status == want and e["type"] == "error" and e["error"]["type"] == kind and e["error"]["message"], method, path, status, data)
        for method, path, want, code in (("GET", "/v1/nothing", 404, None), ("GET", "/v1/models/none", 404, None), ("POST", "/v1/chat/completions", 400, None),
                                         ("GET", "/v1/completions", 405, None), ("POST", "/v1/messagesx", 404, None)):
            status, _, data = s.call(method, path, b"{}" if method == "POST" else None)
            e = json.loads(data)
            check(status == want and set(e) == {"error"} and e["error"]["code"] == code, method, path, status, data)


def raw(s, text):
    """What the server answers to these bytes, without more of them."""
    with socket.create_connection(("127.0.0.1", s.port), timeout=20) as c:      # at 30 s it would give up on the rest
        c.sendall(text)
        data = b""
        while b"\r\n\r\n" not in data:
            more = c.recv(4096)
            check(more, "closed without an answer", text[:80])
            data += more
        return int(data.split()[1]), data


def odd_headers():
    with Server() as s:
        body, host = b'{"prompt":"a","max_tokens":1}', b"Host: localhost\r\n"
        post = lambda more: raw(s, b"POST /v1/completions HTTP/1.1\r\n" + host + more + b"\r\n" + body)
        length = b"Content-Length: %d\r\n" % len(body)
        for more, want, word in ((b"Content-Encoding: gzip\r\n", 415, b"'gzip'"), (b"content-encoding: br, gzip\r\n", 415, b"'br, gzip'"),
                                 (b"Content-Encoding: Identity\r\n", 200, b"text_completion"), (b"", 200, b"text_completion")):
            status, _, data = s.call("POST", "/v1/completions", body, dict([more.decode().strip().split(": ")]) if more else {})
            check(status == want and word in data, more, status, data)
        for coding in (b"gzip", b"gzip, chunked", b"identity", b"x"):
            status, data = post(b"Transfer-Encoding: " + coding + b"\r\n")
            check(status == 501, coding, data)
        check(post(length)[0] == 200)
        chunked, pieces = b"Transfer-Encoding: chunked\r\n", b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
        smuggled = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
        for framing in (length + b"Content-Length: 3\r\n", b"Content-Length: 0\r\n" + length, length + b"content-length: %d\r\n" % len(body),
                        length + chunked, chunked + length, chunked * 2, chunked + b"transfer-encoding: identity\r\n"):
            for method in (b"POST /v1/completions", b"POST /v1/messages", b"GET /health", b"OPTIONS /health", b"POST /nothing"):
                ask = b"Access-Control-Request-Method: POST\r\n" if method[0:1] == b"O" else b""
                with socket.create_connection(("127.0.0.1", s.port), timeout=20) as c:
                    c.sendall(method + b" HTTP/1.1\r\n" + host + ask + framing + b"\r\n" + (pieces if chunked in framing else body) + smuggled)
                    data = b""
                    try:
                        for more in iter(lambda: c.recv(4096), b""):
                            data += more
                    except ConnectionResetError:
                        pass
                check(data.startswith(b"HTTP/1.1 400") and data.count(b"HTTP/1.1") == 1, method, framing, data[:300])
                check((b'"invalid_request_error"' in data) and (b"/v1/messages" in method) == (b'"type":"error"' in data), method, data)
        for version, hosts, want in ((b"1.1", b"", 400), (b"1.1", host * 2, 400), (b"1.1", host + b"host: evil.example\r\n", 400), (b"1.0", b"", 200),
                                     (b"1.0", host * 2, 400), (b"1.1", host, 200), (b"1.1", b"HOST: localhost\r\n", 200)):
            for path in (b"/health", b"/status"):
                status, data = raw(s, b"GET %s HTTP/%s\r\n%s\r\n" % (path, version, hosts))
                check(status == want, version, hosts, data[:200])
        for path, want in (("/health%00", 404), ("/health%00x", 404), ("/%00", 404), ("/%68ealth", 200), ("/health%", 404), ("/health%6", 404), ("/health%zz", 404),
                           ("/v1/models/tales-q8%5F0", 200), ("/v1/models/tales-q8%5f0", 200), ("/health?x=%00", 200)):
            check(s.call("GET", path)[0] == want, path, s.call("GET", path))


def numbers_agree():
    """/status and /metrics say the same, and both what happened."""
    with Server() as s:
        for k in range(3):
            s.complete(ALICE + " of" * 30 * k, max_tokens=4, ignore_eos=True)
        s.complete(max_tokens=4)
        st, text = s.idle(), s.metrics()
        values = {}
        for line in text.splitlines():
            if line.startswith("#"):
                check(line.split()[1] in ("HELP", "TYPE") and len(line.split()) >= 4, line)
            else:
                name, value = line.rsplit(" ", 1)
                values[name] = float(value)
        t = st["totals"]
        for name, want in (("requests_total{end=\"finished\"}", t["finished"]), ("prompt_tokens_total", t["prompt_tokens"]),
                           ("cached_tokens_total", t["cached_tokens"]), ("prefill_tokens_total", t["prefill_tokens"]),
                           ("generated_tokens_total", t["generated_tokens"]), ("snapshots", st["store"]["snapshots"]),
                           ("snapshot_memory_limit_bytes", st["store"]["mem_limit"]), ("first_token_seconds_count", 4)):
            check(values["deltascope_" + name] == want, name, want)
        for reason, want in t["lookups"].items():
            check(values['deltascope_prefix_lookups_total{reason="%s"}' % reason] == want, reason)
        for stage, ms in t["stages_ms"].items():
            check(abs(values['deltascope_stage_seconds_total{stage="%s"}' % stage] - ms / 1e3) < 2e-6, stage)
        check(t["finished"] == 4 and t["generated_tokens"] == 16 and sum(t["lookups"].values()) == 4, t)
        check(t["cached_tokens"] + t["prefill_tokens"] == t["prompt_tokens"] and t["cached_tokens"] > 0, t)
        sums = {k: sum(r["stages_ms"][k] for r in st["recent"]) for k in t["stages_ms"]}
        check(all(abs(sums[k] - t["stages_ms"][k]) < 0.01 for k in sums), sums)
        whole = sum(v for k, v in t["stages_ms"].items() if k != "qk-norm")
        check(0 < whole <= t["prefill_s"] * 1e3 * 1.01, "the stages are a part of the prefills", whole, t["prefill_s"])
        m = st["memory_bytes"]
        check(m["planned"] >= m["weights"] + m["sessions"] + m["snapshot_limit"] and m["snapshot"] <= m["snapshot_limit"], m)
        check("snapshot" in s.log() and "reason=" in s.log() and "recompute=" in s.log(), "lookups are logged")


def a_nan_names_its_layer():
    """The request fails with a sentence; nothing of it is kept, and the server goes on."""
    with open(SHIPPED, "rb") as f:
        data = bytearray(f.read())
    struct.pack_into("<f", data, File(data).tensors["blk.3.attn_norm.weight"].offset, float("nan"))
    path = os.path.join(os.environ["TMP"], "nan.gguf")
    with open(path, "wb") as f:
        f.write(data)
    with Server("-m", path) as s:
        for _ in range(2):
            x = s.stream(max_tokens=4)
            try:
                x.rest()
            except ConnectionError:
                pass
            said = [e["error"]["message"] for e in x.events() if "error" in e]
            check(len(said) == 1 and "layer 3" in said[0] and not x.whole, x.raw[-400:])
        t = s.wait_for(lambda st: st["store"]["snapshots"] == 0)["totals"]
        check(t["failed"] == 2 and t["cached_tokens"] == 0, t)


CASES = [completions_say_what_run_says, small_routes, usage_and_progress, sampling_fields, probabilities, stop_strings_never_show,
         characters_stay_whole, wrong_requests, wrong_tokens, the_only_call_ends_the_answer, odd_bodies, names_of_models,
         prompts_past_the_window, large_bodies, many_values, methods_and_paths, error_shapes, odd_headers, numbers_agree, a_nan_names_its_layer]
if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1:]))
