"""The sessions of OpenClaw and pi.

One JSON object a line; entries form a tree by `id` and `parentId`. System prompts and definitions
of tools (in messages of the role `system`, and in a compaction's `systemMessage`) stay. Sources:
files of these programs, @mariozechner/pi-coding-agent 0.73.1 and @earendil-works/pi-coding-agent
1.5.2 (`dist/core/session-manager.js`), and openclaw 2026.7.35 (`dist/transcript-tree-*.js`,
scanSessionTranscriptTree; `dist/transcript-rewrite-*.js`).
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from brainsurgeon.formats import weight
from brainsurgeon.formats.base import (
    DAMAGED,
    HOLLOW,
    Format,
    Reasoning,
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
    texts_in,
    thinking_chars,
    usable_id,
)
from brainsurgeon.model.entries import EXTRACTABLE, Entry, KeyPath, Lines, Part, parse, value_at
from brainsurgeon.model.sessions import BEFORE_COMPACTION, EDITED_AWAY, OFF_BRANCH, Survey
from brainsurgeon.model.turns import (
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

_SHORT_ID = re.compile("[0-9a-f]{8}")  # of entries; the program may fall back to a whole UUID
NOT_REPLAYED = ("error", "aborted")  # stop reasons of answers that are never sent again


class Branch:
    """The active branch, walked from the leaf towards the root.

    A `leaf` entry makes its target the leaf. A side append (`appendMode: "side"`) or an entry of an
    unknown type does not become the leaf: the next entry continues from the leaf, even if it names
    this entry as its parent. An entry without `parentId` continues from the leaf, too.

    A `leaf` entry that names an entry which is not before it (a repair may have dropped the line)
    moves nothing: a branch continues with its parent. `void` are the ids of such entries. While
    `unproven`, the walk has passed `leaf` entries that name an entry which it has not met yet.
    """

    def __init__(self, void: frozenset[str] = frozenset()) -> None:
        self._next: str | None = None
        self._leaf = True
        self._child_moved_leaf = False
        self._void = void
        self._unmet: set[str] = set()
        self.ended = False

    @property
    def unproven(self) -> bool:
        return bool(self._unmet)

    @property
    def cursor(self) -> str:
        """The state of the walk. It decides which earlier entries are on the branch."""
        return repr((self._next, self._leaf, self._child_moved_leaf, self.ended))

    def pass_over(self, raw: bytes) -> None:
        # The agent may be able to read this line: JavaScript accepts invalid UTF-8.
        if self._next is not None and _holds(raw, self._next):
            self._leaf, self._next = True, None
        self._unmet -= {name for name in self._unmet if _holds(raw, name)}

    def contains(self, entry: Entry) -> bool:
        """Check whether the entry is on the branch. To be called with each entry, last first."""
        kind = entry.get("type")
        if kind == "session" or not _is_node(entry):
            return False
        self._unmet.discard(entry["id"])
        is_void = kind == "leaf" and entry["id"] in self._void
        if kind == "leaf" and not is_void:
            self._unmet |= _named_by(entry)
        if self.ended:
            return False
        if is_void:
            if entry["id"] == self._next:
                self._look_for(entry["parentId"])
            return False
        behind, self._child_moved_leaf = self._child_moved_leaf, False
        matches = self._leaf or entry["id"] == self._next
        if kind == "leaf":
            target = entry["targetId"]
            if matches or (behind and self._next == entry.get("appendParentId", target)):
                self._look_for(target)
            return False
        moves = kind in TREE_TYPES and entry.get("appendMode") != "side"
        if not matches or (not moves and (self._leaf or behind)):
            self._leaf = matches
            self.ended = self._next is None and not matches
            return False
        self._leaf = "parentId" not in entry
        if not self._leaf:
            self._look_for(entry["parentId"], child_moved_leaf=moves)
        return kind in TREE_TYPES

    def _look_for(self, parent: str | None, *, child_moved_leaf: bool = False) -> None:
        self._next, self._leaf, self._child_moved_leaf = parent, False, child_moved_leaf
        self.ended = parent is None and not child_moved_leaf


def void_leaves(lines: Lines) -> frozenset[str]:
    """Return the ids of the `leaf` entries that name an entry which is not before them."""
    met, void, unreadable = set[str](), set[str](), list[bytes]()
    for line in lines:
        entry = parse(line.raw) if line.raw else None
        if entry is None:
            unreadable.append(line.raw or b"")
        elif entry.get("type") != "session" and _is_node(entry):
            missing = _named_by(entry) - met if entry.get("type") == "leaf" else ()
            if any(not any(_holds(raw, name) for raw in unreadable) for name in missing):
                void.add(entry["id"])
            else:
                met.add(entry["id"])
    return frozenset(void)


def _named_by(leaf: Entry) -> set[str]:
    named = leaf["targetId"], leaf.get("appendParentId")
    return {name for name in named if isinstance(name, str)}


def _holds(raw: bytes, name: str) -> bool:
    return name.encode("utf-8", "replace") in raw


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

    @property
    def cursor(self) -> str:
        edited = sorted(map(repr, self._edited))
        return repr((self.over, self._kept, edited, self._compacted))

    def look(self, entry: Entry) -> str | None:
        if self.over:
            return self.over
        kind, ident = entry.get("type"), entry.get("id")
        if kind == "reset":
            self.over = "before the last reset"
        elif kind == "context_edit" and isinstance(entry.get("targetId"), str):
            self._edited.add(entry["targetId"])
        elif kind == "compaction" and not self._compacted:
            self._compacted, self._kept = True, entry.get("firstKeptEntryId")
        if self._compacted and ident == self._kept:
            self.over = BEFORE_COMPACTION
        return EDITED_AWAY if ident in self._edited else None


class Asking:
    """Finds the user message that began the last turn. `look` takes the entries, last first.

    A user message after tool results without an answer (too long, aborted) does not begin a turn:
    the provider joins it with the results, and needs the thinking before them.
    """

    def __init__(self) -> None:
        self.at: int | None = None
        self._seen_answer = False

    def look(self, offset: int, entry: Entry) -> None:
        if self._seen_answer and self.at is not None:
            return  # no earlier message can begin the turn
        message, role = dict_or_empty(entry.get("message")), _role(entry)
        if role == "user":
            self.at = offset if self.at is None else self.at
        elif role == "toolResult" and not self._seen_answer:
            self.at, self._seen_answer = None, True
        elif role == "assistant" and message.get("stopReason") not in NOT_REPLAYED:
            self._seen_answer = True


def _is_node(entry: Entry) -> bool:
    links = [entry.get("id") or "", entry.get("parentId")]
    if entry.get("type") == "leaf":
        links += [entry.get("targetId", ""), entry.get("appendParentId")]
    for link in links:
        if link is not None and not (isinstance(link, str) and link.strip()):
            return False
    return entry.get("type") in TREE_TYPES or "parentId" in entry


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


def _thinking(message: Entry, *, before_last_user: bool) -> Iterator[Part]:
    # Anthropic and Bedrock verify the text against the signature. So a block is extracted as a
    # whole, and only before the last user message.
    api = str_or_empty(message.get("api"))
    locked = None
    if api != "anthropic-messages" and not api.startswith("bedrock"):
        locked = "thinking signed by its provider"
    elif not before_last_user:
        locked = "signed thinking of the last turn"
    elif _only_signed(message):
        locked = "nothing else is in its message"
    for path, block in _blocks(message):
        chars = len(str_or_empty(block.get("thinking")))
        if not chars:
            continue
        if block.get("redacted"):
            yield Part(path, "thinking", chars, locked="redacted thinking")
        elif _is_signed(block, message):
            yield Part(path, "thinking", chars, block=True, locked=locked, instead=EMPTIED)
        else:
            yield Part((*path, "thinking"), "thinking", chars)


def _thoughts(message: Entry) -> Thoughts | None:
    api = str_or_empty(message.get("api"))
    if message.get("stopReason") in NOT_REPLAYED or api.startswith(_UNVERIFIED):
        return None
    keys = ("model", "responseModel")
    names = tuple(filter(None, (str_or_empty(message.get(key)) for key in keys)))
    signed, unsound = [], {}
    for path, block in _blocks(message):
        if block.get("redacted") or _is_signed(block, message):
            text, signature = map(str_or_empty, map(block.get, ("thinking", "thinkingSignature")))
            signed.append((path, thinking_chars(text, signature)))
            if signature and not (block.get("redacted") or text.strip()):
                unsound[path] = HOLLOW
            elif is_damaged(signature, names):
                unsound[path] = DAMAGED
    # pi records `providerThinkingLevel` if it asked to drop blocks with invalid signatures.
    asked = api == "anthropic-messages" and bool(str_or_empty(message.get("providerThinkingLevel")))
    bound = any(covers_request(block.get("thinkingSignature")) for _, block in _blocks(message))
    return Thoughts(names, tuple(signed), EMPTIED, _only_signed(message), asked, bound, unsound)


def _reasoning(message: Entry) -> Reasoning | None:
    api = str_or_empty(message.get("api"))
    if message.get("stopReason") in NOT_REPLAYED or api not in _ENCRYPTING:
        return None
    signed = any(_is_signed(block, message) for _, block in _blocks(message))
    tokens = weight.counts(dict_or_empty(message.get("usage")), "reasoning")
    return Reasoning(str_or_empty(message.get("model")), tokens) if signed and tokens else None


def _dropped(message: Entry) -> int:
    # pi records what the provider says about each item that it left out (`diagnostics`).
    notes = (
        note for _, diagnostic in blocks_in(message.get("diagnostics"))
        for _, note in blocks_in(
            dict_or_empty(diagnostic.get("details")).get("transformations"), "reasoning"
        )
    )  # fmt: skip
    return sum(note.get("reason") == "prefix_mismatch" for note in notes)


def _blocks(message: Entry) -> Iterator[tuple[KeyPath, Entry]]:
    for index, block in blocks_in(message.get("content"), "thinking"):
        yield ("message", "content", index), block


def _is_signed(block: Entry, message: Entry) -> bool:
    signature = block.get("thinkingSignature")
    # With openai-completions, it may be the name of a provider's field, which signs nothing.
    is_field = isinstance(signature, str) and _FIELD_NAME.fullmatch(signature) is not None
    return bool(signature) and not (is_field and message.get("api") == "openai-completions")


def _only_signed(message: Entry) -> bool:
    content = message.get("content")
    for _, block in blocks_in(content):
        kind = block.get("type")
        if kind == "thinking" and (block.get("redacted") or _is_signed(block, message)):
            continue
        if kind not in ("text", "thinking") or str_or_empty(block.get(kind)).strip():
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


class OpenClaw(Format):
    name = "openclaw"
    has_reasoning = True
    version = 7
    versions: tuple[int, ...] = (2, 3)
    archives: ArchiveForm | None = "linked"

    def recognises(self, entries: Sequence[Entry]) -> bool:
        return entries[0].get("type") == "session" and isinstance(entries[0].get("id"), str)

    def refuses(self, header: Entry) -> str | None:
        version = header.get("version", 1)
        if version == 1:
            return "pi session version 1: pi migrates it with new ids at its next use"
        if version in self.versions:
            return None
        number = version if isinstance(version, int) else "of an unknown kind"
        return f"session version {number} is not known to this program"

    def session(self, head: Sequence[Entry]) -> str | None:
        return usable_id(head[0].get("id"))

    def survey(self, lines: Lines, kept_messages: int) -> Survey:
        branch = Branch()
        survey = self._survey(lines, kept_messages, branch)
        if not branch.unproven:
            return survey
        if next(iter(lines)).offset:  # only the end of a file: earlier lines may have the targets
            return replace(survey, cursor=None)
        return self._survey(lines, kept_messages, Branch(void_leaves(lines)))

    def _survey(self, lines: Lines, kept_messages: int, branch: Branch) -> Survey:
        positions: dict[int, int] = {}
        dead: dict[int, str] = {}
        dead_before, dead_why = 0, ""
        messages, reach, asking = 0, Reach(), Asking()
        judged: int | None = None  # offset of the line that shows whether the last turn is open
        open_turn: str | None = None
        for line in lines.backward():
            complete = reach.over and messages > kept_messages and asking.at is not None
            if judged is not None and (complete or branch.ended) and not branch.unproven:
                dead_before, dead_why = line.offset + 1, reach.over or OFF_BRANCH
                break
            entry = parse(line.raw) if line.raw else None
            if judged is None and (left := left_open(entry, line.terminated)) is not None:
                judged, open_turn = line.offset, left or None
            if entry is None:
                branch.pass_over(line.raw or b"")
                continue
            if not branch.contains(entry):
                dead[line.offset] = OFF_BRANCH
                continue
            unsent = reach.look(entry)
            if unsent:
                dead[line.offset] = unsent
            if not unsent or asking.at is None:
                asking.look(line.offset, entry)
            if messages <= kept_messages:
                is_message = self.is_message(entry)
                positions[line.offset] = messages if is_message else max(messages - 1, 0)
                messages += is_message
        dead.pop(0, None)  # the header is no entry of the tree
        cursor = None
        if judged is not None:
            cursor = dead_why or f"{branch.cursor} {reach.cursor}"
        return Survey(
            kept_messages, positions, open_turn, asking.at, dead, dead_before, dead_why,
            since=judged, cursor=cursor,
        )  # fmt: skip

    def identity(self, entry: Entry, raw: bytes, number: int) -> str | None:  # noqa: ARG002
        return None if entry.get("type") == "session" else usable_id(entry.get("id"))

    def is_random(self, entry_id: str) -> bool:
        return _SHORT_ID.fullmatch(entry_id) is not None or super().is_random(entry_id)

    def is_message(self, entry: Entry) -> bool:
        return _role(entry) in _ROLES or entry.get("type") == "custom_message"

    def parts(self, entry: Entry, survey: Survey, offset: int | None) -> Iterator[Part]:
        kind, message = entry.get("type"), dict_or_empty(entry.get("message"))
        role: Any = _role(entry)
        if kind == "custom_message":
            yield from content_parts(entry.get("content"), ("content",), "custom", None)
        elif not (kind == "session" or _has_message(entry)) and entry.get(EXTRACTABLE) is True:
            for key in ("data", "summary", "content", "details"):  # ids and links stay
                yield from leaves(entry.get(key), (key,), "custom", None)
        if role == "toolResult":
            tool = str_or_none(message.get("toolName"))
            yield from content_parts(message.get("content"), _CONTENT, "tool_result", tool)
            yield from leaves(message.get("details"), _DETAILS, "tool_result", tool, dead=True)
        elif role in ("assistant", BOOKKEEPING):
            yield from _assistant(message, before_last_user=survey.before_last_user(offset))
        elif role == "bashExecution":
            yield from leaves(message.get("output"), ("message", "output"), "tool_result", "bash")
        elif role in ("user", "custom"):
            yield from content_parts(message.get("content"), _CONTENT, role, None)

    def anchor(self, entry: Entry, path: KeyPath) -> str | None:
        if _role(entry) == "toolResult":
            return str_or_none(entry["message"].get("toolCallId"))
        block = dict_or_empty(value_at(entry, path[:3]))
        return str_or_none(block.get("id")) if block.get("type") == "toolCall" else None

    def thoughts(self, entry: Entry) -> Thoughts | None:
        return _thoughts(entry["message"]) if _role(entry) == "assistant" else None

    def reasoning(self, entry: Entry) -> Reasoning | None:
        return _reasoning(entry["message"]) if _role(entry) == "assistant" else None

    def reasoning_dropped(self, entry: Entry) -> int:
        return _dropped(entry["message"]) if _role(entry) == "assistant" else 0

    def turn_step(self, entry: Entry) -> TurnStep | None:
        kind, role = entry.get("type"), _role(entry)
        if kind == "session":
            return None
        linked = (str_or_none(entry.get("parentId")), references(entry))
        if not _has_message(entry):
            aside: Role = "aside" if kind == "custom_message" else "fixed"
            return TurnStep("note" if kind in _NOTES else aside, *linked)
        message = entry["message"]
        if role == "assistant":
            stop = message.get("stopReason")
            return reply_step(
                message, linked, self.calls(entry),
                stopped=stop in FINAL_STOPS and stop not in NOT_REPLAYED,
                cut_short=stop in FINAL_STOPS[1:],
            )  # fmt: skip
        if role == BOOKKEEPING:
            return TurnStep("note", *linked)
        results = (_result(message),) if role == "toolResult" else ()
        return TurnStep(_ROLES.get(role or "", "fixed"), *linked, results=results)

    def calls(self, entry: Entry) -> Iterator[ToolCall]:
        if _role(entry) == "assistant":
            content = entry["message"].get("content")
            yield from calls_in(content, _CONTENT, "toolCall", "arguments")

    def result_texts(self, entry: Entry) -> Iterator[ResultText]:
        if _role(entry) == "toolResult":
            message = entry["message"]
            parts = content_parts(message.get("content"), _CONTENT, "tool_result", None)
            yield from results_in(entry, parts, message.get("toolCallId"))

    def sent(self, entry: Entry, survey: Survey) -> Sent:  # noqa: ARG002
        kind, message = entry.get("type"), entry.get("message")
        if kind == "custom_message":
            return weight.content(entry.get("content"))
        if kind in ("compaction", "branch_summary"):
            return Sent(len(str_or_empty(entry.get("summary"))))
        if kind != "message" or not isinstance(message, dict):
            return Sent()
        role = _role(entry)
        if role == BOOKKEEPING:
            return Sent()
        if role == "bashExecution":
            if message.get("excludeFromContext") is True:
                return Sent()
            return Sent(sum(len(str_or_empty(message.get(key))) for key in ("command", "output")))
        if role == "assistant" and message.get("stopReason") in NOT_REPLAYED:
            return Sent()
        return weight.content(message.get("content"))

    def call(self, entry: Entry) -> ModelCall | None:
        message, role = dict_or_empty(entry.get("message")), _role(entry)
        if role != "assistant":
            return None if role == BOOKKEEPING else _aside(entry, message)
        # On a new branch, OpenClaw repeats messages. Only the ids of their entries differ.
        names = (message.get("responseId"), message.get("timestamp"))
        ident = repr(names if all(names) else (entry.get("id"), entry.get("timestamp")))
        usage = dict_or_empty(message.get("usage"))
        call = weight.recorded(entry, usage, message.get("model"), ident)
        if message.get("stopReason") in NOT_REPLAYED:
            error = str_or_empty(message.get("errorMessage"))
            provider = str_or_empty(message.get("provider"))
            failed = weight.unanswered(entry, error, call.model, provider)
            return replace(failed, ident=ident, dollars=call.dollars)
        call = replace(call, end="cut") if message.get("stopReason") == "length" else call
        # After a failed run, openclaw 2026.7.35 repeats the answer with this `api`.
        return None if message.get("api") == "cli" and not call.tokens else call

    def starts_context(self, entry: Entry) -> bool:
        return entry.get("type") == "compaction"

    def switches_model(self, entry: Entry) -> bool:
        return entry.get("type") == "model_change"


def _aside(entry: Entry, message: Entry) -> ModelCall | None:
    """Return a recorded call that is no answer: of pi's cache warmer, a summary or a tool.

    pi 1.6.0 repeats a request while it waits, so that its cache lives for up to half an hour more
    (`dist/core/cache-warmer.js`). The prompts of the others are not the session's.
    """
    usage = entry.get("usage", message.get("usage"))
    if not isinstance(usage, dict):
        return None
    ident = repr((entry.get("id"), entry.get("timestamp")))
    call = replace(weight.recorded(entry, usage, entry.get("model"), ident), end="aside")
    warms = entry.get("kind") == "cache_warm"
    return call if warms else replace(call, tokens=0, cached=0, written=0)


def _result(message: Entry) -> ToolResult:
    details = message.get("details")
    code = number_in(details, "exitCode")
    failed = message.get("isError") is True or bool(code)
    finding = first_line(text for _, text in texts_in(message.get("content"))) if failed else ""
    took = number_in(details, "durationMs", "tookMs")
    return ToolResult(str_or_none(message.get("toolCallId")), failed, finding, code, took)


def left_open(entry: Entry | None, terminated: bool = True) -> str | None:
    """Return why the turn is open, "" if it is finished, None if the line shows neither."""
    if entry is None:
        return None if terminated else "the last line is still being written"
    role, message = _role(entry), dict_or_empty(entry.get("message"))
    if role in ("user", "toolResult"):
        return f"the last turn is open: a {'user message' if role == 'user' else 'tool result'}"
    if role != "assistant":
        return None
    if any(blocks_in(message.get("content"), "toolCall")):
        return "the last turn is open: a tool call"
    stopped = message.get("stopReason") in FINAL_STOPS
    return "" if stopped else "the last turn is open: the assistant has not stopped"


def _has_message(entry: Entry) -> bool:
    return entry.get("type") == "message" and isinstance(entry.get("message"), dict)


def _role(entry: Entry) -> str | None:
    """Return the role of the entry's message, BOOKKEEPING if no request contains it, or None."""
    if not _has_message(entry):
        return None
    message = entry["message"]
    role = str_or_none(message.get("role"))
    return BOOKKEEPING if role == "assistant" and _is_bookkeeping(message) else role


