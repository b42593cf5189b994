"""The lines of a Claude Code session, as everything about this format looks at them.

Chained lines have a `uuid` and name their parent; all others (titles, modes, prompts that wait,
records of requests, snapshots) are never edited. Types unknown to us are among the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from brainsurgeon.formats.base import BOM, parse, usable_id
from brainsurgeon.model.sessions import BEFORE_COMPACTION, OFF_BRANCH, Survey

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from brainsurgeon.model.entries import Entry, Line, Lines


CHAINED = frozenset({"user", "assistant", "attachment", "system", "progress"})
BOUNDARY = "compact_boundary"


@dataclass(frozen=True, slots=True)
class Node:
    """What the chain needs to know of one line.

    `kind` is the entry's type, or its subtype where it is a compaction's boundary. `message` is
    the id of the API message that the line belongs to. `asks` and `answers` are ids of tool
    calls. `side` says that the line is a sub-agent's.
    """

    offset: int
    uuid: str
    kind: str
    parent: str | None
    message: str | None
    asks: tuple[str, ...]
    answers: tuple[str, ...]
    side: bool
    counts: bool


def node(entry: Entry, offset: int) -> Node | None:
    """Return the node of an entry, or None where the entry is not part of the chain."""
    uuid = entry_id(entry)
    if uuid is None:
        return None
    kind = entry["type"]
    parent = entry.get("parentUuid")
    message = message_of(entry)
    ident = message.get("id") if kind == "assistant" else None
    return Node(
        offset, uuid, BOUNDARY if entry.get("subtype") == BOUNDARY else kind,
        parent if isinstance(parent, str) else None,
        (ident if isinstance(ident, str) else uuid) if kind == "assistant" else None,
        tuple(_named(entry, "tool_use", "id")) if kind == "assistant" else (),
        tuple(_named(entry, "tool_result", "tool_use_id")) if kind == "user" else (),
        entry.get("isSidechain") is True,
        counts(entry),
    )  # fmt: skip


def entry_id(entry: Entry) -> str | None:
    """Name a chained entry by its uuid; no other entry has parts, and none is ever edited."""
    uuid = entry.get("uuid")
    kind = entry.get("type")
    chained = isinstance(kind, str) and kind in CHAINED and isinstance(uuid, str)
    return usable_id(uuid) if chained else None


def message_of(entry: Entry) -> dict[str, Any]:
    """Return the API message of an entry, empty where it has none."""
    message = entry.get("message")
    return message if isinstance(message, dict) else {}


def blocks_of(entry: Entry) -> Iterator[tuple[int, Entry]]:
    """Yield the blocks of an entry's message with their index."""
    content = message_of(entry).get("content")
    for index, block in enumerate(content if isinstance(content, list) else []):
        if isinstance(block, dict):
            yield index, block


def counts(entry: Entry) -> bool:
    """Count prompts, results and replies, but not what Claude Code itself adds to them."""
    return entry.get("type") in ("user", "assistant") and not (
        entry.get("isMeta") is True or entry.get("isVisibleInTranscriptOnly") is True
    )


def _named(entry: Entry, kind: str, key: str) -> Iterator[str]:
    for _, block in blocks_of(entry):
        if block.get("type") == kind and isinstance(block.get(key), str):
            yield block[key]


# Lines are chained by `uuid` and `parentUuid`, and the next request carries the chain from the
# newest leaf. Read in @anthropic-ai/claude-code 2.1.112 (`cli.js`, the loader of transcripts) and
# seen in files that versions 2.0.64 to 2.1.330 wrote:
#
# - One API message is split over lines, a block each. Where it asks for several tools, the line of
#   each result hangs on the line of its call, so that the chain is a tree; the loader brings back
#   the lines of each message on the chain, and their results.
# - A compaction writes a boundary without parent. What stands before it is not sent any more,
#   except for the messages that the boundary names as preserved.
# - A parent that is not in the file (a torn line, say) is replaced by the line closest before.
# - Lines of sub-agents (`isSidechain`) stood in the main file once; now they have their own files.


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
        """Check whether this is a sub-agent's own file: each of its lines is a sub-agent's."""
        return all(one.side for one in self._nodes)

    def read(self) -> Reading:
        """Return which lines are live once all are known."""
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
        """Return the lines of the segment that the last compaction preserved, if it is whole."""
        walked: set[int] = set()
        at = places.get(self._preserved.tail or "")
        while at is not None and at not in walked:
            walked.add(at)
            if self._nodes[at].uuid == self._preserved.head:
                return walked
            at = places.get(self._nodes[at].parent or "")
        return set()

    def _before(self, index: int, live: set[int]) -> int | None:
        """Return the closest line before this one that may be its parent."""
        side = self._nodes[index].side
        for at in range(index - 1, -1, -1):
            if self._nodes[at].side == side and at not in live:
                return at
        return None

    def _parallel(self, live: set[int]) -> set[int]:
        """Return the other lines of the messages that are live, and all results of their calls."""
        spoken = {one.message for one in (self._nodes[index] for index in live) if one.message}
        lines = {index for index, one in enumerate(self._nodes) if one.message in spoken}
        asked = {self._nodes[index].uuid for index in lines}
        results = {
            index for index, one in enumerate(self._nodes) if one.answers and one.parent in asked
        }
        return lines | results

    def _progress(self, live: set[int]) -> set[int]:
        """Return the lines of progress that hang on a live line.

        The chain itself passes them by.
        """
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
        """Return the offset of the newest live user message that answers no call, if any."""
        for index in reversed(self.live):
            one = self.nodes[index]
            if one.counts and one.message is None and not one.answers:
                return one.offset
        return None


