"""Say what a turn came to, in its agent's own words; no model is asked."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING

from brainsurgeon.model.entries import stub_id
from brainsurgeon.model.turns import MARK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from brainsurgeon.model.turns import Told

FINDING = 160
"""Characters of a failed result's first line that are told."""
_FINDINGS = 5
_FILES = 20
_QUESTIONS = 5
_QUESTION = re.compile(r"[^\s.!?][^.!?\n]*\?")
_WRITES = re.compile(r"write|edit|patch", re.IGNORECASE)


def archive_text(entry_id: str, summary: str) -> str:
    """Give the text that stands in the place of a closing entry's."""
    return f"{MARK}\narchive: {stub_id(entry_id)}\n\n{summary}"


def summary_of(told: Told, style: str, chars: int) -> str:
    """Summarise a turn in a style; beyond `chars` characters what it quotes is shortened."""
    return paragraph(told, chars) if style == "paragraph" else structured(told, chars)


def structured(told: Told, chars: int) -> str:
    """Give one JSON object, its keys in a fixed order."""
    said = {
        "outcome": shortened(told.note or told.closing, chars),
        "key_findings": [line[:FINDING] for line in told.failures[-_FINDINGS:]],
        "files_touched": _files(told),
        "tools_used": _tools(told.tools),
        "open_questions": [one.strip() for one in _QUESTION.findall(told.closing)][:_QUESTIONS],
    }
    return json.dumps(said, ensure_ascii=False)


def paragraph(told: Told, chars: int) -> str:
    """Give tools, files and failures in one line, and behind it what was said last."""
    tools = ", ".join(f"{name} {count}" for name, count in _tools(told.tools).items())
    failures = [line[:FINDING] for line in told.failures[-_FINDINGS:]]
    parts = [
        f"{name}: {said}"
        for name, said in (
            ("Tools", tools), ("Files", ", ".join(_files(told))), ("Failed", "; ".join(failures)),
        )
        if said
    ]  # fmt: skip
    head = ". ".join(parts)
    outcome = shortened(told.note or told.closing, chars)
    return f"{head}.\n{outcome}" if head else outcome


def shortened(text: str, chars: int) -> str:
    """Give a text, or its two ends with the bytes left out between them."""
    if len(text) <= chars:
        return text
    head, tail = text[: chars - chars // 2], text[len(text) - chars // 2 :]
    left = len(text[len(head) : len(text) - len(tail)].encode("utf-8", "surrogatepass"))
    return f"{head}\n[... {left:,} bytes left out ...]\n{tail}"


def _files(told: Told) -> list[str]:
    """Give the files that were touched, those that were written first."""
    ranked = sorted(told.files, key=lambda one: not _WRITES.search(one[0]))
    files = list(dict.fromkeys(path for _, path in ranked))
    more = len(files) - _FILES
    return [*files[:_FILES], f"+{more}"] if more > 0 else files


def _tools(calls: Iterable[tuple[str, bool]]) -> dict[str, int]:
    """Count the calls of each tool, and those that failed under its name with a `!`."""
    listed = list(calls)
    counts = Counter(name for name, _ in listed)
    failed = Counter(f"{name}!" for name, went_wrong in listed if went_wrong)
    return dict(counts + failed)
