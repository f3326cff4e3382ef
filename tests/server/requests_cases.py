"""Requests and answers of /v1/completions and of the small routes."""
import json
import subprocess
import sys

from serving import ALICE, BIN, Failed, Server, check, run_cases


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


CASES = [completions_say_what_run_says, small_routes, usage_and_progress]
if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1:]))
