"""Draft the edits of one line; the planner parses each edited line again and compares it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from brainsurgeon.decide.extract import Keep, no_gain
from brainsurgeon.formats import fields, found, spans
from brainsurgeon.model.edits import Cut, Putback
from brainsurgeon.model.entries import REDACTED, stub_id, stub_token, value_at
from brainsurgeon.model.stubs import stub_named
from brainsurgeon.model.turns import LINK

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from brainsurgeon.decide.extract import Extract
    from brainsurgeon.decide.folding import Fold
    from brainsurgeon.decide.judging import Tally
    from brainsurgeon.decide.redact import Redaction
    from brainsurgeon.formats.base import Format
    from brainsurgeon.formats.spans import Span
    from brainsurgeon.model.edits import Edit
    from brainsurgeon.model.entries import Entry, KeyPath, Line, Part
    from brainsurgeon.model.records import Extraction

Going = list[tuple["Part", "Extract"]]
"""The parts of an entry that are to go, each with its reason."""


def putbacks(line: Line, raw: bytes, back: list[Extraction]) -> Iterator[Putback]:
    """Draft the edits that put values back whose stubs stand in a line."""
    places = spans.locate(raw, [one.path for one in back]) if back else {}
    for one in back:
        start, end = _in_file(line, places[one.path])
        yield Putback(start, end, one.id, one.entry_id, one.path, one.size)


def cuts(
    line: Line, raw: bytes, entry: Entry, ident: str, going: Going, form: Format, tally: Tally
) -> Iterator[Cut]:  # fmt: skip
    """Draft the cuts of a line; what would gain nothing stays and is counted."""
    name, rest = stub_id(ident), form.rest(entry)
    stub = stub_named(name)
    places = found.places(raw, entry, [part.path for part, _ in going])
    for part, decision in going:
        start, end = _in_file(line, places[part.path])
        token = part.instead or stub_token(stub, block=part.block)
        if no_gain(decision, stub=len(token), value=end - start):
            tally.keep(part, Keep("no gain"))
            continue
        yield Cut(
            start, end, token, ident, name, part.path, part.kind, part.tool,
            part.chars, part.block, decision.forced, decision.reason,
            anchor=form.anchor(entry, part.path), rest=rest, empties=part.instead is not None,
        )  # fmt: skip


def folded(
    line: Line, raw: bytes, entry: Entry, ident: str, fold: Fold, form: Format,
    before: Mapping[KeyPath, Extraction],
) -> Iterator[Cut]:  # fmt: skip
    """Draft what folds a turn: its last text, and in the linked form the entry that it continues.

    `before` are the records of what stands at these places.
    """
    told: list[tuple[KeyPath, str, str | None, int]] = [
        (fold.text_path, fold.text, None, len(str(value_at(entry, fold.text_path))))
    ]
    if fold.link is not None:
        told.append((LINK, fold.link, fold.parent, 0))
    places = spans.locate(raw, [path for path, *_ in told])
    rest = form.rest(entry)
    for path, new, anchor, chars in told:
        start, end = _in_file(line, places[path])
        taken = before.get(path)
        yield Cut(
            start, end, json.dumps(new).encode(), ident, stub_id(ident), path, "assistant", None,
            chars, block=False, forced=True, reason="archived turn",
            anchor=taken.anchor if taken else anchor, rest=rest, folds=True,
            takes_over=taken.id if taken else None,
        )  # fmt: skip


def redaction(
    line: Line, raw: bytes, entry: Entry, ident: str, gone: Iterable[Redaction], form: Format
) -> Iterator[Edit]:  # fmt: skip
    """Draft what shortens one of the agent's own calls, and the field that says so."""
    listed, rest = list(gone), form.rest(entry)
    places = spans.locate(raw, [one.path for one in listed])
    for one in listed:
        start, end = _in_file(line, places[one.path])
        yield Cut(
            start, end, one.token, ident, stub_id(ident), one.path, one.kind, None, one.chars,
            block=False, forced=True, reason="the agent's own restore call", redacts=True,
            rest=rest,
        )  # fmt: skip
    yield from fields.put(raw, line.offset, ident, REDACTED, b"true")


def _in_file(line: Line, span: Span) -> tuple[int, int]:
    return span[0] + line.offset, span[1] + line.offset
