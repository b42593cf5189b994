"""The commands that change sessions: restore, archive, pin, extract, relieve."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import typer
from msgspec.structs import replace
from typer import Argument, Option

from brainsurgeon import operations, render
from brainsurgeon.cli import options
from brainsurgeon.errors import UsageError
from brainsurgeon.model.reports import RestoreAnswer, SessionRestore, Watch
from brainsurgeon.model.text import readable_lines

if TYPE_CHECKING:
    from brainsurgeon.config import Settings
    from brainsurgeon.store import Store


def restore(
    entry: options.OptionalEntry = None,
    limit: str | None = Argument(
        None, metavar="TIME", help="With --wait: how long at most, as 2h."
    ),
    everything: bool = Option(
        False, "--all", help="Restore everything, or everything in --session."
    ),
    session: options.OneSession = None,
    key: options.Keys = None,
    pristine: bool = Option(
        False,
        help="Also remove the fields that brainsurgeon added to entries: _extractable, "
        "_restored and _redacted.",
    ),
    values: bool = Option(
        False, help="If ENTRY is an archived turn, also restore the values extracted from it."
    ),
    wait: bool = Option(
        False,
        help="Wait until the session is idle, at most ten minutes (keep_after_restore if longer); "
        "--wait 2h sets another limit.",
    ),
    run: str | None = Option(
        None,
        help="Restore the values that the run with this number extracted; see `history`.",
        autocompletion=options.run_numbers,
    ),
    dry_run: bool = Option(False, help="Print what would be restored; write nothing."),
) -> None:
    """Restore the values of an entry, of a run, or of all sessions.

    If a session is not idle, the command records a request, and with ENTRY also prints the values.
    The first scan that finds the session idle restores them. The request is dropped after ten
    minutes (after keep_after_restore, if that is longer), but never with --run.

    --run also removes the fields that the run set. Values that were restored, changed or expired
    after the run are left unchanged and reported.

    \b
    Example:
      brainsurgeon restore --all --pristine          undo everything
    """  # noqa: D301
    if everything and limit is None:
        entry, limit = None, entry
    elif limit is not None and options.is_duration(entry) and not options.is_duration(limit):
        entry, limit = limit, entry  # --wait 2h ENTRY
    others = (entry, everything, key, pristine, values, wait)
    options.refuse(
        ("--run can be combined with --session only", run is not None and any(others)),
        ("restore wants one ENTRY, or --all, not both", everything and limit and not wait),
        ("restore wants one ENTRY, or --all", run is None and everything == bool(entry)),
        ("--key and --values need one ENTRY, not --all", everything and (key or values)),
        ("--dry-run does not wait: it cannot be combined with --wait", dry_run and wait),
        (f"{limit}: a second name; restore wants one ENTRY, or --all", limit and not wait),
    )
    settings = options.load_settings()
    if run is not None:
        _roll_back(settings, run, session, dry_run=dry_run)
        return
    patience = 0.0
    if wait:
        least = operations.restore.patience(settings)
        patience = options.parse_seconds("--wait", limit) if limit else least
    with (options.store_to_read if dry_run else options.recovered_store)(settings) as store:
        if entry is None:
            _restore_all(
                settings, store, session, pristine=pristine, patience=patience, dry_run=dry_run
            )
            return
        how = operations.restore.How(
            key or (), pristine=pristine, wait=patience, whole=values, dry_run=dry_run
        )
        answer = operations.restore.restore(
            settings, store, entry, clock=time.time, session=session, how=how
        )
        _print_restored(settings, store, answer)


def _roll_back(settings: Settings, run: str, session: str | None, *, dry_run: bool) -> None:
    if not re.fullmatch("[1-9][0-9]{0,17}", run):
        raise UsageError(
            f"--run {run}: wants the number of a run; `brainsurgeon history` lists them"
        )
    named = [session] if session else ()
    with (options.store_to_read if dry_run else options.recovered_store)(settings) as store:
        done = operations.restore.rollback(
            settings, store, int(run), clock=time.time, sessions=named, dry_run=dry_run
        )
    text = partial(render.runs.rollback, dry_run=dry_run)
    options.print_answer(render.runs.rollback_json(done, dry_run=dry_run), text, done)
    raise typer.Exit(1 if any(session.unfinished for session in done.sessions) else 0)


def _print_restored(settings: Settings, store: Store, answer: RestoreAnswer) -> None:
    values, to_person = "", sys.stdout.isatty() and not options.given.json
    if to_person:  # no agent's session will contain this answer
        answer = replace(answer, redaction=None)
    if settings.log_level == "debug":
        from brainsurgeon import log

        log.set_up(settings)
        log.restored(answer)
    if options.given.json:
        text = render.formatting.document(render.sessions.restored_json(answer))
    else:
        text = readable_lines(render.sessions.restored(answer, to_person=to_person))
        values = options.values_text(answer.content, answer.same_as) if answer.shows_values else ""
    operations.restore.note_answer(store, answer, f"{text}\n{values}")
    print(text, flush=True)
    options.print_bytes([values.encode("utf-8", "surrogatepass")])
    options.exit_if_keys_are_unknown(answer)


def _restore_all(
    settings: Settings, store: Store, session: str | None, *, pristine: bool, patience: float,
    dry_run: bool,
) -> None:  # fmt: skip
    def notify(text: str) -> None:
        if not options.given.json:
            typer.echo(readable_lines(text), err=True)

    def waiting(pending: Sequence[SessionRestore]) -> None:
        if options.shows_progress():
            notify(render.sessions.waiting(pending))

    def sizes() -> list[int]:
        from brainsurgeon.lookup.sessions import all_sessions

        listed = all_sessions(settings, store, with_former_roots=True)
        return [session.file.fingerprint.size for session in listed if session.file]

    overfull = operations.restore.overfull_after(settings, store, time.time(), session=session)
    if overfull:
        notify(render.sessions.overfull(overfull))
    named = [session] if session else []
    has_sessions = any(True for _ in store.sessions.all())  # else nothing can come back
    paused = pristine and not dry_run and has_sessions
    if paused:
        operations.pause.pause(settings, store, time.time(), sessions=named)
    quiet = options.given.json or session is not None
    with options.progress_bar("restoring", sizes, quiet=quiet) as progress:
        done = operations.restore.restore_all(
            settings, store, clock=time.time, session=session, pristine=pristine,
            dry_run=dry_run, watch=Watch(progress, waiting=waiting, patience=patience),
        )  # fmt: skip
    in_json = render.sessions.restored_all_json(done, overfull, dry_run=dry_run)
    text = partial(render.sessions.restored_all, waited=patience > 0, dry_run=dry_run)
    options.print_answer(in_json, text, done)
    if not (dry_run or options.given.json) and (paused or any(one.values_restored for one in done)):
        keep = settings.keep_after_restore
        options.print_text(render.sessions.what_follows(session, paused=paused, keep=keep))
    raise typer.Exit(1 if any(session.unfinished for session in done) else 0)


def pause(
    until: str | None = Option(
        None, metavar="TIME", help="End of the pause: 2h, 3d, or a time in ISO 8601."
    ),
    end: bool = Option(False, "--end", help="End the pause, or that of --session."),
    session: options.Sessions = None,
) -> None:
    """Pause extraction: scans extract nothing until the pause ends.

    Restores and other requests are still carried out, and values still expire.

    \b
    Examples:
      brainsurgeon pause --until 2h
      brainsurgeon pause --end
    """  # noqa: D301
    if end and until is not None:
        raise UsageError("--end cannot be combined with --until")
    settings, now = options.load_settings(), time.time()
    moment = None if until in (None, "never") else options.parse_moment("--until", until, now)
    with options.recovered_store(settings) as store:
        if end:
            before = operations.pause.pauses(store, now).listed()
            left = operations.pause.end(settings, store, now, sessions=session or ())
            keep = settings.keep_after_restore
            text = partial(render.runs.pause_ended, ended=left != before, keep=keep)
        else:
            text = partial(render.runs.pauses)
            left = operations.pause.pause(
                settings, store, now, until=moment, sessions=session or ()
            )
    options.print_answer({"pauses": left}, text, left)


def archive(
    session: options.OptionalSession = None,
    listing: bool = Option(False, "--list", help="List archived turns, all or those of SESSION."),
    turns: str | None = Option(None, metavar="A..B", help="Only these turns. The first turn is 1."),
    note: str | None = Option(None, help="Outcome of the last archived turn, for its summary."),
    dry_run: bool = Option(
        False, help="Show what would be archived, and why other turns are kept."
    ),
) -> None:
    """Archive finished turns: replace them with short summaries.

    Archives turns of any size, but not the newest ones (archive.keep_turns). Also extracts values
    by the rules, as a scan does.

    \b
    Example:
      brainsurgeon archive main/0f3c --turns 1..4 --dry-run
    """  # noqa: D301
    settings, now = options.load_settings(), time.time()
    if listing:
        if turns or note or dry_run:
            raise UsageError("--list cannot be combined with --turns, --note or --dry-run")
        options.check_store(settings)
        with options.store_to_read(settings) as seen:
            listed = operations.archive.archives(settings, seen, session)
        in_json = render.turns.archives_json(listed, now)
        options.print_answer(in_json, render.turns.archives, listed, now)
        return
    if session is None:
        raise UsageError("archive wants a SESSION, or --list")
    span = None if turns is None else _span(turns)
    if dry_run:
        with options.store_to_read(settings) as seen:
            answer = operations.archive.would_archive(settings, seen, session, now, span)
    else:
        with options.recovered_store(settings) as store:
            answer = operations.archive.archive(
                settings, store, session, clock=time.time, turns=span, note=note
            )
    options.print_answer(render.turns.archived_json(answer), render.turns.archived, answer)


def _span(text: str) -> tuple[int, int]:
    first, _, last = text.partition("..")
    if all(word.isascii() and word.isdigit() and len(word) < 10 for word in (first, last)):  # noqa: PLR2004
        return int(first), int(last)
    raise UsageError(f"--turns: {text!r}: wants two numbers, as in 1..4")


def pin(
    entry: options.Entry,
    recent: int | None = Option(
        None, metavar="N", min=0, help="Keep it only while it is in the newest N messages."
    ),
    undo: bool = Option(False, help="Undo `pin` or `extract`: the rules decide again."),
    session: options.OneSession = None,
) -> None:
    """Keep an entry from being extracted.

    \b
    Example:
      brainsurgeon pin 4f9d2a11 --recent 20
    """  # noqa: D301
    if undo and recent is not None:
        raise UsageError("--undo cannot be combined with --recent")
    _set_extractable(entry, None if undo else recent if recent is not None else False, session)


def extract(entry: options.Entry, session: options.OneSession = None) -> None:
    """Extract an entry, even if the rules would keep it.

    \b
    Example:
      brainsurgeon extract 4f9d2a11
    """  # noqa: D301
    _set_extractable(entry, True, session)


def _set_extractable(entry: str, value: bool | int | None, session: str | None) -> None:
    settings = options.load_settings()
    with options.recovered_store(settings) as store:
        answer = operations.set_extractable.set_extractable(
            settings, store, entry, value, clock=time.time, session=session
        )
    options.print_answer(render.sessions.set_json(answer), render.sessions.set_, answer)


def relieve(
    session: options.SessionName,
    to: str | None = Option(None, help="Goal: tokens (120000), or a share of the window (60%)."),
    signatures: bool = Option(False, help="Also extract thinking with invalid signatures."),
    now: bool = Option(False, help="Also extract values that were restored recently."),
    dry_run: bool = Option(False, help="Show what would be extracted and what would be kept."),
) -> None:
    """Shrink a session that is too long for its model.

    Extracts more, step by step, until the session fits. Some steps archive turns. Calls no model.
    Everything can be restored. deploy/docs/operations.md lists the steps.

    Exits with 0 if a request is pending. Otherwise, exits with 1 if the session still does not fit,
    or if its provider would still refuse a signature.

    \b
    Example:
      brainsurgeon relieve main/0f3c --to 60% --dry-run
    """  # noqa: D301
    from brainsurgeon.rewrite.relief import Wanted

    settings, wanted = options.load_settings(), Wanted(_goal(to), signatures, now)
    if dry_run:
        with options.store_to_read(settings) as seen:
            done = operations.relieve.would_relieve(settings, seen, session, wanted, time.time())
    else:
        with options.recovered_store(settings) as store:
            done = operations.relieve.relieve(settings, store, session, wanted, clock=time.time)
    text = partial(render.turns.relief, dry_run=dry_run)
    options.print_answer(render.turns.relief_json(done, dry_run=dry_run), text, done)
    raise typer.Exit(0 if done.pending or (done.fits and not done.refused) else 1)


def _goal(text: str | None) -> float | None:
    """Return a number of tokens, or a share of the window (at most 1)."""
    if text is None:
        return None
    match = re.fullmatch(r"([1-9][0-9]{1,11})|([1-9][0-9]?|100) ?%", text)
    if match is None:
        wanted = "tokens (such as 120000; at least 10), or a share of the window (such as 60%)"
        raise UsageError(f"--to {text!r}: wants {wanted}")
    tokens, share = match.groups()
    return float(tokens) if tokens else int(share) / 100
