"""The text of an archive: a summary of one turn, or the outcomes of several."""

import json
import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from brainsurgeon.model.entries import placeholder_id
from brainsurgeon.model.turns import MARK
from brainsurgeon.planning.evidence import as_bytes, shortened

# The maximum number of bytes that a summary quotes of the outcome.
QUOTED = 2000
_QUESTIONS = 5
_QUESTION = re.compile(r"[^\s.!?][^.!?\n]*\?")


class Summary(Struct, frozen=True):
    """The summary of a turn, and its outcome alone, for an archive of several turns.

    `note` is the agent's own account of the turn, `calls` and `failed` count its calls.
    """

    text: str = ""
    outcome: str = ""
    note: str | None = None
    calls: int = 0
    failed: int = 0


def archive_text(entry_id: str, summary: str) -> str:
    return f"{MARK}\narchive: {placeholder_id(entry_id)}\n\n{summary}"


def summary_of(
    closing: str, note: str | None, findings: Sequence[str], files: Sequence[str],
    tools: Mapping[str, int],
) -> str:  # fmt: skip
    """Return the summary of a turn.

    `closing` is its last answer, `findings` the first lines of its failed results, `files` those
    that it touched, `tools` counts its calls.
    """
    questions = [match.strip() for match in _QUESTION.findall(closing)[:_QUESTIONS]]
    summary = {
        "outcome": outcome_of(closing, note),
        "key_findings": findings,
        "files_touched": files,
        "tools_used": tools,
        "open_questions": questions,
    }
    return json.dumps(summary, ensure_ascii=False)


def outcomes_of(outcomes: Sequence[str]) -> str:
    """List the outcomes of several turns, or the beginnings of long ones."""
    share = max(1, QUOTED // len(outcomes))
    listed = [text if len(text) <= share else f"{text[:share]}…" for text in outcomes]
    return json.dumps({"outcomes": listed}, ensure_ascii=False)


def outcome_of(closing: str, note: str | None) -> str:
    """Return the outcome of a turn; of a long one, the two ends."""
    return shortened(as_bytes(note or outcome_in(closing)), QUOTED).decode()


def outcome_in(text: str) -> str:
    """Return the outcome in an archive's text; any other text is returned unchanged."""
    if not text.startswith(MARK):
        return text
    summary = text.partition("\n\n")[2]
    try:
        parsed = json.loads(summary)
    except ValueError:
        return summary
    if not isinstance(parsed, dict):
        return summary
    outcomes = parsed.get("outcomes")
    if isinstance(outcomes, list):
        return "; ".join(map(str, outcomes))
    return str(parsed.get("outcome", summary))
