"""Try formats on a log, to see what they find. Nothing is changed or stored."""

import os
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from msgspec.structs import replace

from brainsurgeon.agents import FORMATS, is_session_name
from brainsurgeon.agents.described.format import Described
from brainsurgeon.config import Settings
from brainsurgeon.errors import FailedError, UsageError
from brainsurgeon.files.reading import OpenFile, RefusedError, open_session
from brainsurgeon.formats.base import strings_in
from brainsurgeon.formats.description import unused
from brainsurgeon.model.entries import BOM, JsonObject, KeyPath, dotted, parse
from brainsurgeon.model.reports import FoundValues, LogCheck
from brainsurgeon.model.session_files import ANY, AUTO, Fingerprint, NotIdleError, SessionFile
from brainsurgeon.planning.rules import silence
from brainsurgeon.planning.signatures import is_bound
from brainsurgeon.planning.snapshot import TWICE, repeated
from brainsurgeon.rewrite.inspect import check_idle, excluded, settings_for
from brainsurgeon.sessions.discovery import discover_at

_LONG = 200  # characters of a text that something should reach
_NONE = "none of the conversation"
_NO_ID = "the id of its entry is empty, too long or no text"
_COVERS = "the signature of its thinking covers the request before it"
_UNSENT = "never sent"
_SHOWN = 3  # first lines whose keys are shown
_ELSE = '; describe it in [formats.NAME], or write format = "generic" in its root if that fits'


def check_log(settings: Settings, path: str) -> LogCheck:
    """Return what a format sees in a log. Raises FailedError if none recognises it.

    Raises UsageError if the file cannot be read.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        raise UsageError(f"{path}: not a regular file; name another file")
    try:
        file, unseen = _file(settings, os.path.realpath(path))
        with open_session(file, FORMATS) as session:
            try:
                _ = session.form
            except RefusedError as why:
                other = _ELSE if session.hint == ANY else ""
                raise FailedError(f"{path}: {why}{_first_lines(session)}{other}") from why
            return _checked(path, session, unseen or _left_alone(settings, session), settings)
    except RefusedError as why:
        raise FailedError(f"{path}: {why}") from why
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; name another file") from error


def _file(settings: Settings, path: str) -> tuple[SessionFile, str | None]:
    """Return a file, of any format unless its root names one, and why no scan reads it."""
    found = discover_at(settings.root_directories(), path)
    if isinstance(found, SessionFile):
        unseen = "none of the roots is one that you wrote" if found.hint == AUTO else None
        return replace(found, hint=ANY if unseen else found.hint), unseen
    directory, name = os.path.split(path)
    below = any(path.startswith(os.path.realpath(root.path) + os.sep)
                for root in settings.root_directories())  # fmt: skip
    unseen = (
        "its name does not end with .jsonl" if not is_session_name(name)
        else "its path is not that of a session" if below else "it is below none of the roots"
    )  # fmt: skip
    mark = Fingerprint.of(os.stat(path))
    return SessionFile(directory, directory, name, "", directory, ANY, mark), unseen


def _left_alone(settings: Settings, session: OpenFile) -> str | None:
    """Return why a scan would not change a session now, or None."""
    now, settings = time.time(), settings_for(settings, session.file)
    try:
        check_idle(session, settings, silence(session.fingerprint, now, now), now)
    except (NotIdleError, RefusedError) as why:
        return str(why)
    return excluded(session.file, settings) or _bound(session, settings)


def _bound(session: OpenFile, settings: Settings) -> str | None:
    globs = settings.decision_rules().signed_models
    thoughts = (entry.thoughts for entry in session.transcript.entries if entry.thoughts)
    bound = any(is_bound(one.models, globs, by_form=one.bound) for one in thoughts)
    return _COVERS if bound and isinstance(session.form, Described) else None


def _entries(session: OpenFile) -> Iterator[tuple[int, JsonObject]]:
    """Yield the objects in the lines, with the numbers of these."""
    for line in session.lines:
        if (entry := parse((line.raw or b"").removeprefix(BOM))) is not None:
            yield line.number, entry


def _first_lines(session: OpenFile) -> str:
    first = islice(_entries(session), _SHOWN)
    return "".join([f"; line {number} has {', '.join(entry)}" for number, entry in first])


def _checked(path: str, session: OpenFile, left_alone: str | None, settings: Settings) -> LogCheck:
    form, transcript = session.form, session.transcript
    entries = transcript.entries
    calls = {call.call_id for entry in entries for call in entry.calls}
    answered = calls.intersection(one.call_id for entry in entries for one in entry.results)
    roles = Counter(entry.role or _NONE for entry in entries)
    twice = frozenset[str]() if form.repeats else repeated(entries)
    filling, reached = _Amounts(), defaultdict[int, set[KeyPath]](set)
    for index, entry in enumerate(entries):
        for value in transcript.values(index):
            kept = TWICE if entry.ident in twice else "" if entry.ident else _NO_ID
            why = value.locked or kept or (_UNSENT if value.dead else "")
            filling.add(value.kind, value.chars, why, entry.line + 1)
            reached[entry.line + 1].add(value.path)
    problems = [
        f"no entry is a {role}{_first_lines(session)}"
        for role in ("prompt", "reply") if role not in roles
    ]  # fmt: skip
    missed = _Amounts()
    objects = _with_missed(_entries(session), reached, missed)
    idle = list[str]()
    if isinstance(form, Described) and form.name in settings.formats:
        idle = unused(form.given, objects)
    deque(objects, maxlen=0)
    return LogCheck(
        path, form.name, session.identity, dict(roles), transcript.chain.open_turn, left_alone,
        len(calls), len(answered), filling.listed(), missed.listed(), tuple(idle), tuple(problems),
    )  # fmt: skip


def _with_missed(
    entries: Iterable[tuple[int, JsonObject]], reached: Mapping[int, set[KeyPath]],
    missed: "_Amounts",
) -> Iterator[JsonObject]:  # fmt: skip
    """Yield the objects, and note the long texts in them that nothing reaches."""
    for number, entry in entries:
        for at, text in strings_in(entry):
            above = (at[:length] for length in range(1, len(at) + 1))
            if len(text) > _LONG and reached.get(number, set()).isdisjoint(above):
                path = dotted(tuple("*" if isinstance(step, int) else step for step in at))
                missed.add(path, len(text), "", number)
        yield entry


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
