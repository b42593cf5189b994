"""Claude Code: one JSON object a line. The conversation is a chain by `uuid` and `parentUuid`.

Lines outside of the chain (titles, modes, queued prompts, snapshots, unknown types) are not edited,
except the records of API requests: Claude Code reads only their hash. Sources: files that versions
2.0.64 to 2.1.330 wrote, and the code of @anthropic-ai/claude-code 2.0.76, 2.1.112 (`cli.js`) and
2.1.330.
"""

import re
from bisect import bisect_right
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, ClassVar

from msgspec import Struct, field
from msgspec.structs import replace

from brainsurgeon.formats import weight
from brainsurgeon.formats.base import (
    DAMAGED,
    LAST_TURN,
    NO_STEP,
    STILL_WRITTEN,
    Content,
    Format,
    ResultText,
    below,
    blocks_in,
    call_facts,
    calls_in,
    content_parts,
    covers_request,
    dict_or_empty,
    first_line,
    is_damaged,
    leaf,
    leaves,
    number_in,
    references,
    reply_step,
    result_facts,
    results_in,
    str_or_empty,
    str_or_none,
    strings_in,
    texts_in,
    thinking_chars,
    usable_id,
    values_sent,
)
from brainsurgeon.formats.chain import Around, Chain
from brainsurgeon.formats.marks import marks_in
from brainsurgeon.model.entries import (
    OLD,
    JsonObject,
    KeyPath,
    Kind,
    Line,
    Value,
    placeholder_in,
)
from brainsurgeon.model.session_files import BEFORE_COMPACTION, OFF_BRANCH
from brainsurgeon.model.text import parse_time
from brainsurgeon.model.transcript import CallFacts, Entry, Thoughts
from brainsurgeon.model.turns import (
    NOTHING,
    ModelCall,
    Sent,
    ToolCall,
    ToolResult,
    TurnStep,
    files_in,
)

CHAINED = ("user", "assistant", "attachment", "system", "progress")
BOUNDARY = "compact_boundary"


class TreeLine(Struct, frozen=True, gc=False):
    offset: int  # or an index
    uuid: str
    kind: str  # the type, or BOUNDARY
    parent: str | None
    message: str | None  # of a reply: the id of its API message or, without one, the uuid
    calls: tuple[str, ...]  # ids of the tool calls in the line
    results: tuple[str, ...]  # ids of the calls whose results are in the line
    is_subagent: bool
    is_message: bool
    time: float | None  # seconds since 1970


class ClaudeLine(Struct, frozen=True, gc=False):
    """A line, with what most questions about it look at."""

    entry: JsonObject
    kind: Any  # its type
    ident: str | None
    message: JsonObject
    content: Any
    blocks: list[tuple[int, JsonObject]]
    thinking: list[tuple[int, JsonObject]]
    uses: list[tuple[int, JsonObject]]
    results: list[tuple[int, JsonObject]]


def _view(entry: JsonObject) -> ClaudeLine:
    message = entry.get("message")
    if not isinstance(message, dict):
        message = {}
    content = message.get("content")
    return ClaudeLine(
        entry, entry.get("type"), entry_id(entry), message, content, blocks_in(content),
        blocks_in(content, "thinking", "redacted_thinking"), blocks_in(content, "tool_use"),
        blocks_in(content, "tool_result"),
    )  # fmt: skip


def _node(view: ClaudeLine, offset: int, time: float | None) -> TreeLine | None:
    uuid = view.ident
    if uuid is None:
        return None
    entry, kind = view.entry, view.kind
    return TreeLine(
        offset, uuid, BOUNDARY if entry.get("subtype") == BOUNDARY else kind,
        str_or_none(entry.get("parentUuid")),
        str_or_empty(view.message.get("id")) or uuid if kind == "assistant" else None,
        _ids_in(view.uses, "id") if kind == "assistant" else (),
        _ids_in(view.results, "tool_use_id") if kind == "user" else (),
        entry.get("isSidechain") is True, is_message(entry), time,
    )  # fmt: skip


def entry_id(entry: JsonObject) -> str | None:
    uuid = entry.get("uuid")
    return usable_id(uuid) if isinstance(uuid, str) and entry.get("type") in CHAINED else None


def message_of(entry: JsonObject) -> JsonObject:
    return dict_or_empty(entry.get("message"))


def is_message(entry: JsonObject) -> bool:
    if entry.get("type") not in ("user", "assistant"):
        return False
    return entry.get("isMeta") is not True and entry.get("isVisibleInTranscriptOnly") is not True


def _ids_in(blocks: Iterable[tuple[int, JsonObject]], key: str) -> tuple[str, ...]:
    ids = [block.get(key) for _, block in blocks]
    return tuple([ident for ident in ids if isinstance(ident, str)])


# The next request contains the chain: the newest line, its parent, and so on. Claude Code follows
# these rules:
#
# - An API message has one line for each block. If it calls several tools, the parent of each
#   result is the line of its call: the lines form a tree. All lines of each message on the chain
#   are added, and their results.
# - A compaction writes a boundary without a parent. Lines before it are no longer sent, except the
#   messages that the boundary lists as preserved.
# - If a parent is missing (its line may be incomplete), or is on the chain already (a cycle), the
#   line with the closest earlier time replaces it. If none is near, the chain ends. Only for a
#   missing parent, the closest earlier line counts as live, too: older versions may send it.
# - Lines of sub-agents (`isSidechain`) were once in the main file; now they have their own files.


