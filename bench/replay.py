#!/usr/bin/env python3
"""A coding agent's session, played against the server: what is computed again, and how long each turn waits.

    python3 bench/replay.py [MODEL.gguf] [--scale S] [--cold] [--restart] [--api messages|chat] [--url URL]

The trace is generated from a seed, the same every time: 12K tokens of system prompt and tools; 30 turns that add 0.5-3K tokens
each, most of them loops of tool calls and results, whose thinking is dropped when the next turn begins; in turn 16 an
earlier tool result is cut out; before turn 4 and beside turn 20 a side request with a system prompt of its own;
in turn 23 the client leaves and asks again; with the Messages API a nonce that changes with each request stands at the head
of the system prompt. --scale multiplies every length (default: 1 where the window holds it, else 0.1). The answers are
the model's own, greedy; thinking beyond them, calls and results are the trace's.

The server is started here, unless --url names one. --cold plays each request a second time, in turn, against a server of the same
kind where nothing can be reused: it keeps no snapshots, and a salt begins every prompt. --restart ends the server with
SIGTERM after turn 13 and starts it again on the same --session-dir. The record goes to bench/results/NAME.json.
"""
import argparse
import datetime
import json
import os
import pathlib
import random
import shlex
import statistics
import subprocess
import sys
import tempfile
import threading

sys.dont_write_bytecode = True
from served import ROOT, Client, Server, ServerFailed, shown  # noqa: E402

SYSTEM, TURNS, TURN_MIN, TURN_MAX, ANSWER = 12000, 30, 500, 3000, 80       # tokens at scale 1
EDIT_TURN, EDITED_TURN, SIDE_BEFORE, SIDE_BESIDE, LEAVE_TURN, RESTART_AFTER = 16, 10, 4, 20, 23, 13

WORDS = """the a of and to in it was that she he they with at on for as but had said not all there so when out up down into could would about little
then door table house garden river morning night king queen rabbit cat dog hand head eyes voice time way thing word end side road tree water
light again after before over under never always very still only went came looked thought began found made turned stood took told knew asked
white red old long great small good dark cold warm quick slow first last next same other many more than through while until because""".split()

TOOLS = [
    ("read_file", "Reads a file.", {"path": "string", "offset": "integer", "limit": "integer"}),
    ("edit_file", "Replaces text in a file.", {"path": "string", "old": "string", "new": "string"}),
    ("run_command", "Runs a command.", {"command": "string", "timeout": "integer"}),
    ("search", "Searches files.", {"pattern": "string", "path": "string"}),
]


# --- the trace: texts only, made before anything is sent ----------------------------------------------------------------

class Writer:
    """Text of about so many tokens, from a seed and the model's own count."""

    def __init__(self, seed, count):
        self.rng = random.Random(seed)
        self.count = count
        sample = self.sentences(400)
        self.tokens_per_word = count(sample) / 400

    def sentences(self, words):
        out = []
        while words > 0:
            n = min(words, self.rng.randint(5, 14))
            words -= n
            line = [self.rng.choice(WORDS) for _ in range(n)]
            out.append(" ".join(line).capitalize() + ".")
        return " ".join(out)

    def text(self, tokens):
        return self.sentences(max(1, round(tokens / self.tokens_per_word)))


class Step:
    """One tool call: thinking before it, its input, its result."""

    def __init__(self, writer, tokens):
        self.thinking = writer.text(tokens * 0.3)
        self.name, _, self.parameters = writer.rng.choice(TOOLS)
        self.input = {list(self.parameters)[0]: f"{writer.rng.choice(WORDS)}.c"}
        self.result = writer.text(tokens * 0.7)


class Trace:
    """count(text): tokens of a text; count_chat(system, tools, history): tokens of a whole prompt, the template's own included."""

    def __init__(self, scale, seed, count, count_chat):
        w = Writer(seed, count)
        self.scale, self.seed = scale, seed
        self.answer = max(8, round(ANSWER * scale))
        plain = [self.tool(*t) for t in TOOLS]
        spare = SYSTEM * scale - count_chat("", plain, [("user", "")])
        self.tools = [{**t, "description": t["description"] + " " + w.text(spare * 0.3 / len(TOOLS))} for t in plain] if spare > 400 else plain
        head = count_chat("", self.tools, [("user", "")])
        self.system = w.text(max(16, SYSTEM * scale - head))
        step = Step(w, 0)
        self.step_cost = count_chat("", self.tools, [("user", ""), ("assistant", "", "", step), ("result", step)]) - head
        self.turns = [self.turn(w, i) for i in range(1, TURNS + 1)]
        self.sides = [("Write a title of a few words for the conversation.", w.text(500 * scale)) for _ in range(2)]

    @staticmethod
    def tool(name, text, parameters):
        return {"name": name, "description": text, "schema": {
            "type": "object", "properties": {k: {"type": t} for k, t in parameters.items()}, "required": list(parameters)[:1]}}

    def turn(self, w, number):
        tokens = self.scale * (TURN_MAX if number == LEAVE_TURN else w.rng.triangular(TURN_MIN, TURN_MAX, TURN_MAX))
        least = self.step_cost + self.answer + 4
        steps = max(number == EDITED_TURN, min(w.rng.randint(3, 8), int(tokens / least)))
        text = max(0, tokens - self.answer - steps * (self.step_cost + self.answer)) / (steps + 1)
        return {"user": w.text(max(4, text)), "steps": [Step(w, max(4, text)) for _ in range(steps)]}


