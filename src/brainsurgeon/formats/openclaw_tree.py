"""The tree of an OpenClaw or pi session: which entries stand on the active branch.

Read in openclaw 2026.7.35, `dist/transcript-tree-*.js` (scanSessionTranscriptTree).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from brainsurgeon.formats.base import Thoughts
from brainsurgeon.model.entries import Part
from brainsurgeon.model.sessions import BEFORE_COMPACTION, BEFORE_RESET, EDITED_AWAY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from brainsurgeon.model.entries import Entry, KeyPath


# The entry types that move the leaf: openclaw's (transcript-tree, isCanonicalSessionEntryType), and
# those that newer versions and pi write, where every entry moves it.
TREE_TYPES = (
    "message", "thinking_level_change", "model_change", "compaction", "branch_summary",
    "custom", "custom_message", "label", "session_info", "context_edit", "usage", "reset",
)  # fmt: skip

# How an answer ends that is never sent again.
NOT_REPLAYED = ("error", "aborted")


class Branch:
    """The active branch, walked from the leaf towards the root.

    A `leaf` entry selects its target. A side append (`appendMode: "side"`) and an entry of an
    unknown type move the cursor for the next append but not the leaf, and what is appended there
    continues from the leaf, as does an entry without `parentId`. A `linear` one takes every node.
    """

    def __init__(self, *, linear: bool = False) -> None:
        self._next: str | None = None
        self._leaf = True
        self._appended = False
        self.linear = linear
        self.ended = False

    @property
    def lost(self) -> bool:
        """Check whether an entry is still looked for."""
        return self._next is not None and not self.ended

    @property
    def cursor(self) -> str:
        """All that the lines walked over say of the branch among those in front of them."""
        return repr((self._next, self._leaf, self._appended, self.ended))

    def pass_over(self, raw: bytes) -> None:
        """Go on behind a line that cannot be read, if it may be the one that is looked for.

        JavaScript reads invalid UTF-8 where we do not; what stands above it is no less recent.
        """
        if self._next is not None and self._next.encode("utf-8", "replace") in raw:
            self._leaf, self._next = True, None

    def holds(self, entry: Entry) -> bool:
        """Check whether the entry stands on the branch; call it from the last entry backwards."""
        kind = entry.get("type")
        if self.linear:
            return kind in TREE_TYPES
        if self.ended or kind == "session" or not _is_node(entry):
            return False
        behind, self._appended = self._appended, False
        found = self._leaf or entry["id"] == self._next
        if kind == "leaf":
            target = entry["targetId"]
            if found or (behind and self._next == entry.get("appendParentId", target)):
                self._follow(target)
            return False
        moves = kind in TREE_TYPES and entry.get("appendMode") != "side"
        if not found or (not moves and (self._leaf or behind)):
            self._leaf = found
            self.ended = self._next is None and not found
            return False
        self._leaf = "parentId" not in entry
        if not self._leaf:
            self._follow(entry["parentId"], appended=moves)
        return kind in TREE_TYPES

    def _follow(self, parent: str | None, *, appended: bool = False) -> None:
        """Go on with `parent`; what was `appended` may name the cursor, which is not the leaf."""
        self._next, self._leaf, self._appended = parent, False, appended
        self.ended = parent is None and not appended


class Reach:
    """How far back the next request reaches; hand it the entries of the branch, the last first.

    Behind a compaction it carries the entries from `firstKeptEntryId` on, behind a reset nothing
    older. A `context_edit` takes its target out, or puts a text of its own in its place.
    """

    def __init__(self) -> None:
        self.over: str | None = None
        self._kept: object = None
        self._edited: set[object] = set()
        self._compacted = False

    @property
    def cursor(self) -> str:
        """All that the entries looked at say of how far the request reaches in front of them."""
        edited = sorted(map(repr, self._edited))
        return repr((self.over, self._kept, edited, self._compacted))

    def look(self, entry: Entry) -> str | None:
        """Return why the next request does not carry this entry, or None."""
        if self.over:
            return self.over
        kind, ident = entry.get("type"), entry.get("id")
        if kind == "reset":
            self.over = BEFORE_RESET
        elif kind == "context_edit" and isinstance(entry.get("targetId"), str):
            self._edited.add(entry["targetId"])
        elif kind == "compaction" and not self._compacted:
            self._compacted, self._kept = True, entry.get("firstKeptEntryId")
        if self._compacted and ident == self._kept:
            self.over = BEFORE_COMPACTION
        return EDITED_AWAY if ident in self._edited else None


class Asking:
    """Finds the user message that began the last round; hand it the branch, the last entry first.

    Behind results that no answer followed (it failed: too long, aborted) the user may have said
    more. A provider takes that for one message with the results: the round goes on for it, and
    its thinking has to be repeated, so the message that counts is the one in front of the round.
    """

    def __init__(self) -> None:
        self.at: int | None = None
        self._met = False

    @property
    def known(self) -> bool:
        """Check whether nothing further back can be the message."""
        return self._met and self.at is not None

    def look(self, offset: int, entry: Entry) -> None:
        """Take in the entry whose line starts at `offset`."""
        if self.known:
            return
        message = entry.get("message")
        said = message if isinstance(message, dict) else {}
        role = said.get("role") if entry.get("type") == "message" else None
        if role == "user":
            self.at = offset if self.at is None else self.at
        elif role == "toolResult" and not self._met:
            self.at, self._met = None, True
        elif role == "assistant" and said.get("stopReason") not in NOT_REPLAYED:
            self._met = True


class Dead(Mapping[int, str]):
    """Why entries are dead, by the offsets of their lines: some by name, and all `before` one.

    Most of a long session may be dead, and naming every entry would take much room. Only those
    that are named are counted. The header, at 0, is nowhere in the tree.
    """

    def __init__(self) -> None:
        self.named: dict[int, str] = {}
        self.before, self.why = 0, ""

    def __getitem__(self, offset: int) -> str:
        if 0 < offset < self.before:
            return self.why
        return self.named[offset]

    def __iter__(self) -> Iterator[int]:
        return iter(self.named)

    def __len__(self) -> int:
        return len(self.named)


def _is_node(entry: Entry) -> bool:
    """Check whether openclaw takes the entry for a node of the tree at all."""
    links = [entry.get("parentId")]
    if entry.get("type") == "leaf":
        links += [entry.get("targetId", ""), entry.get("appendParentId")]
    return (
        (entry.get("type") in TREE_TYPES or "parentId" in entry)
        and _is_name(entry.get("id"))
        and all(link is None or _is_name(link) for link in links)
    )


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


# Read in @mariozechner/pi-ai 0.73.1 (`dist/providers/*.js`), @earendil-works/pi-ai 1.5.2
# (`dist/api/*.js`) and openclaw 2026.7.35 (`dist/provider-stream-*.js`): a block with neither text
# nor signature is left out of every request, while a redacted block is passed on before anybody
# looks whether it is empty, and since 1.5.2 a signature without text is sent, too.


# What stands in the place of signed thinking: no model is shown it.
EMPTIED = b'{"type":"thinking","thinking":"","thinkingSignature":""}'

_FIELD_NAME = re.compile(r"[a-z][a-z_]{0,63}")
# How the names of interfaces begin whose signatures are bound to nothing, or to their call.
_OTHERS = ("openai", "azure", "google", "mistral")
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
    """Return the signed thinking of an assistant message; None where no request repeats it.

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
    """Check whether a block of thinking has a signature and nothing that it signs."""
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
    """Check whether nothing but signed thinking of a message is sent."""
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
