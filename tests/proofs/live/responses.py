"""A scripted model on loopback that speaks OpenAI's Responses API, as a stream, for Codex."""

import itertools
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MARK = re.compile(r"\[plan ([0-9]+)\]")


class Responses:
    """Answers each prompt by the plan that it names: calls, one a round, then a text.

    A tool of a server is named behind its name space: `mcp__server:tool`.
    """

    def __init__(self):
        self.plans, self.requests = {}, []
        self._numbers = itertools.count(1)
        outer = self

        class Handler(_Handler):
            model = outer

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    def script(self, *rounds):
        """Script one turn; give its number and the prompt that asks for it."""
        number = next(self._numbers)
        self.plans[number] = rounds, f"done. [{number}]"
        return number, f"Please do the next step. [plan {number}]"

    def of(self, number):
        """Give the requests that were made for one turn, in order."""
        return [request for plan, request in self.requests if plan == number]

    def answer(self, request):
        """Give the items with which a request is answered."""
        items = request.get("input") or []
        at, plan = _planned(items)
        if plan not in self.plans:
            return [_message("a few words")]
        self.requests.append((plan, request))
        rounds, closing = self.plans[plan]
        past = sum(one["type"] == "function_call_output" for one in items[at:])
        if past == len(rounds):
            return [_message(closing)]
        number = len(self.requests)
        call = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}",
                "status": "completed", "arguments": json.dumps(rounds[past][1])}  # fmt: skip
        space, _, call["name"] = rounds[past][0].rpartition(":")
        return [_message("one moment"), call | ({"namespace": space} if space else {})]


def _planned(items):
    """Find the newest prompt of the user that names a plan."""
    for at in range(len(items) - 1, -1, -1):
        if items[at].get("role") == "user" and (marks := MARK.findall(json.dumps(items[at]))):
            return at, int(marks[-1])
    return 0, None


def _message(text):
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
            "content": [part]}  # fmt: skip


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model = None

    def log_message(self, *_):
        """Stay silent."""

    def do_GET(self):
        """Know no models."""
        raw = b'{"models": []}'
        self.send_response(200)
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def do_POST(self):
        """Stream the answer."""
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        items = self.model.answer(request)
        self.close_connection = True
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        size = len(json.dumps(request)) // 4
        whole = {"id": "resp_1", "object": "response"}
        usage = {"input_tokens": size, "input_tokens_details": {"cached_tokens": 0},
                 "output_tokens": 20, "output_tokens_details": {"reasoning_tokens": 0},
                 "total_tokens": size + 20}  # fmt: skip
        self._say("response.created", response={**whole, "status": "in_progress", "output": []})
        for index, item in enumerate(items):
            self._say("response.output_item.added", output_index=index, item=item)
            self._say("response.output_item.done", output_index=index, item=item)
        ended = {**whole, "status": "completed", "output": items, "usage": usage}
        self._say("response.completed", response=ended)

    def _say(self, event, **data):
        said = json.dumps({"type": event, **data})
        self.wfile.write(f"event: {event}\ndata: {said}\n\n".encode())
        self.wfile.flush()
