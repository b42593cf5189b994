"""The commands about the past: list runs, roll one back, list events."""

from __future__ import annotations

import select
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from brainsurgeon.cli.options import (
    Config,
    Json,
    OneSession,
    Sessions,
    print_answer,
    print_json,
    recovered_store,
    say,
    settings_of,
    store_to_read,
)
from brainsurgeon.errors import UsageError

if TYPE_CHECKING:
    from brainsurgeon.config import Settings


def runs(
    everything: Annotated[
        bool, typer.Option("--all", help="List all runs, not only the newest 20.")
    ] = False,
    json: Json = False,
    config: Config = None,
) -> None:
    """List the runs: what each run of a command changed, the newest last.

    \b
    Examples:
      brainsurgeon runs
      brainsurgeon rollback 12               take one of them back
    """  # noqa: D301
    settings = settings_of(config, json=json)
    from brainsurgeon.operations.rollback import LISTED
    from brainsurgeon.operations.rollback import runs as operation
    from brainsurgeon.render import runs as render

    with store_to_read(settings) as store:
        listed = operation(store, most=None if everything else LISTED)
    print_answer(render.runs_json, render.runs, listed)


def rollback(
    number: Annotated[
        int, typer.Argument(metavar="RUN", min=1, help="Number of a run, as listed by `runs`.")
    ],
    session: Sessions = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be restored; write nothing.")
    ] = False,
    json: Json = False,
    config: Config = None,
) -> None:
    """Undo a run: restore the values it extracted and remove the fields it set.

    Values that were restored, changed or expired since then are left alone and listed. A session
    that is at work gets its values back as soon as it is idle.

    \b
    Examples:
      brainsurgeon rollback 12 --dry-run
      brainsurgeon rollback 12
      brainsurgeon rollback 12 --session main/0f3c
    """  # noqa: D301
    settings = settings_of(config, json=json)
    from brainsurgeon.operations.rollback import rollback as operation
    from brainsurgeon.render import runs as render

    with store_to_read(settings) if dry_run else recovered_store(settings) as store:
        done = operation(
            settings, store, number, clock=time.time, sessions=session or (), dry_run=dry_run
        )
    print_answer(render.rollback_json, render.rollback, done)
    raise typer.Exit(1 if any(session.unfinished for session in done.sessions) else 0)


def events(
    follow: Annotated[
        bool, typer.Option("--follow", help="Print new events until interrupted.")
    ] = False,
    since: Annotated[
        str | None,
        typer.Option("--since", help="Only events after this number, or since this time."),
    ] = None,
    session: OneSession = None,
    kind: Annotated[
        list[str] | None, typer.Option("--kind", help="Only events of this kind. Repeatable.")
    ] = None,
    counts: Annotated[
        bool, typer.Option("--counts", help="Count extracted and restored values by kind and tool.")
    ] = False,
    json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON document; with --follow one for each line."),
    ] = False,
    config: Config = None,
) -> None:
    """List events: the newest 50, or all since an event or a time.

    Events are kept for 30 days. They never contain content of sessions.

    \b
    Examples:
      brainsurgeon events --since 2026-11-01
      brainsurgeon events --follow --since 4711 --json
      brainsurgeon events --counts
    """  # noqa: D301
    settings = settings_of(config, json=json and not follow)
    if follow and counts:
        raise UsageError("--counts does not go with --follow")
    if follow:
        _follow(settings, since, session, kind or [], json=json)
        return
    from brainsurgeon.operations import events as operation
    from brainsurgeon.render import runs as render

    with store_to_read(settings) as store:
        listed = operation.events(
            settings, store, since=since, session=session, kinds=kind or [], everything=counts
        )
    if counts:
        print_answer(render.counts_json, render.counts, operation.counts(listed))
    elif json:
        print_json(render.events_json(listed))
    else:
        for event in listed:
            say(render.event(event))


def _follow(
    settings: Settings, since: str | None, session: str | None, kinds: list[str], *, json: bool
) -> None:
    """Print events as they come, until interrupted."""
    from brainsurgeon.operations import events as operation
    from brainsurgeon.render import runs as render

    warning = "brainsurgeon: another store took its place; going on with that one"
    replaced = partial(print, warning, file=sys.stderr)
    try:
        for listed in operation.follow(
            settings, since=since, session=session, kinds=kinds, wait=_wait, replaced=replaced
        ):
            for event in listed:
                print(render.event_line(event)) if json else say(render.event(event))
            if listed:
                sys.stdout.flush()
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def _wait() -> bool:
    """Wait a second; return False if the reader of standard output is gone."""
    output = select.poll()
    output.register(1, 0)
    lost = select.POLLERR | select.POLLHUP | select.POLLNVAL
    return not any(event & lost for _, event in output.poll(1000))
