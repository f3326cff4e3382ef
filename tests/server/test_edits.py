#!/usr/bin/env python3
"""Prompts that grow, are cut, edited, repeated: over HTTP each answer is that of a process that had never seen any of it."""
import random
import tempfile

from harness import HEAVY, SANITIZED, Server, check, run_cases, run_tool, words

EVERY = 64
ANSWER = 12
OPTIONS = ["--ctx", 2048, "--snapshot-every", EVERY, "--parallel", 2, "--threads", 1]


class Script:
    """What one client does; `past` holds the token lists that the server has computed."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.prompt = words(seed, self.rng.randint(1, 300))
        self.answer = ""
        self.past = []

    def step(self):
        rng, parts = self.rng, self.prompt.split(" ")
        kind = rng.choice(["append", "cut", "edit", "repeat", "side", "restart"])
        if kind == "append" and len(parts) < 700:
            self.prompt += self.answer + " " + words(rng.random(), rng.randint(1, 120))
        elif kind == "cut":
            self.prompt = " ".join(parts[:rng.randint(1, len(parts))])
        elif kind == "edit":
            parts[len(parts) * rng.randint(1, 99) // 100] = "Alice"
            self.prompt = " ".join(parts)
        elif kind == "side":
            return kind, words(rng.random(), rng.randint(1, 150))
        return kind, self.prompt


def common(ids, past):
    best = 0
    for other in past:
        n = 0
        while n < min(len(ids), len(other)) and ids[n] == other[n]:
            n += 1
        best = max(best, n)
    return best


def request(server, script, kind, prompt, spread):
    status, answer = server.client.post("/v1/completions", {"prompt": prompt, "max_tokens": ANSWER, "temperature": 0})
    check(status == 200, kind, answer)
    text = answer["choices"][0]["text"]
    want = run_tool(prompt, ANSWER, "--ctx", "2048", "--threads", "1")
    check(text == want, kind, "answered", repr(text), "cold", repr(want), "after", repr(prompt[-80:]))
    ids = server.client.tokenize(prompt)
    cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    if spread:
        known = min(common(ids, script.past), len(ids) - 1)
        check(cached >= known // EVERY * EVERY, kind, "of", len(ids), "tokens", known, "are known, but only", cached, "were taken")
    script.past.append(server.client.tokenize(prompt + text))
    return text


def play(seeds, *options, spread=True):
    with tempfile.TemporaryDirectory(prefix="edits-") as folder:
        server = Server(None, *OPTIONS, "--session-dir", folder, *options)
        try:
            for seed in seeds:
                script = Script(seed)
                script.answer = request(server, script, "first", script.prompt, spread)
                for _ in range(6):
                    kind, prompt = script.step()
                    if kind == "restart":
                        code, _ = server.stop()
                        check(code == 0, "the server ended with code", code, server.log())
                        server = Server(None, *OPTIONS, "--session-dir", folder, *options)
                    answer = request(server, script, kind, prompt, spread)
                    if kind != "side":
                        script.answer = answer
        finally:
            server.stop()


SCRIPTS = 300 if HEAVY else 4 if SANITIZED else 12


def edits_are_cold():
    play(range(SCRIPTS))


def edits_under_pressure_are_cold():
    play(range(1000, 1000 + SCRIPTS // 2), "--snapshot-mem", "24M", spread=False)


run_cases([edits_are_cold, edits_under_pressure_are_cold])