_NEAR = 5.0  # seconds between a line and the one that replaces its parent (2.1.112, 2.1.330)
_MOST_NEAR = 1000  # lines to try: a file may have 100,000 lines with one time


class Tree:
    def __init__(self, lines: list[TreeLine], leaf: str | None, metadata: JsonObject) -> None:
        self._lines = lines
        self.in_subagent_file = all(node.is_subagent for node in lines)
        nodes = [node for node in lines if node.is_subagent == self.in_subagent_file]
        self.nodes = nodes
        self._places = {node.uuid: index for index, node in enumerate(nodes)}
        self._times = sorted(
            (node.time, -index) for index, node in enumerate(nodes)
            if node.time is not None and node.kind != "progress"
        )  # fmt: skip
        live: set[int] = set()
        # The newest line and the leaf differ after the user went back in the conversation, or if
        # two processes wrote. The ancestors of both count as live.
        self._climb(len(nodes) - 1, live)
        self._climb(self._places.get(leaf or "", -1), live)
        boundaries = [nodes[at].offset for at in live if nodes[at].kind == BOUNDARY]
        self.boundary = max(boundaries, default=-1)
        if boundaries:
            preserved = dict_or_empty(metadata.get("preservedMessages"))
            for uuids in (preserved.get("uuids"), preserved.get("allUuids")):
                named = map(str, uuids if isinstance(uuids, list) else ())
                live.update(self._places[uuid] for uuid in named if uuid in self._places)
            live |= self._segment(metadata.get("preservedSegment"))
        live |= self._parallel(live)
        self._live = sorted(live)

    def _climb(self, at: int, live: set[int]) -> None:
        """Add an entry and its ancestors."""
        walked, begins = set[int](), [at]
        while begins:
            at = begins.pop()
            while at >= 0 and at not in live:
                live.add(at)
                walked.add(at)
                parent = self.nodes[at].parent
                if parent is None:
                    break
                above = self._places.get(parent, -1)
                if above < 0:
                    earlier = (near for near in reversed(range(at)) if near not in live)
                    begins.append(next(earlier, -1))
                at = self._before(at, walked) if above < 0 or above in walked else above

    def _before(self, at: int, walked: Container[int]) -> int:
        """Return the line, not walked yet, with the closest earlier time, or -1."""
        time = self.nodes[at].time
        if time is None:
            return -1
        newest = bisect_right(self._times, (time, 0))
        for near, index in reversed(self._times[max(0, newest - _MOST_NEAR) : newest]):
            if time - near > _NEAR:
                break
            if -index not in walked:
                return -index
        return -1

    def _segment(self, segment: object) -> set[int]:
        # Before 2.1.112, a compaction lists only the ends of the lines that it preserved.
        ends = dict_or_empty(segment)
        head, at = ends.get("headUuid"), self._places.get(str_or_empty(ends.get("tailUuid")))
        walked: set[int] = set()
        while at is not None and at not in walked:
            walked.add(at)
            if self.nodes[at].uuid == head:
                return walked
            at = self._places.get(self.nodes[at].parent or "")
        return set()

    def _parallel(self, live: set[int]) -> set[int]:
        nodes = self.nodes
        messages = {nodes[index].message for index in live} - {None}
        lines = {index for index, node in enumerate(nodes) if node.message in messages}
        uuids = {nodes[index].uuid for index in lines}
        return lines | {
            index for index, node in enumerate(nodes) if node.results and node.parent in uuids
        }

    def live(self) -> Iterator[TreeLine]:
        return (self.nodes[index] for index in self._live)

    def dead(self) -> dict[int, str]:
        live = {self.nodes[index].offset for index in self._live}
        return {
            node.offset: BEFORE_COMPACTION if node.offset < self.boundary else OFF_BRANCH
            for node in self._lines
            # Lines of progress may belong to the live branch although they are not on it.
            if node.offset not in live and (node.offset < self.boundary or node.kind != "progress")
        }


CLOSING_STOPS = (
    "end_turn", "stop_sequence", "max_tokens", "refusal", "model_context_window_exceeded",
)  # fmt: skip
_CUT = ("max_tokens", "model_context_window_exceeded")
# Seconds without a change after which a text without `stop_reason` ends a turn. Usually the turn
# continues. Versions before 2.1.112 omit `stop_reason` in most lines.
UNMARKED_QUIET = 120.0

# Beginnings of user lines that end a turn: interruptions, and the output of a user's command.
_TURN_ENDS = ("[Request interrupted by user", "<local-command-std", "<bash-std")
# Beginnings of lines that Claude Code itself adds, whether or not a turn is open.
_NOTES = ("<local-command-caveat>", "<system-reminder>")


def _is_prompt(view: ClaudeLine) -> bool:
    marks = ("isMeta", "isCompactSummary", "isVisibleInTranscriptOnly")
    if any(view.entry.get(key) is True for key in marks):
        return False
    text = _first_text(view)
    pictures = any(block.get("type") != "text" for _, block in view.blocks)
    return bool(text or pictures) and not text.startswith((*_TURN_ENDS, *_NOTES))


