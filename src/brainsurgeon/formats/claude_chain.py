"""The lines of a Claude Code session: their chain, the open turn, and the tool calls.

Chained lines have a `uuid` and name their parent. All others (titles, modes, queued prompts,
records of requests, snapshots, unknown types) are never edited.
"""

from collections.abc import Iterator, Mapping

from msgspec import Struct, field

from brainsurgeon.formats.base import blocks_in, dict_or_empty, str_or_empty, str_or_none, usable_id
from brainsurgeon.model.entries import Entry, Lines
from brainsurgeon.model.parsing import BOM, parse
from brainsurgeon.model.sessions import BEFORE_COMPACTION, OFF_BRANCH, Survey

CHAINED = frozenset({"user", "assistant", "attachment", "system", "progress"})
BOUNDARY = "compact_boundary"


class Node(Struct, frozen=True):
    """The facts about one line that the chain needs.

    `kind` is the entry's type, or its subtype if it is the boundary of a compaction. `message` is
    the id of the API message that the line belongs to. `asks` and `answers` are the ids of the tool
    calls made and answered. `side` means that the line is a sub-agent's.
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


def _node(entry: Entry, offset: int) -> Node | None:
    """Return the node of an entry, or None if the entry is not part of the chain."""
    uuid = entry_id(entry)
    if uuid is None:
        return None
    kind = entry["type"]
    ident = message_of(entry).get("id")
    return Node(
        offset, uuid, BOUNDARY if entry.get("subtype") == BOUNDARY else kind,
        str_or_none(entry.get("parentUuid")),
        (ident if isinstance(ident, str) else uuid) if kind == "assistant" else None,
        _named(entry, "tool_use", "id") if kind == "assistant" else (),
        _named(entry, "tool_result", "tool_use_id") if kind == "user" else (),
        entry.get("isSidechain") is True,
        counts(entry),
    )  # fmt: skip


def entry_id(entry: Entry) -> str | None:
    """Return the uuid of a chained entry, else None. Other entries have no parts and stay."""
    uuid, kind = entry.get("uuid"), entry.get("type")
    chained = isinstance(kind, str) and kind in CHAINED and isinstance(uuid, str)
    return usable_id(uuid) if chained else None


def message_of(entry: Entry) -> Entry:
    """Return the API message of an entry, or an empty one."""
    return dict_or_empty(entry.get("message"))


def blocks_of(entry: Entry, *types: str) -> Iterator[tuple[int, Entry]]:
    """Yield index and value of the blocks of an entry's message: all, or those of some types."""
    return blocks_in(message_of(entry).get("content"), *types)


def counts(entry: Entry) -> bool:
    """Check whether an entry is a prompt, result or reply that Claude Code did not add itself."""
    return entry.get("type") in ("user", "assistant") and not (
        entry.get("isMeta") is True or entry.get("isVisibleInTranscriptOnly") is True
    )


def _named(entry: Entry, kind: str, key: str) -> tuple[str, ...]:
    named = (block.get(key) for _, block in blocks_of(entry, kind))
    return tuple(name for name in named if isinstance(name, str))


# Lines are chained by `uuid` and `parentUuid`, and the next request contains the chain from the
# newest leaf. Read in @anthropic-ai/claude-code 2.1.112 (`cli.js`, the loader of transcripts) and
# seen in files that versions 2.0.64 to 2.1.330 wrote:
#
# - One API message is split into one line for each block. If it calls several tools, the parent of
#   each result's line is the line of its call, so the chain is a tree. The loader adds all lines of
#   each message on the chain, and their results.
# - A compaction writes a boundary without a parent. Lines before it are not sent any more, except
#   the messages that the boundary lists as preserved.
# - If a parent is not in the file (it may be a torn line), the closest line before takes its place.
# - Lines of sub-agents (`isSidechain`) were once in the main file; now they have their own files.


