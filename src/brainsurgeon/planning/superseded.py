"""Tool results that a later one supersedes: a repeated call, a changed file, an equal text."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import NamedTuple

from brainsurgeon.formats.base import WRITES, Format, ParsedLine, files_in, parsed_lines
from brainsurgeon.model.entries import Line
from brainsurgeon.model.sessions import Survey

# A tool's result: the id of its entry, and the id of its call.
Result = tuple[str | None, str | None]


class _Call(NamedTuple):
    key: bytes
    files: tuple[str, ...]
    writes: bool
    whole: bool


def superseded(lines: Iterable[Line], form: Format, survey: Survey) -> Mapping[Result, str]:
    """Map each live result that is superseded to the id of the entry that supersedes it.

    A result is superseded by a later one of the same call, by a later read of its whole file, by a
    later change of its file, and by a later result of the same text. One that failed supersedes
    nothing.
    """
    newer: dict[Result, str] = {}
    calls: dict[str | None, _Call] = {}
    same: dict[bytes, Result] = {}
    reads: dict[str, list[Result]] = defaultdict(list)
    for parsed in parsed_lines((line for line in lines if survey.dead(line.offset) is None), form):
        calls.update(_calls(parsed, form))
        step = form.turn_step(parsed.entry)
        failed = {result.call_id for result in step.results if result.failed} if step else set()
        for call_id, text in _texts(parsed, form).items():
            result, call = (parsed.ident, call_id), calls.get(call_id)
            if call_id in failed or parsed.ident is None:
                continue
            for key in filter(None, (_digest(text), call and call.key)):
                if (older := same.get(key)) is not None:
                    newer[older] = parsed.ident
                same[key] = result
            for file in call.files if call else ():
                if call and (call.writes or call.whole):
                    newer.update(dict.fromkeys(reads.pop(file, ()), parsed.ident))
                if call and not call.writes:
                    reads[file].append(result)
    return newer


def _calls(parsed: ParsedLine, form: Format) -> dict[str | None, _Call]:
    step = form.turn_step(parsed.entry)
    tools = {call.call_id: call.tool for call in step.calls} if step else {}
    return {
        call.call_id: _Call(
            _digest(json.dumps([tools.get(call.call_id), call.arguments], sort_keys=True)),
            files_in(call.arguments), bool(WRITES.search(tools.get(call.call_id, ""))),
            len(call.arguments) == 1,
        )
        for call in form.calls(parsed.entry)
    }  # fmt: skip


def _texts(parsed: ParsedLine, form: Format) -> dict[str | None, str]:
    texts: dict[str | None, str] = defaultdict(str)
    for answer in form.answers(parsed.entry):
        texts[answer.call_id] += answer.text
    return texts


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
