"""OpenClaw and pi, session versions 2 and 3.

One JSON object a line; entries form a tree by `id` and `parentId`. The shapes were read in
@mariozechner/pi-coding-agent 0.73.1 and @earendil-works/pi-coding-agent 1.5.2
(`dist/core/session-manager.js`) and openclaw 2026.7.35 (`dist/transcript-tree-*.js`,
`dist/transcript-rewrite-*.js`), and seen in files that those programs wrote. Prompts and tools
(messages of the role `system`, a compaction's `systemMessage`) have no parts.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from brainsurgeon.formats import openclaw_tree
from brainsurgeon.formats.base import (
    Answer,
    CallArguments,
    Thoughts,
    blocks_in,
    dict_or_empty,
    first_line,
    image,
    leaves,
    number_in,
    references,
    reply_step,
    str_or_none,
    texts_in,
    usable_id,
)
from brainsurgeon.formats.openclaw_tree import Asking, Branch, Dead, Reach
from brainsurgeon.model.entries import (
    EXTRACTABLE,
    Entry,
    KeyPath,
    Kind,
    Line,
    Lines,
    Part,
    value_at,
)
from brainsurgeon.model.parsing import parse
from brainsurgeon.model.sessions import OFF_BRANCH, Survey
from brainsurgeon.model.turns import ArchiveForm, Role, ToolResult, TurnStep

FINAL_STOPS = ("stop", "length", "error", "aborted")
_ROLES: dict[str, Role] = {
    "user": "prompt", "assistant": "reply", "toolResult": "result", "bashExecution": "aside",
    "custom": "aside",
}  # fmt: skip
# Types that nothing on the branch depends on. Read in @mariozechner/pi-coding-agent 0.73.1
# (`dist/core/session-manager.js`, buildSessionContext): the model is taken from the last assistant
# message of the branch. Levels of thinking, tools and the state of extensions are taken from
# entries of their own, which therefore have to stay on the branch.
_NOTES = ("label", "session_info", "usage", "model_change")
_CONTENT: KeyPath = ("message", "content")
_DETAILS: KeyPath = ("message", "details")


class OpenClaw:
    """The dialect of OpenClaw and pi."""

    name = "openclaw"
    version = 4
    # The session versions that are supported.
    versions: tuple[int, ...] = (2, 3)
    archives: ArchiveForm | None = "linked"

    def recognises(self, entries: Sequence[Entry]) -> bool:
        """Check whether the first entry is a session header."""
        return entries[0].get("type") == "session" and isinstance(entries[0].get("id"), str)

    def refuses(self, header: Entry) -> str | None:
        """Refuse version 1, which pi rewrites with new ids, and unknown versions."""
        version = header.get("version", 1)
        if version == 1:
            return "pi session version 1: pi migrates it with new ids when it next opens it"
        if version in self.versions:
            return None
        named = version if isinstance(version, int) else "of an unknown kind"
        return f"session version {named} is not known to this program"

    def session(self, head: Sequence[Entry]) -> str | None:
        return usable_id(head[0].get("id"))

    def rest(self, entry: Entry) -> bytes | None:  # noqa: ARG002
        """Return None: ids are random."""
        return None

    def survey(self, lines: Lines, window: int) -> Survey:
        """Walk from the leaf to the root, and find the entries that the next request contains.

        A leaf that leads nowhere is ignored, as in openclaw: then all lines are the branch.
        """
        branch = Branch()
        survey = self._survey(lines, window, branch)
        lost = branch.lost and not survey.positions
        return self._survey(lines, window, Branch(linear=True)) if lost else survey

    def _survey(self, lines: Lines, window: int, branch: Branch) -> Survey:
        positions: dict[int, int] = {}
        messages = 0
        dead, turn, reach, asking = Dead(), _Turn(), Reach(), Asking()
        for line in lines.backward():
            known = reach.over and messages > window and asking.at is not None
            if turn.judged is not None and (known or branch.ended):
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
        cursor = None
        if turn.judged is not None and not branch.linear:
            cursor = dead.why or f"{branch.cursor} {reach.cursor}"
        return Survey(
            window, positions, turn.open, asking.at, dead, since=turn.judged, cursor=cursor
        )

    def identity(self, entry: Entry, raw: bytes, number: int) -> str | None:  # noqa: ARG002
        """Return the entry's `id`; None for the header, whose id is the session's."""
        return None if entry.get("type") == "session" else usable_id(entry.get("id"))

    def counts(self, entry: Entry) -> bool:
        """Check whether the entry is a message of a known role or a custom message."""
        return _role(entry) in _ROLES or entry.get("type") == "custom_message"

    def parts(self, entry: Entry, survey: Survey, offset: int | None) -> Iterator[Part]:
        """Yield the parts of a message or a custom message; others have parts only if forced."""
        kind, message = entry.get("type"), dict_or_empty(entry.get("message"))
        role = message.get("role") if _is_message(entry) else None
        if kind == "custom_message":
            yield from _content(entry.get("content"), ("content",), "custom", None)
        elif not (kind == "session" or _is_message(entry)) and entry.get(EXTRACTABLE) is True:
            for key in ("data", "summary", "content", "details"):  # ids and links stay
                yield from leaves(entry.get(key), (key,), "custom", None)
        if role == "toolResult":
            tool = str_or_none(message.get("toolName"))
            yield from _content(message.get("content"), _CONTENT, "tool_result", tool)
            for part in leaves(message.get("details"), _DETAILS, "tool_result", tool):
                yield replace(part, dead=True)
        elif role == "assistant":
            yield from _assistant(message, before_last_user=survey.before_last_user(offset))
        elif role == "bashExecution":
            yield from leaves(message.get("output"), ("message", "output"), "tool_result", "bash")
        elif role in ("user", "custom"):
            yield from _content(message.get("content"), _CONTENT, role, None)

    def anchor(self, entry: Entry, path: KeyPath) -> str | None:
        """Return the id of the call that a toolResult answers, or of the toolCall around `path`."""
        if _role(entry) == "toolResult":
            return str_or_none(entry["message"].get("toolCallId"))
        block = dict_or_empty(value_at(entry, path[:3]))
        return str_or_none(block.get("id")) if block.get("type") == "toolCall" else None

    def thoughts(self, entry: Entry) -> Thoughts | None:
        """Return the signed thinking in an assistant message."""
        return openclaw_tree.thoughts(entry["message"]) if _role(entry) == "assistant" else None

    def turn_step(self, entry: Entry) -> TurnStep | None:
        kind, role = entry.get("type"), _role(entry)
        if kind == "session":
            return None
        linked = (str_or_none(entry.get("parentId")), references(entry))
        if not _is_message(entry):
            aside: Role = "aside" if kind == "custom_message" else "fixed"
            return TurnStep("note" if kind in _NOTES else aside, *linked)
        message = entry["message"]
        if role == "assistant":
            stop = message.get("stopReason")
            return reply_step(
                message, linked, "toolCall", "arguments",
                stopped=stop in FINAL_STOPS, cut_short=stop in FINAL_STOPS[1:],
            )  # fmt: skip
        results = (_result(message),) if role == "toolResult" else ()
        return TurnStep(_ROLES.get(role or "", "fixed"), *linked, results=results)

    def calls(self, entry: Entry) -> Iterator[CallArguments]:
        if _role(entry) != "assistant":
            return
        for index, block in blocks_in(entry["message"].get("content"), "toolCall"):
            if isinstance(block.get("arguments"), dict):
                yield CallArguments(
                    (*_CONTENT, index, "arguments"), str_or_none(block.get("id")),
                    block["arguments"], signed=bool(block.get("thoughtSignature")),
                )  # fmt: skip

    def answers(self, entry: Entry) -> Iterator[Answer]:
        """Yield the texts of a toolResult."""
        if _role(entry) != "toolResult":
            return
        message = entry["message"]
        for part in _content(message.get("content"), _CONTENT, "tool_result", None):
            text = value_at(entry, part.path)
            if isinstance(text, str):
                yield Answer(part.path, text, str_or_none(message.get("toolCallId")))


def _result(message: Entry) -> ToolResult:
    details = message.get("details")
    code = number_in(details, "exitCode")
    failed = message.get("isError") is True or bool(code)
    finding = first_line(text for _, text in texts_in(message.get("content"))) if failed else ""
    took = number_in(details, "durationMs", "tookMs")
    return ToolResult(str_or_none(message.get("toolCallId")), failed, finding, code, took)


class _Turn:
    """Finds out by the last user, assistant or toolResult entry whether a turn is open.

    `judged` is the offset of its line, None until it was found.
    """

    def __init__(self) -> None:
        self.judged: int | None = None
        self.open: str | None = None

    def look(self, line: Line, entry: Entry | None) -> None:
        """Judge by this line if no later one decided; call it from the last line backwards."""
        if self.judged is not None:
            return
        role = None if entry is None else _role(entry)
        if entry is None:
            if line.terminated:
                return
            self.open = "the last line is torn: a write is under way"
        elif role == "assistant":
            message = entry["message"]
            if any(blocks_in(message.get("content"), "toolCall")):
                self.open = "the last turn is open: a tool call"
            elif message.get("stopReason") not in FINAL_STOPS:
                self.open = "the last turn is open: the assistant has not stopped"
        elif role in ("user", "toolResult"):
            what = "user message" if role == "user" else "tool result"
            self.open = f"the last turn is open: a {what}"
        else:
            return
        self.judged = line.offset


def _is_message(entry: Entry) -> bool:
    return entry.get("type") == "message" and isinstance(entry.get("message"), dict)


def _role(entry: Entry) -> str | None:
    return str_or_none(entry["message"].get("role")) if _is_message(entry) else None


def _content(value: Any, path: KeyPath, kind: Kind, tool: str | None) -> Iterator[Part]:
    """Yield text and images of a content, which is a list of blocks or (openclaw) a string."""
    yield from leaves(str_or_none(value), path, kind, tool)
    for index, block in blocks_in(value):
        if block.get("type") == "text":
            text = str_or_none(block.get("text"))
            yield from leaves(text, (*path, index, "text"), kind, tool)
        elif block.get("type") == "image":
            yield from image(block, (*path, index), kind, tool)


def _assistant(message: Entry, *, before_last_user: bool) -> Iterator[Part]:
    content = message.get("content")
    yield from _content(content, _CONTENT, "assistant", None)
    yield from openclaw_tree.parts(message, before_last_user=before_last_user)
    for index, block in blocks_in(content, "toolCall"):
        if isinstance(block.get("arguments"), dict):
            path: KeyPath = (*_CONTENT, index, "arguments")
            # Gemini may verify its signatures.
            signed = "call signed by its provider" if block.get("thoughtSignature") else None
            tool = str_or_none(block.get("name"))
            for part in leaves(block["arguments"], path, "tool_call", tool):
                yield replace(part, locked=signed)


# The events are the same as in files. Values in the database's indexes stay: the indexes are filled
# from the text of user and assistant messages (openclaw 2026.9.6,
# `dist/session-transcript-index-*.mjs`) and would not notice a change.


INDEXED = "an index of its agent's database holds it"


class OpenClawRows(OpenClaw):
    """The dialect of OpenClaw in a database."""

    versions = (2, 3, 4)
    archives: ArchiveForm | None = None  # the indexes contain user and assistant text

    def survey(self, lines: Lines, window: int) -> Survey:
        """Survey the session like a file; OpenClaw may append the end of a branch again."""
        return replace(super().survey(lines, window), appends_anew=True)

    def parts(self, entry: Entry, survey: Survey, offset: int | None) -> Iterator[Part]:
        """Yield the parts of an entry; those that would change an index are locked."""
        for part in super().parts(entry, survey, offset):
            # A text block in place of another block would add to the message's text.
            adds_text = part.block and part.kind != "tool_result"
            indexed = part.kind in ("user", "assistant") or adds_text
            yield replace(part, locked=part.locked or INDEXED) if indexed else part
