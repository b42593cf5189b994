"""Try formats on a log, to see what they find. Nothing is changed or stored."""

import os
from collections import Counter, defaultdict
from collections.abc import Container, Mapping

from brainsurgeon.agents import FORMATS
from brainsurgeon.agents.described.format import Described
from brainsurgeon.config import Settings
from brainsurgeon.errors import FailedError
from brainsurgeon.files.reading import FileLines, head
from brainsurgeon.formats.base import strings_in
from brainsurgeon.formats.description import unused
from brainsurgeon.formats.recognition import recognise
from brainsurgeon.formats.transcript import Transcript
from brainsurgeon.model.entries import JsonObject, KeyPath, dotted, parse
from brainsurgeon.model.reports import FoundValues, LogCheck
from brainsurgeon.model.session_files import ANY

_LONG = 200  # characters of a text that something should reach
_NONE = "none of the conversation"
_UNSENT = "never sent"


def check_log(settings: Settings, path: str) -> LogCheck:
    """Return what a format sees in a log. Raises FailedError if none recognises it."""
    try:
        with open(path, "rb") as file:
            lines = list(FileLines(file.fileno(), os.fstat(file.fileno()).st_size))
    except OSError as error:
        raise FailedError(f"{path}: {error.strerror}") from error
    parsed = {line.number: entry for line in lines if (entry := parse(line.raw or b""))}
    beginning = recognise(head(lines), FORMATS, _hint(settings, path))
    if beginning.form is None:
        raise FailedError(f"{path}: {beginning.reason}{_first_lines(parsed)}")
    transcript = Transcript.read(beginning.form, lines)
    return _checked(path, beginning.identity, transcript, parsed, settings.formats)


def _hint(settings: Settings, path: str) -> str:
    """Return the format that the root of a path names, and any if it is below no root."""
    real = os.path.realpath(path)
    roots = (root for root in settings.root_directories() if root.required)
    above = (root for root in roots if real.startswith(os.path.realpath(root.path) + os.sep))
    return next((root.hint for root in above), ANY)


def _first_lines(parsed: Mapping[int, JsonObject]) -> str:
    shown = [f"; line {number} has {', '.join(parsed[number])}" for number in [*parsed][:3]]
    return "".join(shown)


def _checked(
    path: str, identity: str | None, transcript: Transcript, parsed: Mapping[int, JsonObject],
    described: Container[str],
) -> LogCheck:  # fmt: skip
    form, entries = transcript.form, transcript.entries
    calls = {call.call_id for entry in entries for call in entry.calls}
    answered = calls.intersection(one.call_id for entry in entries for one in entry.results)
    roles = Counter(entry.role or _NONE for entry in entries)
    filling, reached = _Amounts(), defaultdict[int, set[KeyPath]](set)
    for index, entry in enumerate(entries):
        for value in transcript.values(index):
            why = value.locked or (_UNSENT if value.dead else "")
            filling.add(value.kind, value.chars, why, entry.line + 1)
            reached[entry.line + 1].add(value.path)
    problems = [
        f"no entry is a {role}{_first_lines(parsed)}"
        for role in ("prompt", "reply") if role not in roles
    ]  # fmt: skip
    idle = list[str]()
    if isinstance(form, Described) and form.name in described:
        idle += unused(form.given, parsed.values())
    return LogCheck(
        path, form.name, identity, dict(roles), transcript.chain.open_turn, len(calls),
        len(answered), filling.listed(), _unreached(parsed, reached), tuple(idle), tuple(problems),
    )  # fmt: skip


def _unreached(
    parsed: Mapping[int, JsonObject], reached: Mapping[int, set[KeyPath]]
) -> tuple[FoundValues, ...]:
    amounts = _Amounts()
    for number, entry in parsed.items():
        for at, text in strings_in(entry):
            above = (at[:length] for length in range(1, len(at) + 1))
            if len(text) > _LONG and reached[number].isdisjoint(above):
                path = dotted(tuple("*" if isinstance(step, int) else step for step in at))
                amounts.add(path, len(text), "", number)
    return amounts.listed()


class _Amounts:
    def __init__(self) -> None:
        self._sums: dict[tuple[str, str], FoundValues] = {}

    def add(self, what: str, chars: int, reason: str, line: int) -> None:
        known = self._sums.get((what, reason), FoundValues(what, 0, 0, reason, line))
        self._sums[what, reason] = FoundValues(
            what, known.values + 1, known.chars + chars, reason, known.first_line
        )

    def listed(self) -> tuple[FoundValues, ...]:
        return tuple(sorted(self._sums.values(), key=lambda one: -one.chars))