# --- the two dialects ---------------------------------------------------------------------------------------------------

class Messages:
    """Anthropic's Messages API. History entries: ("user", text), ("assistant", reasoning, text, step or None), ("result", step)."""
    path = "/v1/messages"

    def body(self, model, system, tools, history, limit, nonce):
        nonce = f"x-anthropic-billing-header: cc_version=2.1.40.{nonce % 4096:03x}; cc_entrypoint=cli; cch={nonce:05x};"
        return {
            "model": model, "max_tokens": limit, "temperature": 0,
            "system": [{"type": "text", "text": nonce}, {"type": "text", "text": system}],
            "tools": [{"name": t["name"], "description": t["description"], "input_schema": t["schema"]} for t in tools],
            "messages": [self.message(i, *entry) for i, entry in enumerate(history)],
        }

    @staticmethod
    def message(i, kind, *parts):
        if kind == "user":
            return {"role": "user", "content": parts[0]}
        if kind == "result":
            result = [{"type": "text", "text": parts[0].result}]
            return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"toolu_{i - 1:04d}", "content": result}]}
        reasoning, text, step = parts
        blocks = [{"type": "thinking", "thinking": reasoning, "signature": ""}] if reasoning else []
        if text:
            blocks.append({"type": "text", "text": text})
        if step:
            blocks.append({"type": "tool_use", "id": f"toolu_{i:04d}", "name": step.name, "input": step.input})
        return {"role": "assistant", "content": blocks}

    @staticmethod
    def read(event, into):
        usage = event.get("message", event).get("usage")
        if usage:
            into.usage.update({k: v for k, v in usage.items() if isinstance(v, int)})
        delta = event.get("delta", {})
        if event["type"] == "error":
            raise ServerFailed(f"{event['error']}")
        return delta.get("thinking", ""), delta.get("text", "") or delta.get("partial_json", "")

    @staticmethod
    def counts(usage):
        cached = usage.get("cache_read_input_tokens", 0)
        return usage["input_tokens"] + cached + usage.get("cache_creation_input_tokens", 0), cached, usage["output_tokens"]


class Chat:
    """OpenAI's chat completions."""
    path = "/v1/chat/completions"

    def body(self, model, system, tools, history, limit, nonce):
        del nonce                                   # only the Messages adapter knows that agent's nonce
        return {
            "model": model, "max_completion_tokens": limit, "temperature": 0, "stream_options": {"include_usage": True},
            "tools": [{"type": "function", "function": {**{k: t[k] for k in ("name", "description")}, "parameters": t["schema"]}} for t in tools],
            "messages": [{"role": "system", "content": system}] + [self.message(i, *entry) for i, entry in enumerate(history)],
        }

    @staticmethod
    def message(i, kind, *parts):
        if kind == "user":
            return {"role": "user", "content": parts[0]}
        if kind == "result":
            return {"role": "tool", "tool_call_id": f"call_{i - 1:04d}", "content": parts[0].result}
        reasoning, text, step = parts
        message = {"role": "assistant", "content": text}
        if reasoning:
            message["reasoning_content"] = reasoning
        if step:
            call = {"name": step.name, "arguments": json.dumps(step.input)}
            message["tool_calls"] = [{"id": f"call_{i:04d}", "type": "function", "function": call}]
        return message

    @staticmethod
    def read(event, into):
        if event.get("error"):
            raise ServerFailed(f"{event['error']}")
        if event.get("usage"):
            into.usage.update(event["usage"])
        delta = event["choices"][0]["delta"] if event.get("choices") else {}
        calls = "".join(c.get("function", {}).get("arguments", "") for c in delta.get("tool_calls") or [])
        return delta.get("reasoning_content") or "", (delta.get("content") or "") + calls

    @staticmethod
    def counts(usage):
        details = usage.get("prompt_tokens_details") or {}
        return usage["prompt_tokens"], details.get("cached_tokens", 0), usage["completion_tokens"]


