"""The tree of an OpenClaw or pi session: which entries are on the active branch.

Read in openclaw 2026.7.35, `dist/transcript-tree-*.js` (scanSessionTranscriptTree).
"""

import re
from collections.abc import Iterator, Mapping

from brainsurgeon.formats.base import Thoughts, blocks_in, dict_or_empty, str_or_empty
from brainsurgeon.model.entries import Entry, KeyPath, Part
from brainsurgeon.model.sessions import BEFORE_COMPACTION, BEFORE_RESET, EDITED_AWAY

# The entry types that move the leaf: openclaw's (transcript-tree, isCanonicalSessionEntryType), and
# those of newer versions and of pi, in which every entry moves it.
TREE_TYPES = (
    "message", "thinking_level_change", "model_change", "compaction", "branch_summary",
    "custom", "custom_message", "label", "session_info", "context_edit", "usage", "reset",
)  # fmt: skip

# Stop reasons of answers that are never sent again.
NOT_REPLAYED = ("error", "aborted")


class Branch:
    """The active branch, walked from the leaf towards the root.

    A `leaf` entry selects its target. A side append (`appendMode: "side"`) or an entry of an
    unknown type moves the cursor for the next append but not the leaf. An entry appended there
    continues from the leaf, and so does an entry without `parentId`. A `linear` branch contains
    every node.
    """

    def __init__(self, *, linear: bool = False) -> None:
        self._next: str | None = None
        self._leaf = True
        self._appended = False
        self.linear = linear
        self.ended = False

    @property
    def lost(self) -> bool:
        """Whether the next entry of the branch was not found yet."""
        return self._next is not None and not self.ended

    @property
    def cursor(self) -> str:
        """The state of the walk, which decides about the branch in earlier lines."""
        return repr((self._next, self._leaf, self._appended, self.ended))

    def pass_over(self, raw: bytes) -> None:
        """Continue before an unreadable line if it may be the next entry of the branch.

        JavaScript reads invalid UTF-8, which we do not; the entries before it are no less recent.
        """
        if self._next is not None and self._next.encode("utf-8", "replace") in raw:
            self._leaf, self._next = True, None

    def holds(self, entry: Entry) -> bool:
        """Check whether the entry is on the branch; call it from the last entry backwards."""
        kind = entry.get("type")
        if self.linear:
            return kind in TREE_TYPES
        if self.ended or kind == "session" or not _is_node(entry):
            return False
        behind, self._appended = self._appended, False
        matches = self._leaf or entry["id"] == self._next
        if kind == "leaf":
            target = entry["targetId"]
            if matches or (behind and self._next == entry.get("appendParentId", target)):
                self._follow(target)
            return False
        moves = kind in TREE_TYPES and entry.get("appendMode") != "side"
        if not matches or (not moves and (self._leaf or behind)):
            self._leaf = matches
            self.ended = self._next is None and not matches
            return False
        self._leaf = "parentId" not in entry
        if not self._leaf:
            self._follow(entry["parentId"], appended=moves)
        return kind in TREE_TYPES

    def _follow(self, parent: str | None, *, appended: bool = False) -> None:
        """Look for `parent` next; that of an `appended` entry may be the cursor, not the leaf."""
        self._next, self._leaf, self._appended = parent, False, appended
        self.ended = parent is None and not appended


class Reach:
    """Finds how far back the next request reaches, by the entries of the branch, last first.

    After a compaction it contains the entries from `firstKeptEntryId` on, after a reset nothing
    older. A `context_edit` removes its target, or replaces it by a text of its own.
    """

    def __init__(self) -> None:
        self.over: str | None = None
        self._kept: object = None
        self._edited: set[object] = set()
        self._compacted = False

    @property
    def cursor(self) -> str:
        """The state of the walk, which decides which earlier entries the request contains."""
        edited = sorted(map(repr, self._edited))
        return repr((self.over, self._kept, edited, self._compacted))

    def look(self, entry: Entry) -> str | None:
        """Return why the next request does not contain this entry, or None."""
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
    """Finds the user message that began the last round, by the entries of the branch, last first.

    After results without an answer (it failed: too long, aborted) the user may have written again.
    A provider joins that message with the results: for it the round continues, and the thinking has
    to be repeated. So the user message before the round counts.
    """

    def __init__(self) -> None:
        self.at: int | None = None
        self._met = False

    @property
    def known(self) -> bool:
        """Whether no earlier entry can be the message."""
        return self._met and self.at is not None

    def look(self, offset: int, entry: Entry) -> None:
        """Take the next entry, whose line starts at `offset`."""
        if self.known:
            return
        message = dict_or_empty(entry.get("message"))
        role = message.get("role") if entry.get("type") == "message" else None
        if role == "user":
            self.at = offset if self.at is None else self.at
        elif role == "toolResult" and not self._met:
            self.at, self._met = None, True
        elif role == "assistant" and message.get("stopReason") not in NOT_REPLAYED:
            self._met = True