def _after_reply(view: ClaudeLine) -> tuple[str | None, float]:
    stop = view.message.get("stop_reason")
    if view.uses:
        return "the last turn is open: a tool call", 0.0
    if view.entry.get("isApiErrorMessage") is True:
        return None, 0.0
    typed = [block for _, block in view.blocks if isinstance(block.get("type"), str)]
    if typed and len(typed) == len(view.thinking):
        return "the last turn is open: the assistant is thinking", 0.0
    if stop is None:
        return None, UNMARKED_QUIET
    if stop in CLOSING_STOPS:
        return None, 0.0
    return "the last turn is open: the assistant has not stopped", 0.0


def _left_open(view: ClaudeLine) -> str | None:
    """Return why the turn is open, "" if it is finished, None if the line shows neither."""
    if view.kind == "user":
        if view.results:
            return "a tool result"
        text = _first_text(view)
        if text.startswith(_TURN_ENDS):
            return ""
        return None if text.startswith(_NOTES) else "a user message"
    subtype = view.entry.get("subtype") if view.kind == "system" else None
    if subtype in ("turn_duration", "stop_hook_summary"):
        return ""
    return "a compaction" if subtype == BOUNDARY else None


def _waiting(change: str | None, before: int) -> int:
    changes = {"enqueue": 1, "dequeue": -1, "remove": -1, "popAll": -before}
    return max(0, before + changes.get(change or "", 0))


def _cleared(message: JsonObject) -> int:
    """Return how many results the provider cleared from this answer's prompt, oldest first.

    Claude Code asks for it after a pause. (provider's page "Context editing")
    """
    edits = dict_or_empty(message.get("context_management")).get("applied_edits")
    return sum(weight.counts(edit, "cleared_tool_uses") for _, edit in blocks_in(edits))


def _first_text(view: ClaudeLine) -> str:
    """Return the first text that is more than white space."""
    return next((text for _, text in texts_in(view.content)), "")


_NONE: JsonObject = {}  # a single empty object for all entries


class ChainFacts(Struct, frozen=True, gc=False):
    node: TreeLine | None = None
    tools: Mapping[str, str] = field(default_factory=lambda: _NONE)
    metadata: JsonObject = field(default_factory=lambda: _NONE)  # of a compaction
    cleared: int = 0
    is_meta: bool = False
    replaced: tuple[str, ...] = ()
    # Where the thinking begins that requests contain no more: the id of an API message, "" for any,
    # and how many of its blocks stay.
    stripped: tuple[str, int] | None = None
    leaf: str | None = None
    queued: str | None = None  # a change of the queue of prompts
    # Why it leaves the turn open ("": it does not; None: it does not show), and for how long.
    left: tuple[str | None, float] = (None, 0.0)


def _facts(view: ClaudeLine, time: float | None) -> ChainFacts:
    entry, kind, node = view.entry, view.kind, _node(view, 0, time)
    if node is None:
        leaf = str_or_none(entry.get("leafUuid")) if kind == "last-prompt" else None
        queued = str(entry.get("operation")) if kind == "queue-operation" else None
        listed = entry.get("replacements") if kind == "content-replacement" else None
        replaced = _ids_in(blocks_in(listed), "toolUseId")
        if leaf is None and queued is None and not replaced:
            return _NO_FACTS
        return ChainFacts(leaf=leaf, queued=queued, replaced=replaced)
    left: tuple[str | None, float]
    if kind == "assistant":
        why, quiet = _after_reply(view)
        left = why or "", quiet
    else:
        why = _left_open(view)
        left = f"the last turn is open: {why}" if why else why, 0.0
    return ChainFacts(
        node, _tools(view),
        dict_or_empty(entry.get("compactMetadata")) if node.kind == BOUNDARY else _NONE,
        _cleared(view.message) if node.message is not None else 0, entry.get("isMeta") is True,
        stripped=_stripped(entry) if kind == "attachment" else None, left=left,
    )  # fmt: skip


_NO_FACTS = ChainFacts()


def _stripped(entry: JsonObject) -> tuple[str, int] | None:
    """Return what thinking Claude Code left out for good when it made a refused request again.

    A provider refuses thinking of another account, or with changes before it (2.1.332).
    """
    attachment = dict_or_empty(entry.get("attachment"))
    if attachment.get("type") != "thinking_stripped":
        return None
    first = dict_or_empty(attachment.get("from")) if attachment.get("scope") == "partial" else {}
    return str_or_empty(first.get("messageId")), weight.counts(first, "thinkingIndex")


