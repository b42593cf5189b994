"""Read the original lines of archived turns, and run the command that summarises turns."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from msgspec.structs import replace

from brainsurgeon.config import Settings
from brainsurgeon.files.processes import CommandFailedError, CommandHungError, output_of
from brainsurgeon.lookup.entries import EntryValues, archive_in, owned
from brainsurgeon.lookup.sessions import file_of, note_record
from brainsurgeon.model.entries import parse
from brainsurgeon.model.plans import Plan, bytes_after
from brainsurgeon.model.reports import ArchivedTurn
from brainsurgeon.model.turns import Archive
from brainsurgeon.planning.evidence import Filled, gather
from brainsurgeon.rewrite.inspect import ExaminationPlanner, examine_to_show, plan_of_everything
from brainsurgeon.store import Store


def archived_turn(
    settings: Settings, store: Store, named: EntryValues, now: float, *, with_undone: bool = False
) -> ArchivedTurn | None:  # fmt: skip
    """Return the turn archived in an entry, if there is one and its lines are found.

    With `with_undone`, also return a turn whose archive was undone. Values that the caller may not
    see stay placeholders. Raises GoneError if the session is gone.
    """
    part = archive_in(named, with_undone=with_undone)
    archive = store.archives.by_id(part.archive_id) if part and part.archive_id else None
    if archive is None:
        return None
    file = file_of(named.session)
    with examine_to_show(settings, store, file, named.session.record, now) as examined:
        visible = tuple(owned(store, named.session, examined.records.extractions))
        records = replace(examined.records, extractions=visible)
        planner = ExaminationPlanner(examined, records)
        places = _places(planner, archive)
        if not places:  # the agent rewrote the session and kept only the archive's text
            return None
        lines = tuple(_lines(planner, places.values()))
        entries = ((0, Filled(entry)) for line in lines if (entry := parse(line)))
        index = tuple(call.line for call in gather(examined.form, entries))
        return ArchivedTurn(archive, named.session.title, lines, index, tuple(places))


def _lines(planner: ExaminationPlanner, places: Iterable[tuple[int, int]]) -> Iterator[bytes]:
    """Yield the lines at these places, with the values of `planner.records` restored."""
    session, value = planner.examined.session, planner.examined.store.extractions.value
    edits = deque(plan_of_everything(planner.examined, planner.records).restorations)
    for offset, size in places:
        done, line = offset, b""
        while edits and edits[0].start < offset + size:
            edit = edits.popleft()
            if edit.start >= offset:
                line += session.read(done, edit.start) + bytes_after(edit, value)
                done = edit.end
        yield line + session.read(done, offset + size)


def _places(planner: ExaminationPlanner, archive: Archive) -> dict[str, tuple[int, int]]:
    """Return the offsets and lengths of the lines of a turn, by entry id, in the file's order.

    In the linked form, the original parent ids lead from the last answer back to the prompt. In
    the flat form, the turn is all messages from the prompt to the last answer.
    """
    session, prompt_id, entry_id = planner.examined.session, archive.prompt_id, archive.entry_id
    values = planner.records.extractions
    links = {value.entry_id: value.parent for value in values if value.is_link}
    places: dict[str, tuple[int, int, str | None]] = {}
    transcript = session.transcript
    for index, entry in enumerate(transcript.entries):
        if entry.role and entry.ident is not None:
            start, end = transcript.span(index)
            places[entry.ident] = (start, end - start, links.get(entry.ident, entry.parent))
    first, last = places.get(prompt_id), places.get(entry_id)
    if first is None or last is None:
        return {}
    if session.form.archives == "flat":
        of_turn = {ident for ident, place in places.items() if first[0] <= place[0] <= last[0]}
    else:
        of_turn, at = {prompt_id}, entry_id
        while at in places and at not in of_turn:
            of_turn.add(at)
            at = places[at][2] or ""
        if at != prompt_id:  # a parent is missing, as in some forks
            of_turn = {prompt_id, entry_id}
    ordered = sorted(of_turn, key=lambda ident: places[ident][0])
    return {ident: places[ident][:2] for ident in ordered}


LONGEST = 8000  # characters of a summary
_COMMAND_SECONDS = 300.0  # after which `archive.command` is stopped


def summaries(
    planner: ExaminationPlanner, plan: Plan, check_stop: Callable[[], None]
) -> tuple[dict[bytes, str], tuple[str, ...]]:
    """Return the summaries that `archive.command` printed, by digest of the turn, and warnings."""
    examined = planner.examined
    settings, store, now = examined.settings, examined.store, examined.now
    texts: dict[bytes, str] = {}
    warnings = []
    for archive in plan.archives:
        if archive.depth > 1:
            continue
        text = store.archives.summary(archive.digest)
        if text is None:
            record = note_record(store, examined.session)
            lines = _lines(planner, _places(planner, archive).values())
            try:
                text = _summarise(settings, store, lines, check_stop)
            except CommandFailedError as why:
                used = "the built-in summary is used, because `archive.command` failed"
                warnings.append(f"turn of {archive.entry_id}: {used}: {why}")
                facts = {"entry_id": archive.entry_id, "reason": str(why)}
                with store.transaction():  # the event is recorded even if the rewrite is refused
                    run_id = store.runs.number()
                    store.events.add(now, "summary_failed", record.id, facts, run_id)
                continue
            with store.transaction():  # so the command runs only once, even if a rewrite is refused
                store.archives.keep_summary(archive.digest, text)
        texts[archive.digest] = text
    return texts, tuple(warnings)


def _summarise(
    settings: Settings, store: Store, lines: Iterable[bytes], check_stop: Callable[[], None]
) -> str:
    if store.runs.command_hung:
        raise CommandFailedError("the command hung earlier in this run")
    turn = b"".join(line + b"\n" for line in lines)
    try:
        text = output_of(
            settings.archive.command, turn, check_stop, timeout=_COMMAND_SECONDS, limit=4 * LONGEST
        ).decode().strip()  # fmt: skip
    except CommandHungError:
        store.runs.command_hung = True
        raise
    except UnicodeDecodeError:
        raise CommandFailedError("the command printed invalid text") from None
    if not 1 <= len(text) <= LONGEST:
        raise CommandFailedError(f"the command printed {len(text):,} characters")
    return text
