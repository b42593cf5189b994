"""Scripted models on loopback with OpenAI's Responses API, as a stream, for Codex and pi."""

import hashlib
import json
from http.server import BaseHTTPRequestHandler

from proofs.live.served import MARK, Scripted, Streaming


class Responses(Scripted):
    """Answers a prompt by the plan that it names: one call a round, then a text.

    The tool of a server is named with its name space: `mcp__server:tool`.
    """

    def __init__(self):
        super().__init__(_Handler)

    def answer(self, request):
        items = request.get("input") or []
        if any(item.get("type") == "compaction_trigger" for item in items):
            ident = f"cmp_{len(self.requests)}"
            return [{"type": "compaction", "id": ident, "encrypted_content": "e" * 900}]
        at, plan = _planned(items)
        if plan not in self.plans:
            return [_message("a few words")]
        self.requests.append((plan, request))
        rounds, closing = self.plans[plan]
        past = sum(item.get("type") == "function_call_output" for item in items[at:])
        if past == len(rounds):
            return [_message(closing)]
        number = len(self.requests)
        call = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}",
                "status": "completed", "arguments": json.dumps(rounds[past][1])}  # fmt: skip
        space, _, call["name"] = rounds[past][0].rpartition(":")
        return [_message("one moment"), call | ({"namespace": space} if space else {})]

    def ending(self, request):
        """Return what the last event says about a request."""
        size = len(json.dumps(request)) // 4
        return {"usage": {
            "input_tokens": size, "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 20, "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": size + 20,
        }}  # fmt: skip


class Reasoning(Responses):
    """Reasons before each answer, and leaves out the reasoning behind a change, as GPT-6.2 does."""

    TOKENS = 500

    def __init__(self):
        super().__init__()
        self._bound, self._left_out = {}, []

    def answer(self, request):
        digest, self._left_out = hashlib.sha256(), []
        for item in request.get("input") or []:
            if self._bound.get(item.get("id"), digest.digest()) != digest.digest():
                self._left_out.append(item["id"])
            digest.update(json.dumps(item, sort_keys=True).encode())
        ident = f"rs_{self.port}_{len(self._bound)}"
        self._bound[ident] = digest.digest()
        reasoning = {"type": "reasoning", "id": ident, "summary": [],
                     "encrypted_content": "e" * 900}  # fmt: skip
        return [reasoning, *super().answer(request)]

    def ending(self, request):
        ending = super().ending(request)
        ending["usage"]["output_tokens_details"]["reasoning_tokens"] = self.TOKENS
        left_out = [
            {"type": "reasoning", "id": ident, "action": "removed", "reason": "prefix_mismatch"}
            for ident in self._left_out
        ]
        return {**ending, "input_transformations": left_out}


def _planned(items):
    """Return the index of the newest prompt that names a plan, and the plan."""
    for at in range(len(items) - 1, -1, -1):
        if items[at].get("role") == "user" and (marks := MARK.findall(json.dumps(items[at]))):
            return at, int(marks[-1])
    return 0, None


def _message(text):
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
            "content": [part]}  # fmt: skip


class _Handler(Streaming, BaseHTTPRequestHandler):
    def do_GET(self):
        self.whole({"models": []})

    def do_POST(self):
        request = json.loads(self.body())
        items = self.model.answer(request)
        self.begin()
        whole = {"id": "resp_1", "object": "response"}
        self.say("response.created", response={**whole, "status": "in_progress", "output": []})
        for index, item in enumerate(items):
            self.say("response.output_item.added", output_index=index, item=item)
            self.say("response.output_item.done", output_index=index, item=item)
        ended = {**whole, "status": "completed", "output": items, **self.model.ending(request)}
        self.say("response.completed", response=ended)
