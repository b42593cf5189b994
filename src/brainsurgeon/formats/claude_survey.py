"""One look over a whole Claude Code file: chain, tools, the end, and results that must stay."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from brainsurgeon.formats.base import BOM, parse
from brainsurgeon.formats.claude_chain import Chain
from brainsurgeon.formats.claude_lines import blocks_of, entry_id
from brainsurgeon.formats.claude_turn import Queue, Turn
from brainsurgeon.model.sessions import Survey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from brainsurgeon.model.entries import Entry, Lines

READ_CACHE = 10
"""How many files Claude Code 2.0.76 takes into its read cache when it resumes a session."""
READ_CACHE_GONE = (2, 1, 112)
"""The first version seen that does not fill the cache from the session any more (2.1.37 does).

Where a file changed since, the versions before send what differs from the cached text: all of it,
if a stub stands there.
"""


@dataclass(frozen=True, slots=True)
class ClaudeSurvey(Survey):
    """What only this format needs: `tools` names the tool of a call by the call's id.

    `cached` are the ids of calls whose file the agent takes into its read cache from here, and
    `replaced` of those whose result it replaces by a short text when it reads the session.
    """

    tools: Mapping[str, str] = field(default_factory=dict)
    cached: frozenset[str] = frozenset()
    replaced: frozenset[str] = frozenset()


NOTHING_SEEN = ClaudeSurvey(0, {}, None)


def look_over(lines: Lines, window: int) -> ClaudeSurvey:
    """Read the file once forwards, and its end backwards."""
    chain, calls, queue = Chain(), _Calls(), Queue()
    for line in lines:
        entry = parse(line.raw if line.offset else line.raw.removeprefix(BOM)) if line.raw else None
        if entry is None or line.raw is None:
            continue
        chain.add(entry, line.offset)
        calls.look(entry)
        queue.look(entry)
    turn = Turn(separate=chain.separate)
    for line in lines.backward():
        if turn.judged:
            break
        turn.look(line, parse(line.raw) if line.raw else None)
    reading = chain.read()
    return ClaudeSurvey(
        window,
        reading.positions(window),
        turn.open or queue.open,
        reading.last_prompt(),
        reading.dead(),
        turn.quiet,
        tools=calls.tools,
        cached=calls.cached,
        replaced=frozenset(calls.replaced),
    )


class _Calls:
    """The tool calls of a file: the name of each tool, and whose results must stay whole."""

    def __init__(self) -> None:
        self.tools: dict[str, str] = {}
        self.replaced: set[str] = set()
        self._files: dict[str, str] = {}
        self._version: tuple[int, ...] = ()

    def look(self, entry: Entry) -> None:
        """Take in one entry; call it in the order of the file."""
        if entry.get("type") == "content-replacement":
            listed = entry.get("replacements")
            for one in listed if isinstance(listed, list) else []:
                if isinstance(one, dict) and isinstance(one.get("toolUseId"), str):
                    self.replaced.add(one["toolUseId"])
        if entry_id(entry) is None:
            return
        self._version = _version(entry) or self._version
        if entry["type"] == "assistant":
            for _, block in blocks_of(entry):
                self._call(block)

    def _call(self, block: Entry) -> None:
        ident, name, given = (block.get(key) for key in ("id", "name", "input"))
        if block.get("type") != "tool_use" or not (
            isinstance(ident, str) and isinstance(name, str)
        ):
            return
        self.tools[ident] = name
        path = given.get("file_path") if isinstance(given, dict) else None
        if name in ("Read", "Write") and isinstance(path, str):
            self._files.pop(path, None)
            self._files[path] = ident

    @property
    def cached(self) -> frozenset[str]:
        """The newest reads and writes of the files that the read cache holds."""
        if self._version >= READ_CACHE_GONE:
            return frozenset()
        return frozenset(list(self._files.values())[-READ_CACHE:])


def _version(entry: Entry) -> tuple[int, ...]:
    said = entry.get("version")
    numbers = said.split(".") if isinstance(said, str) else []
    return tuple(int(one) for one in numbers if one.isdecimal() and len(one) < 10)  # noqa: PLR2004
