"""The commands that change sessions: restore values, archive turns, set a field, relieve."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import typer
from typer import Argument, Option

from brainsurgeon.cli import options
from brainsurgeon.errors import UsageError
from brainsurgeon.model.reports import RestoreAnswer, SessionRestore
from brainsurgeon.model.text import readable_lines

if TYPE_CHECKING:
    from brainsurgeon.config import Settings
    from brainsurgeon.store import Store


def restore(
    entry: str | None = Argument(
        None, help="Entry id, its beginning, or a whole placeholder [[extracted-…]]."
    ),
    everything: bool = Option(
        False, "--all", help="Restore everything, or everything in --session."
    ),
    session: options.OneSession = None,
    key: options.Keys = None,
    pristine: bool = Option(
        False,
        "--pristine",
        help="Also remove the fields that brainsurgeon added to entries: _extractable, "
        "_restored and _redacted.",
    ),
    values: bool = Option(
        False,
        "--values",
        help="Of an archived turn, restore the extracted values, too. Otherwise their "
        "placeholders stay.",
    ),
    wait: bool = Option(
        False,
        "--wait",
        help="Wait until the session is idle, at most ten minutes. With --all, you can set another "
        "limit: --wait 2h.",
    ),
    run: str | None = Option(
        None, "--run", help="Restore the values that this run extracted; `history` lists the runs."
    ),
) -> None:
    """Put values back: of one entry, of a run, or all of them.

    While the agent is at work, the session is not changed. The command then prints the values and
    records a request. The next scan that finds the session idle restores them.

    --run also removes the fields that the run set. Values that were restored, changed or expired
    since then are left unchanged and listed.

    \b
    Example:
      brainsurgeon restore --all --pristine          undo everything
    """  # noqa: D301
    settings = options.load_settings()
    if run is not None:
        if entry or everything or key or pristine or values or wait:
            raise UsageError("--run goes with --session only")
        if not (run.isascii() and run.isdigit() and int(run[:18]) > 0):
            raise UsageError(
                f"--run {run}: wants the number of a run; `brainsurgeon history` lists them"
            )
        _roll_back(settings, int(run), session)
        return
    patience = 0.0
    if everything and wait:
        patience, entry = options.seconds_given("--wait", entry or "10m"), None
    if everything == (entry is not None):
        raise UsageError("restore wants one ENTRY, or --all")
    if everything and (key or values):
        raise UsageError("--key and --values go with one ENTRY, not with --all")
    with options.recovered_store(settings) as store:
        if entry is None:
            _restore_all(settings, store, session, pristine=pristine, patience=patience)
            return
        from brainsurgeon.operations.restore import How
        from brainsurgeon.operations.restore import restore as operation

        answer = operation(
            settings, store, entry, clock=time.time, session=session,
            how=How(key or (), pristine=pristine, wait=wait, whole=values),
        )  # fmt: skip
        _print_restored(settings, store, answer)


def _roll_back(settings: Settings, number: int, session: str | None) -> None:
    from brainsurgeon.operations.restore import rollback
    from brainsurgeon.render import runs as render

    named = [session] if session else ()
    with options.recovered_store(settings) as store:
        done = rollback(settings, store, number, clock=time.time, sessions=named)
    options.print_answer(render.rollback_json(done), render.rollback, done)
    raise typer.Exit(1 if any(session.unfinished for session in done.sessions) else 0)


def _print_restored(settings: Settings, store: Store, answer: RestoreAnswer) -> None:
    """Record and print the answer, with the values if it delivers them."""
    from brainsurgeon import render
    from brainsurgeon.operations.restore import note_answer
    from brainsurgeon.render import sessions

    if settings.log_level == "debug":
        from brainsurgeon import log

        log.set_up(settings)
        log.restored(answer)
    if options.given.json:
        text, values = render.document(sessions.restored_json(answer)), ""
    else:
        text = readable_lines(sessions.restored(answer, to_person=sys.stdout.isatty()))
        values = options.values_text(answer.content, answer.same_as) if answer.delivers else ""
    note_answer(store, answer, f"{text}\n{values}")
    print(text, flush=True)
    options.print_raw(values)


def _restore_all(
    settings: Settings, store: Store, session: str | None, *, pristine: bool, patience: float
) -> None:
    from brainsurgeon.model.reports import Watch
    from brainsurgeon.operations.restore import overfull_after, restore_all
    from brainsurgeon.render import sessions as render

    overfull = overfull_after(settings, store, time.time(), session=session)
    if overfull and not options.given.json:
        typer.echo(readable_lines(render.overfull(overfull)), err=True)

    def waiting(pending: Sequence[SessionRestore]) -> None:
        if options.is_watched() and not options.given.json:
            typer.echo(readable_lines(render.waiting(pending)), err=True)

    ahead = partial(options.ahead_of_restore, settings, store)
    with options.progress_bar(
        "restoring", ahead, quiet=options.given.json or session is not None
    ) as progress:
        done = restore_all(
            settings, store, clock=time.time, session=session, pristine=pristine,
            watch=Watch(progress, waiting=waiting, patience=patience),
        )  # fmt: skip
    options.print_answer(render.restored_all_json(done, overfull), render.restored_all, done)
    raise typer.Exit(1 if any(session.unfinished for session in done) else 0)


def archive(
    session: str | None = Argument(
        None,
        help="Path, id, prefix of the id, agent/id, or session key.",
        autocompletion=options.session_titles,
    ),
    listing: bool = Option(False, "--list", help="List the archived turns of SESSION, or of all."),
    turns: str | None = Option(
        None, "--turns", metavar="A..B", help="Only these turns. The first turn is 1."
    ),
    note: str | None = Option(
        None, "--note", help="Outcome of the last of these turns, for its summary."
    ),
    dry_run: bool = Option(
        False, "--dry-run", help="Show what would be archived, and why other turns are kept."
    ),
) -> None:
    """Archive finished turns: replace them by short summaries.

    Archives turns of any size, but not the newest ones (archive.keep_turns). Also extracts values
    by the rules, as a scan does.

    \b
    Example:
      brainsurgeon archive main/0f3c --turns 1..4 --dry-run
    """  # noqa: D301
    settings = options.load_settings()
    if listing:
        from brainsurgeon.operations.archive import archives
        from brainsurgeon.render import turns as rendered

        with options.store_to_read(settings) as seen:
            listed = archives(settings, seen, session)
        now = time.time()
        options.print_answer(rendered.archives_json(listed, now), rendered.archives, listed, now)
        return
    if session is None:
        raise UsageError("archive wants a SESSION, or --list")
    span = _span(turns) if turns is not None else None
    from brainsurgeon.operations.archive import archive as operation
    from brainsurgeon.operations.archive import would_archive
    from brainsurgeon.render import turns as render

    if dry_run:
        with options.store_to_read(settings) as seen:
            answer = would_archive(settings, seen, session, time.time(), span)
    else:
        with options.recovered_store(settings) as store:
            answer = operation(
                settings, store, session, clock=time.time, turns=span, note_said=note
            )
    options.print_answer(render.archived_json(answer), render.archived, answer)


def _span(text: str) -> tuple[int, int]:
    first, _, last = text.partition("..")
    if all(word.isascii() and word.isdigit() and len(word) < 10 for word in (first, last)):  # noqa: PLR2004
        return int(first), int(last)
    raise UsageError(f"--turns: {text!r}: wants two numbers, as in 1..4")


def pin(
    entry: options.Entry,
    recent: int | None = Option(
        None,
        "--recent",
        metavar="N",
        min=0,
        help="Keep it only while it is in the newest N messages.",
    ),
    undo: bool = Option(False, "--undo", help="Let the rules decide again."),
    session: options.OneSession = None,
) -> None:
    """Keep an entry from being extracted.

    \b
    Example:
      brainsurgeon pin 4f9d2a11 --recent 20
    """  # noqa: D301
    if undo and recent is not None:
        raise UsageError("--undo cannot be combined with --recent")
    value = None if undo else False if recent is None else recent
    _set_extractable(options.load_settings(), entry, value, session)


def extract(
    entry: options.Entry,
    session: options.OneSession = None,
) -> None:
    """Extract an entry, whatever the rules say.

    \b
    Example:
      brainsurgeon extract 4f9d2a11
    """  # noqa: D301
    _set_extractable(options.load_settings(), entry, True, session)


def _set_extractable(
    settings: Settings, entry: str, value: bool | int | None, session: str | None
) -> None:
    from brainsurgeon.operations.set_extractable import set_extractable
    from brainsurgeon.render import sessions as render

    with options.recovered_store(settings) as store:
        answer = set_extractable(settings, store, entry, value, clock=time.time, session=session)
    options.print_answer(render.set_json(answer), render.set_, answer)


def relieve(
    session: options.SessionName,
    to: str | None = Option(
        None, "--to", help="Goal: tokens (120000), or a share of the window (60%)."
    ),
    signatures: bool = Option(
        False, "--signatures", help="Also extract thinking with invalid signatures."
    ),
    now: bool = Option(False, "--now", help="Also extract values that were just restored."),
    dry_run: bool = Option(
        False, "--dry-run", help="Show what would be extracted and what would be kept."
    ),
) -> None:
    """Shrink a session that is too long for its model.

    Extracts more, step by step, until the session fits. The page on operations lists the steps.
    Some of them archive turns. Calls no model. Everything can be restored.

    Exits with 1 if the session still does not fit, or if its provider would still refuse a
    signature.

    \b
    Example:
      brainsurgeon relieve main/0f3c --to 60% --dry-run
    """  # noqa: D301
    settings = options.load_settings()
    from brainsurgeon.operations.relieve import relieve as operation
    from brainsurgeon.operations.relieve import would_relieve
    from brainsurgeon.render import turns
    from brainsurgeon.rewrite.budget import Wanted

    wanted = Wanted(_goal(to), signatures, now)
    if dry_run:
        with options.store_to_read(settings) as seen:
            done = would_relieve(settings, seen, session, wanted, time.time())
    else:
        with options.recovered_store(settings) as store:
            done = operation(settings, store, session, wanted, clock=time.time)
    if options.given.json:
        options.print_json(turns.relief_json(done, dry_run=dry_run))
    else:
        options.say(turns.relief(done, dry_run=dry_run))
    raise typer.Exit(0 if done.pending or (done.fits and not done.refused) else 1)


def _goal(text: str | None) -> float | None:
    """Return the number of tokens that a text means, or a share of the window (up to 1)."""
    if text is None:
        return None
    match = re.fullmatch(r"([1-9][0-9]{1,11})|([1-9][0-9]?|100) ?%", text)
    if match is None:
        raise UsageError(f"--to {text!r}: wants tokens (120000) or a share of the window (60%)")
    tokens, share = match.groups()
    return float(tokens) if tokens else int(share) / 100
