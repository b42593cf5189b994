"""The end of a Claude Code session, which says whether its last turn is closed.

Judged from the last chained line backwards (seen with versions 2.0.64 to 2.1.330). Attachments
and progress say nothing, and neither do notes that Claude Code adds itself. Every prompt that
waits in the queue has an `enqueue` without a `dequeue` or `remove`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from brainsurgeon.formats.claude_lines import blocks_of, entry_id, message_of

if TYPE_CHECKING:
    from brainsurgeon.model.entries import Entry, Line

CLOSING_STOPS = frozenset({
    "end_turn", "stop_sequence", "max_tokens", "refusal", "model_context_window_exceeded",
})  # fmt: skip
UNMARKED_QUIET = 120.0
"""Seconds of silence after a text without `stop_reason`: versions before 2.1.112 leave it out of
most lines, and more of the same turn follows in most cases."""

_OVER = ("[Request interrupted by user", "<local-command-std", "<bash-std")
"""How user lines begin that end a turn: an interruption, and the output of a user's command."""
_NOTES = ("<local-command-caveat>", "<system-reminder>")
"""How lines begin that Claude Code adds for itself, whether or not a turn is open."""
_CLOSING_MARKS = ("turn_duration", "stop_hook_summary")
_TORN = "the last line is torn: a write is under way"


def is_prompt(entry: Entry) -> bool:
    """Tell whether a user line is a real prompt: no note, no end of a turn, no summary."""
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
    """Give how a user line begins."""
    content = message_of(entry).get("content")
    if isinstance(content, str):
        return content
    texts = (block.get("text") for _, block in blocks_of(entry) if block.get("type") == "text")
    return next((text for text in texts if isinstance(text, str)), "")
