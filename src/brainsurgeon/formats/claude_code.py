"""Claude Code: one JSON object a line, chained by `uuid` and `parentUuid`.

The shapes were seen in files that versions 2.0.64 to 2.1.330 wrote, and read in
@anthropic-ai/claude-code 2.0.76 and 2.1.112 (`cli.js`). Where the file stands, and who is at
work, is not known here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from brainsurgeon.formats import claude_turns
from brainsurgeon.formats.base import Answer, Call, usable_id
from brainsurgeon.formats.claude_lines import blocks_of, counts, entry_id
from brainsurgeon.formats.claude_parts import call_of, parts_of, saved_to_a_file
from brainsurgeon.formats.claude_survey import NOTHING_SEEN, ClaudeSurvey, look_over
from brainsurgeon.model.entries import value_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from brainsurgeon.formats.base import Thoughts
    from brainsurgeon.model.entries import Entry, KeyPath, Lines, Part
    from brainsurgeon.model.sessions import Survey
    from brainsurgeon.model.turns import ArchiveForm, Said


_TYPES = ("summary", "file-history-snapshot", "queue-operation", "progress")


class ClaudeCode:
    """The dialect of Claude Code."""

    name = "claude-code"
    version = 1
    archives: ArchiveForm | None = "flat"

    def recognises(self, entries: Sequence[Entry]) -> bool:
        """Know a file by an entry that names its session, is chained, or is of a known type."""
        return any(
            "sessionId" in entry
            or ("uuid" in entry and "parentUuid" in entry)
            or entry.get("type") in _TYPES
            for entry in entries
        )

    def refuses(self, header: Entry) -> str | None:  # noqa: ARG002
        """Take every file: there is no header, and unknown entries are carried along."""
        return None

    def session(self, head: Sequence[Entry]) -> str | None:
        """Return the id of the agent whose side conversation it is, or of its lines' session."""
        chained = (entry for entry in head if entry_id(entry) is not None)
        first = next(chained, {})
        side = usable_id(first.get("agentId")) if first.get("isSidechain") is True else None
        named = (usable_id(entry.get("sessionId")) for entry in head)
        return side or next(filter(None, named), None)

    def rest(self, entry: Entry) -> bytes | None:  # noqa: ARG002
        """Return None: ids are random."""
        return None

    def survey(self, lines: Lines, window: int) -> Survey:
        """Look over the whole file: the chain may lead anywhere in it."""
        return look_over(lines, window)

    def identity(self, entry: Entry, raw: bytes, number: int) -> str | None:  # noqa: ARG002
        """Name the entry by its uuid."""
        return entry_id(entry)

    def counts(self, entry: Entry) -> bool:
        """Count prompts, results and replies; the lines of one reply are one message."""
        return entry_id(entry) is not None and counts(entry)

    def parts(self, entry: Entry, survey: Survey, offset: int | None) -> Iterator[Part]:  # noqa: ARG002
        """Yield the values of an entry that could be cut."""
        return parts_of(entry, survey if isinstance(survey, ClaudeSurvey) else NOTHING_SEEN)

    def anchor(self, entry: Entry, path: KeyPath) -> str | None:
        """Name the call that the value at `path` asks for, or answers."""
        return call_of(entry, path)

    def thoughts(self, entry: Entry) -> Thoughts | None:  # noqa: ARG002
        """Know of none that would have to leave: the agent has its provider drop what fits no more.

        It asks for that itself, and sends again without thinking where it was refused (2.1.330).
        """
        return None

    def said(self, entry: Entry) -> Said | None:
        """Say what a line is in its turn."""
        return claude_turns.said(entry)

    def calls(self, entry: Entry) -> Iterator[Call]:
        """Yield the tool_use blocks of an assistant line."""
        if entry.get("type") != "assistant":
            return
        for index, block in blocks_of(entry):
            given = block.get("input")
            if block.get("type") == "tool_use" and isinstance(given, dict):
                path: KeyPath = ("message", "content", index, "input")
                yield Call(path, call_of(entry, path), given)

    def answers(self, entry: Entry) -> Iterator[Answer]:
        """Yield the texts of the tool_result blocks, with the copies that the screen shows.

        Where Claude Code put a long output into a file and left a note, the output itself is
        what the screen shows.
        """
        if entry.get("type") != "user":
            return
        shown = [
            part.path for part in parts_of(entry, NOTHING_SEEN) if part.path[0] == "toolUseResult"
        ]
        for path in _texts(entry):
            text = value_at(entry, path)
            same = (one for one in shown if value_at(entry, one).strip() == text.strip())
            yield Answer(path, text, call_of(entry, path), tuple(same))
            for one in shown if saved_to_a_file(text) else ():
                yield Answer(one, value_at(entry, one), call_of(entry, path))


def _texts(entry: Entry) -> Iterator[KeyPath]:
    """Yield the paths of the texts that stand in the results of an entry."""
    for index, block in blocks_of(entry):
        if block.get("type") != "tool_result":
            continue
        path: KeyPath = ("message", "content", index, "content")
        content = block.get("content")
        if isinstance(content, str) and content:
            yield path
        for inner, one in enumerate(content if isinstance(content, list) else []):
            if isinstance(one, dict) and one.get("type") == "text":
                text = one.get("text")
                if isinstance(text, str) and text:
                    yield (*path, inner, "text")
