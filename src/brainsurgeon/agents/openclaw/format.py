"""The sessions of OpenClaw and pi.

One JSON object a line; entries form a tree by `id` and `parentId`. System prompts and definitions
of tools (in messages of the role `system`, and in a compaction's `systemMessage`) stay. Sources:
files of these programs, @mariozechner/pi-coding-agent 0.73.1 and @earendil-works/pi-coding-agent
1.5.2 (`dist/core/session-manager.js`), and openclaw 2026.7.35 (`dist/transcript-tree-*.js`,
scanSessionTranscriptTree; `dist/transcript-rewrite-*.js`).
"""

import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from brainsurgeon.formats import weight
from brainsurgeon.formats.base import (
    DAMAGED,
    HOLLOW,
    NO_STEP,
    STILL_WRITTEN,
    UUID,
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
    leaves,
    number_in,
    references,
    reply_step,
    result_facts,
    results_in,
    str_or_empty,
    str_or_none,
    texts_in,
    thinking_chars,
    usable_id,
    values_sent,
)
from brainsurgeon.formats.chain import Chain
from brainsurgeon.formats.marks import marks_in
from brainsurgeon.model.entries import (
    EXTRACTABLE,
    JsonObject,
    KeyPath,
    Line,
    Value,
)
from brainsurgeon.model.session_files import BEFORE_COMPACTION, EDITED_AWAY, OFF_BRANCH
from brainsurgeon.model.text import parse_time
from brainsurgeon.model.transcript import Entry, Reasoning, Thoughts
from brainsurgeon.model.turns import (
    NOTHING,
    ArchiveForm,
    ModelCall,
    Role,
    Sent,
    ToolCall,
    ToolResult,
    TurnStep,
)

# An entry of these types becomes the leaf, the end of the branch: the types of openclaw
# (transcript-tree, isCanonicalSessionEntryType), and those that newer versions and pi add.
TREE_TYPES = (
    "message", "thinking_level_change", "model_change", "compaction", "branch_summary",
    "custom", "custom_message", "label", "session_info", "context_edit", "usage", "reset",
)  # fmt: skip

NOT_REPLAYED = ("error", "aborted")  # stop reasons of answers that are never sent again


class OpenClawLine(Struct, frozen=True, gc=False):
    """An entry, with what most questions about it look at."""

    entry: JsonObject
    kind: Any  # its type
    role: str | None
    message: JsonObject
    content: Any
    thinking: list[tuple[int, JsonObject]]
    calls: list[tuple[int, JsonObject]]


def _view(entry: JsonObject) -> OpenClawLine:
    kind, message = entry.get("type"), dict_or_empty(entry.get("message"))
    content, role = message.get("content"), _role(entry)
    own = content if role in ("assistant", BOOKKEEPING) else None
    return OpenClawLine(
        entry, kind, role, message, content, blocks_in(own, "thinking"),
        blocks_in(own, "toolCall"),
    )  # fmt: skip


class BranchNode(Struct, frozen=True, gc=False):
    kind: str  # its type
    is_node: bool = False
    ident: str = ""
    parent: str | None = None
    has_parent: bool = False  # whether it names one, if only None
    side: bool = False  # a side append
    target: str | None = None
    cursor: str | None = None  # `appendParentId`, else the target
    kept: str | None = None  # `firstKeptEntryId` of a compaction
    role: str | None = None
    replayed: bool = True  # the answer is sent again
    left: str | None = None  # as `left_open` returns
    model: "Named | None" = None  # which answered here, or answers from here on


def _node(view: OpenClawLine) -> BranchNode:
    entry, kind, left = view.entry, str_or_empty(view.kind), _left_open(view)
    if kind == "session" or not _is_node(entry):
        return BranchNode(kind, left=left)
    target = str_or_none(entry.get("targetId"))
    return BranchNode(
        kind, True, entry["id"], entry.get("parentId"), "parentId" in entry,
        entry.get("appendMode") == "side", target, entry.get("appendParentId", target),
        str_or_none(entry.get("firstKeptEntryId")), view.role,
        view.message.get("stopReason") not in NOT_REPLAYED, left, _model_of(view),
    )  # fmt: skip


