"""Base classes of the scripted models: a server on loopback, numbered turns, streams."""

import itertools
import json
import re
import threading
from http.server import ThreadingHTTPServer

MARK = re.compile(r"\[plan ([0-9]+)\]")


class Served:
    """A model served on a `port` of its own inside a `with` block."""

    def __init__(self, handler):
        bound = type("Handler", (handler,), {"model": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), bound)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()


class Scripted(Served):
    """A model whose prompts name scripted turns by number, in any order."""

    def __init__(self, handler):
        super().__init__(handler)
        self.plans, self.requests = {}, []
        self._numbers = itertools.count(1)

    def script(self, *rounds, closing="done."):
        number = next(self._numbers)
        self.plans[number] = (rounds, f"{closing} [{number}]")
        return number, f"Please do the next step. [plan {number}]"

    def of(self, number):
        return [request for plan, request in self.requests if plan == number]


class Streaming:
    """Methods of a request handler to answer whole or as a stream."""

    protocol_version = "HTTP/1.1"
    model = None

    def log_message(self, *_):
        """Log nothing."""

    def body(self):
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def whole(self, answer, status=200):
        raw = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(raw)

    def begin(self):
        """Begin a stream, which ends with the connection."""
        self.close_connection = True
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()

    def say(self, event, **data):
        payload = json.dumps({"type": event, **data})
        self.write(f"event: {event}\ndata: {payload}\n\n")

    def write(self, text):
        self.wfile.write(text.encode())
        self.wfile.flush()
