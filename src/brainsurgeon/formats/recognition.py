"""Recognise the format of a file by its first lines."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from brainsurgeon.formats.base import Format
from brainsurgeon.model.entries import BOM, parse

HEAD_LINES = 20  # first lines to check: some lines of Claude Code do not show their format
UNKNOWN = "unknown"
_ANY = "generic"  # the format that may be configured for files that no format recognises


class Beginning(NamedTuple):
    form: Format | None  # None: the file is not changed
    reason: str = ""  # why it is not changed
    name: str | None = None  # of the format
    identity: str | None = None  # the id of the conversation


def recognise(head: Iterable[bytes], forms: Mapping[str, Format], hint: str = "auto") -> Beginning:
    lines = [line for line in head if line.strip()]
    if not lines:
        return Beginning(None, "empty: no lines yet")
    if lines[0].strip() in (b"{", b"["):
        return Beginning(None, "pretty-printed JSON, not JSON lines")
    entries = [entry for line in lines if (entry := parse(line.removeprefix(BOM))) is not None]
    if not entries:
        return Beginning(None, "no JSON objects in the first lines")
    form = next((form for form in forms.values() if form.recognises(entries)), None)
    if hint not in ("auto", form.name if form else UNKNOWN):
        only_read = form.name if form and form.only_read else None
        if hint != _ANY or only_read:
            return Beginning(None, f"configured as {hint}, but has another format", only_read)
        form = forms.get(hint)
    if form is None:
        return Beginning(None, "not a known session format")
    if refusal := form.only_read or form.refuses(entries[0]):
        return Beginning(None, refusal, form.name)
    return Beginning(form, "", form.name, form.session(entries))