class Named(Struct, frozen=True, gc=False):
    """A model, as an agent names it."""

    provider: str
    model: str
    by_openclaw: bool = False  # in an entry that only OpenClaw writes

    def passes_on(self, other: "Named") -> bool:
        """Check whether OpenClaw sends this model the thinking of another one, if only as text.

        openclaw 2026.9.6 (`dist/ai-transport-runtime-host-*.mjs`) sends none from or to a Claude 5,
        but Fable 5.1 all of any Claude.
        """
        if "claude-fable-5-1" in self.model:
            return "claude-" in other.model
        return not (_CLAUDE_5.search(self.model) or _CLAUDE_5.search(other.model))


_CLAUDE_5 = re.compile("claude-(?:fable|mythos|opus|sonnet)-5")


def _model_of(view: OpenClawLine) -> Named | None:
    if view.role == "assistant":
        return _named(view.message.get("provider"), view.message.get("model"))
    if view.kind == "model_change":
        return _named(view.entry.get("provider"), view.entry.get("modelId"))
    if view.kind == "custom" and view.entry.get("customType") == "model-snapshot":
        data = dict_or_empty(view.entry.get("data"))
        return _named(data.get("provider"), data.get("modelId"), by_openclaw=True)
    return None


def _named(provider: object, model: object, *, by_openclaw: bool = False) -> Named | None:
    provider, model = str_or_empty(provider), str_or_empty(model)
    return _interned(provider, model, by_openclaw) if provider and model else None


_interned = lru_cache(64)(Named)


class Branch:
    """The active branch, walked from the leaf towards the root.

    A `leaf` entry makes its target the leaf. A side append (`appendMode: "side"`) or an entry of an
    unknown type does not become the leaf: the next entry continues from the leaf, even if it names
    this entry as its parent. An entry without `parentId` continues from the leaf, too.

    A `leaf` entry that names an entry which is not before it (a repair may have dropped the line)
    moves nothing: a branch continues with its parent. `void` are the ids of such entries.
    """

    def __init__(self, void: frozenset[str]) -> None:
        self._next: str | None = None
        self._leaf = True
        self._child_moved_leaf = False
        self._void = void

    def pass_over(self, names: frozenset[str]) -> None:
        # The agent may be able to read this line: JavaScript accepts invalid UTF-8.
        if self._next in names:
            self._leaf, self._next = True, None

    def contains(self, node: BranchNode) -> bool:
        """Check whether the entry is on the branch. To be called with each entry, last first."""
        if not node.is_node:
            return False
        is_leaf = node.kind == "leaf"
        if is_leaf and node.ident in self._void:
            if node.ident == self._next:
                self._look_for(node.parent)
            return False
        behind, self._child_moved_leaf = self._child_moved_leaf, False
        matches = self._leaf or node.ident == self._next
        if is_leaf:
            if matches or (behind and self._next == node.cursor):
                self._look_for(node.target)
            return False
        moves = node.kind in TREE_TYPES and not node.side
        if not matches or (not moves and (self._leaf or behind)):
            self._leaf = matches
            return False
        self._leaf = not node.has_parent
        if not self._leaf:
            self._look_for(node.parent, child_moved_leaf=moves)
        return node.kind in TREE_TYPES

    def _look_for(self, parent: str | None, *, child_moved_leaf: bool = False) -> None:
        self._next, self._leaf, self._child_moved_leaf = parent, False, child_moved_leaf


def void_leaves(owns: Iterable[BranchNode | frozenset[str]]) -> frozenset[str]:
    """Return the ids of the `leaf` entries that name an entry which is not before them."""
    met, void = set[str](), set[str]()
    for own in owns:
        if isinstance(own, frozenset):
            met |= own
        elif own.is_node:
            named = {own.target, own.cursor} - {None, ""} if own.kind == "leaf" else ()
            (met if met.issuperset(named) else void).add(own.ident)
    return frozenset(void)


_NAME = re.compile(rb'"([A-Za-z0-9._:-]{1,128})"')


