"""Values that a later entry supersedes: results, attached files, reminders and failed calls."""

import json
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import NamedTuple

from brainsurgeon.formats.base import WRITES, Format, ParsedLine, dict_or_empty, parsed_lines
from brainsurgeon.model.entries import Kind, Line, value_at
from brainsurgeon.model.sessions import Survey
from brainsurgeon.model.turns import files_in

# Values, by the id of their entry, their kind and the id of their call.
Values = tuple[str | None, Kind, str | None]
_Reads = defaultdict[str, defaultdict[str, list[Values]]]  # results by file and tool


class _Call(NamedTuple):
    entry_id: str | None
    key: bytes
    tool: str
    files: tuple[str, ...]
    writes: bool
    whole: bool


def superseded(lines: Iterable[Line], form: Format, survey: Survey) -> Mapping[Values, str]:
    """Map live values that are superseded to the id of the entry that supersedes them.

    A result is superseded by a later result of an equal call, or with the same text and images. The
    result of a read is also superseded by a later change of the file, or if the same tool reads the
    whole file later. A failed result supersedes only the arguments of its call. An attached file
    counts as a result of `Read`, a reminder as a result without a call.
    """
    newer: dict[Values, str] = {}
    calls: dict[str | None, _Call] = {}
    same: dict[bytes, Values] = {}
    reads: _Reads = defaultdict(lambda: defaultdict(list))
    for parsed in parsed_lines((line for line in lines if survey.dead(line.offset) is None), form):
        if parsed.ident is None:
            continue
        calls |= _calls(parsed, form)
        step = form.turn_step(parsed.entry)
        failed = {result.call_id for result in (step.results if step else ()) if result.failed}
        for call_id in failed & calls.keys():
            newer[calls[call_id].entry_id, "tool_call", call_id] = parsed.ident
        for values, text in _texts(parsed, form, survey, failed).items():
            call = calls.get(values[2])
            for key in filter(None, (_digest(text), call and call.key)):
                if (older := same.get(key)) is not None:
                    newer[older] = parsed.ident
                same[key] = values
            if call:
                newer.update(dict.fromkeys(_outdated(call, values, reads), parsed.ident))
    return newer


def _outdated(call: _Call, values: Values, reads: _Reads) -> Iterator[Values]:
    """Yield the reads that the result of a call supersedes. Note the result if it is a read."""
    for by_tool in map(reads.__getitem__, call.files):
        for tool in list(by_tool):
            if call.writes or (call.whole and tool == call.tool):
                yield from by_tool.pop(tool)
        if not call.writes:
            by_tool[call.tool].append(values)


def _calls(parsed: ParsedLine, form: Format) -> dict[str | None, _Call]:
    attached = dict_or_empty(dict_or_empty(parsed.entry.get("attachment")).get("content"))
    file = dict_or_empty(attached.get("file"))
    whole = file.get("numLines") == file.get("totalLines")
    return {None: _Call(None, b"", "Read", files_in(file), writes=False, whole=whole)} | {
        call.call_id: _Call(
            parsed.ident, _digest(json.dumps([call.tool, call.arguments], sort_keys=True)),
            call.tool, call.files, bool(WRITES.search(call.tool)),
            len(dict_or_empty(call.arguments)) == 1,
        )
        for call in form.calls(parsed.entry)
    }  # fmt: skip


def _texts(
    parsed: ParsedLine, form: Format, survey: Survey, failed: Container[str | None]
) -> dict[Values, str]:
    texts: dict[Values, str] = defaultdict(str)
    for part in form.parts(parsed.entry, survey, parsed.offset):
        call_id, value = form.anchor(parsed.entry, part.path), value_at(parsed.entry, part.path)
        shown = part.kind in ("tool_result", "system") and not part.dead and call_id not in failed
        if shown and part.block:
            value = _digest(json.dumps(value, sort_keys=True)).hex()
        if shown and isinstance(value, str):
            texts[parsed.ident, part.kind, call_id] += value
    return texts


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
