"""A scripted model that binds each signature to the conversation before it."""

import hashlib
import json
import re

from proofs.live.messages import Messages, RefusedError, _blocks

BROKEN = "Invalid `signature` in `thinking` block: the block is bound to a different conversation"
# The time that OpenClaw puts before the newest prompt, and only there.
CLOCK = re.compile(r"^\[[A-Z][a-z]{2} [0-9-]{10} [0-9:]{5}[^\]]*\] ")


class Binding(Messages):
    """Stores with each signature a digest of the conversation before it.

    The digest leaves out system prompt and tools, which agents change by themselves. `refused`
    holds the answers with status 400. With `redacts`, every third thought is redacted.
    """

    def __init__(self, *, redacts=False):
        super().__init__()
        self._bound, self._redacts = {}, redacts

    def _thinking(self, request, blocks):
        thoughts = super()._thinking(request, blocks)
        for thought in thoughts:
            *_, (before, _) = prefixes(request["messages"])
            self._bound[thought["signature"]] = before
            if self._redacts and len(self._bound) % 3 == 0:
                return [{"type": "redacted_thinking", "data": thought["signature"]}]
        return thoughts

    def _check(self, request):
        super()._check(request)
        self.check_signatures(request["messages"])

    def check_signatures(self, messages):
        """Raise RefusedError if a signature follows another conversation than it was issued for."""
        for before, block in prefixes(messages):
            mark = block.get("signature") or block.get("data")
            if mark in self._bound and self._bound[mark] != before:
                raise RefusedError(BROKEN)


def prefixes(messages):
    """Yield every block of a conversation with the digest of what precedes it, then the end."""
    digest = hashlib.sha256()
    for message in messages:
        for block in _blocks(message["content"]):
            yield digest.hexdigest(), block
            plain = {key: value for key, value in block.items() if key != "cache_control"}
            if "text" in plain:
                plain["text"] = CLOCK.sub("", plain["text"])
            if isinstance(plain.get("content"), str):
                plain["content"] = _blocks(plain["content"])
            digest.update(json.dumps([message["role"], plain], sort_keys=True).encode())
    yield digest.hexdigest(), {}
