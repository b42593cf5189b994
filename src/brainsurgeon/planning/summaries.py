"""The text of an archive: a summary of one turn, or the outcomes of several."""

import json
import re
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from brainsurgeon.model.entries import placeholder_id
from brainsurgeon.model.turns import MARK

# The maximum number of characters that a summary quotes of the outcome.
QUOTED = 2000
_QUESTIONS = 5
_QUESTION = re.compile(r"[^\s.!?][^.!?\n]*\?")


class SummaryFacts(Struct, frozen=True):
    """The facts that the summary of a turn consists of.

    `closing` is the text of its last answer without `missing` bytes in its middle, `note` the
    agent's own account of the turn. `failures` are the first lines of failed results, oldest first.
    `files` are files that the turn touched, written ones first, and `more` is the number of others.
    `tools` counts the calls of each tool, and its failed calls under its name with `!`; `calls` and
    `failed` are the totals.
    """

    closing: str
    missing: int = 0
    questions: tuple[str, ...] = ()
    note: str | None = None
    failures: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    more: int = 0
    tools: Mapping[str, int] = field(default_factory=dict)
    calls: int = 0
    failed: int = 0


def closing_facts(text: str, chars: int = QUOTED) -> SummaryFacts:
    """Return a turn's last answer, cut to what a summary of `chars` characters can quote."""
    questions = tuple(match.strip() for match in _QUESTION.findall(text)[:_QUESTIONS])
    # The cut only saves memory: 200 characters or fewer are not worth it.
    if len(text) <= 2 * chars + 200 or text.startswith(MARK):
        return SummaryFacts(text, questions=questions)
    kept = text[:chars] + text[len(text) - chars :]
    return SummaryFacts(kept, _size(text[chars : len(text) - chars]), questions)


def archive_text(entry_id: str, summary: str) -> str:
    return f"{MARK}\narchive: {placeholder_id(entry_id)}\n\n{summary}"


def summary_of(facts: SummaryFacts, chars: int = QUOTED) -> str:
    outcome = _outcome(facts, facts.closing, chars)
    files = [*facts.files, f"+{facts.more}"] if facts.more else list(facts.files)
    summary = {
        "outcome": outcome,
        "key_findings": facts.failures,
        "files_touched": files,
        "tools_used": dict(facts.tools),
        "open_questions": facts.questions,
    }
    return json.dumps(summary, ensure_ascii=False)


def outcomes_of(turns: Sequence[SummaryFacts], chars: int = QUOTED) -> str:
    """List the outcomes of several turns, each with an equal share of the `chars`."""
    share = max(1, chars // len(turns))
    outcomes = [_outcome(facts, outcome_in(facts.closing), share) for facts in turns]
    return json.dumps({"outcomes": outcomes}, ensure_ascii=False)


def _outcome(facts: SummaryFacts, closing: str, chars: int) -> str:
    return shortened(facts.note or closing, chars, 0 if facts.note else facts.missing)


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


def shortened(text: str, chars: int, missing: int = 0) -> str:
    """Return a text, or its two ends and the number of bytes left out (`missing` ones included)."""
    if len(text) <= chars and not missing:
        return text
    head, tail = text[: chars - chars // 2], text[len(text) - chars // 2 :]
    left_out = missing + _size(text[len(head) : len(text) - len(tail)])
    return f"{head}\n[... {left_out:,} bytes left out ...]\n{tail}"


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