class Reach:
    """Finds the entries of the branch that the next request does not contain.

    `look` takes the entries of the branch, last first. The request begins at `firstKeptEntryId` of
    a compaction or at a reset. A `context_edit` removes or replaces its target in the request.
    """

    def __init__(self) -> None:
        self.over: str | None = None
        self._kept: object = None
        self._edited: set[object] = set()
        self._compacted = False

    def look(self, node: BranchNode) -> str | None:
        if self.over:
            return self.over
        if node.kind == "reset":
            self.over = "before the last reset"
        elif node.kind == "context_edit" and node.target is not None:
            self._edited.add(node.target)
        elif node.kind == "compaction" and not self._compacted:
            self._compacted, self._kept = True, node.kept
        if self._compacted and node.ident == self._kept:
            self.over = BEFORE_COMPACTION
        return EDITED_AWAY if node.ident in self._edited else None


def _is_node(entry: JsonObject) -> bool:
    links = [entry.get("id") or "", entry.get("parentId")]
    if entry.get("type") == "leaf":
        links += [entry.get("targetId", ""), entry.get("appendParentId")]
    for link in links:
        if link is not None and (not isinstance(link, str) or not link or link.isspace()):
            return False
    return "parentId" in entry or entry.get("type") in TREE_TYPES


# Replaces signed thinking. Read in @mariozechner/pi-ai 0.73.1 (`dist/providers/*.js`),
# @earendil-works/pi-ai 1.5.2 (`dist/api/*.js`) and openclaw 2026.7.35
# (`dist/provider-stream-*.js`): a block with neither text nor signature is left out of every
# request. A redacted block is sent even if it is empty. Since 1.5.2, a signature without text is
# sent, too.
EMPTIED = b'{"type":"thinking","thinking":"","thinkingSignature":""}'

_FIELD_NAME = re.compile(r"[a-z][a-z_]{0,63}")
# Name prefixes of APIs whose signatures cover nothing, or only one tool call.
_UNVERIFIED = ("openai", "azure", "google", "mistral")
# APIs whose signatures are encrypted reasoning.
_ENCRYPTING = ("openai-responses", "openai-codex-responses", "azure-openai-responses")


def _thinking(view: OpenClawLine) -> Iterator[Value]:
    # Anthropic and Bedrock verify the text against the signature. So a block is extracted as a
    # whole, and only before the last user message.
    message = view.message
    api = str_or_empty(message.get("api"))
    locked, verified = None, api == "anthropic-messages" or api.startswith("bedrock")
    if not verified:
        locked = "thinking signed by its provider"
    elif _only_signed(message):
        locked = "nothing else is in its message"
    for index, block in view.thinking:
        path = below(_CONTENT, index)
        chars = len(str_or_empty(block.get("thinking")))
        if not chars:
            continue
        if block.get("redacted"):
            yield Value(path, "thinking", chars, locked="redacted thinking")
        elif _is_signed(block, message):
            yield Value(
                path, "thinking", chars, block=True, locked=locked, instead=EMPTIED,
                signed=verified, sent=chars,
            )  # fmt: skip
        else:
            yield Value(below(path, "thinking"), "thinking", chars)


def _thoughts(view: OpenClawLine) -> Thoughts | None:
    message = view.message
    api = str_or_empty(message.get("api"))
    if message.get("stopReason") in NOT_REPLAYED or api.startswith(_UNVERIFIED):
        return None
    # pi records `providerThinkingLevel` if it asked to drop blocks with invalid signatures.
    asked = api == "anthropic-messages" and bool(str_or_empty(message.get("providerThinkingLevel")))
    model, answered = str_or_empty(message.get("model")), message.get("responseModel")
    names = _names_of(model, str_or_empty(answered))
    if not view.thinking:
        return _no_thoughts(names, _only_signed(message), asked)
    signed, unsound = [], {}
    for index, block in view.thinking:
        path = below(_CONTENT, index)
        if block.get("redacted") or _is_signed(block, message):
            text, signature = map(str_or_empty, map(block.get, ("thinking", "thinkingSignature")))
            signed.append((path, thinking_chars(text, signature)))
            if signature and not (block.get("redacted") or text.strip()):
                unsound[path] = HOLLOW
            elif is_damaged(signature, names):
                unsound[path] = DAMAGED
    bound = any(covers_request(block.get("thinkingSignature")) for _, block in view.thinking)
    return Thoughts(names, tuple(signed), EMPTIED, _only_signed(message), asked, bound, unsound)


@lru_cache(64)
def _names_of(*models: str) -> tuple[str, ...]:
    return tuple(filter(None, models))


