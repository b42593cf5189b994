"""OpenClaw and pi, session versions 2 and 3.

One JSON object a line; entries form a tree by `id` and `parentId`. The shapes were read in
@mariozechner/pi-coding-agent 0.73.1 and @earendil-works/pi-coding-agent 1.5.2
(`dist/core/session-manager.js`) and openclaw 2026.7.35 (`dist/transcript-tree-*.js`,
`dist/transcript-rewrite-*.js`), and seen in files that those programs wrote. Prompts and tools
(messages of the role `system`, a compaction's `systemMessage`) have no parts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from brainsurgeon.formats import openclaw_tree
from brainsurgeon.formats.base import (
    Answer,
    Call,
    files_in,
    first_line,
    image,
    leaves,
    number_in,
    parse,
    references,
    texts_in,
    usable_id,
)
from brainsurgeon.formats.openclaw_tree import Asking, Branch, Dead, Reach
from brainsurgeon.model.entries import EXTRACTABLE, value_at
from brainsurgeon.model.sessions import OFF_BRANCH, Survey
from brainsurgeon.model.turns import GAVE_UP, Answered, Asked, Said

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from brainsurgeon.formats.base import Thoughts
    from brainsurgeon.model.entries import Entry, KeyPath, Kind, Line, Lines, Part
    from brainsurgeon.model.turns import ArchiveForm, Role


# Read in @mariozechner/pi-coding-agent 0.73.1 (`dist/core/session-manager.js`,
# buildSessionContext): the model is that of the last assistant message of the branch, while levels
# of thinking, tools and the state of extensions are taken from entries of their own, which
# therefore have to stay on it.


FINAL_STOPS = ("stop", "length", "error", "aborted")
_CUT_SHORT = ("length", "error", "aborted")
_ROLES: dict[str, Role] = {
    "user": "prompt", "assistant": "reply", "toolResult": "result", "bashExecution": "aside",
    "custom": "aside",
}  # fmt: skip
# Types that nothing on the branch depends on: a reply names its model itself.
_NOTES = ("label", "session_info", "usage", "model_change")


def said(entry: Entry) -> Said | None:
    """Return what an entry is in its turn; None where it is no entry of the conversation."""
    kind = entry.get("type")
    if kind == "session":
        return None
    parent = entry.get("parentId")
    linked = (parent if isinstance(parent, str) else None, references(entry))
    message = entry.get("message")
    if kind == "message" and isinstance(message, dict):
        return _message(message, *linked)
    role: Role = "aside" if kind == "custom_message" else "note" if kind in _NOTES else "fixed"
    return Said(role, *linked)


def _message(message: dict[str, Any], parent: str | None, names: tuple[str, ...]) -> Said:
    spoken = message.get("role")
    role = _ROLES.get(spoken, "fixed") if isinstance(spoken, str) else "fixed"
    if role == "reply":
        return _reply(message, parent, names)
    if role == "result":
        return Said(role, parent, names, answered=(_answered(message),))
    return Said(role, parent, names)


def _reply(message: dict[str, Any], parent: str | None, names: tuple[str, ...]) -> Said:
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    called = [b for b in blocks if isinstance(b, dict) and b.get("type") == "toolCall"]
    asked = tuple(
        Asked(
            _text_of(b.get("id")), _text_of(b.get("name")) or "tool", files_in(b.get("arguments"))
        )
        for b in called
    )
    texts = texts_in(content)
    index, text = texts[-1] if texts else (None, "")
    path: KeyPath = ("message", "content") if index is None else (
        "message", "content", index, "text",
    )  # fmt: skip
    stop = message.get("stopReason")
    return Said(
        "reply", parent, names, text, path if texts else None,
        closes=bool(texts) and not called and stop in FINAL_STOPS,
        cut_short=stop in _CUT_SHORT or GAVE_UP in text, asked=asked,
        model=_text_of(message.get("model")) or "",
    )  # fmt: skip


def _answered(message: dict[str, Any]) -> Answered:
    details = message.get("details")
    code = number_in(details, "exitCode")
    failed = message.get("isError") is True or bool(code)
    finding = first_line(text for _, text in texts_in(message.get("content"))) if failed else ""
    took = number_in(details, "durationMs", "tookMs")
    return Answered(_text_of(message.get("toolCallId")), failed, finding, code, took)


def _text_of(value: object) -> str | None:
    return value if isinstance(value, str) else None


MESSAGE_ROLES = frozenset({"user", "assistant", "toolResult", "bashExecution", "custom"})
_OF_THEIR_OWN = ("session", "custom_message")
_SAYING = ("data", "summary", "content", "details")


class OpenClaw:
    """The dialect of OpenClaw and pi."""

    name = "openclaw"
    version = 4
    # The versions of a session that are known.
    versions: tuple[int, ...] = (2, 3)
    archives: ArchiveForm | None = "linked"

    def recognises(self, entries: Sequence[Entry]) -> bool:
        """Know a file by its first entry, the session's header."""
        return entries[0].get("type") == "session" and isinstance(entries[0].get("id"), str)

    def refuses(self, header: Entry) -> str | None:
        """Leave version 1 alone, since pi rewrites it with new ids, and versions to come."""
        version = header.get("version", 1)
        if version == 1:
            return "pi session version 1: pi migrates it with new ids when it next opens it"
        if version not in self.versions:
            said = version if isinstance(version, int) else "of an unknown kind"
            return f"session version {said} is not known to this program"
        return None

    def session(self, head: Sequence[Entry]) -> str | None:
        """Return the id in its header."""
        return usable_id(head[0].get("id"))

    def rest(self, entry: Entry) -> bytes | None:  # noqa: ARG002
        """Return None: ids are random."""
        return None

    def survey(self, lines: Lines, window: int) -> Survey:
        """Walk back from the leaf to the root, and tell what of the file the next request carries.

        A leaf that leads nowhere is ignored, as openclaw ignores it: all lines are the branch.
        """
        branch = Branch()
        survey = self._survey(lines, window, branch)
        if survey.positions or not branch.lost:
            return survey
        return self._survey(lines, window, Branch(linear=True))

    def _survey(self, lines: Lines, window: int, branch: Branch) -> Survey:
        positions: dict[int, int] = {}
        dead = Dead()
        turn, reach = _Turn(), Reach()
        messages = 0
        asking = Asking()
        for line in lines.backward():
            asked = asking.known or (reach.over and asking.at is not None)
            known = turn.judged is not None and messages > window and asked
            if (known and reach.over) or (turn.judged is not None and branch.ended):
                dead.before, dead.why = line.offset + 1, reach.over or OFF_BRANCH
                break
            entry = parse(line.raw) if line.raw else None
            turn.look(line, entry)
            if entry is None:
                branch.pass_over(line.raw or b"")
                continue
            if not branch.holds(entry):
                dead.named[line.offset] = OFF_BRANCH
                continue
            unsent = reach.look(entry)
            if unsent:
                dead.named[line.offset] = unsent
            if not unsent or asking.at is None:
                asking.look(line.offset, entry)
            if messages <= window:
                positions[line.offset] = messages if self.counts(entry) else max(messages - 1, 0)
                messages += self.counts(entry)
        dead.named.pop(0, None)
        cursor = None if turn.judged is None or branch.linear else (
            dead.why or f"{branch.cursor} {reach.cursor}"
        )  # fmt: skip
        return Survey(
            window, positions, turn.open, asking.at, dead, since=turn.judged, cursor=cursor
        )

    def identity(self, entry: Entry, raw: bytes, number: int) -> str | None:  # noqa: ARG002
        """Name the entry by its `id`; the header's id is the session's."""
        return None if entry.get("type") == "session" else usable_id(entry.get("id"))

    def counts(self, entry: Entry) -> bool:
        """Count messages of every role, and custom messages."""
        return _role(entry) in MESSAGE_ROLES or entry.get("type") == "custom_message"

    def parts(self, entry: Entry, survey: Survey, offset: int | None) -> Iterator[Part]:
        """Yield the parts of a message or a custom message; others have some only where forced."""
        if entry.get("type") == "custom_message":
            yield from _content(entry.get("content"), ("content",), "custom", None)
        message = entry.get("message")
        if entry.get("type") != "message" or not isinstance(message, dict):
            if entry.get("type") not in _OF_THEIR_OWN:
                yield from _forced(entry)
            return
        role = message.get("role")
        path: KeyPath = ("message", "content")
        if role == "toolResult":
            tool = _text(message.get("toolName"))
            yield from _content(message.get("content"), path, "tool_result", tool)
            shown = leaves(message.get("details"), ("message", "details"), "tool_result", tool)
            yield from (replace(part, dead=True) for part in shown)
        elif role == "assistant":
            yield from _assistant(message, before_last_user=survey.before_last_user(offset))
        elif role == "bashExecution":
            yield from leaves(message.get("output"), ("message", "output"), "tool_result", "bash")
        elif role in ("user", "custom"):
            yield from _content(message.get("content"), path, role, None)

    def anchor(self, entry: Entry, path: KeyPath) -> str | None:
        """Name the call that a toolResult answers, or the toolCall block that `path` leads into."""
        if _role(entry) == "toolResult":
            return _text(entry["message"].get("toolCallId"))
        block = value_at(entry, path[:3])
        called = isinstance(block, dict) and block.get("type") == "toolCall"
        return _text(block.get("id")) if called else None

    def thoughts(self, entry: Entry) -> Thoughts | None:
        """Return what was thought in an assistant message and signed by its provider."""
        return openclaw_tree.thoughts(entry["message"]) if _role(entry) == "assistant" else None

    def said(self, entry: Entry) -> Said | None:
        return said(entry)

    def calls(self, entry: Entry) -> Iterator[Call]:
        """Yield the toolCall blocks of an assistant message."""
        if _role(entry) != "assistant":
            return
        content = entry["message"].get("content")
        for index, block in enumerate(content if isinstance(content, list) else []):
            if isinstance(block, dict) and block.get("type") == "toolCall":
                arguments = block.get("arguments")
                if isinstance(arguments, dict):
                    path: KeyPath = ("message", "content", index, "arguments")
                    signed = bool(block.get("thoughtSignature"))
                    yield Call(path, _text(block.get("id")), arguments, signed=signed)

    def answers(self, entry: Entry) -> Iterator[Answer]:
        """Yield the texts of a toolResult, with the copies that stand in its details."""
        if _role(entry) != "toolResult":
            return
        message = entry["message"]
        copies = list(leaves(message.get("details"), ("message", "details"), "tool_result", None))
        for part in _content(message.get("content"), ("message", "content"), "tool_result", None):
            text = value_at(entry, part.path)
            if isinstance(text, str):
                same = tuple(
                    copy.path for copy in copies
                    if value_at(entry, copy.path).strip() == text.strip()
                )  # fmt: skip
                yield Answer(part.path, text, _text(message.get("toolCallId")), same)


