"""The command about the past: list runs and events."""

from __future__ import annotations

import select
import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from brainsurgeon.cli.options import (
    Config,
    OneSession,
    print_answer,
    print_json,
    say,
    settings_of,
    store_to_read,
)
from brainsurgeon.errors import UsageError

if TYPE_CHECKING:
    from brainsurgeon.config import Settings


def history(
    events: Annotated[
        bool,
        typer.Option(
            "--events", help="List events instead of runs: what happened to each session."
        ),
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Print new events until interrupted.")
    ] = False,
    since: Annotated[
        str | None,
        typer.Option("--since", help="Only events after this event number, or since this time."),
    ] = None,
    session: OneSession = None,
    kind: Annotated[
        list[str] | None, typer.Option("--kind", help="Only events of this kind. Repeatable.")
    ] = None,
    counts: Annotated[
        bool, typer.Option("--counts", help="Count extracted and restored values by kind and tool.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="List all runs, not only the newest 20.")
    ] = False,
    json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON document; with --follow one per line."),
    ] = False,
    config: Config = None,
) -> None:
    """List the runs and their changes, the newest last.

    --events lists the newest 50 events, or with --since all later ones. Events are kept for 30
    days. They never contain content of sessions.

    \b
    Example:
      brainsurgeon history --follow --since 4711 --json
    """  # noqa: D301
    settings = settings_of(config, json=json and not follow)
    if follow and counts:
        raise UsageError("--counts does not go with --follow")
    if follow:
        _follow(settings, since, session, kind or [], json=json)
        return
    from brainsurgeon.operations import events as operation
    from brainsurgeon.operations import rollback
    from brainsurgeon.render import runs as render

    if not (events or counts or since or session or kind):
        with store_to_read(settings) as store:
            listed = rollback.runs(store, most=None if everything else rollback.LISTED)
        print_answer(render.runs_json, render.runs, listed)
        return
    with store_to_read(settings) as store:
        happened = operation.events(
            settings, store, since=since, session=session, kinds=kind or [], everything=counts
        )
    if counts:
        print_answer(render.counts_json, render.counts, operation.counts(happened))
    elif json:
        print_json(render.events_json(happened))
    else:
        for event in happened:
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
