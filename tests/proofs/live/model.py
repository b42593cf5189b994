"""A scripted model on loopback with OpenAI's chat completions, as a stream."""

import itertools
import json
from http.server import BaseHTTPRequestHandler

from proofs.live.served import Served, Streaming

CHUNK = 4096


class Model(Served):
    """Answers a turn by its plan: lists of tool calls one after the other, then a text."""

    def __init__(self):
        super().__init__(_Handler)
        self.plan, self.closing = [], "nothing to do"
        self.requests = []
        self.numbers = itertools.count(1)

    def next_turn(self, plan, closing):
        """Script the next turn; return the list that its requests are added to."""
        self.plan, self.closing, self.requests = plan, closing, []
        return self.requests

    def answer(self, request):
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


class _Handler(Streaming, BaseHTTPRequestHandler):
    def do_POST(self):
        request = json.loads(self.body())
        text, calls = self.model.answer(request)
        self.begin()
        self._delta({"role": "assistant", "content": text})
        for index, (name, arguments) in enumerate(calls):
            # Letters and digits, and none twice: other ids OpenClaw rewrites for some providers.
            ident = f"call{next(self.model.numbers):06d}"
            function = {"name": name, "arguments": ""}
            self._delta({"tool_calls": [
                {"index": index, "id": ident, "type": "function", "function": function}
            ]})  # fmt: skip
            whole = json.dumps(arguments)
            for at in range(0, len(whole), CHUNK):
                piece = {"index": index, "function": {"arguments": whole[at : at + CHUNK]}}
                self._delta({"tool_calls": [piece]})
        self._delta({}, "tool_calls" if calls else "stop", total_tokens=len(str(request)) // 4)
        self.write("data: [DONE]\n\n")

    def _delta(self, delta, reason=None, **usage):
        chunk = {
            "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1,
            "model": "scripted",
            "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
        }  # fmt: skip
        if usage:
            chunk["usage"] = {"prompt_tokens": 1, "completion_tokens": 1, **usage}
        self.write(f"data: {json.dumps(chunk)}\n\n")
