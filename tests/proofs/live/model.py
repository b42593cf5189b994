"""A scripted model on loopback that speaks OpenAI's chat completions, as a stream."""

import itertools
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CHUNK = 4096


class Model:
    """Answers each turn by its plan: one list of tool calls after the other, then a text."""

    def __init__(self):
        self.plan, self.closing = [], "nothing to do"
        self.requests = []
        self.numbers = itertools.count(1)
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

    def next_turn(self, plan, closing):
        """Script the next turn; give the list that its requests go to."""
        self.plan, self.closing, self.requests = plan, closing, []
        return self.requests

    def answer(self, request):
        """Give the text and the tool calls with which a request is answered."""
        if not request.get("tools"):
            return "a few words", []
        self.requests.append(request)
        calls = 0
        for message in reversed(request["messages"]):
            if message["role"] == "user":
                break
            calls += bool(message.get("tool_calls"))
        if calls < len(self.plan):
            return "one moment", self.plan[calls]
        return self.closing, []


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model = None

    def log_message(self, *_):
        """Stay silent."""

    def do_POST(self):
        """Stream the answer."""
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        text, calls = self.model.answer(request)
        self.close_connection = True
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self._say({"role": "assistant", "content": text})
        for index, (name, arguments) in enumerate(calls):
            # Letters and digits, and none twice: other ids OpenClaw rewrites for some providers.
            ident = f"call{next(self.model.numbers):06d}"
            function = {"name": name, "arguments": ""}
            self._say({"tool_calls": [
                {"index": index, "id": ident, "type": "function", "function": function}
            ]})  # fmt: skip
            whole = json.dumps(arguments)
            for at in range(0, len(whole), CHUNK):
                piece = {"index": index, "function": {"arguments": whole[at : at + CHUNK]}}
                self._say({"tool_calls": [piece]})
        self._say({}, "tool_calls" if calls else "stop", total_tokens=len(str(request)) // 4)
        self.wfile.write(b"data: [DONE]\n\n")

    def _say(self, delta, reason=None, **usage):
        chunk = {
            "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1,
            "model": "scripted",
            "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
        }  # fmt: skip
        if usage:
            chunk["usage"] = {"prompt_tokens": 1, "completion_tokens": 1, **usage}
        self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        self.wfile.flush()