@lru_cache(64)
def _no_thoughts(names: tuple[str, ...], only_content: bool, asked_to_drop: bool) -> Thoughts:
    return Thoughts(names, (), EMPTIED, only_content, asked_to_drop)


def _reasoning(view: OpenClawLine) -> Reasoning | None:
    message = view.message
    api = str_or_empty(message.get("api"))
    if message.get("stopReason") in NOT_REPLAYED or api not in _ENCRYPTING:
        return None
    signed = any(_is_signed(block, message) for _, block in view.thinking)
    tokens = weight.counts(dict_or_empty(message.get("usage")), "reasoning")
    return Reasoning(str_or_empty(message.get("model")), tokens) if signed and tokens else None


def _dropped(message: JsonObject) -> int:
    # pi records what the provider says about each item that it left out (`diagnostics`): OpenAI of
    # reasoning, Anthropic of thinking.
    return sum([
        note.get("reason") in _PREFIX_MISMATCHES
        for _, diagnostic in blocks_in(message.get("diagnostics"))
        for _, note in blocks_in(dict_or_empty(diagnostic.get("details")).get("transformations"))
    ])  # fmt: skip


_PREFIX_MISMATCHES = ("prefix_mismatch", "prefix_binding_mismatch")


def _is_signed(block: JsonObject, message: JsonObject) -> bool:
    signature = block.get("thinkingSignature")
    # With openai-completions, it may be the name of a provider's field, which signs nothing.
    is_field = isinstance(signature, str) and _FIELD_NAME.fullmatch(signature) is not None
    return bool(signature) and not (is_field and message.get("api") == "openai-completions")


def _only_signed(message: JsonObject) -> bool:
    content = message.get("content")
    for _, block in blocks_in(content):
        kind = block.get("type")
        if kind == "thinking" and (block.get("redacted") or _is_signed(block, message)):
            continue
        text = str_or_empty(block.get(kind)) if kind in ("text", "thinking") else "…"
        if text and not text.isspace():
            return False
    return isinstance(content, list)


# OpenClaw's copies of what it delivered, and of what a gateway adds to a chat, are messages of the
# assistant that no request contains (openclaw 2026.9.6, `dist/transcript-only-*.mjs`). A copy that
# lost its model still has a mark (since 2026.8.1).
BOOKKEEPING = "bookkeeping"
_UNSENT_MODELS = ("delivery-mirror", "gateway-injected")
_DELIVERIES = (
    "channel-final", "channel-final-suppressed", "message-tool-source-reply",
    "cron-direct-delivery-context",
)  # fmt: skip

FINAL_STOPS = ("stop", "length", "error", "aborted")
_ROLES: dict[str, Role] = {
    "user": "prompt", "assistant": "reply", "toolResult": "result", "bashExecution": "aside",
    "custom": "aside",
}  # fmt: skip
# Types of entries that an archive may take off the branch. A `model_change` may go, because pi
# takes the model from the last assistant message of the branch. Entries with thinking levels, tools
# and the state of extensions have to stay, because pi reads them from the branch.
# (@mariozechner/pi-coding-agent 0.73.1, `dist/core/session-manager.js`, buildSessionContext)
_NOTES = ("label", "session_info", "usage", "model_change")
_CONTENT: KeyPath = ("message", "content")
_DETAILS: KeyPath = ("message", "details")