def _forced(entry: Entry) -> Iterator[Part]:
    """Yield what an entry of no kind says, where it is forced; ids and what links it stay."""
    if entry.get(EXTRACTABLE) is True:
        for key in _SAYING:
            yield from leaves(entry.get(key), (key,), "custom", None)


class _Turn:
    """The tail test: the last user, assistant or toolResult entry says whether a turn is open.

    `judged` is the offset of its line, None as long as it was not met.
    """

    def __init__(self) -> None:
        self.judged: int | None = None
        self.open: str | None = None

    def look(self, line: Line, entry: Entry | None) -> None:
        """Judge by this line unless a later one has; call it from the last line backwards."""
        if self.judged is not None:
            return
        if entry is None:
            if not line.terminated:
                self._judge(line, "the last line is torn: a write is under way")
            return
        role = _role(entry)
        if role in ("user", "toolResult"):
            self._judge(line, "the last turn is open: a user message" if role == "user"
                        else "the last turn is open: a tool result")  # fmt: skip
        elif role == "assistant":
            self._judge(line, _assistant_open(entry["message"]))

    def _judge(self, line: Line, reason: str | None) -> None:
        self.judged, self.open = line.offset, reason


def _assistant_open(message: Entry) -> str | None:
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    if any(isinstance(block, dict) and block.get("type") == "toolCall" for block in blocks):
        return "the last turn is open: a tool call"
    if message.get("stopReason") not in FINAL_STOPS:
        return "the last turn is open: the assistant has not stopped"
    return None