class ClaudeChain(Chain):
    def __init__(self, entries: Sequence[Entry]) -> None:
        super().__init__()
        self._leaf: str | None = None
        self._metadata: JsonObject = {}
        self._waiting = 0  # prompts in the queue
        self._answers: dict[str, str] = {}  # ids of calls by the ids of the entries that answer
        self._named: set[str] = set()  # calls whose results the agent itself replaced
        self._cleared: tuple[str | None, int] = (None, 0)  # by the newest answer's id
        self._results: list[str] = []  # live, after the last compaction
        self._model: str | None = None  # of the last answer
        self._thoughts: dict[str, list[int]] = {}  # lines with thinking by the ids of API messages
        # Lines whose thinking is left out: first, end; in order, without overlap.
        self._stripped: list[tuple[int, int]] = []
        # Reply by reply, the newest line; for lines of calls, those of the results.
        self._newest: dict[str, int] = {}
        self._answered: dict[int, int] = {}
        self._unanswered: dict[str, list[int]] = {}
        self.tools: dict[str, str] = {}
        self.beside: dict[str, str] = {}
        nodes: list[TreeLine] = []
        for index, entry in enumerate(entries):
            if entry.own is not None:
                self._note(entry.own)
                if entry.own.node is not None:
                    nodes.append(replace(entry.own.node, offset=index))
        tree = Tree(nodes, self._leaf, self._metadata)
        self.dead = tree.dead()
        live = {node.offset: node for node in tree.live()}
        for index, entry in enumerate(entries):
            self._place(index, entry, live.get(index), tree.boundary)
        self.open_turn, self.quiet = self._open(entries, in_subagent_file=tree.in_subagent_file)
        if self._waiting and not self.open_turn:
            self.open_turn = "a prompt waits in the queue"
        if self._named or self._cleared[1]:
            self.replaced = frozenset({*self._named, *islice(self._results, self._cleared[1])})

    def _note(self, facts: ChainFacts) -> None:
        """Note what an entry says whether or not it is live."""
        node, cleared = facts.node, self._cleared
        if node is None:
            self._leaf = facts.leaf or self._leaf
            self._named.update(facts.replaced)
            self._waiting = _waiting(facts.queued, self._waiting)
            return
        if node.kind == BOUNDARY:
            self._metadata = facts.metadata
        if node.message is not None:
            self.tools |= facts.tools
            same = node.message == cleared[0]
            number = max(facts.cleared, cleared[1]) if same else facts.cleared
            self._cleared = node.message, number
        if node.results:
            self._answers[node.uuid] = node.results[-1]
        elif facts.is_meta and node.parent in self._answers:
            # Up to 2.1.220, Read writes a PDF, or the pictures of its pages, into a line of
            # their own behind the result.
            call = self._answers[node.parent]
            self.beside[node.uuid] = self._answers[node.uuid] = call

    def _place(self, index: int, entry: Entry, node: TreeLine | None, boundary: int) -> None:
        """Count the next entry. `node` is None if it is not live.

        An API message counts once, at its newest line. A call has the position of its result.
        """
        if node is None:
            self.count(index, entry, live=False)
        elif node.message is not None:
            if node.is_message:
                for at in range(self._newest.get(node.message, index), index):
                    self.counts[at] -= 1
                self._newest[node.message] = index
            self.count(index, entry, live=True)
            self._note_answer(index, entry, node.message)
            for call in node.calls:
                self._unanswered.setdefault(call, []).append(index)
        else:
            self.count(index, entry, live=node.kind != "progress")
            self._note_stripped(index, entry.own)
            for call in node.results:
                self._answered.update(dict.fromkeys(self._unanswered.pop(call, ()), index))
            if index > boundary:
                self._results += node.results
            if node.is_message and not node.results:
                self.last_user = index

    def _note_answer(self, index: int, entry: Entry, message: str) -> None:
        if entry.call and entry.call.model:
            self._model = entry.call.model
        if entry.thoughts and entry.thoughts.blocks:
            self._thoughts.setdefault(message, []).append(index)

    def _note_stripped(self, index: int, facts: ChainFacts) -> None:
        if facts.stripped:
            message, kept = facts.stripped
            lines = self._thoughts.get(message, [])[kept:]
            first = lines[0] if lines else 0
            while self._stripped and self._stripped[-1][1] >= first:  # it continues in this range
                first = min(first, self._stripped.pop()[0])
            self._stripped.append((first, index))

    def thinks(self, index: int, entry: Entry) -> bool:
        # 2.1.332 leaves out the thinking of other models. 2.1.112 sends it, and the provider leaves
        # it out.
        model = entry.call.model if entry.call else None
        is_same = None in (model, self._model) or model == self._model
        at = bisect_right(self._stripped, index, key=lambda lines: lines[0]) - 1
        return is_same and (at < 0 or index >= self._stripped[at][1])

    def position(self, index: int, entry: Entry) -> int:
        at, counted = index, entry.is_message
        if index in self.off:
            return OLD
        if index in self._answered:
            at = self._answered[index]
            counted = self.counts[at] > self.counts[at - 1]
        elif counted:
            at = self._newest.get(entry.own.node.message, index)
        after = self.counts[-1] - self.counts[at]
        return after if counted else max(after - 1, 0)

    @staticmethod
    def _open(entries: Sequence[Entry], *, in_subagent_file: bool) -> tuple[str | None, float]:
        for entry in reversed(entries):
            facts = entry.own
            if facts is None:
                if not entry.terminated:
                    return STILL_WRITTEN, 0.0
            elif facts.node is not None and facts.node.is_subagent == in_subagent_file:
                left, quiet = facts.left
                if left is not None:
                    return left or None, quiet
        return None, 0.0


def _tools(view: ClaudeLine) -> dict[str, str]:
    if view.kind != "assistant" or not view.uses:
        return _NONE
    named = [(block.get("id"), block.get("name")) for _, block in view.uses]
    return {
        ident: name for ident, name in named if isinstance(ident, str) and isinstance(name, str)
    }


# The first line of a failed command's result. Nothing else contains the exit code.
_EXIT = re.compile(r"Exit code ([0-9]{1,9})$")
_CONTENT: KeyPath = ("message", "content")
_SHOWN: KeyPath = ("toolUseResult",)