DIALECTS = {"messages": Messages, "chat": Chat}


# --- one request --------------------------------------------------------------------------------------------------------

class Answer:
    """Plays one request to its end: the text, what usage says, and the times."""

    def __init__(self, client, dialect, body):
        self.usage, self.reasoning, self.text, self.ttft_ms = {}, "", "", None
        stream = client.stream(dialect.path, body)
        at = 0.0
        for at, name, event in stream:
            if name == "comment":
                continue
            thinking, text = dialect.read(event, self)
            if (thinking or text) and self.ttft_ms is None:
                self.ttft_ms = at * 1e3
            self.reasoning += thinking
            self.text += text
        self.wall_ms = at * 1e3
        self.first_byte_ms = stream.first_byte_s * 1e3
        if self.ttft_ms is None:                    # the model ended at once
            self.ttft_ms = self.wall_ms
        try:
            self.prompt, self.cached, self.output = dialect.counts(self.usage)
        except KeyError as missing:
            raise ServerFailed(f"the stream of {dialect.path} ended without {missing} in its usage") from None

    def row(self):
        return {"prompt": self.prompt, "cached": self.cached, "recomputed": self.prompt - self.cached, "output": self.output,
                "ttft_ms": round(self.ttft_ms, 3), "wall_ms": round(self.wall_ms, 3)}


# --- the play -----------------------------------------------------------------------------------------------------------

class Play:
    def __init__(self, trace, dialect, warm, cold=None, out=print):
        self.trace, self.dialect, self.warm, self.cold, self.out = trace, dialect, warm, cold, out
        self.rng = random.Random(trace.seed + 1)    # nonces and salts
        self.history, self.rows = [], []

    def body(self, system, tools, history, salt=""):
        if salt:                                    # tools come before the system's text in the family's template: both begin anew
            system = salt + system
            tools = [{**t, "name": salt + t["name"]} for t in tools]
        return self.dialect.body("replay", system, tools, history, self.trace.answer, self.rng.getrandbits(20))

    def bodies(self, system, tools, history):
        """The request, and with a cold side the same one after a salt that was never seen."""
        salt = f"{self.rng.getrandbits(48):012x}_"
        return [self.body(system, tools, history)] + ([self.body(system, tools, history, salt)] if self.cold else [])

    def ask(self, turn, kind, bodies):
        answer = Answer(self.warm, self.dialect, bodies[0])
        row = {"turn": turn, "kind": kind, **answer.row()}
        if self.cold:
            row["cold"] = Answer(self.cold, self.dialect, bodies[1]).row()
        self.rows.append(row)
        return answer

    def side_bodies(self, number):
        system, text = self.trace.sides[number]
        return self.bodies(system, [], [("user", text)])

    def main_bodies(self):
        return self.bodies(self.trace.system, self.trace.tools, self.history)

    def leave(self):
        """The client goes away as soon as its request was accepted."""
        stream = self.warm.stream(self.dialect.path, self.main_bodies()[0])
        stream.headers()
        stream.close()

    def turn(self, number):
        turn = self.trace.turns[number - 1]
        if number == EDIT_TURN:
            self.trace.turns[EDITED_TURN - 1]["steps"][0].result = "(removed)"
        if number == SIDE_BEFORE:
            self.ask(number, "side", self.side_bodies(0))
        self.history.append(("user", turn["user"]))
        if number == LEAVE_TURN:
            self.leave()
        beside = None
        if number == SIDE_BESIDE:
            beside = threading.Thread(target=self.ask, args=(number, "side", self.side_bodies(1)))
            beside.start()
        self.loop(number, turn["steps"])
        if beside:
            beside.join()
        self.show(number)

    def loop(self, number, steps):
        """Request, call, result, and so on to the last answer; then the thinking is dropped."""
        first = {LEAVE_TURN: "retry", EDIT_TURN: "edit"}.get(number, "user")
        calls = []
        for i, step in enumerate(steps + [None]):
            answer = self.ask(number, "tool" if i else first, self.main_bodies())
            if not step:
                self.history.append(("assistant", answer.reasoning, answer.text, None))
                break
            calls.append((len(self.history), step))
            if answer.reasoning:                    # the template drops it when another turn follows
                said = ("assistant", answer.reasoning + "\n" + step.thinking, answer.text, step)
            else:                                   # a model that does not think: its answer counts as thinking, and is dropped here
                said = ("assistant", "", answer.text + "\n" + step.thinking, step)
            self.history += [said, ("result", step)]
        for at, step in calls:
            if not self.history[at][1]:
                self.history[at] = ("assistant", "", "", step)

    def show(self, number):
        rows = [r for r in self.rows if r["turn"] == number]
        line = f"| {number:4} | {len(rows):8} | {max(r['prompt'] for r in rows):6} | {sum(r['recomputed'] for r in rows):10} | {share(rows):7.1%} |" \
               f" {max(r['ttft_ms'] for r in rows):8.1f} | {sum(r['wall_ms'] for r in rows):8.1f} |"
        if self.cold:
            line += f" {sum(r['cold']['wall_ms'] for r in rows):8.1f} |"
        self.out(line)

    def head(self):
        names = ["turn", "requests", "prompt", "recomputed", "reuse", "TTFT ms", "wall ms"] + (["cold ms"] if self.cold else [])
        widths = [4, 8, 6, 10, 7, 8, 8, 8]
        self.out("| " + " | ".join(f"{n:>{w}}" for n, w in zip(names, widths)) + " |")
        self.out("|" + "|".join("-" * (w + 1) + ":" for _, w in zip(names, widths)) + "|")