class OpenClawChain(Chain):
    def __init__(self, entries: Sequence[Entry]) -> None:
        super().__init__()
        self._walk(entries)
        lives = (entry.is_message and index not in self.off for index, entry in enumerate(entries))
        self.counts = array("q", accumulate(lives))
        self.last_user = self._asked(entries)
        self._model: Named | None = None  # of the next request
        self._is_openclaw = False
        for index, entry in enumerate(entries):
            if isinstance(entry.own, frozenset):
                self.open_turn = self.open_turn if entry.terminated else STILL_WRITTEN
                continue
            if entry.own.left is not None:
                self.open_turn = entry.own.left or None
            if entry.own.model and index not in self.off:
                self._model = entry.own.model
                self._is_openclaw |= entry.own.model.by_openclaw

    def _walk(self, entries: Sequence[Entry]) -> None:
        branch, reach = Branch(void_leaves(entry.own for entry in entries)), Reach()
        for index in range(len(entries) - 1, -1, -1):
            own = entries[index].own
            if isinstance(own, frozenset):
                branch.pass_over(own)
                self.off.add(index)
            elif not branch.contains(own):
                self.off.add(index)
                if index:  # the header is no entry of the tree
                    self.dead[index] = OFF_BRANCH
            elif why := reach.look(own):
                self.dead[index] = why

    def _asked(self, entries: Sequence[Entry]) -> int | None:
        """Return the index of the user message that began the last turn.

        A user message after tool results without an answer (too long, aborted) does not begin one:
        the provider joins it with the results, and needs the thinking before them.
        """
        at, answered = None, False
        for index in range(len(entries) - 1, -1, -1):
            if index in self.off or (at is not None and index in self.dead):
                continue
            node = entries[index].own
            if node.role == "user" and at is None:
                at = index
            elif node.role == "toolResult" and not answered:
                at, answered = None, True
            elif node.role == "assistant" and node.replayed:
                answered = True
            if answered and at is not None:  # no earlier message can begin the turn
                break
        return at

    def thinks(self, index: int, entry: Entry) -> bool:  # noqa: ARG002
        # pi has left out the thinking of another model since 1.3.0; before, it was sent as text
        # (@earendil-works/pi-ai 1.6.0, `dist/api/transform-messages.js`).
        now, then = self._model, getattr(entry.own, "model", None)
        if now is None or then is None or (now.provider, now.model) == (then.provider, then.model):
            return True
        return self._is_openclaw and now.passes_on(then)


class OpenClaw(Format):
    name = "openclaw"
    emptied = (EMPTIED,)
    copies = frozenset({"details"})
    has_reasoning = True
    version = 9
    versions: tuple[int, ...] = (2, 3)
    archives: ArchiveForm | None = "linked"
    random_ids = re.compile(f"[0-9a-f]{{8}}|{UUID}")  # the program may fall back to a UUID

    def recognises(self, entries: Sequence[JsonObject]) -> bool:
        return entries[0].get("type") == "session" and isinstance(entries[0].get("id"), str)

    def refuses(self, header: JsonObject) -> str | None:
        version = header.get("version", 1)
        if version == 1:
            return "pi session version 1: pi migrates it with new ids at its next use"
        if version in self.versions:
            return None
        number = version if isinstance(version, int) else "of an unknown kind"
        return f"session version {number} is not known to this program"

    def session(self, head: Sequence[JsonObject]) -> str | None:
        return usable_id(head[0].get("id"))

    def entries(self, line: Line, index: int) -> tuple[Entry, ...]:
        found = super().entries(line, index)
        if found[0].own is not None:
            return found
        names = frozenset(name.decode() for name in _NAME.findall(line.raw or b""))
        return (replace(found[0], own=names),)

    def first_entry(self, entry: JsonObject, line: Line, index: int) -> Entry:
        view, time = _view(entry), parse_time(entry.get("timestamp"))
        calls, sent, answers = _calls(view), _sent(view), view.role == "assistant"
        step = _step(view, calls)
        ident = None if view.kind == "session" else usable_id(entry.get("id"))
        return Entry(
            index, line.terminated, ident, None, step.parent, step.role, _is_message(view), time,
            step.names, step.text_path, step.closes, step.cut_short,
            values_sent(self._values(view), sent, entry), call_facts(calls), None,
            result_facts(step.results), sent, _answered(view, time), (),
            _thoughts(view) if answers else None, _reasoning(view) if answers else None,
            _dropped(view.message) if answers else 0, view.kind == "compaction",
            view.kind == "model_change", None,
            marks_in(line.raw, entry, self.emptied, has_emptied=_has_emptied(view)), _node(view),
        )  # fmt: skip

    def read(self, entry: JsonObject) -> Content:
        view = _view(entry)
        calls = _calls(view)
        return Content(
            _step(view, calls), calls, _result_texts(view), self._values(view), _sent(view)
        )

    def chain(self, entries: Sequence[Entry]) -> Chain:
        return OpenClawChain(entries)

    def _values(self, view: OpenClawLine) -> Iterator[Value]:
        entry, message = view.entry, view.message
        role: Any = view.role
        if role == "toolResult":
            tool = str_or_none(message.get("toolName"))
            of = tool, str_or_none(message.get("toolCallId"))
            yield from content_parts(view.content, _CONTENT, "tool_result", *of)
            yield from leaves(message.get("details"), _DETAILS, "tool_result", *of, dead=True)
        elif role in ("assistant", BOOKKEEPING):
            yield from _assistant(view)
        elif role == "bashExecution":
            yield from leaves(message.get("output"), ("message", "output"), "tool_result", "bash")
        elif role in ("user", "custom"):
            yield from content_parts(view.content, _CONTENT, role, None)
        elif view.kind == "custom_message":
            yield from content_parts(entry.get("content"), ("content",), "custom", None)
        elif not (view.kind == "session" or _has_message(entry)) and entry.get(EXTRACTABLE) is True:
            for key in ("data", "summary", "content", "details"):  # ids and links stay
                yield from leaves(entry.get(key), (key,), "custom", None)