def _tool_result(block: JsonObject, took: int | None) -> ToolResult:
    failed = block.get("is_error") is True
    finding = first_line(text for _, text in texts_in(block.get("content"))) if failed else ""
    code = _EXIT.match(finding)
    return ToolResult(
        str_or_none(block.get("tool_use_id")), failed, finding, int(code[1]) if code else None, took
    )


# Tried: 2.0.76 to 2.1.330 resume a session even if strings were changed and images replaced by text
# blocks. In lines after the last compaction, the interactive screen reads `toolUseResult`.

# Keys whose values are not extracted alone: the agent needs them to interpret the object.
_UNTOUCHED = re.compile(
    r".*(?:[Pp]ath|_id|I[dD]|[Uu]uid|UUID)"
    r"|id|type|status|mode|role|name|model|signature|media_type|output_mode|subagent_type"
    r"|filename|outputFile|stop_reason|timestamp|version|cwd|gitBranch"
)
# Keys below which no value is extracted alone: the agent validates their values against a schema.
_VALIDATED = frozenset({"structuredPatch", "todos", "usage"})
# Replacements of signed thinking: empty content if its line has no other block (the usual case),
# else a text block of white space. Tried with 2.1.112, 2.1.220, 2.1.260 and 2.1.330: requests
# contain neither. Empty blocks would not do: versions up to 2.1.260 send an empty text, and the
# provider refuses empty text and thinking.
NO_CONTENT = b"[]"
LEFT_OUT = b'{"type":"text","text":" "}'
_BLANK = {"type": "text", "text": " "}
# If the plan file is missing, a resume writes it again from the call of ExitPlanMode (2.1.112,
# 2.1.330). The result of this call contains the user's changes to the plan.
_PLANNED = "the agent continues with the plan"
# Attachments of which 2.1.330 reads only `rendered`. The values of all other attachments are
# compared with new values, rendered again, or kept for a compaction (`invoked_skills`).
_RENDERED_ONCE = frozenset({"agent_listing_delta", "file", "skill_listing"})
# The records of API requests (since 2.1.300): the keys of their hashes and of their contents.
_RECORDS = {
    "api-request": ("requestDigest", "params"),
    "api-request-shape": ("shapeHash", "shape"),
    "api-request-blob": ("hash", "message"),
}
_HASH = re.compile(r"[0-9a-f]{64}")
# Characters of the text that stands for a result in a file. A longer one is a whole result.
_LONGEST_PREVIEW = 4096
# A hook of these events adds its output to the prompt. Of all others, 2.1.330 and 2.1.332 send
# neither command nor output.
_SPEAKING_HOOKS = ("SessionStart", "UserPromptSubmit", "UserPromptExpansion")
_HOOK_OUTPUT = frozenset({"command", "stdout", "stderr"})


def _block_path(index: int) -> KeyPath:
    return below(_CONTENT, index)


def _assistant(view: ClaudeLine) -> Iterator[Value]:
    if view.thinking:
        instead, thinking = _thinking(view)
        for (path, chars), (_, block) in zip(thinking, view.thinking, strict=True):
            sent = len(str_or_empty(block.get("thinking"))) if block["type"] == "thinking" else 0
            yield Value(
                path, "thinking", chars, block=True, instead=instead, signed=True, sent=sent
            )
    if isinstance(view.content, str):
        yield from leaves(view.content, _CONTENT, "assistant", None)
    for index, block in view.blocks:
        declared = block.get("type")
        if declared == "text" and block != _BLANK:
            here = below(_block_path(index), "text")
            yield from leaves(str_or_none(block.get("text")), here, "assistant", None)
        elif declared == "tool_use" and isinstance(block.get("input"), dict):
            tool, call = str_or_none(block.get("name")), str_or_none(block.get("id"))
            locked, path = _PLANNED if tool == "ExitPlanMode" else None, _block_path(index)
            yield from _within(
                block["input"], below(path, "input"), "tool_call", tool, call, locked=locked
            )


def _thinking(view: ClaudeLine) -> tuple[bytes, tuple[tuple[KeyPath, int], ...]]:
    alone = isinstance(view.content, list) and len(view.content) <= 1
    return NO_CONTENT if alone else LEFT_OUT, tuple(
        (
            _CONTENT if alone else _block_path(index),
            thinking_chars(*map(str_or_empty, map(block.get, ("thinking", "signature", "data")))),
        )
        for index, block in view.thinking
    )


def _has_emptied(view: ClaudeLine) -> bool:
    return view.content == [] or any(block == _BLANK for _, block in view.blocks)


def _user(view: ClaudeLine) -> Iterator[Value]:
    entry, content = view.entry, view.content
    if dict_or_empty(entry.get("origin")).get("kind") == "task-notification":
        locked = "the agent would call the task unfinished"
        yield from _within(content, _CONTENT, "tool_result", None, locked=locked)
        return
    is_meta = entry.get("isMeta") is True
    if isinstance(content, str) or len(view.results) < len(view.blocks):
        for part in content_parts(content, _CONTENT, "system" if is_meta else "user"):
            yield replace(part, kind="tool_result") if is_meta and part.block else part
    for index, block in view.results:
        yield from _result(block, below(_block_path(index), "content"))


