"""Claude Code: one JSON object a line. The conversation is a chain by `uuid` and `parentUuid`.

Lines outside of the chain (titles, modes, queued prompts, snapshots, unknown types) are not edited,
except the records of API requests: Claude Code reads only their hash. Sources: files that versions
2.0.64 to 2.1.330 wrote, and the code of @anthropic-ai/claude-code 2.0.76, 2.1.112 (`cli.js`) and
2.1.330.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from brainsurgeon.formats import weight
from brainsurgeon.formats.base import (
    DAMAGED,
    Format,
    ResultText,
    Thoughts,
    blocks_in,
    calls_in,
    content_parts,
    covers_request,
    dict_or_empty,
    first_line,
    is_damaged,
    leaves,
    number_in,
    references,
    reply_step,
    results_in,
    str_or_empty,
    str_or_none,
    strings_in,
    texts_in,
    thinking_chars,
    usable_id,
)
from brainsurgeon.model.entries import BOM, Entry, KeyPath, Kind, Lines, Part, parse, placeholder_in
from brainsurgeon.model.sessions import BEFORE_COMPACTION, OFF_BRANCH, Survey
from brainsurgeon.model.text import parse_time
from brainsurgeon.model.turns import ModelCall, Sent, ToolCall, ToolResult, TurnStep

CHAINED = ("user", "assistant", "attachment", "system", "progress")
BOUNDARY = "compact_boundary"


class Node(Struct, frozen=True):
    offset: int
    uuid: str
    kind: str  # the type, or BOUNDARY
    parent: str | None
    message: str | None  # of a reply: the id of its API message or, without one, the uuid
    calls: tuple[str, ...]  # ids of the tool calls in the line
    results: tuple[str, ...]  # ids of the calls whose results are in the line
    is_subagent: bool
    is_message: bool
    time: float | None  # seconds since 1970


def _node(entry: Entry, offset: int) -> Node | None:
    uuid = entry_id(entry)
    if uuid is None:
        return None
    kind = entry["type"]
    return Node(
        offset, uuid, BOUNDARY if entry.get("subtype") == BOUNDARY else kind,
        str_or_none(entry.get("parentUuid")),
        str_or_empty(message_of(entry).get("id")) or uuid if kind == "assistant" else None,
        _ids_in(blocks_of(entry, "tool_use"), "id") if kind == "assistant" else (),
        _ids_in(blocks_of(entry, "tool_result"), "tool_use_id") if kind == "user" else (),
        entry.get("isSidechain") is True,
        is_message(entry),
        parse_time(entry.get("timestamp")),
    )  # fmt: skip


def entry_id(entry: Entry) -> str | None:
    uuid = entry.get("uuid")
    return usable_id(uuid) if entry.get("type") in CHAINED and isinstance(uuid, str) else None


def message_of(entry: Entry) -> Entry:
    return dict_or_empty(entry.get("message"))


def blocks_of(entry: Entry, *types: str) -> Iterator[tuple[int, Entry]]:
    return blocks_in(message_of(entry).get("content"), *types)


def is_message(entry: Entry) -> bool:
    return entry.get("type") in ("user", "assistant") and not (
        entry.get("isMeta") is True or entry.get("isVisibleInTranscriptOnly") is True
    )


def _ids_in(blocks: Iterable[tuple[int, Entry]], key: str) -> tuple[str, ...]:
    ids = (block.get(key) for _, block in blocks)
    return tuple(ident for ident in ids if isinstance(ident, str))


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


class Chain:
    def __init__(self, lines: list[Node], leaf: str | None, metadata: Entry) -> None:
        self._lines = lines
        self.in_subagent_file = all(node.is_subagent for node in lines)
        nodes = [node for node in lines if node.is_subagent == self.in_subagent_file]
        self._nodes = nodes
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
        self._boundary = max(boundaries, default=-1)
        if boundaries:
            preserved = dict_or_empty(metadata.get("preservedMessages"))
            for uuids in (preserved.get("uuids"), preserved.get("allUuids")):
                named = map(str, uuids if isinstance(uuids, list) else ())
                live.update(self._places[uuid] for uuid in named if uuid in self._places)
            live |= self._segment(metadata.get("preservedSegment"))
        live |= self._parallel(live)
        self._live = sorted(live)

    def _climb(self, at: int, live: set[int]) -> None:
        walked, begins = set[int](), [at]
        while begins:
            at = begins.pop()
            while at >= 0 and at not in live:
                live.add(at)
                walked.add(at)
                parent = self._nodes[at].parent
                if parent is None:
                    break
                above = self._places.get(parent, -1)
                if above < 0:
                    earlier = (near for near in reversed(range(at)) if near not in live)
                    begins.append(next(earlier, -1))
                at = self._before(at, walked) if above < 0 or above in walked else above

    def _before(self, at: int, walked: set[int]) -> int:
        """Return the line, not walked yet, with the closest earlier time, or -1."""
        time = self._nodes[at].time
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
            if self._nodes[at].uuid == head:
                return walked
            at = self._places.get(self._nodes[at].parent or "")
        return set()

    def _parallel(self, live: set[int]) -> set[int]:
        nodes = self._nodes
        messages = {nodes[index].message for index in live} - {None}
        lines = {index for index, node in enumerate(nodes) if node.message in messages}
        uuids = {nodes[index].uuid for index in lines}
        return lines | {
            index for index, node in enumerate(nodes) if node.results and node.parent in uuids
        }

    def dead(self) -> dict[int, str]:
        live = {self._nodes[index].offset for index in self._live}
        return {
            node.offset: BEFORE_COMPACTION if node.offset < self._boundary else OFF_BRANCH
            for node in self._lines
            # Lines of progress may belong to the live branch although they are not on it.
            if node.offset not in live and (node.offset < self._boundary or node.kind != "progress")
        }

    def positions(self, kept_messages: int) -> dict[int, int]:
        """Return the positions of the newest lines by offset: 0 for the last message.

        Progress lines are left out: no request contains them. An API message counts once, however
        many lines it has. A call has the position of its result, so that both are kept or neither.
        """
        positions: dict[int, int] = {}
        spoken: dict[str, int] = {}
        answered: dict[str, int] = {}
        messages = 0
        for index in reversed(self._live):
            node = self._nodes[index]
            at = messages if node.is_message else max(messages - 1, 0)
            if node.is_message and node.message is not None:
                at = spoken.setdefault(node.message, at)
                messages = max(messages, at + 1)
            else:
                messages += node.is_message
            at = min((answered[call] for call in node.calls if call in answered), default=at)
            answered.update(dict.fromkeys(node.results, at))
            if at <= kept_messages and node.kind != "progress":
                positions[node.offset] = at
        return positions

    def first_results(self, number: int) -> list[str]:
        """Return the ids of the calls whose results come first after the last compaction."""
        live = (self._nodes[index] for index in self._live)
        results = (node.results for node in live if node.offset > self._boundary)
        return list(islice(chain.from_iterable(results), number))

    def last_prompt(self) -> int | None:
        for node in (self._nodes[index] for index in reversed(self._live)):
            if node.is_message and node.message is None and not node.results:
                return node.offset
        return None


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


def is_prompt(entry: Entry) -> bool:
    marks = ("isMeta", "isCompactSummary", "isVisibleInTranscriptOnly")
    if any(entry.get(key) is True for key in marks):
        return False
    text = _first_text(entry)
    pictures = any(block.get("type") != "text" for _, block in blocks_of(entry))
    return bool(text.strip() or pictures) and not text.startswith((*_TURN_ENDS, *_NOTES))


def _open_turn(lines: Lines, *, in_subagent_file: bool) -> tuple[str | None, float]:
    for line in lines.backward():
        entry = parse(line.raw) if line.raw else None
        if entry is None:
            if not line.terminated:
                return "the last line is still being written", 0.0
        elif entry_id(entry) is not None and (entry.get("isSidechain") is True) == in_subagent_file:
            if entry["type"] == "assistant":
                return _after_reply(entry)
            left = _left_open(entry)
            if left is not None:
                return f"the last turn is open: {left}" if left else None, 0.0
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
    if stop in CLOSING_STOPS:
        return None, 0.0
    return "the last turn is open: the assistant has not stopped", 0.0


def _left_open(entry: Entry) -> str | None:
    """Return why the turn is open, "" if it is finished, None if the line shows neither."""
    if entry["type"] == "user":
        text = _first_text(entry)
        if any(blocks_of(entry, "tool_result")):
            return "a tool result"
        if text.startswith(_TURN_ENDS):
            return ""
        return None if text.startswith(_NOTES) else "a user message"
    subtype = entry.get("subtype") if entry["type"] == "system" else None
    if subtype in ("turn_duration", "stop_hook_summary"):
        return ""
    return "a compaction" if subtype == BOUNDARY else None


def _waiting(entry: Entry, before: int) -> int:
    is_change = entry.get("type") == "queue-operation"
    changes = {"enqueue": 1, "dequeue": -1, "remove": -1, "popAll": -before}
    return max(0, before + changes.get(str(entry.get("operation")), 0)) if is_change else before


def _cleared(entry: Entry) -> int:
    """Return how many results the provider cleared from this answer's prompt, oldest first.

    Claude Code asks for it after a pause. (provider's page "Context editing")
    """
    edits = dict_or_empty(message_of(entry).get("context_management")).get("applied_edits")
    return sum(
        weight.counts(edit, "cleared_tool_uses")
        for edit in map(dict_or_empty, edits if isinstance(edits, list) else ())
    )


def _first_text(entry: Entry) -> str:
    return next((text for _, text in texts_in(message_of(entry).get("content"))), "")


class ClaudeSurvey(Survey, frozen=True):
    tools: Mapping[str, str] = field(default_factory=dict)  # names of tools by ids of calls
    # Ids of calls by the ids of lines that hold the pictures and documents of their results.
    beside: Mapping[str, str] = field(default_factory=dict)
    # Ids of calls whose results the agent or its provider replaces with a short text.
    replaced: frozenset[str] = frozenset()


NOTHING_SEEN = ClaudeSurvey(0, {}, None)


def _tools(entry: Entry) -> dict[str, str]:
    blocks = blocks_of(entry, "tool_use") if entry["type"] == "assistant" else ()
    named = ((block.get("id"), block.get("name")) for _, block in blocks)
    return {
        ident: name for ident, name in named if isinstance(ident, str) and isinstance(name, str)
    }


# The first line of a failed command's result. Nothing else contains the exit code.
_EXIT = re.compile(r"Exit code ([0-9]{1,9})$")
_CONTENT: KeyPath = ("message", "content")


def _tool_result(block: Entry, took: int | None) -> ToolResult:
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


def _assistant(entry: Entry, *, before_last_user: bool) -> Iterator[Part]:
    locked = None if before_last_user else "signed thinking of the last turn"
    instead, blocks = _thinking(entry)
    for path, chars in blocks:
        yield Part(path, "thinking", chars, block=True, locked=locked, instead=instead)
    yield from leaves(str_or_none(message_of(entry).get("content")), _CONTENT, "assistant", None)
    for index, block in blocks_of(entry):
        here: KeyPath = (*_CONTENT, index)
        declared = block.get("type")
        if declared == "text" and block != _BLANK:
            yield from leaves(str_or_none(block.get("text")), (*here, "text"), "assistant", None)
        elif declared == "tool_use" and isinstance(block.get("input"), dict):
            tool = str_or_none(block.get("name"))
            reason = _PLANNED if tool == "ExitPlanMode" else None
            yield from _within(block["input"], (*here, "input"), "tool_call", tool, locked=reason)


def _thinking(entry: Entry) -> tuple[bytes, tuple[tuple[KeyPath, int], ...]]:
    content = message_of(entry).get("content")
    alone = isinstance(content, list) and len(content) <= 1
    return NO_CONTENT if alone else LEFT_OUT, tuple(
        (
            _CONTENT if alone else (*_CONTENT, index),
            thinking_chars(*map(str_or_empty, map(block.get, ("thinking", "signature", "data")))),
        )
        for index, block in blocks_of(entry, "thinking", "redacted_thinking")
    )


def _user(entry: Entry, survey: ClaudeSurvey) -> Iterator[Part]:
    if dict_or_empty(entry.get("origin")).get("kind") == "task-notification":
        content = message_of(entry).get("content")
        locked = "the agent would call the task unfinished"
        yield from _within(content, _CONTENT, "tool_result", None, locked=locked)
        return
    is_meta = entry.get("isMeta") is True
    tool = survey.tools.get(survey.beside.get(entry["uuid"], "")) if is_meta else None
    for part in content_parts(
        message_of(entry).get("content"), _CONTENT, "system" if is_meta else "user", None
    ):
        yield replace(part, kind="tool_result", tool=tool) if is_meta and part.block else part
    for index, block in blocks_of(entry, "tool_result"):
        yield from _result(block, (*_CONTENT, index, "content"), survey)


def _result(block: Entry, path: KeyPath, survey: ClaudeSurvey) -> Iterator[Part]:
    content = block.get("content")
    call = str_or_none(block.get("tool_use_id")) or ""
    tool = survey.tools.get(call)
    locked, text = None, next((text for _, text in texts_in(content)), "")
    if call in survey.replaced:
        locked = "the prompt contains a short text in its place"
    elif text.startswith("<persisted-output>") and len(text) <= _LONGEST_PREVIEW:
        locked = "the agent keeps the output in a file"
    elif tool == "ExitPlanMode":
        locked = _PLANNED
    elif content == "[Old tool result content cleared]":
        locked = "the agent cleared it"
    for part in content_parts(content, path, "tool_result", tool):
        yield replace(part, locked=locked) if locked else part


def _unsent(
    value: Any, path: KeyPath, kind: Kind, tool: str | None, *, as_one_part: bool = True
) -> Iterator[Part]:
    whole = as_one_part and isinstance(value, dict)
    texts = [text for _, text in strings_in(value)] if whole else []
    if texts and not any(map(placeholder_in, texts)):
        yield Part(path, kind, sum(map(len, texts)), tool, block=True, dead=True)
    else:
        yield from _within(value, path, kind, tool, dead=True)


def _attached(entry: Entry, *, before_compaction: bool) -> Iterator[Part]:
    attachment = dict_or_empty(entry.get("attachment"))
    name = str_or_none(attachment.get("type"))
    rendered = name in _RENDERED_ONCE and _is_rendered(entry.get("rendered"))
    is_file = name == "file"
    kind: Kind = "tool_result" if is_file else "system"
    tool = "Read" if is_file else None
    yield from _within(entry.get("rendered"), ("rendered",), kind, tool)
    if before_compaction:
        yield from _unsent(attachment, ("attachment",), kind, tool)
        return
    locked = None if is_file or rendered else "the agent still reads it"
    silent = name == "hook_success" and attachment.get("hookEvent") not in _SPEAKING_HOOKS
    for part in _within(attachment, ("attachment",), kind, tool, dead=rendered, locked=locked):
        unsent = silent and part.path[-1] in _HOOK_OUTPUT
        yield replace(part, dead=True, locked=None) if unsent else part


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
    value: Any, path: KeyPath, kind: Kind, tool: str | None, *, locked: str | None = None,
    dead: bool = False,
) -> Iterator[Part]:  # fmt: skip
    for part in leaves(value, path, kind, tool, locked=locked, dead=dead):
        key = part.path[-1]
        untouched = isinstance(key, str) and _UNTOUCHED.fullmatch(key)
        if not untouched and _VALIDATED.isdisjoint(part.path):
            yield part


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


def _is_ours(entry: Entry) -> bool:
    return "isSidechain" in entry or ("sessionId" in entry and "content" in message_of(entry))


class ClaudeCode(Format):
    name = "claude-code"
    version = 9

    def recognises(self, entries: Sequence[Entry]) -> bool:
        # Other agents also have `sessionId`, or chains of `uuid` and `parentUuid`.
        return any(
            ({"uuid", "parentUuid"} <= entry.keys() and _is_ours(entry))
            or _BESIDE.get(str(entry.get("type")), "") in entry
            for entry in entries
        )

    def session(self, head: Sequence[Entry]) -> str | None:
        first = next((entry for entry in head if entry_id(entry) is not None), {})
        subagent = usable_id(first.get("agentId")) if first.get("isSidechain") is True else None
        session_ids = (usable_id(entry.get("sessionId")) for entry in head)
        return subagent or next(filter(None, session_ids), None)

    def survey(self, lines: Lines, kept_messages: int) -> Survey:
        nodes: list[Node] = []
        leaf: str | None = None
        metadata: Entry = {}
        waiting, tools, replaced = 0, dict[str, str](), set[str]()
        cleared: tuple[str | None, int] = (None, 0)  # by the newest answer's id
        answers, beside = dict[str, str](), dict[str, str]()
        for line in lines:
            entry = parse(line.raw.removeprefix(BOM)) if line.raw else None
            if entry is None:
                continue
            if entry.get("type") == "last-prompt" and isinstance(entry.get("leafUuid"), str):
                leaf = entry["leafUuid"]
            node = _node(entry, line.offset)
            if node is not None:
                nodes.append(node)
                if node.kind == BOUNDARY:
                    metadata = dict_or_empty(entry.get("compactMetadata"))
                tools |= _tools(entry)
                if node.message is not None:
                    number = _cleared(entry)
                    same = node.message == cleared[0]
                    cleared = node.message, max(number, cleared[1]) if same else number
                if node.results:
                    answers[node.uuid] = node.results[-1]
                elif entry.get("isMeta") is True and node.parent in answers:
                    # Up to 2.1.220, Read writes a PDF, or the pictures of its pages, into a line of
                    # their own behind the result.
                    beside[node.uuid] = answers[node.uuid] = answers[node.parent]
            if entry.get("type") == "content-replacement":
                replaced.update(_ids_in(blocks_in(entry.get("replacements")), "toolUseId"))
            waiting = _waiting(entry, waiting)
        tree = Chain(nodes, leaf, metadata)
        open_turn, quiet = _open_turn(lines, in_subagent_file=tree.in_subagent_file)
        return ClaudeSurvey(
            kept_messages, tree.positions(kept_messages),
            open_turn or ("a prompt waits in the queue" if waiting else None),
            tree.last_prompt(), tree.dead(), quiet=quiet, tools=tools,
            beside=beside,
            replaced=frozenset(replaced | {*tree.first_results(cleared[1])}),
        )  # fmt: skip

    def identity(self, entry: Entry, raw: bytes, number: int) -> str | None:  # noqa: ARG002
        digest = self.rest(entry)  # a compaction repeats records: distinguish them by line number
        return entry_id(entry) if digest is None else f"L{number}-{digest.decode()[:8]}"

    def rest(self, entry: Entry) -> bytes | None:
        """Return the hash in a request's record. Other entries need none: their ids are random."""
        digest = entry.get(_RECORDS.get(str_or_empty(entry.get("type")), ("", ""))[0])
        return digest.encode() if isinstance(digest, str) and _HASH.fullmatch(digest) else None

    def is_message(self, entry: Entry) -> bool:
        return entry_id(entry) is not None and is_message(entry)

    def parts(self, entry: Entry, survey: Survey, offset: int | None) -> Iterator[Part]:
        before_compaction = offset is not None and survey.dead(offset) == BEFORE_COMPACTION
        for part in self._parts(entry, survey, offset, before_compaction=before_compaction):
            yield replace(part, dead=True) if before_compaction else part

    def _parts(
        self, entry: Entry, survey: Survey, offset: int | None, *, before_compaction: bool
    ) -> Iterator[Part]:
        before_last_user = survey.before_last_user(offset)
        survey = survey if isinstance(survey, ClaudeSurvey) else NOTHING_SEEN
        if self.rest(entry) is not None:
            key = _RECORDS[entry["type"]][1]
            yield from _unsent(entry.get(key), (key,), "system", None)
        if entry_id(entry) is None:
            return
        kind = entry["type"]
        if kind == "assistant":
            yield from _assistant(entry, before_last_user=before_last_user)
        elif kind == "user":
            # The summary of a compaction is never extracted: it is the context.
            if entry.get("isCompactSummary") is not True:
                yield from _user(entry, survey)
            tool = survey.tools.get(self.anchor(entry, ()) or "")
            shown = entry.get("toolUseResult")
            yield from _unsent(
                shown, ("toolUseResult",), "tool_result", tool, as_one_part=before_compaction
            )
            structured = dict_or_empty(entry.get("mcpMeta")).get("structuredContent")
            yield from _unsent(structured, ("mcpMeta", "structuredContent"), "tool_result", tool)
        elif kind == "system":
            yield from leaves(str_or_none(entry.get("content")), ("content",), "system", None)
        elif kind == "progress":
            tool = survey.tools.get(str(entry.get("parentToolUseID")))
            yield from _unsent(entry.get("data"), ("data",), "tool_result", tool)
        elif kind == "attachment":
            yield from _attached(entry, before_compaction=before_compaction)

    def anchor(self, entry: Entry, path: KeyPath) -> str | None:
        """Return the call id of the block around `path`; outside of blocks, the first call id."""
        if entry.get("type") == "progress":
            return str_or_none(entry.get("parentToolUseID"))
        if self.rest(entry) is not None:
            return None
        at = path[2] if path[:2] == _CONTENT and len(path) > 2 else None  # noqa: PLR2004
        for index, block in blocks_of(entry, "tool_use", "tool_result"):
            if at in (None, index):
                return str_or_none(
                    block.get("id" if block["type"] == "tool_use" else "tool_use_id")
                )
        return None

    def thoughts(self, entry: Entry) -> Thoughts | None:
        failed = entry.get("isApiErrorMessage") is True
        if entry_id(entry) is None or entry["type"] != "assistant" or failed:
            return None
        model = str_or_empty(message_of(entry).get("model"))
        instead, blocks = _thinking(entry)
        signatures = [
            block.get("signature", block.get("data"))
            for _, block in blocks_of(entry, "thinking", "redacted_thinking")
        ]
        return Thoughts(
            (model,) if model else (), blocks, instead, bound=any(map(covers_request, signatures)),
            unsound={
                path: DAMAGED for (path, _), signature in zip(blocks, signatures, strict=True)
                if is_damaged(signature, [model])
            },
        )  # fmt: skip

    def turn_step(self, entry: Entry) -> TurnStep | None:
        if entry_id(entry) is None or entry.get("isSidechain") is True:
            return None
        linked = (str_or_none(entry.get("parentUuid")), references(entry))
        kind = entry["type"]
        if kind == "assistant":
            message, failed = message_of(entry), entry.get("isApiErrorMessage") is True
            stop = message.get("stop_reason")
            return reply_step(
                message, linked, self.calls(entry),
                stopped=not failed and (stop is None or stop in CLOSING_STOPS),
                cut_short=failed or stop in CLOSING_STOPS[2:],
            )  # fmt: skip
        if kind != "user":
            return TurnStep("note" if kind in ("system", "progress") else "aside", *linked)
        took = number_in(entry.get("toolUseResult"), "durationMs", "totalDurationMs")
        results = tuple(_tool_result(block, took) for _, block in blocks_of(entry, "tool_result"))
        if results:
            return TurnStep("result", *linked, results=results)
        return TurnStep("prompt" if is_prompt(entry) else "aside", *linked)

    def calls(self, entry: Entry) -> Iterator[ToolCall]:
        if entry.get("type") == "assistant":
            yield from calls_in(message_of(entry).get("content"), _CONTENT, "tool_use", "input")

    def result_texts(self, entry: Entry) -> Iterator[ResultText]:
        for index, block in blocks_of(entry, "tool_result") if entry.get("type") == "user" else ():
            path = (*_CONTENT, index, "content")
            parts = content_parts(block.get("content"), path, "tool_result", None)
            yield from results_in(entry, parts, block.get("tool_use_id"))

    def sent(self, entry: Entry, survey: Survey) -> Sent:
        if entry_id(entry) is None or entry.get("isVisibleInTranscriptOnly") is True:
            return Sent()
        if entry["type"] == "attachment":
            text = entry.get("rendered", dict_or_empty(entry.get("attachment")).get("content"))
            return Sent(sum(part.chars for part in leaves(text, (), "custom", None)))
        if entry["type"] not in ("user", "assistant") or entry.get("isApiErrorMessage") is True:
            return Sent()
        content = message_of(entry).get("content")
        replaced = survey.replaced if isinstance(survey, ClaudeSurvey) else ()
        if replaced and isinstance(content, list):
            content = [
                block for block in content
                if str_or_none(dict_or_empty(block).get("tool_use_id")) not in replaced
            ]  # fmt: skip
        return weight.content(content)

    def call(self, entry: Entry) -> ModelCall | None:
        if entry_id(entry) is None or entry["type"] != "assistant":
            return None
        message = message_of(entry)
        if entry.get("isApiErrorMessage") is True:
            texts = [text for _, text in texts_in(message.get("content"))]
            texts.append(str_or_empty(entry.get("errorDetails")))
            return weight.unanswered(entry, " ".join(texts), None)
        model, ident = message.get("model"), str_or_empty(message.get("id"))
        if model == "<synthetic>":
            return None
        name = f"{ident} {entry.get('requestId')}" if ident else None
        call = weight.recorded(entry, dict_or_empty(message.get("usage")), model, name)
        return replace(call, end="cut") if message.get("stop_reason") in _CUT else call

    def asides(self, entry: Entry) -> Iterator[ModelCall]:
        # The usage of an answer does not include its advisor's (2.1.112 `cli.js`).
        message = message_of(entry) if entry.get("type") == "assistant" else {}
        listed = dict_or_empty(message.get("usage")).get("iterations")
        for number, one in enumerate(listed if isinstance(listed, list) else ()):
            if dict_or_empty(one).get("type") == "advisor_message":
                model = one.get("model") or entry.get("advisorModel")
                name = f"{message.get('id')} {entry.get('requestId')} advisor {number}"
                yield replace(weight.recorded(entry, one, model, name), end="aside")

    def starts_context(self, entry: Entry) -> bool:
        return entry.get("subtype") == BOUNDARY

    def switches_model(self, entry: Entry) -> bool:
        content = entry.get("content", message_of(entry).get("content"))
        return str_or_empty(content).startswith("<local-command-stdout>Set model to ")

    def cost_so_far(self, entry: Entry) -> float | None:
        states = entry.get("type") == "cost-state"
        return weight.dollars(entry.get("totalCostUSD")) if states else None