class Dead(Mapping[int, str]):
    """Why entries are dead, by line offset: `named` ones, and all `before` an offset.

    Most of a long session may be dead, and a list of all entries would take much memory. Length and
    iteration cover only `named`. The header, at offset 0, is not in the tree.
    """

    def __init__(self) -> None:
        self.named: dict[int, str] = {}
        self.before, self.why = 0, ""

    def __getitem__(self, offset: int) -> str:
        return self.why if 0 < offset < self.before else self.named[offset]

    def __iter__(self) -> Iterator[int]:
        return iter(self.named)

    def __len__(self) -> int:
        return len(self.named)


def _is_node(entry: Entry) -> bool:
    """Check whether openclaw treats the entry as a node of the tree."""
    links = [entry.get("parentId")]
    if entry.get("type") == "leaf":
        links += [entry.get("targetId", ""), entry.get("appendParentId")]
    return (entry.get("type") in TREE_TYPES or "parentId" in entry) and all(
        isinstance(name, str) and bool(name.strip())
        for name in (entry.get("id"), *(link for link in links if link is not None))
    )


# Read in @mariozechner/pi-ai 0.73.1 (`dist/providers/*.js`), @earendil-works/pi-ai 1.5.2
# (`dist/api/*.js`) and openclaw 2026.7.35 (`dist/provider-stream-*.js`): a block with neither text
# nor signature is left out of every request. A redacted block is sent even if it is empty. Since
# 1.5.2, a signature without text is sent, too.


# Replaces signed thinking; no model is shown it.
EMPTIED = b'{"type":"thinking","thinking":"","thinkingSignature":""}'

_FIELD_NAME = re.compile(r"[a-z][a-z_]{0,63}")
# Beginnings of the names of APIs whose signatures are bound to nothing, or only to their call.
_OTHERS = ("openai", "azure", "google", "mistral")


def parts(message: Entry, *, before_last_user: bool) -> Iterator[Part]:
    """Yield the thinking blocks of an assistant message, locked unless the provider allows edits.

    Anthropic and Bedrock verify the text against the signature: both leave together, and only in
    turns before the last user message. openai-completions stores the NAME of a provider field in
    place of a signature. Signed thinking of all other providers stays.
    """
    api = str_or_empty(message.get("api"))
    locked = None
    if api != "anthropic-messages" and not api.startswith("bedrock"):
        locked = "thinking signed by its provider"
    elif not before_last_user:
        locked = "signed thinking of the last turn"
    elif _is_alone(message):
        locked = "nothing else is in its message"
    for path, block in _blocks(message):
        chars = len(str_or_empty(block.get("thinking")))
        if not chars:
            continue
        if block.get("redacted"):
            yield Part(path, "thinking", chars, locked="redacted thinking")
        elif not _is_signed(block, message):
            yield Part((*path, "thinking"), "thinking", chars)
        elif locked:
            yield Part(path, "thinking", chars, locked=locked)
        else:
            yield Part(path, "thinking", chars, block=True, instead=EMPTIED)


def thoughts(message: Entry) -> Thoughts | None:
    """Return the signed thinking of an assistant message; None if no request repeats it.

    An answer that ended in an error or was aborted is never sent again. pi records the effort that
    it asked for (`providerThinkingLevel`) only if it also asked for `drop_block`.
    """
    api = str_or_empty(message.get("api"))
    if message.get("stopReason") in NOT_REPLAYED or api.startswith(_OTHERS):
        return None
    names = (str_or_empty(message.get("model")), str_or_empty(message.get("responseModel")))
    signed = tuple(
        (
            path,
            len(str_or_empty(block.get("thinking")) or str_or_empty(block.get("thinkingSignature")))
            or 1,
        )
        for path, block in _blocks(message)
        if block.get("redacted") or _is_signed(block, message)
    )
    asked = api == "anthropic-messages" and bool(str_or_empty(message.get("providerThinkingLevel")))
    return Thoughts(tuple(name for name in names if name), signed, _is_alone(message), asked)


def is_hollow(block: object) -> bool:
    """Check whether a block of thinking has a signature but no text."""
    block = dict_or_empty(block)
    return bool(
        not block.get("redacted")
        and str_or_empty(block.get("thinkingSignature"))
        and not str_or_empty(block.get("thinking")).strip()
    )


def _blocks(message: Entry) -> Iterator[tuple[KeyPath, Entry]]:
    for index, block in blocks_in(message.get("content"), "thinking"):
        yield ("message", "content", index), block


def _is_signed(block: Entry, message: Entry) -> bool:
    signature = block.get("thinkingSignature")
    named = isinstance(signature, str) and _FIELD_NAME.fullmatch(signature) is not None
    return bool(signature) and not (named and message.get("api") == "openai-completions")


def _is_alone(message: Entry) -> bool:
    """Check whether only signed thinking of a message is sent."""
    content = message.get("content")
    return isinstance(content, list) and not any(
        _is_sent(block, message) for _, block in blocks_in(content)
    )


def _is_sent(block: Entry, message: Entry) -> bool:
    kind = block.get("type")
    if kind == "thinking" and (block.get("redacted") or _is_signed(block, message)):
        return False
    return kind not in ("text", "thinking") or bool(str_or_empty(block.get(kind)).strip())