def _is_message(view: OpenClawLine) -> bool:
    return view.role in _ROLES or view.kind == "custom_message"


def _has_emptied(view: OpenClawLine) -> bool:
    return any(block.get("thinkingSignature") == "" for _, block in view.thinking)


def _result_texts(view: OpenClawLine) -> Iterator[ResultText]:
    if view.role == "toolResult":
        parts = content_parts(view.content, _CONTENT, "tool_result", None)
        yield from results_in(view.entry, parts, view.message.get("toolCallId"))


def _step(view: OpenClawLine, calls: tuple[ToolCall, ...]) -> TurnStep:
    entry, kind, role, message = view.entry, view.kind, view.role, view.message
    if kind == "session":
        return NO_STEP
    linked = (str_or_none(entry.get("parentId")), references(entry))
    if role is None and not _has_message(entry):
        aside: Role = "aside" if kind == "custom_message" else "fixed"
        return TurnStep("note" if kind in _NOTES else aside, *linked)
    if role == "assistant":
        stop = message.get("stopReason")
        return reply_step(
            message, linked, calls,
            stopped=stop in FINAL_STOPS and stop not in NOT_REPLAYED,
            cut_short=stop in FINAL_STOPS[1:],
        )  # fmt: skip
    if role == BOOKKEEPING:
        return TurnStep("note", *linked)
    results = (_result(message),) if role == "toolResult" else ()
    return TurnStep(_ROLES.get(role or "", "fixed"), *linked, results=results)


def _calls(view: OpenClawLine) -> tuple[ToolCall, ...]:
    return calls_in(view.calls, _CONTENT, "arguments") if view.role == "assistant" else ()


def _sent(view: OpenClawLine) -> Sent:
    entry, kind, role, message = view.entry, view.kind, view.role, view.message
    if kind == "custom_message":
        return weight.content(entry.get("content"))
    if kind in ("compaction", "branch_summary"):
        return Sent(len(str_or_empty(entry.get("summary"))))
    if role == BOOKKEEPING or (role is None and not _has_message(entry)):
        return NOTHING
    if role == "bashExecution":
        if message.get("excludeFromContext") is True:
            return NOTHING
        return Sent(sum(len(str_or_empty(message.get(key))) for key in ("command", "output")))
    if role == "assistant" and message.get("stopReason") in NOT_REPLAYED:
        return NOTHING
    return weight.content(view.content)


def _answered(view: OpenClawLine, time: float | None) -> ModelCall | None:
    entry, message = view.entry, view.message
    if view.role != "assistant":
        return None if view.role == BOOKKEEPING else _aside(entry, message, time)
    # On a new branch, OpenClaw repeats messages. Only the ids of their entries differ.
    names = (message.get("responseId"), message.get("timestamp"))
    ident = repr(names if all(names) else (entry.get("id"), entry.get("timestamp")))
    usage = dict_or_empty(message.get("usage"))
    call = weight.recorded(time, usage, message.get("model"), ident)
    if message.get("stopReason") in NOT_REPLAYED:
        error = str_or_empty(message.get("errorMessage"))
        provider = str_or_empty(message.get("provider"))
        failed = weight.unanswered(time, error, call.model, provider)
        return replace(failed, ident=ident, dollars=call.dollars)
    call = replace(call, end="cut") if message.get("stopReason") == "length" else call
    # After a failed run, openclaw 2026.7.35 repeats the answer with this `api`.
    return None if message.get("api") == "cli" and not call.tokens else call


