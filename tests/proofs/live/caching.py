"""A scripted model with the provider's prompt cache."""

import json

from brainsurgeon.model.providers import LIFE
from building.prompt_cache import PromptCache
from proofs.live.messages import Messages


class Caching(Messages):
    """Caches each prefix that a request marks with `cache_control`, for as long as Anthropic."""

    def __init__(self, clock):
        super().__init__()
        self.cache = PromptCache(clock, LIFE)

    def usage(self, request, size):
        del size
        blocks, marks = [], []
        for content in _contents(request):
            for block in content:
                marked = isinstance(block, dict) and block.pop("cache_control", None)
                # A signature takes no tokens.
                counted = {**block, "signature": ""} if "signature" in block else block
                blocks.append(json.dumps(counted, sort_keys=True))
                marks += [len(blocks)] if marked else []
        tokens = self.cache.serve(blocks, marks)
        return {
            "input_tokens": tokens["plain"], "cache_read_input_tokens": tokens["read"],
            "cache_creation_input_tokens": tokens["written"], "output_tokens": 20,
        }  # fmt: skip


def _contents(request):
    yield request.get("tools") or []
    for content in (
        request.get("system"),
        *(message["content"] for message in request["messages"]),
    ):
        yield [{"type": "text", "text": content}] if isinstance(content, str) else content or []
