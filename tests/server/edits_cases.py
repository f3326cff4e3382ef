"""Prompts that grow, are cut, edited, repeated: over HTTP each answer is that of a process that had never seen any of it.

Where the server says exact=1, to the last bit. Else tokens were computed by decode steps or in pieces that are no multiple of 64, so sums were
formed in another order; that is a last-bit difference with float weights, and is measured with them. Quantised weights round activations to 8 bits,
and one rounding that turns over shifts all that follow: there two correct ways lie up to 0.6 nats apart, which no limit tells from a fault."""
import random
import re
import sys
import tempfile

from gguf import with_float_weights
from prose import HEAVY, words
from serving import SANITIZED, Server, check, run_cases

EVERY = 64
ANSWER = 12
NEAR = 0.003                        # nats; with float weights two ways to a position differ by at most 0.0008 in 2000 positions
OPTIONS = ("--snapshot-every", EVERY, "--parallel", 2)


class Script:
    """What one client does; `past` holds the token lists that the server has computed."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.prompt = words(seed, self.rng.randint(1, 300))
        self.answer = ""
        self.past = []
        self.requests = self.exact = 0

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
    """The answer, and whether its start was exact."""
    answer = server.complete(prompt, max_tokens=ANSWER, temperature=0, logprobs=2)
    return answer, re.findall(r" prefix reason=.* exact=(\d) ", server.log())[-1] == "1"


def same(warm, cold, near, what):
    """Token for token, each within `near` nats; they may part where the cold run itself has two tokens that near."""
    warm, cold = warm["choices"][0]["logprobs"], cold["choices"][0]["logprobs"]
    for i, (a, b) in enumerate(zip(warm["tokens"], cold["tokens"])):
        if a != b:
            top = sorted(cold["top_logprobs"][i].values())
            check(top[-1] - top[-2] < 2 * near, what, "token", i, "is", repr(a), "instead of", repr(b), "in", cold["top_logprobs"][i])
            return
        apart = abs(warm["token_logprobs"][i] - cold["token_logprobs"][i])
        check(apart <= near, what, "token", i, repr(a), "has", warm["token_logprobs"][i], "instead of", cold["token_logprobs"][i])
    check(len(warm["tokens"]) == len(cold["tokens"]), what, warm["tokens"], "instead of", cold["tokens"])


def ids_of(server, text):
    return server.post("/tokenize", {"content": text})["tokens"]


def request(server, script, kind, prompt, model, spread):
    answer, exact = complete(server, prompt)
    with Server(*OPTIONS, *model) as fresh:
        cold, _ = complete(fresh, prompt)
    check(cold["usage"]["prompt_tokens_details"]["cached_tokens"] == 0, cold["usage"])
    script.requests += 1
    script.exact += exact
    if exact or model:
        same(answer, cold, 0 if exact else NEAR, f"{kind}, prompt ...{prompt[-60:]!r}:")
    ids = ids_of(server, prompt)
    cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    if spread:
        known = min(common(ids, script.past), len(ids) - 1)
        check(cached >= known // EVERY * EVERY, kind, "of", len(ids), "tokens", known, "are known, but only", cached, "were taken")
    text = answer["choices"][0]["text"]
    script.past.append(ids_of(server, prompt + text)[:-1])     # the last token was picked, and nothing computed from it
    return text


def play(seeds, *options, model=(), spread=True):
    """model: options that name one of float weights; without, only exact answers are compared."""
    with tempfile.TemporaryDirectory(prefix="edits-") as folder:
        options = [*OPTIONS, *model, "--session-dir", folder, *options]
        server = Server(*options)
        try:
            requests = exact = 0
            for seed in seeds:
                script = Script(seed)
                script.answer = request(server, script, "first", script.prompt, model, spread)
                for _ in range(6):
                    kind, prompt = script.step()
                    if kind == "restart":
                        server.stop()
                        server = Server(*options)
                    answer = request(server, script, kind, prompt, model, spread)
                    if kind != "side":
                        script.answer = answer
                requests, exact = requests + script.requests, exact + script.exact
            print(f"  {len(seeds)} scripts, {requests} requests, {exact} of them exact")
            check(0 < exact < requests, exact, "of", requests, "were exact")
        finally:
            server.stop()


SCRIPTS = 300 if HEAVY else 2 if SANITIZED else 6


def in_parts(first, n, *options, **more):
    """A folder holds the files of so many scripts; at its limit a prefix used lately keeps its place, and a new one is not saved."""
    for at in range(first, first + n, 50):
        play(range(at, min(at + 50, first + n)), *options, **more)


def float_weights():
    return ("-m", with_float_weights())


def edits_are_cold():
    in_parts(0, SCRIPTS, model=float_weights())


def edits_under_pressure_are_cold():
    in_parts(1000, SCRIPTS // 2, "--snapshot-mem", "24M", model=float_weights(), spread=False)


def exact_edits_of_rounded_weights_are_cold():
    in_parts(2000, SCRIPTS // 2)


CASES = [edits_are_cold, edits_under_pressure_are_cold, exact_edits_of_rounded_weights_are_cold]
if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1:]))
