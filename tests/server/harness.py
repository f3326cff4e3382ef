"""Tests over HTTP. A script imports this, defines one function per case, and ends with

    run_cases([first_case, second_case])

It runs in the repository root. A case fails when it raises (check, an error); `skip("why")` passes it with a sentence. DS_BIN names the
folder of the programs under test. DS_HEAVY=1 runs the cases that take minutes."""
import functools
import os
import pathlib
import random
import subprocess
import sys
import threading
import time
import traceback

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))
from served import Client, Server, ServerFailed  # noqa: E402,F401  the scripts' own names

os.chdir(ROOT)
BIN = pathlib.Path(os.environ.get("DS_BIN", "bin"))
HEAVY = os.environ.get("DS_HEAVY") == "1"
SANITIZED = any(word in str(BIN) for word in ("asan", "tsan"))      # ten times slower: what has to be quick is not asked of it


class Skip(Exception):
    pass


def skip(why):
    raise Skip(why)


def check(condition, *words):
    if not condition:
        raise AssertionError(" ".join(map(str, words)))


def wait_until(condition, seconds, what):
    """How long it took."""
    started = time.monotonic()
    while not condition():
        check(time.monotonic() - started < seconds, what, f"did not come within {seconds} s")
        time.sleep(0.01)
    return time.monotonic() - started


@functools.cache
def book():
    """Words of a book that the shipped model knows by heart, as it tells it."""
    return run_tool("Alice was beginning to get very tired", 4000).split()


def words(seed, n):
    """n words in a row of that book, the same for the same seed: a prompt that leaves the model in little doubt."""
    at = random.Random(seed).randrange(max(1, len(book()) - n))
    return " ".join(book()[at:at + n])


def run_tool(prompt, n, *options):
    """The continuation by `deltascope run`, in a process of its own: what nothing was stored for."""
    done = subprocess.run([str(BIN / "deltascope"), "run", "-f", "-", "-n", str(n), *options], input=prompt.encode(), stdout=subprocess.PIPE, check=True)
    return done.stdout.decode()


def at_once(n, work):
    """work(i) for every i < n, all at the same time; the results, or the first error."""
    results, errors = [None] * n, []

    def one(i):
        try:
            results[i] = work(i)
        except Exception as e:  # noqa: BLE001  any of them fails the case
            errors.append(e)
    threads = [threading.Thread(target=one, args=(i,)) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]
    return results


def run_cases(cases):
    names = {f.__name__: f for f in cases}
    if sys.argv[1:] == ["--list"]:
        print("\n".join(names))
        return
    failed = 0
    for name in sys.argv[1:] or names:
        try:
            names[name]()
            print(f"ok {name}", flush=True)
        except Skip as why:
            print(f"ok {name} (skipped: {why})", flush=True)
        except BaseException:
            failed = 1
            print("  " + traceback.format_exc().replace("\n", "\n  ").rstrip() + f"\nFAIL {name}", flush=True)
    sys.exit(failed)