def _role(entry: Entry) -> str | None:
    message = entry.get("message")
    if entry.get("type") != "message" or not isinstance(message, dict):
        return None
    role = message.get("role")
    return role if isinstance(role, str) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _content(value: Any, path: KeyPath, kind: Kind, tool: str | None) -> Iterator[Part]:
    """Yield text and images of a content, which is a list of blocks or (openclaw) a string."""
    if isinstance(value, str):
        yield from leaves(value, path, kind, tool)
        return
    for index, block in enumerate(value if isinstance(value, list) else []):
        if not isinstance(block, dict):
            continue
        if block.get("type") == "text":
            yield from leaves(_text(block.get("text")), (*path, index, "text"), kind, tool)
        elif block.get("type") == "image":
            yield from image(block, (*path, index), kind, tool)


def _assistant(message: Entry, *, before_last_user: bool) -> Iterator[Part]:
    content = message.get("content")
    path: KeyPath = ("message", "content")
    if not isinstance(content, list):
        yield from _content(content, path, "assistant", None)
        return
    yield from _content(content, path, "assistant", None)
    yield from openclaw_tree.parts(message, before_last_user=before_last_user)
    for index, block in enumerate(content):
        if not isinstance(block, dict):
            continue
        if block.get("type") == "toolCall" and isinstance(block.get("arguments"), dict):
            tool = _text(block.get("name"))
            signed = "call signed by its provider" if block.get("thoughtSignature") else None
            for part in leaves(block["arguments"], (*path, index, "arguments"), "tool_call", tool):
                yield replace(part, locked=signed)  # Gemini may verify what it signed


# The events are those of its files. What its indexes hold stays as it is: they are filled from the
# text of user and assistant messages (openclaw 2026.9.6, `dist/session-transcript-index-*.mjs`) and
# would not notice a change.


INDEXED = "an index of its agent's database holds it"


class OpenClawRows(OpenClaw):
    """The dialect of OpenClaw in a database."""

    versions = (2, 3, 4)
    archives: ArchiveForm | None = None  # user and assistant text is what the indexes hold

    def survey(self, lines: Lines, window: int) -> Survey:
        """Look over the session as over a file; OpenClaw may append the end of a branch anew."""
        return replace(super().survey(lines, window), appends_anew=True)

    def parts(self, entry: Entry, survey: Survey, offset: int | None) -> Iterator[Part]:
        """Yield the parts of an entry; those that would change an index are locked."""
        for part in super().parts(entry, survey, offset):
            # A block that gives way to one of text would add to the message's text.
            adds_text = part.block and part.kind != "tool_result"
            indexed = part.kind in ("user", "assistant") or adds_text
            yield replace(part, locked=part.locked or INDEXED) if indexed else part