def is_bookkeeping(entry: Entry | None) -> bool:
    return entry is not None and _role(entry) == BOOKKEEPING


def _is_bookkeeping(message: Entry) -> bool:
    if message.get("provider") == "openclaw" and message.get("model") in _UNSENT_MODELS:
        return True
    return dict_or_empty(message.get("openclawDeliveryMirror")).get("kind") in _DELIVERIES


def _assistant(message: Entry, *, before_last_user: bool) -> Iterator[Part]:
    content = message.get("content")
    yield from content_parts(content, _CONTENT, "assistant", None)
    yield from _thinking(message, before_last_user=before_last_user)
    for index, block in blocks_in(content, "toolCall"):
        if isinstance(block.get("arguments"), dict):
            path: KeyPath = (*_CONTENT, index, "arguments")
            # Gemini may verify its signatures.
            signed = "call signed by its provider" if block.get("thoughtSignature") else None
            tool = str_or_none(block.get("name"))
            yield from leaves(block["arguments"], path, "tool_call", tool, locked=signed)


# A database also has indexes of the text of user and assistant messages (openclaw 2026.9.6,
# `dist/session-transcript-index-*.mjs`). They would miss a change, so this text is never extracted.
INDEXED = "an index of the agent's database may depend on it"


class OpenClawRows(OpenClaw):
    versions = (2, 3, 4)
    archives: ArchiveForm | None = None  # an archive would change indexed text

    def survey(self, lines: Lines, kept_messages: int) -> Survey:
        return replace(super().survey(lines, kept_messages), appends_anew=True)

    def parts(self, entry: Entry, survey: Survey, offset: int | None) -> Iterator[Part]:
        for part in super().parts(entry, survey, offset):
            # A placeholder for a whole block is text that the indexes would lack. Whether they use
            # signed thinking, also a whole block, is unknown.
            adds_text = part.block and part.kind != "tool_result"
            indexed = part.kind in ("user", "assistant") or adds_text
            yield replace(part, locked=part.locked or INDEXED) if indexed else part