class Chain:
    """All chained lines of one file, in file order, and which of them are live.

    `leaf` is the uuid in the newest `last-prompt`, `metadata` the metadata of the last compaction.
    """

    def __init__(self, nodes: list[Node], leaf: str | None, metadata: Entry) -> None:
        self._nodes = nodes
        self._places = {node.uuid: index for index, node in enumerate(nodes)}
        # In a sub-agent's own file, all lines are a sub-agent's.
        self.separate = all(node.side for node in nodes)
        live: set[int] = set()
        # Start at the newest line, and at the leaf: they differ after a step back in the
        # conversation, and if two processes wrote. The ancestors of both count as live.
        self._climb(self._before(len(nodes), live, side=self.separate), live)
        self._climb(self._places.get(leaf or ""), live)
        # Index of the last compaction on the chain, -1 without one.
        self._boundary = max((at for at in live if nodes[at].kind == BOUNDARY), default=-1)
        if self._boundary >= 0:
            kept = _strings(metadata.get("preservedMessages"), "uuids", "allUuids")
            live |= {self._places[uuid] for uuid in kept if uuid in self._places}
            live |= self._segment(metadata.get("preservedSegment"))
        live |= self._parallel(live)
        live |= self._progress(live)
        self._live = sorted(live)

    def _climb(self, at: int | None, live: set[int]) -> None:
        """Add the line at this index and its ancestors to the live ones."""
        met: set[int] = set()
        while at is not None and at not in live:
            met.add(at)
            live.add(at)
            parent = self._nodes[at].parent
            if parent is None:
                return
            above = self._places.get(parent)
            if above is None or above in met:
                above = self._before(at, live, side=self._nodes[at].side)
            at = above

    def _before(self, index: int, live: set[int], *, side: bool) -> int | None:
        """Return the closest line before this index that may continue the chain, if any."""
        earlier = range(index - 1, -1, -1)
        return next((at for at in earlier if self._nodes[at].side == side and at not in live), None)

    def _segment(self, segment: object) -> set[int]:
        """Return the lines of the segment that the last compaction preserved, if it is complete.

        Releases before 2.1.112 name only its ends; the loader walks from the tail to the head.
        """
        head, tail = (next(iter(_strings(segment, key)), "") for key in ("headUuid", "tailUuid"))
        walked: set[int] = set()
        at = self._places.get(tail)
        while at is not None and at not in walked:
            walked.add(at)
            if self._nodes[at].uuid == head:
                return walked
            at = self._places.get(self._nodes[at].parent or "")
        return set()

    def _parallel(self, live: set[int]) -> set[int]:
        """Return all lines of the live messages, and all results of their calls."""
        nodes = self._nodes
        spoken = {nodes[index].message for index in live} - {None, ""}
        lines = {index for index, node in enumerate(nodes) if node.message in spoken}
        asked = {nodes[index].uuid for index in lines}
        return lines | {
            index for index, node in enumerate(nodes) if node.answers and node.parent in asked
        }

    def _progress(self, live: set[int]) -> set[int]:
        """Return the progress lines below live lines; the chain itself skips them."""
        above = {self._nodes[index].uuid for index in live}
        lines: set[int] = set()
        for index, node in enumerate(self._nodes):
            if node.kind == "progress" and node.parent in above:
                lines.add(index)
                above.add(node.uuid)
        return lines

    def dead(self) -> dict[int, str]:
        """Return the offset of each line that is not live, with the reason."""
        live = set(self._live)
        return {
            node.offset: BEFORE_COMPACTION if index < self._boundary else OFF_BRANCH
            for index, node in enumerate(self._nodes)
            if index not in live
        }

    def positions(self, window: int) -> dict[int, int]:
        """Return the offsets of the newest lines, with the number of messages after each.

        The lines of one API message are one message. A call has the position of its result, so that
        no window ends between the two.
        """
        positions: dict[int, int] = {}
        spoken: dict[str, int] = {}
        answered: dict[str, int] = {}
        messages = 0
        for index in reversed(self._live):
            node = self._nodes[index]
            at = messages if node.counts else max(messages - 1, 0)
            if node.counts and node.message is not None:
                at = spoken.setdefault(node.message, at)
                messages = max(messages, at + 1)
            else:
                messages += node.counts
            at = min((answered[call] for call in node.asks if call in answered), default=at)
            answered.update(dict.fromkeys(node.answers, at))
            if at <= window:
                positions[node.offset] = at
        return positions

    def last_prompt(self) -> int | None:
        """Return the offset of the newest live user message that answers no call, if any."""
        newest = (self._nodes[index] for index in reversed(self._live))
        prompts = (
            node.offset
            for node in newest
            if node.counts and node.message is None and not node.answers
        )
        return next(prompts, None)