def _beside(entry: JsonObject, call: str | None) -> Iterator[Value]:
    """Yield the copies of a result that are never sent."""
    shown = entry.get("toolUseResult")
    if shown:
        texts = _texts_in(shown, _SHOWN)
        after = None
        if chars := _whole(shown, texts):
            after = False
            yield Value(
                _SHOWN, "tool_result", chars, block=True, dead=True, call=call,
                before_compaction=True,
            )  # fmt: skip
        yield from _listed(texts, "tool_result", None, call, dead=True, before_compaction=after)
    if "mcpMeta" in entry:
        structured = dict_or_empty(entry["mcpMeta"]).get("structuredContent")
        yield from _unsent(structured, ("mcpMeta", "structuredContent"), "tool_result", None, call)


_CLEARED = "the agent cleared it"


def _result(block: JsonObject, path: KeyPath) -> Iterator[Value]:
    content = block.get("content")
    locked, text = None, next((text for _, text in texts_in(content)), "")
    if text.startswith("<persisted-output>") and len(text) <= _LONGEST_PREVIEW:
        locked = "the agent keeps the output in a file"
    elif content == "[Old tool result content cleared]":
        locked = _CLEARED
    call = str_or_none(block.get("tool_use_id"))
    for part in content_parts(content, path, "tool_result", None, call):
        yield replace(part, locked=locked) if locked else part


def _unsent(
    value: Any, path: KeyPath, kind: Kind, tool: str | None, call: str | None = None
) -> Iterator[Value]:
    """Yield an object that is never sent as one value, anything else by its texts."""
    texts = _texts_in(value, path)
    if chars := _whole(value, texts):
        yield Value(path, kind, chars, tool, block=True, dead=True, call=call)
    else:
        yield from _listed(texts, kind, tool, call, dead=True)


class Texts(Struct, frozen=True, gc=False):
    listed: list[tuple[KeyPath, str]]
    others: list[str]  # those that are never extracted alone


def _texts_in(value: Any, path: KeyPath) -> Texts:
    texts = Texts([], [])
    for at, text in strings_in(value, path):
        if _is_whole(at[-1]) and _VALIDATED.isdisjoint(at[len(path) : -1]):
            texts.listed.append((at, text))
        else:
            texts.others.append(text)
    return texts


def _whole(value: Any, texts: Texts) -> int:
    """Return the characters of an object without placeholders, which may be one value, or 0."""
    if not isinstance(value, dict):
        return 0
    found = [text for _, text in texts.listed] + texts.others
    return 0 if any(map(placeholder_in, found)) else sum(map(len, found))


_ATTACHMENT: KeyPath = ("attachment",)


def _attached(entry: JsonObject) -> Iterator[Value]:
    attachment = dict_or_empty(entry.get("attachment"))
    name = str_or_none(attachment.get("type"))
    rendered = name in _RENDERED_ONCE and _is_rendered(entry.get("rendered"))
    is_file = name == "file"
    kind: Kind = "tool_result" if is_file else "system"
    tool = "Read" if is_file else None
    yield from _within(entry.get("rendered"), ("rendered",), kind, tool)
    texts = _texts_in(attachment, _ATTACHMENT)
    content = None if "rendered" in entry else (*_ATTACHMENT, "content")  # what is sent
    if chars := _whole(attachment, texts):
        yield Value(
            _ATTACHMENT, kind, chars, tool, block=True, dead=True, before_compaction=True, sent=0
        )
    else:
        for path, text in texts.listed:
            sent = None if path[:2] == content else 0
            yield leaf(text, path, kind, tool, None, None, True, True, sent)
    locked = None if is_file or rendered else "the agent still reads it"
    silent = name == "hook_success" and attachment.get("hookEvent") not in _SPEAKING_HOOKS
    for path, text in texts.listed:
        unsent = silent and path[-1] in _HOOK_OUTPUT
        why, sent = None if unsent else locked, None if path[:2] == content else 0
        yield leaf(text, path, kind, tool, None, why, unsent or rendered, False, sent)


def _is_rendered(messages: object) -> bool:
    """Check whether 2.1.330 can send these messages: at least one, all with non-empty texts."""
    listed = messages if isinstance(messages, list) else []
    texts = [
        [content] if isinstance(content, str)
        else [block.get("text") for _, block in blocks_in(content)]
        for content in (dict_or_empty(message).get("content") for message in listed)
    ]  # fmt: skip
    return bool(texts) and all(text and all(text) for text in texts)


def _within(
    value: Any, path: KeyPath, kind: Kind, tool: str | None, call: str | None = None, *,
    locked: str | None = None,
) -> Iterator[Value]:  # fmt: skip
    return _listed(_texts_in(value, path), kind, tool, call, locked=locked)


def _listed(
    texts: Texts, kind: Kind, tool: str | None, call: str | None = None, *,
    locked: str | None = None, dead: bool = False, before_compaction: bool | None = None,
) -> Iterator[Value]:  # fmt: skip
    for path, text in texts.listed:
        yield leaf(text, path, kind, tool, call, locked, dead, before_compaction)


@lru_cache(1024)
def _is_whole(key: str | int) -> bool:
    """Check whether a text below a key may be extracted alone."""
    return isinstance(key, int) or not (key in _VALIDATED or _UNTOUCHED.fullmatch(key))


