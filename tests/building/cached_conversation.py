"""A session whose model calls use the provider's prompt cache."""

from brainsurgeon.model.text import iso
from building.world import Conversation

# Tokens of the system prompt and the tools, and characters of a token.
FIXED, RATE = 10_000, 3


class CachedConversation(Conversation):
    """A conversation in which each call reads the prompt before it from the cache.

    Each call writes what is new to the cache. Entries have the time `at` (seconds since 1970).
    """

    def __init__(self, at, *, hour=False, model="claude-opus-4-5", **header):
        super().__init__(**header)
        self.at, self._hour, self._model, self._read = at, hour, model, 0

    def entry(self, kind="message", ident=None, **fields):
        """Add an entry; an assistant's message gets the usage of its call."""
        message = fields.get("message", {})
        if message.get("role") == "assistant":
            tokens = FIXED + len(self.bytes()) // RATE
            written = tokens - self._read
            message |= {"model": self._model, "usage": {
                "input": 0, "output": 20, "cacheRead": self._read, "cacheWrite": written,
                "cacheWrite1h": written if self._hour else 0, "totalTokens": tokens + 20,
            }}  # fmt: skip
            self._read = tokens
        return super().entry(kind, ident, **{"timestamp": iso(self.at), **fields})
