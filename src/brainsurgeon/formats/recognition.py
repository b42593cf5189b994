"""Recognise the format of a file by its first lines."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from brainsurgeon.formats.base import Format
from brainsurgeon.formats.description import unmet
from brainsurgeon.model.entries import BOM, parse
from brainsurgeon.model.session_files import ANY, AUTO

HEAD_LINES = 20  # first lines to check: some lines of Claude Code do not show their format
UNKNOWN = "unknown"
_ELSE = "generic"  # the format that may be configured for files that no format recognises


class Beginning(NamedTuple):
    form: Format | None  # None: the file is not changed
    reason: str = ""  # why it is not changed
    name: str | None = None  # of the format
    identity: str | None = None  # the id of the conversation


def recognise(head: Iterable[bytes], forms: Mapping[str, Format], hint: str = AUTO) -> Beginning:
    lines = [line for line in head if line.strip()]
    if not lines:
        return Beginning(None, "empty: no lines yet")
    if lines[0].strip() in (b"{", b"["):
        return Beginning(None, "pretty-printed JSON, not JSON lines")
    entries = [entry for line in lines if (entry := parse(line.removeprefix(BOM))) is not None]
    if not entries:
        return Beginning(None, "no JSON objects in the first lines")
    wished = [form for form in forms.values()
              if not form.by_wish or hint in (ANY, _ELSE, form.name)]  # fmt: skip
    # What the user wrote comes first, but no file that repeats its entries is anything else.
    wished.sort(key=lambda form: not (form.repeats or (form.by_wish and form.name == hint)))
    form = next((form for form in wished if form.recognises(entries)), None)
    if hint not in (AUTO, ANY, form.name if form else UNKNOWN):
        repeats = form.name if form and form.repeats else None
        if hint != _ELSE or repeats:
            why = f"configured as {hint}, but has another format"
            wanted = forms[hint].wanted if hint in forms and not repeats else ()
            return Beginning(None, ": ".join(filter(None, (why, unmet(wanted, entries)))), repeats)
        form = form if form and form.by_wish else forms.get(hint)
    if form is None:
        return Beginning(None, "not a known session format")
    if refusal := form.refuses(entries[0]):
        return Beginning(None, refusal, form.name)
    return Beginning(form, "", form.name, form.session(entries))