# Lines outside the conversation, with a key that only this line has. A file may have no other.
_BESIDE = {
    "agent-name": "agentName", "ai-title": "aiTitle", "api-request": "requestDigest",
    "api-request-blob": "hash", "api-request-shape": "shapeHash", "atis-latch": "atis",
    "bridge-session": "bridgeSessionId", "content-replacement": "replacements",
    "cost-state": "totalCostUSD", "custom-title": "customTitle",
    "file-history-delta": "trackingPath", "file-history-snapshot": "snapshot",
    "last-prompt": "lastPrompt", "permission-mode": "permissionMode",
    "queue-operation": "operation", "summary": "leafUuid",
}  # fmt: skip


def _hash_in(entry: JsonObject) -> bytes | None:
    """Return the hash in a request's record. Other entries need none: their ids are random."""
    keys = _RECORDS.get(str_or_empty(entry.get("type")))
    digest = entry.get(keys[0]) if keys else None
    return digest.encode() if isinstance(digest, str) and _HASH.fullmatch(digest) else None


def _record_id(digest: bytes, number: int) -> str:
    # A compaction repeats records: distinguish them by line number.
    return f"L{number}-{digest.decode()[:8]}"


def _is_ours(entry: JsonObject) -> bool:
    return "isSidechain" in entry or ("sessionId" in entry and "content" in message_of(entry))


class ClaudeCode(Format):
    name = "claude-code"
    emptied = (NO_CONTENT, LEFT_OUT)
    copies = frozenset({"toolUseResult"})
    screen = frozenset({"toolUseResult", "attachment"})
    # A sub-agent's file marks each line as a side chain, and a side chain has no turns.
    as_main: ClassVar[JsonObject] = {"isSidechain": False}
    version = 11

    def recognises(self, entries: Sequence[JsonObject]) -> bool:
        # Other agents also have `sessionId`, or chains of `uuid` and `parentUuid`.
        return any(
            ({"uuid", "parentUuid"} <= entry.keys() and _is_ours(entry))
            or _BESIDE.get(str_or_empty(entry.get("type")), "") in entry
            for entry in entries
        )

    def session(self, head: Sequence[JsonObject]) -> str | None:
        first = next((entry for entry in head if entry_id(entry) is not None), {})
        subagent = usable_id(first.get("agentId")) if first.get("isSidechain") is True else None
        session_ids = (usable_id(entry.get("sessionId")) for entry in head)
        return subagent or next(filter(None, session_ids), None)

    def first_entry(self, entry: JsonObject, line: Line, index: int) -> Entry:
        view, time = _view(entry), parse_time(entry.get("timestamp"))
        calls, rest, facts = _calls(view), _hash_in(entry), _facts(view, time)
        step, sent = _step(view, calls), _sent(view)
        is_message = facts.node is not None and facts.node.is_message
        attachment = entry.get("attachment")
        return Entry(
            index, line.terminated,
            view.ident if rest is None else _record_id(rest, line.number), rest,
            step.parent, step.role, is_message, time,
            step.names, step.text_path, step.closes, step.cut_short,
            values_sent(_values(view), sent, entry), call_facts(calls),
            _attached_file(attachment) if attachment else None,
            result_facts(step.results), sent, _answered(view, time),
            _asides(view, time) if view.kind == "assistant" else (), _thoughts(view), None, 0,
            entry.get("subtype") == BOUNDARY, _switches_model(entry), _cost_so_far(entry),
            marks_in(line.raw, entry, self.emptied, has_emptied=_has_emptied(view)), facts,
        )  # fmt: skip

    def read(self, entry: JsonObject) -> Content:
        view = _view(entry)
        calls = _calls(view)
        return Content(_step(view, calls), calls, _result_texts(view), _values(view), _sent(view))

    def chain(self, entries: Sequence[Entry]) -> Chain:
        return ClaudeChain(entries)

    def resolved(self, values: Iterable[Value], around: Around) -> Iterator[Value]:
        for value in values:
            if value.before_compaction not in (None, around.before_compaction):
                continue
            is_result = value.kind == "tool_result"
            call = value.call or (around.beside if value.block and is_result else None)
            tool, locked = value.tool or around.tools.get(call or ""), value.locked
            if value.signed and around.in_last_turn:
                locked = LAST_TURN
            elif is_result and value.call and not value.dead:
                if value.call in around.replaced:
                    locked = "the prompt contains a short text in its place"
                elif tool == "ExitPlanMode" and locked in (None, _CLEARED):
                    locked = _PLANNED
            dead = value.dead or around.before_compaction
            sent = 0 if around.omits(value.kind, value.call) else value.sent
            yield replace(value, tool=tool, locked=locked, dead=dead, sent=sent)


def _result_texts(view: ClaudeLine) -> Iterator[ResultText]:
    for index, block in view.results if view.kind == "user" else ():
        path = (*_CONTENT, index, "content")
        parts = content_parts(block.get("content"), path, "tool_result", None)
        yield from results_in(view.entry, parts, block.get("tool_use_id"))


def _switches_model(entry: JsonObject) -> bool:
    content = entry.get("content", message_of(entry).get("content"))
    return str_or_empty(content).startswith("<local-command-stdout>Set model to ")


def _cost_so_far(entry: JsonObject) -> float | None:
    states = entry.get("type") == "cost-state"
    return weight.dollars(entry.get("totalCostUSD")) if states else None


