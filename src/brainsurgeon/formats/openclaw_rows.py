"""OpenClaw's dialect in its own database, session version 4.

The events are those of its files. What its indexes hold stays as it is: they are filled from the
text of user and assistant messages (openclaw 2026.9.6, `dist/session-transcript-index-*.mjs`) and
would not notice a change.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from brainsurgeon.formats.openclaw import OpenClaw

if TYPE_CHECKING:
    from collections.abc import Iterator

    from brainsurgeon.model.entries import Entry, Lines, Part
    from brainsurgeon.model.sessions import Survey
    from brainsurgeon.model.turns import ArchiveForm

INDEXED = "an index of its agent's database holds it"


class OpenClawRows(OpenClaw):
    """The dialect of OpenClaw in a database."""

    versions = (2, 3, 4)
    archives: ArchiveForm | None = None  # user and assistant text is what the indexes hold

    def survey(self, lines: Lines, window: int) -> Survey:
        """Look over the session as over a file; OpenClaw may append the end of a branch anew."""
        return replace(super().survey(lines, window), appends_anew=True)

    def parts(self, entry: Entry, survey: Survey, offset: int | None) -> Iterator[Part]:
        """Yield the parts of an entry; those that would change an index are locked."""
        for part in super().parts(entry, survey, offset):
            # A block that gives way to one of text would add to the message's text.
            adds_text = part.block and part.kind != "tool_result"
            indexed = part.kind in ("user", "assistant") or adds_text
            yield replace(part, locked=part.locked or INDEXED) if indexed else part
