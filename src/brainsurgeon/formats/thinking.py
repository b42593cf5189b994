"""Thinking in OpenClaw's and pi's sessions: what may leave of it, and in which form.

Read in @mariozechner/pi-ai 0.73.1 (`dist/providers/*.js`), @earendil-works/pi-ai 1.5.2
(`dist/api/*.js`) and openclaw 2026.7.35 (`dist/provider-stream-*.js`): a block with neither text
nor signature is left out of every request, while a redacted block is passed on before anybody
looks whether it is empty, and since 1.5.2 a signature without text is sent, too.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from brainsurgeon.formats.base import Thoughts
from brainsurgeon.formats.tree import NOT_REPLAYED
from brainsurgeon.model.entries import Part

if TYPE_CHECKING:
    from collections.abc import Iterator

    from brainsurgeon.model.entries import Entry, KeyPath

EMPTIED = b'{"type":"thinking","thinking":"","thinkingSignature":""}'
"""What stands in the place of signed thinking: no model is shown it."""

_FIELD_NAME = re.compile(r"[a-z][a-z_]{0,63}")
_OTHERS = ("openai", "azure", "google", "mistral")
"""How the names of interfaces begin whose signatures are bound to nothing, or to their call."""
_CONTENT: KeyPath = ("message", "content")


def parts(message: Entry, *, before_last_user: bool) -> Iterator[Part]:
    """Yield the thinking blocks of an assistant message as their provider accepts it.

    Anthropic and Bedrock verify the text against the signature, so that both leave together, and
    only in turns before the last user message. openai-completions keeps the NAME of a provider
    field where others keep a signature. Everybody else's signed thinking stays.
    """
    alone = _is_alone(message)
    for path, block in _blocks(message):
        text = block.get("thinking")
        if not isinstance(text, str) or not text:
            continue
        if block.get("redacted"):
            yield Part(path, "thinking", len(text), locked="redacted thinking")
        elif not _is_signed(block, message):
            yield Part((*path, "thinking"), "thinking", len(text))
        elif not _verified(message):
            yield Part(path, "thinking", len(text), locked="thinking signed by its provider")
        elif not before_last_user:
            yield Part(path, "thinking", len(text), locked="signed thinking of the last turn")
        elif alone:
            yield Part(path, "thinking", len(text), locked="nothing else is in its message")
        else:
            yield Part(path, "thinking", len(text), block=True, instead=EMPTIED)


def thoughts(message: Entry) -> Thoughts | None:
    """Give the signed thinking of an assistant message; None where no request repeats it.

    An answer that ended in an error or was aborted is never sent again. pi notes the effort that
    it asked for (`providerThinkingLevel`) only where it also asked for `drop_block`.
    """
    api = _text(message.get("api"))
    if message.get("stopReason") in NOT_REPLAYED or api.startswith(_OTHERS):
        return None
    names = (_text(message.get("model")), _text(message.get("responseModel")))
    signed = tuple(
        (path, len(_text(block.get("thinking")) or _text(block.get("thinkingSignature"))) or 1)
        for path, block in _blocks(message)
        if block.get("redacted") or _is_signed(block, message)
    )
    asked = api == "anthropic-messages" and bool(_text(message.get("providerThinkingLevel")))
    return Thoughts(tuple(name for name in names if name), signed, _is_alone(message), asked)


def is_hollow(block: object) -> bool:
    """Tell whether a block of thinking has a signature and nothing that it signs."""
    if not isinstance(block, dict) or block.get("redacted"):
        return False
    signed = _text(block.get("thinkingSignature"))
    return bool(signed) and not _text(block.get("thinking")).strip()


def _blocks(message: Entry) -> Iterator[tuple[KeyPath, Entry]]:
    content = message.get("content")
    for index, block in enumerate(content if isinstance(content, list) else []):
        if isinstance(block, dict) and block.get("type") == "thinking":
            yield (*_CONTENT, index), block


def _is_signed(block: Entry, message: Entry) -> bool:
    signature = block.get("thinkingSignature")
    named = isinstance(signature, str) and _FIELD_NAME.fullmatch(signature) is not None
    return bool(signature) and not (named and message.get("api") == "openai-completions")


def _verified(message: Entry) -> bool:
    api = _text(message.get("api"))
    return api == "anthropic-messages" or api.startswith("bedrock")


def _is_alone(message: Entry) -> bool:
    """Tell whether nothing but signed thinking of a message is sent."""
    content = message.get("content")
    return isinstance(content, list) and not any(
        isinstance(block, dict) and _is_sent(block, message) for block in content
    )


def _is_sent(block: Entry, message: Entry) -> bool:
    if block.get("type") == "text":
        return bool(_text(block.get("text")).strip())
    if block.get("type") == "thinking":
        unsigned = not block.get("redacted") and not _is_signed(block, message)
        return unsigned and bool(_text(block.get("thinking")).strip())
    return True


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