def _values(view: ClaudeLine) -> Iterator[Value]:
    entry, kind = view.entry, view.kind
    if view.ident is None:
        if _hash_in(entry) is not None:
            key = _RECORDS[kind][1]
            yield from _unsent(entry.get(key), (key,), "system", None)
    elif kind == "assistant":
        yield from _assistant(view)
    elif kind == "user":
        # The summary of a compaction is never extracted: it is the context.
        if entry.get("isCompactSummary") is not True:
            yield from _user(view)
        yield from _beside(entry, _first_call(view))
    elif kind == "system":
        yield from leaves(str_or_none(entry.get("content")), ("content",), "system")
    elif kind == "progress":
        call = str_or_none(entry.get("parentToolUseID"))
        yield from _unsent(entry.get("data"), ("data",), "tool_result", None, call)
    elif kind == "attachment":
        yield from _attached(entry)


def _first_call(view: ClaudeLine) -> str | None:
    if view.results and not view.uses:
        return str_or_none(view.results[0][1].get("tool_use_id"))
    for _, block in view.blocks if view.uses else ():
        if block.get("type") in ("tool_use", "tool_result"):
            return str_or_none(block.get("id" if block["type"] == "tool_use" else "tool_use_id"))
    return None


def _thoughts(view: ClaudeLine) -> Thoughts | None:
    failed = view.entry.get("isApiErrorMessage") is True
    if view.ident is None or view.kind != "assistant" or failed:
        return None
    model = str_or_empty(view.message.get("model"))
    instead, blocks = _thinking(view)
    if not blocks:
        return _no_thoughts(model, instead)
    signatures = [block.get("signature", block.get("data")) for _, block in view.thinking]
    return Thoughts(
        (model,) if model else (), blocks, instead, bound=any(map(covers_request, signatures)),
        unsound={
            path: DAMAGED for (path, _), signature in zip(blocks, signatures, strict=True)
            if is_damaged(signature, [model])
        },
    )  # fmt: skip


@lru_cache(64)
def _no_thoughts(model: str, instead: bytes) -> Thoughts:
    return Thoughts((model,) if model else (), (), instead)


def _step(view: ClaudeLine, calls: tuple[ToolCall, ...]) -> TurnStep:
    entry, kind = view.entry, view.kind
    if view.ident is None or entry.get("isSidechain") is True:
        return NO_STEP
    linked = (str_or_none(entry.get("parentUuid")), references(entry))
    if kind == "assistant":
        failed, stop = entry.get("isApiErrorMessage") is True, view.message.get("stop_reason")
        return reply_step(
            view.message, linked, calls,
            stopped=not failed and (stop is None or stop in CLOSING_STOPS),
            cut_short=failed or stop in CLOSING_STOPS[2:],
        )  # fmt: skip
    if kind != "user":
        return TurnStep("note" if kind in ("system", "progress") else "aside", *linked)
    if view.results:
        took = number_in(entry.get("toolUseResult"), "durationMs", "totalDurationMs")
        results = tuple([_tool_result(block, took) for _, block in view.results])
        return TurnStep("result", *linked, results=results)
    return TurnStep("prompt" if _is_prompt(view) else "aside", *linked)


def _calls(view: ClaudeLine) -> tuple[ToolCall, ...]:
    return calls_in(view.uses, _CONTENT, "input") if view.kind == "assistant" else ()


def _sent(view: ClaudeLine) -> Sent:
    entry, kind = view.entry, view.kind
    if view.ident is None or entry.get("isVisibleInTranscriptOnly") is True:
        return NOTHING
    if kind == "attachment":
        text = entry.get("rendered", dict_or_empty(entry.get("attachment")).get("content"))
        return Sent(sum(len(one) for _, one in strings_in(text)))
    if kind not in ("user", "assistant") or entry.get("isApiErrorMessage") is True:
        return NOTHING
    return weight.content(view.content)


def _attached_file(attachment: object) -> CallFacts | None:
    content = dict_or_empty(dict_or_empty(attachment).get("content"))
    file = dict_or_empty(content.get("file"))
    hashed, whole = tuple(map(hash, files_in(file))), file.get("numLines") == file.get("totalLines")
    return CallFacts(None, "Read", b"", hashed, whole=whole) if file else None


def _answered(view: ClaudeLine, time: float | None) -> ModelCall | None:
    entry, message = view.entry, view.message
    if view.ident is None or view.kind != "assistant":
        return None
    if entry.get("isApiErrorMessage") is True:
        texts = [text for _, text in texts_in(view.content)]
        texts.append(str_or_empty(entry.get("errorDetails")))
        return weight.unanswered(time, " ".join(texts), None)
    model, ident = message.get("model"), str_or_empty(message.get("id"))
    if model == "<synthetic>":
        return None
    name = f"{ident} {entry.get('requestId')}" if ident else None
    call = weight.recorded(time, dict_or_empty(message.get("usage")), model, name)
    return replace(call, end="cut") if message.get("stop_reason") in _CUT else call


def _asides(view: ClaudeLine, time: float | None) -> tuple[ModelCall, ...]:
    # The usage of an answer does not include its advisor's (2.1.112 `cli.js`).
    entry, message, found = view.entry, view.message, []
    listed = dict_or_empty(message.get("usage")).get("iterations")
    for number, one in blocks_in(listed, "advisor_message"):
        model = one.get("model") or entry.get("advisorModel")
        name = f"{message.get('id')} {entry.get('requestId')} advisor {number}"
        found.append(replace(weight.recorded(time, one, model, name), end="aside"))
    return tuple(found)