def _strings(holder: object, *keys: str) -> list[str]:
    """Return the strings at these keys, single ones and lists."""
    values = (dict_or_empty(holder).get(key) for key in keys)
    listed = (value if isinstance(value, list) else [value] for value in values)
    return [text for texts in listed for text in texts if isinstance(text, str)]


CLOSING_STOPS = frozenset({
    "end_turn", "stop_sequence", "max_tokens", "refusal", "model_context_window_exceeded",
})  # fmt: skip
# Seconds of silence required after a text without `stop_reason`: versions before 2.1.112 omit it
# from most lines, and usually more of the same turn follows.
UNMARKED_QUIET = 120.0

# Beginnings of user lines that end a turn: an interruption, and the output of a user's command.
_OVER = ("[Request interrupted by user", "<local-command-std", "<bash-std")
# Beginnings of lines that Claude Code itself adds, whether or not a turn is open.
_NOTES = ("<local-command-caveat>", "<system-reminder>")


def is_prompt(entry: Entry) -> bool:
    """Check whether a user line is a real prompt: no note, no end of a turn, no summary."""
    added = ("isMeta", "isCompactSummary", "isVisibleInTranscriptOnly")
    if any(entry.get(key) is True for key in added):
        return False
    text = _opening(entry)
    pictures = any(block.get("type") != "text" for _, block in blocks_of(entry))
    return bool(text.strip() or pictures) and not text.startswith((*_OVER, *_NOTES))


def _open_turn(lines: Lines, *, separate: bool) -> tuple[str | None, float]:
    """Return why the last turn is open, or None, and the seconds of silence that this requires.

    Read from the last chained line backwards (seen with versions 2.0.64 to 2.1.330). Attachments,
    progress, and notes that Claude Code adds itself are ignored.
    """
    for line in lines.backward():
        entry = parse(line.raw) if line.raw else None
        if entry is None:
            if not line.terminated:
                return "the last line is torn: a write is under way", 0.0
        elif entry_id(entry) is not None and (entry.get("isSidechain") is True) == separate:
            if entry["type"] == "assistant":
                return _after_reply(entry)
            happened = _happened(entry)
            if happened is not None:
                return f"the last turn is open: {happened}" if happened else None, 0.0
    return None, 0.0


def _after_reply(entry: Entry) -> tuple[str | None, float]:
    kinds = {block["type"] for _, block in blocks_of(entry) if isinstance(block.get("type"), str)}
    stop = message_of(entry).get("stop_reason")
    if "tool_use" in kinds:
        return "the last turn is open: a tool call", 0.0
    if entry.get("isApiErrorMessage") is True:
        return None, 0.0
    if kinds and kinds <= {"thinking", "redacted_thinking"}:
        return "the last turn is open: the assistant is thinking", 0.0
    if stop is None:
        return None, UNMARKED_QUIET
    if isinstance(stop, str) and stop in CLOSING_STOPS:
        return None, 0.0
    return "the last turn is open: the assistant has not stopped", 0.0


def _happened(entry: Entry) -> str | None:
    """Return what left the turn open, "" if it was closed, None if the line tells neither."""
    if entry["type"] == "user":
        text = _opening(entry)
        if any(blocks_of(entry, "tool_result")):
            return "a tool result"
        if text.startswith(_OVER):
            return ""
        return None if text.startswith(_NOTES) else "a user message"
    subtype = entry.get("subtype") if entry["type"] == "system" else None
    if subtype in ("turn_duration", "stop_hook_summary"):
        return ""
    return "a compaction" if subtype == BOUNDARY else None


def _waiting(entry: Entry, before: int) -> int:
    """Return the number of queued prompts after this entry."""
    if entry.get("type") != "queue-operation":
        return before
    match entry.get("operation"):
        case "enqueue":
            return before + 1
        case "dequeue" | "remove":
            return max(0, before - 1)
        case "popAll":
            return 0
    return before


