"""Say what a turn came to, in its agent's own words; no model is asked."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from brainsurgeon.model.entries import stub_id
from brainsurgeon.model.turns import MARK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from brainsurgeon.model.turns import Told

FINDING = 160
"""Characters of a failed result's first line that are told."""
FINDINGS = 5
"""Failed results that are told, the newest."""
_FILES = 20
_SLACK = 200
"""Characters that are not worth leaving out of what is only kept for a while."""
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
        "outcome": _outcome(told, chars),
        "key_findings": [line[:FINDING] for line in told.failures[-FINDINGS:]],
        "files_touched": _files(told),
        "tools_used": _tools(told.tools),
        "open_questions": list(_questions(told)),
    }
    return json.dumps(said, ensure_ascii=False)


def paragraph(told: Told, chars: int) -> str:
    """Give tools, files and failures in one line, and behind it what was said last."""
    tools = ", ".join(f"{name} {count}" for name, count in _tools(told.tools).items())
    failures = [line[:FINDING] for line in told.failures[-FINDINGS:]]
    parts = [
        f"{name}: {said}"
        for name, said in (
            ("Tools", tools), ("Files", ", ".join(_files(told))), ("Failed", "; ".join(failures)),
        )
        if said
    ]  # fmt: skip
    head = ". ".join(parts)
    outcome = _outcome(told, chars)
    return f"{head}.\n{outcome}" if head else outcome


def shortened(text: str, chars: int, missing: int = 0) -> str:
    """Give a text, or its two ends with the bytes left out between them.

    `missing` bytes of it are left out already, in its middle.
    """
    if len(text) <= chars and not missing:
        return text
    head, tail = text[: chars - chars // 2], text[len(text) - chars // 2 :]
    left = missing + _size(text[len(head) : len(text) - len(tail)])
    return f"{head}\n[... {left:,} bytes left out ...]\n{tail}"


def reduced(told: Told, chars: int) -> Told:
    """Keep of what a turn came to no more than summaries of up to `chars` characters quote."""
    text, files = told.closing, _ranked(told)
    long = len(text) > 2 * chars + _SLACK and not text.startswith(MARK)
    return replace(
        told, closing=text[:chars] + text[len(text) - chars :] if long else text,
        missing=_size(text[chars : len(text) - chars]) if long else 0,
        questions=_questions(told), files=tuple(files[:_FILES]),
        more=told.more + max(0, len(files) - _FILES),
    )  # fmt: skip


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _outcome(told: Told, chars: int) -> str:
    if told.note:
        return shortened(told.note, chars)
    return shortened(told.closing, chars, told.missing)


def _questions(told: Told) -> tuple[str, ...]:
    if told.questions is not None:
        return told.questions
    return tuple(one.strip() for one in _QUESTION.findall(told.closing)[:_QUESTIONS])


def writes(tool: str) -> bool:
    """Tell whether what a tool touches is told first: it writes."""
    return _WRITES.search(tool) is not None


def _ranked(told: Told) -> list[tuple[str, str]]:
    """Give the files that were touched, each once, those that were written first."""
    first: dict[str, str] = {}
    for tool, path in sorted(told.files, key=lambda one: not writes(one[0])):
        first.setdefault(path, tool)
    return [(tool, path) for path, tool in first.items()]


def _files(told: Told) -> list[str]:
    """Give the files that were touched, those that were written first."""
    files = [path for _, path in _ranked(told)]
    more = len(files[_FILES:]) + told.more
    return [*files[:_FILES], f"+{more}"] if more else files


def _tools(calls: Iterable[tuple[str, bool]]) -> dict[str, int]:
    """Count the calls of each tool, and those that failed under its name with a `!`."""
    listed = list(calls)
    counts = Counter(name for name, _ in listed)
    failed = Counter(f"{name}!" for name, went_wrong in listed if went_wrong)
    return dict(counts + failed)
