"""The command for a session that is too full."""

from __future__ import annotations

import re
import time
from typing import Annotated

import typer

from brainsurgeon.cli.given import (
    Config,
    Json,
    SessionName,
    print_json,
    say,
    settings_of,
    store_to_read,
    store_to_write,
)
from brainsurgeon.errors import UsageError

_GOAL = re.compile(r"([1-9][0-9]{1,11})|([1-9][0-9]?|100) ?%")


def relieve(
    session: SessionName,
    to: Annotated[
        str | None, typer.Option("--to", help="Tokens (120000), or a share (60%).")
    ] = None,
    seals: Annotated[
        bool, typer.Option("--seals", help="Also take out seals that do not fit.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would go and what would be left.")
    ] = False,
    json: Json = False,
    config: Config = None,
) -> None:
    """Bring a session that is too long for its model back, without asking a model.

    Takes out more and more, step by step, until it fits: shorter and shorter values, results
    larger than a tenth of the window, all but the newest message, arguments of calls, and last
    the older half. Everything can be put back. Ends with 1 where it still does not fit.

    \b
    Examples:
      brainsurgeon relieve main/0f3c
      brainsurgeon relieve main/0f3c --to 60% --dry-run
      brainsurgeon relieve main/0f3c --seals      where every prompt gets 400
    """  # noqa: D301
    settings = settings_of(config, json=json)
    from brainsurgeon.operations.fullness import Wanted
    from brainsurgeon.operations.relieve import relieve as operation
    from brainsurgeon.operations.relieve import would_relieve
    from brainsurgeon.render import loads, printable
    from brainsurgeon.rewrite.recover import recover

    wanted = Wanted(_goal(to), seals)
    if dry_run:
        with store_to_read(settings) as seen:
            done = would_relieve(settings, seen, session, wanted, time.time())
    else:
        with store_to_write(settings) as store:
            recover(store)
            done = operation(settings, store, session, wanted, clock=time.time)
    if json:
        print_json(printable(loads.relief_json(done, dry_run=dry_run)))
    else:
        say(loads.relief(done, dry_run=dry_run))
    raise typer.Exit(0 if done.fits or done.pending else 1)


def _goal(text: str | None) -> float | None:
    """Read what a session is to be brought to: tokens, or up to 1, a share of the window."""
    found = _GOAL.fullmatch(text) if text is not None else None
    if text is not None and found is None:
        raise UsageError(f"--to {text!r}: wants tokens (120000) or a share of the window (60%)")
    if found is None:
        return None
    tokens, share = found.groups()
    return float(tokens) if tokens else int(share) / 100