def share(rows):
    return sum(r["cached"] for r in rows) / sum(r["prompt"] for r in rows)


def spread(values):
    return {"median": round(statistics.median(values), 3), "min": round(min(values), 3), "max": round(max(values), 3)}


def totals(rows):
    total = {
        "requests": len(rows), "prompt_tokens": sum(r["prompt"] for r in rows), "cached_tokens": sum(r["cached"] for r in rows),
        "recomputed_tokens": sum(r["recomputed"] for r in rows), "output_tokens": sum(r["output"] for r in rows),
        "reuse_share": round(share(rows), 4), "ttft_ms": spread([r["ttft_ms"] for r in rows]),
        "wall_ms": round(sum(r["wall_ms"] for r in rows), 1),
    }
    if "cold" in rows[0]:
        cold = [r["cold"] for r in rows]
        total["cold"] = {"reuse_share": round(share(cold), 4), "ttft_ms": spread([r["ttft_ms"] for r in cold]),
                         "wall_ms": round(sum(r["wall_ms"] for r in cold), 1)}
        total["wall_ratio"] = round(total["cold"]["wall_ms"] / total["wall_ms"], 2)
    return total


# --- the run ------------------------------------------------------------------------------------------------------------

COLD_OPTIONS = ["--snapshot-mem", "1M"]           # no snapshot fits


class Pair:
    """The warm server and, with --cold, its twin; or somebody's own by --url."""

    def __init__(self, o):
        self.o, self.folder, self.warm, self.cold = o, None, None, None
        options = shlex.split(o.server)
        if o.restart:
            self.folder = tempfile.TemporaryDirectory(prefix="replay-")
            options += ["--session-dir", self.folder.name]
        self.options = options
        if not o.url:
            self.warm = self.start(options)
            self.cold = self.start(shlex.split(o.server) + COLD_OPTIONS) if o.cold else None

    def start(self, options):
        return Server(self.o.model, "--tools-template", "generic", *options, binary=self.o.bin)

    def clients(self):
        if self.o.url:
            client = Client(self.o.url)
            return client, client if self.o.cold else None
        return self.warm.client, self.cold.client if self.cold else None

    def restart(self):
        code, seconds = self.warm.stop()
        if code != 0:
            raise ServerFailed(f"the server ended with code {code} after SIGTERM: {self.warm.log().strip()}")
        self.warm = self.start(self.options)
        return seconds

    def close(self):
        for server in (self.warm, self.cold):
            if server:
                server.stop()
        if self.folder:
            self.folder.cleanup()


def window_of(client):
    status, models = client.get("/v1/models")
    if status != 200:
        raise ServerFailed(f"/v1/models answers {status}: {models}")
    return models["data"][0]["context_window"]


def count_chat(client, system, tools, history):
    status, answer = client.post("/v1/messages/count_tokens", Messages().body("replay", system, tools, history, 1, 0))
    if status != 200:
        raise ServerFailed(f"/v1/messages/count_tokens answers {status}: {answer}")
    return answer["input_tokens"]


