"""A deltascope-server of our own, and an HTTP client that notes when what arrived: for bench/replay.py and tests/server."""
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent


def shown(path):
    """A record's path as it is told: within this tree from its root, elsewhere as it is."""
    path = pathlib.Path(path)
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


class ServerFailed(Exception):
    pass


class Server:
    """Started on a free port; `log` holds what it said on stderr so far. Stopped when the `with` block ends."""

    def __init__(self, model=None, *options, binary=None, ready_s=120):
        self.binary = str(binary or pathlib.Path(os.environ.get("DS_BIN", ROOT / "bin")) / "deltascope-server")
        self.log_file = tempfile.TemporaryFile()
        command = [self.binary] + (["-m", str(model)] if model else []) + ["--port", "0", *map(str, options)]
        try:
            self.process = subprocess.Popen(command, stdout=self.log_file, stderr=self.log_file, stdin=subprocess.DEVNULL)
        except OSError as e:
            raise ServerFailed(f"{self.binary} does not start: {e.strerror}") from None
        until = time.monotonic() + ready_s
        while not (port := self.listens_on()):
            if self.process.poll() is not None:
                raise ServerFailed(f"the server ended with code {self.process.returncode}: {self.log().strip()}")
            if time.monotonic() > until:
                self.stop(signal.SIGKILL)
                raise ServerFailed(f"the server was not ready after {ready_s} s")
            time.sleep(0.02)
        self.client = Client(f"http://127.0.0.1:{port}")

    def listens_on(self):
        """The port of its own choice, which it tells once it answers."""
        told = re.search(r"^listening on http://.*:(\d+)$", self.log(), re.MULTILINE)
        return told and int(told[1])

    def log(self):
        size = os.fstat(self.log_file.fileno()).st_size
        return os.pread(self.log_file.fileno(), size, 0).decode(errors="replace")

    def stop(self, how=signal.SIGTERM, wait_s=60):
        """Returns the exit code and the seconds that it took."""
        started = time.monotonic()
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            self.process.wait(wait_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        return self.process.returncode, time.monotonic() - started

    def status(self):
        code, status = self.client.get("/status")
        if code != 200:
            raise ServerFailed(f"/status answers {code}: {status}")
        return status

    def rss(self):
        """Bytes of the process that are resident, what it mapped from the model's file included."""
        with open(f"/proc/{self.process.pid}/status") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmRSS:")) * 1024

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
        self.log_file.close()


class Client:
    def __init__(self, url, timeout_s=600, headers=None):
        parts = urllib.parse.urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"'{url}' is no http:// address")
        self.address = (parts.hostname, parts.port or 80)
        self.timeout_s = timeout_s
        self.headers = headers or {}

    def open(self, method, path, body=None):
        """The request is sent; its connection comes back before anything was answered."""
        connection = http.client.HTTPConnection(*self.address, timeout=self.timeout_s)
        headers = dict(self.headers)
        if body is not None:
            headers["Content-Type"] = "application/json"
            body = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, body, headers)
        return connection

    def call(self, method, path, body=None):
        connection = self.open(method, path, body)
        try:
            response = connection.getresponse()
            raw = response.read()
        finally:
            connection.close()
        kind = response.headers.get_content_type()
        return response.status, (json.loads(raw) if kind == "application/json" else raw.decode(errors="replace"))

    def get(self, path):
        return self.call("GET", path)

    def post(self, path, body):
        return self.call("POST", path, body)

    def tokenize(self, text):
        status, answer = self.post("/tokenize", {"content": text})
        if status != 200:
            raise ServerFailed(f"/tokenize answers {status}: {answer}")
        return answer["tokens"]

    def metrics(self):
        """Prometheus text as {name with its labels: value}."""
        status, text = self.get("/metrics")
        if status != 200:
            raise ServerFailed(f"/metrics answers {status}")
        lines = (line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, value in lines}

    def stream(self, path, body):
        return Stream(self, path, body)


class Stream:
    """A streamed answer. Iterating gives (seconds since the request, event name or None, data); a comment line gives (s, "comment", text).
    `first_byte_s` is when the headers were here; close() leaves, as a client that goes away does."""

    def __init__(self, client, path, body):
        self.started = time.monotonic()
        self.connection = client.open("POST", path, {**body, "stream": True})
        self.response = None
        self.first_byte_s = None
        self.done = False

    def headers(self):
        if self.response is None:
            self.response = self.connection.getresponse()
            self.first_byte_s = time.monotonic() - self.started
            if self.response.status != 200:
                text = self.response.read().decode(errors="replace")
                self.close()
                raise ServerFailed(f"{self.response.status}: {text}")
        return self.response

    def __iter__(self):
        response = self.headers()
        name, data = None, []
        while True:
            line = response.readline()
            at = time.monotonic() - self.started
            if not line:
                break
            line = line.decode().rstrip("\r\n")
            if line.startswith(":"):
                yield at, "comment", line[1:].strip()
            elif line.startswith("event:"):
                name = line[6:].strip()
            elif line.startswith("data:"):
                data.append(line[5:].strip())
            elif not line and data:
                text = "\n".join(data)
                if text == "[DONE]":
                    self.done = True
                else:
                    yield at, name, json.loads(text)
                name, data = None, []
        self.close()

    def close(self):
        # Without this the socket lives on in the response object, and the server would not see us leave.
        if self.response is not None:
            self.response.close()
        self.connection.close()