def _opening(entry: Entry) -> str:
    """Return the first text of a user line."""
    content = message_of(entry).get("content")
    if isinstance(content, str):
        return content
    texts = (block.get("text") for _, block in blocks_of(entry, "text"))
    return next((text for text in texts if isinstance(text, str)), "")


# Number of files that Claude Code 2.0.76 puts into its read cache when it resumes a session.
READ_CACHE = 10
# The first version seen that no longer fills the cache from the session (2.1.37 does).
#
# If a file has changed since, earlier versions send its difference from the cached text: all of it
# if a placeholder is cached.
READ_CACHE_GONE = (2, 1, 112)


class ClaudeSurvey(Survey, frozen=True):
    """The survey of a Claude Code session; `tools` maps the ids of calls to the names of tools.

    `cached` are the ids of calls from which the agent fills its read cache. `replaced` are the ids
    of calls whose result the agent replaces by a short text when it reads the session.
    """

    tools: Mapping[str, str] = field(default_factory=dict)
    cached: frozenset[str] = frozenset()
    replaced: frozenset[str] = frozenset()


NOTHING_SEEN = ClaudeSurvey(0, {}, None)


def look_over(lines: Lines, window: int) -> ClaudeSurvey:
    """Read the file once forwards, and its end backwards."""
    nodes: list[Node] = []
    leaf: str | None = None
    metadata: Entry = {}
    waiting, calls = 0, _Calls()
    for line in lines:
        entry = parse(line.raw if line.offset else line.raw.removeprefix(BOM)) if line.raw else None
        if entry is None:
            continue
        if entry.get("type") == "last-prompt" and isinstance(entry.get("leafUuid"), str):
            leaf = entry["leafUuid"]
        node = _node(entry, line.offset)
        if node is not None:
            nodes.append(node)
            if node.kind == BOUNDARY:
                metadata = dict_or_empty(entry.get("compactMetadata"))
        calls.look(entry)
        waiting = _waiting(entry, waiting)
    chain = Chain(nodes, leaf, metadata)
    open_turn, quiet = _open_turn(lines, separate=chain.separate)
    return ClaudeSurvey(
        window,
        chain.positions(window),
        open_turn or ("a prompt waits in the queue" if waiting else None),
        chain.last_prompt(),
        chain.dead(),
        quiet,
        tools=calls.tools,
        cached=calls.cached,
        replaced=frozenset(calls.replaced),
    )


class _Calls:
    """The tool calls of a file: the names of the tools, and calls whose results have to stay."""

    def __init__(self) -> None:
        self.tools: dict[str, str] = {}
        self.replaced: set[str] = set()
        self._files: dict[str, str] = {}
        self._version: tuple[int, ...] = ()

    def look(self, entry: Entry) -> None:
        """Note the calls in one entry. Has to be called in file order."""
        if entry.get("type") == "content-replacement":
            replacements = (
                block.get("toolUseId") for _, block in blocks_in(entry.get("replacements"))
            )
            self.replaced.update(ident for ident in replacements if isinstance(ident, str))
        if entry_id(entry) is None:
            return
        self._version = _version(entry) or self._version
        for _, block in blocks_of(entry, "tool_use") if entry["type"] == "assistant" else ():
            ident, name = block.get("id"), block.get("name")
            if isinstance(ident, str) and isinstance(name, str):
                self.tools[ident] = name
                path = dict_or_empty(block.get("input")).get("file_path")
                if name in ("Read", "Write") and isinstance(path, str):
                    self._files.pop(path, None)
                    self._files[path] = ident

    @property
    def cached(self) -> frozenset[str]:
        """The ids of the newest reads and writes of the files in the read cache."""
        if self._version >= READ_CACHE_GONE:
            return frozenset()
        return frozenset(list(self._files.values())[-READ_CACHE:])


def _version(entry: Entry) -> tuple[int, ...]:
    numbers = str_or_empty(entry.get("version")).split(".")
    return tuple(int(digits) for digits in numbers if digits.isdecimal() and len(digits) < 10)  # noqa: PLR2004