def _strings(holder: object, *keys: str) -> list[str]:
    """Return the strings that stand at these keys, alone or in a list."""
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


# Judged from the last chained line backwards (seen with versions 2.0.64 to 2.1.330). Attachments
# and progress say nothing, and neither do notes that Claude Code adds itself. Every prompt that
# waits in the queue has an `enqueue` without a `dequeue` or `remove`.


CLOSING_STOPS = frozenset({
    "end_turn", "stop_sequence", "max_tokens", "refusal", "model_context_window_exceeded",
})  # fmt: skip
# Seconds of silence after a text without `stop_reason`: versions before 2.1.112 leave it out of
# most lines, and more of the same turn follows in most cases.
UNMARKED_QUIET = 120.0

# How user lines begin that end a turn: an interruption, and the output of a user's command.
_OVER = ("[Request interrupted by user", "<local-command-std", "<bash-std")
# How lines begin that Claude Code adds for itself, whether or not a turn is open.
_NOTES = ("<local-command-caveat>", "<system-reminder>")
_CLOSING_MARKS = ("turn_duration", "stop_hook_summary")
_TORN = "the last line is torn: a write is under way"


def is_prompt(entry: Entry) -> bool:
    """Check whether a user line is a real prompt: no note, no end of a turn, no summary."""
    added = ("isMeta", "isCompactSummary", "isVisibleInTranscriptOnly")
    text = _opening(entry)
    pictures = any(block.get("type") != "text" for _, block in blocks_of(entry))
    return not (
        any(entry.get(key) is True for key in added)
        or not (text.strip() or pictures)
        or text.startswith((*_OVER, *_NOTES))
    )


class Turn:
    """The tail test; hand it the lines from the last backwards until it has `judged`."""

    def __init__(self, *, separate: bool) -> None:
        self.judged = False
        self.open: str | None = None
        self.quiet = 0.0
        self._separate = separate

    def look(self, line: Line, entry: Entry | None) -> None:
        """Judge by this line unless a later one has."""
        if self.judged:
            return
        if entry is None:
            if not line.terminated:
                self._judge(_TORN)
            return
        if entry_id(entry) is None or (entry.get("isSidechain") is True) != self._separate:
            return
        kind = entry["type"]
        if kind == "assistant":
            self._assistant(entry)
        elif kind == "user":
            self._user(entry)
        elif kind == "system":
            self._system(entry.get("subtype"))

    def _assistant(self, entry: Entry) -> None:
        kinds = {block.get("type") for _, block in blocks_of(entry)
                 if isinstance(block.get("type"), str)}  # fmt: skip
        stop = message_of(entry).get("stop_reason")
        if "tool_use" in kinds:
            self._judge("the last turn is open: a tool call")
        elif entry.get("isApiErrorMessage") is True:
            self._judge(None)
        elif kinds and kinds <= {"thinking", "redacted_thinking"}:
            self._judge("the last turn is open: the assistant is thinking")
        elif stop is None:
            self.quiet = UNMARKED_QUIET
            self._judge(None)
        elif isinstance(stop, str) and stop in CLOSING_STOPS:
            self._judge(None)
        else:
            self._judge("the last turn is open: the assistant has not stopped")

    def _user(self, entry: Entry) -> None:
        text = _opening(entry)
        if any(block.get("type") == "tool_result" for _, block in blocks_of(entry)):
            self._judge("the last turn is open: a tool result")
        elif text.startswith(_OVER):
            self._judge(None)
        elif not text.startswith(_NOTES):
            self._judge("the last turn is open: a user message")

    def _system(self, subtype: object) -> None:
        if subtype in _CLOSING_MARKS:
            self._judge(None)
        elif subtype == "compact_boundary":
            self._judge("the last turn is open: a compaction")

    def _judge(self, reason: str | None) -> None:
        self.judged, self.open = True, reason


class Queue:
    """The prompts that were typed ahead and wait for their turn."""

    def __init__(self) -> None:
        self._waiting = 0

    def look(self, entry: Entry) -> None:
        """Take in one entry; call it in the order of the file."""
        if entry.get("type") != "queue-operation":
            return
        operation = entry.get("operation")
        if operation == "enqueue":
            self._waiting += 1
        elif operation in ("dequeue", "remove"):
            self._waiting = max(0, self._waiting - 1)
        elif operation == "popAll":
            self._waiting = 0

    @property
    def open(self) -> str | None:
        """Say that a prompt waits, or None."""
        return "a prompt waits in the queue" if self._waiting else None


def _opening(entry: Entry) -> str:
    """Return how a user line begins."""
    content = message_of(entry).get("content")
    if isinstance(content, str):
        return content
    texts = (block.get("text") for _, block in blocks_of(entry) if block.get("type") == "text")
    return next((text for text in texts if isinstance(text, str)), "")


# How many files Claude Code 2.0.76 takes into its read cache when it resumes a session.
READ_CACHE = 10
# The first version seen that does not fill the cache from the session any more (2.1.37 does).
#
# Where a file changed since, the versions before send what differs from the cached text: all of it,
# if a placeholder stands there.
READ_CACHE_GONE = (2, 1, 112)


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
