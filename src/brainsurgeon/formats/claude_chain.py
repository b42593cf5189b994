"""The chain of a Claude Code session: which lines the model's next request carries.

Lines are chained by `uuid` and `parentUuid`, and the next request carries the chain from the
newest leaf. Read in @anthropic-ai/claude-code 2.1.112 (`cli.js`, the loader of transcripts) and
seen in files that versions 2.0.64 to 2.1.330 wrote:

- One API message is split over lines, a block each. Where it asks for several tools, the line of
  each result hangs on the line of its call, so that the chain is a tree; the loader brings back
  the lines of each message on the chain, and their results.
- A compaction writes a boundary without parent. What stands before it is not sent any more,
  except for the messages that the boundary names as preserved.
- A parent that is not in the file (a torn line, say) is replaced by the line closest before.
- Lines of sub-agents (`isSidechain`) stood in the main file once; now they have their own files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from brainsurgeon.formats.claude_lines import BOUNDARY, node
from brainsurgeon.model.sessions import BEFORE_COMPACTION, OFF_BRANCH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from brainsurgeon.formats.claude_lines import Node
    from brainsurgeon.model.entries import Entry


class Chain:
    """All chained lines of one file, in its order, and which of them are live."""

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._leaf: str | None = None
        self._preserved = _Preserved()

    def add(self, entry: Entry, offset: int) -> None:
        """Take in one entry; call it in the order of the file."""
        if entry.get("type") == "last-prompt" and isinstance(entry.get("leafUuid"), str):
            self._leaf = entry["leafUuid"]
        one = node(entry, offset)
        if one is None:
            return
        self._nodes.append(one)
        if one.kind == BOUNDARY:
            self._preserved = _Preserved.of(entry)

    @property
    def separate(self) -> bool:
        """Tell whether this is a sub-agent's own file: each of its lines is a sub-agent's."""
        return all(one.side for one in self._nodes)

    def read(self) -> Reading:
        """Say which lines are live once all are known."""
        places = {one.uuid: index for index, one in enumerate(self._nodes)}
        live: set[int] = set()
        for leaf in self._leaves(places):
            self._climb(leaf, places, live)
        boundary = max((index for index in live if self._nodes[index].kind == BOUNDARY), default=-1)
        if boundary >= 0:
            live |= {places[uuid] for uuid in self._preserved.uuids if uuid in places}
            live |= self._segment(places)
        live |= self._parallel(live)
        live |= self._progress(live)
        return Reading(self._nodes, sorted(live), boundary)

    def _leaves(self, places: dict[str, int]) -> Iterator[int]:
        """Yield the newest line and the leaf of the newest `last-prompt`.

        They differ after a step back in the conversation, and where two processes wrote; what
        hangs on either counts as live.
        """
        separate = self.separate
        for index in range(len(self._nodes) - 1, -1, -1):
            if self._nodes[index].side == separate:
                yield index
                break
        if self._leaf in places:
            yield places[self._leaf]

    def _climb(self, index: int, places: dict[str, int], live: set[int]) -> None:
        met: set[int] = set()
        at: int | None = index
        while at is not None and at not in live:
            met.add(at)
            live.add(at)
            parent = self._nodes[at].parent
            if parent is None:
                return
            above = places.get(parent)
            at = self._before(at, live) if above is None or above in met else above

    def _segment(self, places: dict[str, int]) -> set[int]:
        """Give the lines of the segment that the last compaction preserved, if it is whole."""
        walked: set[int] = set()
        at = places.get(self._preserved.tail or "")
        while at is not None and at not in walked:
            walked.add(at)
            if self._nodes[at].uuid == self._preserved.head:
                return walked
            at = places.get(self._nodes[at].parent or "")
        return set()

    def _before(self, index: int, live: set[int]) -> int | None:
        """Give the closest line before this one that may be its parent."""
        side = self._nodes[index].side
        for at in range(index - 1, -1, -1):
            if self._nodes[at].side == side and at not in live:
                return at
        return None

    def _parallel(self, live: set[int]) -> set[int]:
        """Give the other lines of the messages that are live, and all results of their calls."""
        spoken = {one.message for one in (self._nodes[index] for index in live) if one.message}
        lines = {index for index, one in enumerate(self._nodes) if one.message in spoken}
        asked = {self._nodes[index].uuid for index in lines}
        results = {
            index for index, one in enumerate(self._nodes) if one.answers and one.parent in asked
        }
        return lines | results

    def _progress(self, live: set[int]) -> set[int]:
        """Give the lines of progress that hang on a live line; the chain itself passes them by."""
        above = {self._nodes[index].uuid for index in live}
        found: set[int] = set()
        for index, one in enumerate(self._nodes):
            if one.kind == "progress" and one.parent in above:
                found.add(index)
                above.add(one.uuid)
        return found


@dataclass(frozen=True, slots=True)
class Reading:
    """Which lines of a chain are live: `live` are their indexes, in the order of the file.

    `boundary` is the index of the last compaction on the chain, -1 without one.
    """

    nodes: list[Node]
    live: list[int]
    boundary: int

    def dead(self) -> dict[int, str]:
        """Map the offset of each line that is not live to why."""
        live = set(self.live)
        return {
            one.offset: BEFORE_COMPACTION if index < self.boundary else OFF_BRANCH
            for index, one in enumerate(self.nodes)
            if index not in live
        }

    def positions(self, window: int) -> dict[int, int]:
        """Map the offsets of the newest lines to how many messages stand after them.

        The lines of one API message are one message. A call stands where its result stands, so
        that no window ever ends between the two.
        """
        positions: dict[int, int] = {}
        spoken: dict[str, int] = {}
        answered: dict[str, int] = {}
        messages = 0
        for index in reversed(self.live):
            one = self.nodes[index]
            at = messages if one.counts else max(messages - 1, 0)
            if one.counts and one.message is not None:
                at = spoken.setdefault(one.message, at)
                messages = max(messages, at + 1)
            else:
                messages += one.counts
            at = min((answered[call] for call in one.asks if call in answered), default=at)
            answered.update(dict.fromkeys(one.answers, at))
            if at <= window:
                positions[one.offset] = at
        return positions

    def last_prompt(self) -> int | None:
        """Give the offset of the newest live user message that answers no call, if any."""
        for index in reversed(self.live):
            one = self.nodes[index]
            if one.counts and one.message is None and not one.answers:
                return one.offset
        return None


def _strings(holder: object, *keys: str) -> list[str]:
    """Give the strings that stand at these keys, alone or in a list."""
    if not isinstance(holder, dict):
        return []
    values = (holder.get(key) for key in keys)
    listed = (value if isinstance(value, list) else [value] for value in values)
    return [one for value in listed for one in value if isinstance(one, str)]


@dataclass(frozen=True, slots=True)
class _Preserved:
    """The messages that a compaction left as they were: by name, and as the ends of a segment.

    Releases before 2.1.112 name the ends only; the loader walks from the tail to the head.
    """

    uuids: tuple[str, ...] = ()
    head: str | None = None
    tail: str | None = None

    @classmethod
    def of(cls, boundary: Entry) -> _Preserved:
        """Read what a boundary says."""
        metadata = boundary.get("compactMetadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        segment = metadata.get("preservedSegment")
        ends = [next(iter(_strings(segment, key)), None) for key in ("headUuid", "tailUuid")]
        named = _strings(metadata.get("preservedMessages"), "uuids", "allUuids")
        return cls(tuple(named), *ends)