def _aside(entry: JsonObject, message: JsonObject, time: float | None) -> ModelCall | None:
    """Return a recorded call that is no answer: of pi's cache warmer, a summary or a tool.

    pi 1.6.0 repeats a request while it waits, so that its cache lives for up to half an hour more
    (`dist/core/cache-warmer.js`). The prompts of the others are not the session's.
    """
    usage = entry.get("usage", message.get("usage"))
    if not isinstance(usage, dict):
        return None
    ident = repr((entry.get("id"), entry.get("timestamp")))
    call = replace(weight.recorded(time, usage, entry.get("model"), ident), end="aside")
    warms = entry.get("kind") == "cache_warm"
    return call if warms else replace(call, tokens=0, cached=0, written=0)


def _result(message: JsonObject) -> ToolResult:
    details = message.get("details")
    code = number_in(details, "exitCode")
    failed = message.get("isError") is True or bool(code)
    finding = first_line(text for _, text in texts_in(message.get("content"))) if failed else ""
    took = number_in(details, "durationMs", "tookMs")
    return ToolResult(str_or_none(message.get("toolCallId")), failed, finding, code, took)


def left_open(entry: JsonObject | None) -> str | None:
    """Return why the turn is open, "" if it is finished, None if the line shows neither."""
    return None if entry is None else _left_open(_view(entry))


def _left_open(view: OpenClawLine) -> str | None:
    role = view.role
    if role in ("user", "toolResult"):
        return f"the last turn is open: a {'user message' if role == 'user' else 'tool result'}"
    if role != "assistant":
        return None
    if view.calls:
        return "the last turn is open: a tool call"
    stopped = view.message.get("stopReason") in FINAL_STOPS
    return "" if stopped else "the last turn is open: the assistant has not stopped"


def _has_message(entry: JsonObject) -> bool:
    return entry.get("type") == "message" and isinstance(entry.get("message"), dict)


def _role(entry: JsonObject) -> str | None:
    """Return the role of the entry's message, BOOKKEEPING if no request contains it, or None."""
    if not _has_message(entry):
        return None
    message = entry["message"]
    role = str_or_none(message.get("role"))
    return BOOKKEEPING if role == "assistant" and _is_bookkeeping(message) else role


def is_bookkeeping(entry: JsonObject | None) -> bool:
    return entry is not None and _role(entry) == BOOKKEEPING


def _is_bookkeeping(message: JsonObject) -> bool:
    if message.get("provider") == "openclaw" and message.get("model") in _UNSENT_MODELS:
        return True
    mirror = message.get("openclawDeliveryMirror")
    return isinstance(mirror, dict) and mirror.get("kind") in _DELIVERIES


def _assistant(view: OpenClawLine) -> Iterator[Value]:
    yield from content_parts(view.content, _CONTENT, "assistant")
    if view.thinking:
        yield from _thinking(view)
    for index, block in view.calls:
        if isinstance(block.get("arguments"), dict):
            path = below(below(_CONTENT, index), "arguments")
            # Gemini may verify its signatures.
            signed = "call signed by its provider" if block.get("thoughtSignature") else None
            of = str_or_none(block.get("name")), str_or_none(block.get("id"))
            yield from leaves(block["arguments"], path, "tool_call", *of, locked=signed)


# A database also has indexes of the text of user and assistant messages (openclaw 2026.9.6,
# `dist/session-transcript-index-*.mjs`). They would miss a change, so this text is never extracted.
INDEXED = "an index of the agent's database may depend on it"


class OpenClawRows(OpenClaw):
    versions = (2, 3, 4)
    appends_anew = True
    archives: ArchiveForm | None = None  # an archive would change indexed text

    def _values(self, view: OpenClawLine) -> Iterator[Value]:
        for part in super()._values(view):
            # A placeholder for a whole block is text that the indexes would lack. Whether they use
            # signed thinking, also a whole block, is unknown.
            adds_text = part.block and part.kind != "tool_result"
            indexed = part.kind in ("user", "assistant") or adds_text
            yield replace(part, locked=part.locked or INDEXED) if indexed else part