def play(o, pair):
    warm, cold = pair.clients()
    window = window_of(warm)
    scale = o.scale or (1.0 if window >= 90000 else 0.1)
    trace = Trace(scale, o.seed, lambda text: len(warm.tokenize(text)), lambda *chat: count_chat(warm, *chat))
    p = Play(trace, DIALECTS[o.api](), warm, cold)
    restart = None
    print(f"scale {scale:g}, window {window} tokens\n")
    p.head()
    for number in range(1, TURNS + 1):
        p.turn(number)
        if o.restart and number == RESTART_AFTER:
            before = len(p.rows)
            stop_s = pair.restart()
            p.warm, _ = pair.clients()
            restart = (before, stop_s)
    total = totals(p.rows)
    if restart:
        row = p.rows[restart[0]]
        total["restart"] = {"stop_s": round(restart[1], 3), "prompt": row["prompt"], "recomputed": row["recomputed"], "ttft_ms": row["ttft_ms"]}
    retry = next(r for r in p.rows if r["kind"] == "retry")
    total["retry"] = {"prompt": retry["prompt"], "recomputed": retry["recomputed"]}
    return {"scale": scale, "seed": o.seed, "window": window, "total": total, "requests": p.rows}


def tell(total):
    def times(t):
        first = t["ttft_ms"]
        return f"time to first token {first['median']:.1f} ms ({first['min']:.1f}-{first['max']:.1f}), wall {t['wall_ms'] / 1e3:.2f} s"
    print(f"\n{total['requests']} requests, {total['prompt_tokens']} prompt tokens, {total['recomputed_tokens']} computed,"
          f" reuse {total['reuse_share']:.1%}; {times(total)}")
    if "cold" in total:
        print(f"cold: reuse {total['cold']['reuse_share']:.1%}; {times(total['cold'])}: {total['wall_ratio']:.1f} times as long")
    if "restart" in total:
        r = total["restart"]
        print(f"restart: ended within {r['stop_s']:.2f} s; the next request computed {r['recomputed']} of {r['prompt']} tokens")


def about(o):
    """Machine, commit and model, as the tools tell them."""
    tool = pathlib.Path(o.bin or ROOT / "bin" / "deltascope-server").parent / "deltascope"
    more = ["-m", str(o.model)] if o.model else []
    done = subprocess.run([str(tool), "bench", *more, "--prefill", "64", "--reps", "1", "--json"], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"replay: {tool} bench ended with code {done.returncode}")
    record = json.loads(done.stdout)
    record["model"]["path"] = pathlib.Path(record["model"]["path"]).name
    return {k: record[k] for k in ("machine", "model", "backend", "placement", "commit")}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", nargs="?", help="default: the model that ships")
    p.add_argument("--scale", type=float, help="multiplies every length")
    p.add_argument("--api", choices=sorted(DIALECTS), default="messages", help="which API the session speaks (default: messages)")
    p.add_argument("--url", help="a server that runs already; its record carries no machine")
    p.add_argument("--cold", action="store_true", help="play each request a second time where nothing can be reused")
    p.add_argument("--restart", action="store_true", help=f"end the server after turn {RESTART_AFTER} and start it again")
    p.add_argument("--seed", type=int, default=1, help="of the trace (default: 1)")
    p.add_argument("--bin", help="the server's program (default: bin/deltascope-server)")
    p.add_argument("--name", help="bench/results/NAME.json (default: replay-MODEL)")
    p.add_argument("--out", help="the record goes to this file")
    p.add_argument("--server", default="", metavar="OPTIONS", help="more options for the server: --server '--threads 2'")
    o = p.parse_args()
    if o.scale is not None and not 0.01 <= o.scale <= 10:
        p.error("--scale: from 0.01 to 10")
    if o.url and (o.restart or o.model or o.server):
        p.error("--url names a server that runs already: no model, no options for it, no --restart")
    record = {
        "kind": "replay", "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "command": " ".join(["bench/replay.py"] + [pathlib.Path(a).name if os.path.exists(a) else a for a in sys.argv[1:]]),
        "protocol": "warm and cold request in turn, on two servers of one kind" if o.cold else "warm only",
        "api": o.api,
    }
    try:
        pair = Pair(o)
        try:
            record.update(play(o, pair))
        finally:
            pair.close()
    except (ServerFailed, OSError) as e:
        sys.exit(f"replay: {e}")
    tell(record["total"])
    if not o.url:
        record.update(about(o))
    name = o.name or ("replay-" + (record["model"]["path"].removesuffix(".gguf") if "model" in record else "url"))
    out = pathlib.Path(o.out) if o.out else ROOT / "bench" / "results" / (name + ".json")
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(record, indent=1) + "\n")
    print(f"written: {out.name if o.out else shown(out)}")


if __name__ == "__main__":
    main()
