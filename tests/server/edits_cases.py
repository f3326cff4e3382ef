"""Prompts that grow, are cut, edited, repeated: over HTTP each answer is that of a process that had never seen any of it."""
import random
import sys
import tempfile

from prose import HEAVY, words
from serving import SANITIZED, Server, check, run_cases

EVERY = 64
ANSWER = 12
TIE = 0.25                          # nats between the two likeliest tokens
OPTIONS = ("--snapshot-every", EVERY, "--parallel", 2, "--quiet")


class Script:
    """What one client does; `past` holds the token lists that the server has computed."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.prompt = words(seed, self.rng.randint(1, 300))
        self.answer = ""
        self.past = []
        self.requests = self.ties = 0

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


def complete(server, prompt):
    return server.complete(prompt, max_tokens=ANSWER, temperature=0, logprobs=2)


def same_or_tie(warm, cold, what):
    """Where a snapshot does not lie on a multiple of 64, or was taken while decoding, sums are rounded otherwise: the answer may leave
    that of a cold run only where the cold run itself was in doubt between two tokens. True when it did."""
    warm, cold = warm["choices"][0]["logprobs"], cold["choices"][0]["logprobs"]
    for i, (a, b) in enumerate(zip(warm["tokens"], cold["tokens"])):
        if a != b:
            top = sorted(cold["top_logprobs"][i].values())
            check(top[-1] - top[-2] < TIE, what, "token", i, "is", repr(a), "instead of", repr(b), "in", cold["top_logprobs"][i])
            return True
    check(len(warm["tokens"]) == len(cold["tokens"]), what, warm["tokens"], "instead of", cold["tokens"])
    return False


def ids_of(server, text):
    return server.post("/tokenize", {"content": text})["tokens"]


def request(server, script, kind, prompt, spread):
    answer = complete(server, prompt)
    with Server(*OPTIONS) as fresh:
        cold = complete(fresh, prompt)
    check(cold["usage"]["prompt_tokens_details"]["cached_tokens"] == 0, cold["usage"])
    script.requests += 1
    script.ties += same_or_tie(answer, cold, f"{kind}, prompt ...{prompt[-60:]!r}:")
    ids = ids_of(server, prompt)
    cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    if spread:
        known = min(common(ids, script.past), len(ids) - 1)
        check(cached >= known // EVERY * EVERY, kind, "of", len(ids), "tokens", known, "are known, but only", cached, "were taken")
    text = answer["choices"][0]["text"]
    script.past.append(ids_of(server, prompt + text))
    return text


def play(seeds, *options, spread=True):
    with tempfile.TemporaryDirectory(prefix="edits-") as folder:
        server = Server(*OPTIONS, "--session-dir", folder, *options)
        try:
            requests = ties = 0
            for seed in seeds:
                script = Script(seed)
                script.answer = request(server, script, "first", script.prompt, spread)
                for _ in range(6):
                    kind, prompt = script.step()
                    if kind == "restart":
                        server.stop()
                        server = Server(*OPTIONS, "--session-dir", folder, *options)
                    answer = request(server, script, kind, prompt, spread)
                    if kind != "side":
                        script.answer = answer
                requests, ties = requests + script.requests, ties + script.ties
            print(f"  {len(seeds)} scripts, {requests} requests; {ties} answers leave the cold one, where it was in doubt")
        finally:
            server.stop()


SCRIPTS = 300 if HEAVY else 2 if SANITIZED else 6


def in_parts(first, n, *options, spread=True):
    """A folder holds the files of so many scripts; at its limit a prefix used lately keeps its place, and a new one is not saved."""
    for at in range(first, first + n, 50):
        play(range(at, min(at + 50, first + n)), *options, spread=spread)


def edits_are_cold():
    in_parts(0, SCRIPTS)


def edits_under_pressure_are_cold():
    in_parts(1000, SCRIPTS // 2, "--snapshot-mem", "24M", spread=False)


CASES = [edits_are_cold, edits_under_pressure_are_cold]
if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1:]))
