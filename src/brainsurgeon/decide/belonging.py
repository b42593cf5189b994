"""Tell whether a file is the session that a record speaks of, entry by entry."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING

from brainsurgeon.decide.matching import TEXTS, Matcher
from brainsurgeon.formats import digests
from brainsurgeon.formats.base import parse
from brainsurgeon.model.entries import REDACTED, value_at
from brainsurgeon.model.sessions import NO_SURVEY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from brainsurgeon.formats.base import Format
    from brainsurgeon.model.entries import Entry, Lines
    from brainsurgeon.model.records import Extraction, Records

_REDACTED = REDACTED.encode()


def holds(lines: Lines, form: Format, records: Records, *, whole: bool, hasty: bool = True) -> bool:
    """Tell whether the entries that something was cut out of are there as they were recorded.

    An entry that is whole again counts. With `whole`, every entry of which something stands
    extracted must be there; without it the file may have been copied before some were said, but
    one must be there, and none other than recorded. Where a record does not say what its entry
    was, its stub must stand there; with `whole`, nothing shows then that this is the session.

    One that is not as recorded settles it, unless its id stands there twice and the other one is:
    a `hasty` walk takes no other entry apart behind it, and begins anew in that case.
    """
    own = [
        one for one in records.extractions
        if one.session_id == records.own and (one.whole or not whole)
    ]  # fmt: skip
    wanted = {one.entry_id for one in own}
    standing = {one.entry_id for one in own if one.state == "standing"}
    met: set[str] = set()
    home: set[str] = set()
    moved: set[str] = set()
    another: str | None = None
    matcher = Matcher(form, NO_SURVEY, records)
    for line in lines:
        entry = parse(line.raw) if line.raw else None
        if entry is None or line.raw is None:
            continue
        ident = form.identity(entry, line.raw, line.number)
        if another is not None and ident != another:
            continue
        if ident not in wanted and _REDACTED in line.raw:
            moved |= set(_redacted_as(form, entry, own))
        if ident not in wanted and TEXTS.search(line.raw) is None:
            continue
        here = matcher.standing(line.raw, entry, ident)
        moved |= {one.entry_id for one in here if one.session_id == records.own and one.whole}
        if ident in wanted:
            met.add(ident)
            home |= {one.entry_id for one in here if one.entry_id == ident and not one.whole}
            said = digests.whole_of(form, entry, digests.undone_by(here))
            again = (one for one in own if one.entry_id == ident and one.whole)
            home |= {one.entry_id for one in again if one.whole == said}
            if another is not None and ident in home:
                return holds(lines, form, records, whole=whole, hasty=False)
            if hasty and ident in standing and ident not in home:
                another = ident
    seen = home | (moved - met)  # an id that stands there speaks for itself
    return bool(seen) and not ((standing if whole else standing & met) - seen)


def _redacted_as(form: Format, entry: Entry, own: Iterable[Extraction]) -> Iterator[str]:
    """Name the entries of which this is one, as it was redacted, under a new id."""
    redacted: dict[str, list[Extraction]] = defaultdict(list)
    for one in own:
        text = json.loads(one.replacement or "null")
        if one.whole and text is not None and value_at(entry, one.path) == text:
            redacted[one.entry_id].append(one)
    for ident, listed in redacted.items():
        if digests.whole_of(form, entry, digests.undone_by(listed)) == listed[-1].whole:
            yield ident
