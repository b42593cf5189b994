"""The commands about what was done: runs, taking one back, and what happened."""

from __future__ import annotations

import select
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from brainsurgeon.cli.options import (
    Config,
    Json,
    OneSession,
    print_json,
    say,
    settings_of,
    store_to_read,
    store_to_write,
)
from brainsurgeon.errors import UsageError

if TYPE_CHECKING:
    from brainsurgeon.config import Settings

# Seconds between two looks of whoever follows.
_EACH = 1.0


def runs(
    everything: Annotated[bool, typer.Option("--all", help="All, not only the newest 20.")] = False,
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
    if json:
        print_json(render.runs_json(listed))
    else:
        say(render.runs(listed))


def rollback(
    number: Annotated[
        int, typer.Argument(metavar="RUN", min=1, help="Number of a run, as `runs` has it.")
    ],
    session: Annotated[
        list[str] | None, typer.Option("--session", help="Only this session. Repeatable.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be put back; write nothing.")
    ] = False,
    json: Json = False,
    config: Config = None,
) -> None:
    """Take a run back: what it cut and set and what still stands.

    What was put back or changed since stays as it is and is named. A session at work gets its
    values back as soon as it is idle.

    \b
    Examples:
      brainsurgeon rollback 12 --dry-run
      brainsurgeon rollback 12
      brainsurgeon rollback 12 --session main/0f3c
    """  # noqa: D301
    settings = settings_of(config, json=json)
    from brainsurgeon.operations.rollback import rollback as operation
    from brainsurgeon.render import runs as render
    from brainsurgeon.rewrite.recover import recover

    with store_to_read(settings) if dry_run else store_to_write(settings) as store:
        if store and not dry_run:
            recover(store)
        done = operation(
            settings, store, number, clock=time.time, sessions=session or (), dry_run=dry_run
        )
    if json:
        print_json(render.rollback_json(done))
    else:
        say(render.rollback(done))
    raise typer.Exit(1 if any(one.unfinished for one in done.sessions) else 0)


def events(
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with what happens, until interrupted.")
    ] = False,
    since: Annotated[
        str | None, typer.Option("--since", help="Behind this event, or since a moment.")
    ] = None,
    session: OneSession = None,
    kind: Annotated[
        list[str] | None, typer.Option("--kind", help="Only such events. Repeatable.")
    ] = None,
    counts: Annotated[
        bool, typer.Option("--counts", help="Count what went and came back, by kind and tool.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document; with --follow, one a line.")
    ] = False,
    config: Config = None,
) -> None:
    """Show what happened to sessions: the newest 50, or all since an event or a moment.

    Events are kept for 30 days, and never hold what sessions say.

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
        tallies = operation.counts(listed)
        print_json(render.counts_json(tallies)) if json else say(render.counts(tallies))
    elif json:
        print_json(render.events_json(listed))
    else:
        for one in listed:
            say(render.event(one))


def _follow(
    settings: Settings, since: str | None, session: str | None, kinds: list[str], *, json: bool
) -> None:
    """Print events as they come; being interrupted is how this ends."""
    from brainsurgeon.operations import events as operation
    from brainsurgeon.render import runs as render

    try:
        for found in operation.follow(
            settings, since=since, session=session, kinds=kinds, wait=_wait, replaced=_replaced
        ):
            for one in found:
                print(render.event_line(one)) if json else say(render.event(one))
            if found:
                sys.stdout.flush()
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def _replaced() -> None:
    """Say that what is followed from now on is another store."""
    print("brainsurgeon: another store took its place; going on with that one", file=sys.stderr)


def _wait() -> bool:
    """Wait for the next look; False once nobody reads what is printed."""
    looking = select.poll()
    looking.register(1, 0)
    gone = looking.poll(int(_EACH * 1000))
    return not any(what & (select.POLLERR | select.POLLHUP | select.POLLNVAL) for _, what in gone)
