"""Prompts that leave the shipped model in little doubt, and whether long forms were asked for."""
import functools
import os
import random
import subprocess
import threading

from serving import ALICE, BIN

HEAVY = os.environ.get("DS_HEAVY") == "1"       # DS_HEAVY=1 make test T=NAME: the forms that take minutes


LOCK = threading.Lock()


def book():
    """Words of a book that the model knows by heart, as it tells it; once, whoever asks."""
    with LOCK:
        return told()


@functools.cache
def told():
    done = subprocess.run([BIN + "/deltascope", "run", "-p", ALICE, "-n", "3000"], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.split()


def words(seed, n):
    """n words in a row, the same for the same seed."""
    at = random.Random(seed).randrange(max(1, len(book()) - n))
    return " ".join(book()[at:at + n])
