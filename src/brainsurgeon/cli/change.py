"""The commands that change what stands in a session: put values back, set a field."""

from __future__ import annotations

import re
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from brainsurgeon.cli import print_values
from brainsurgeon.cli.options import (
    Config,
    Entry,
    Json,
    Keys,
    OneSession,
    SessionName,
    print_json,
    say,
    settings_of,
    store_to_read,
    store_to_write,
)
from brainsurgeon.errors import UsageError

if TYPE_CHECKING:
    from brainsurgeon.config import Settings
    from brainsurgeon.model.reports import RestoreAnswer
    from brainsurgeon.store import Store


def restore(
    entry: Annotated[
        str | None, typer.Argument(help="Entry id, or a whole pasted [[extracted-…]].")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Everything, or all of --session.")
    ] = False,
    session: OneSession = None,
    key: Keys = None,
    pristine: Annotated[
        bool, typer.Option("--pristine", help="Also take our own fields out: the file as it was.")
    ] = False,
    values: Annotated[
        bool, typer.Option("--values", help="Of an archived turn also what was cut out of it.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the session is idle.")] = False,
    json: Json = False,
    config: Config = None,
) -> None:
    """Put values back into their session.

    While the agent is at work its file is left alone: the values are printed at once and put back
    by the next scan that finds the session idle.

    \b
    Examples:
      brainsurgeon restore 4f9d2a11
      brainsurgeon restore '[[extracted-4f9d2a11]]' --session main/0f3c
      brainsurgeon restore --all --pristine          undo everything
    """  # noqa: D301
    settings = settings_of(config, json=json)
    if everything == (entry is not None):
        raise UsageError("restore wants one ENTRY, or --all")
    if everything and (key or wait or values):
        raise UsageError("--key, --values and --wait go with one ENTRY, not with --all")
    from brainsurgeon.rewrite.recover import recover

    with store_to_write(settings) as store:
        recover(store)
        if entry is None:
            _everything(settings, store, session, pristine=pristine, json=json)
            return
        from brainsurgeon.operations.restore import restore as operation

        answer = operation(
            settings, store, entry, clock=time.time, session=session, keys=key or [],
            pristine=pristine, wait=wait, whole=values,
        )  # fmt: skip
        _answer(settings, store, answer, json=json)


def _answer(settings: Settings, store: Store, answer: RestoreAnswer, *, json: bool) -> None:
    """Print the answer; a pending one with its values, and its id is recorded first."""
    from brainsurgeon import render
    from brainsurgeon.operations.restore import note_answer
    from brainsurgeon.render import sessions

    if settings.log_level == "debug":
        from brainsurgeon import log

        log.set_up(settings)
        log.restored(answer)
    text = render.document(sessions.restored_json(answer)) if json else sessions.restored(answer)
    note_answer(store, answer)
    if json:
        print(text)
        return
    say(text)
    if answer.delivers:
        sys.stdout.flush()
        print_values(answer.content, answer.same_as)


def _everything(
    settings: Settings, store: Store, session: str | None, *, pristine: bool, json: bool
) -> None:
    from brainsurgeon.cli.progress import ahead_of_restore, progress_bar
    from brainsurgeon.operations.restore_all import restore_all
    from brainsurgeon.render import sessions as render

    ahead = partial(ahead_of_restore, settings, store)
    with progress_bar("putting back", ahead, quiet=json or session is not None) as progress:
        done = restore_all(
            settings, store, clock=time.time, session=session, pristine=pristine,
            progress=progress,
        )  # fmt: skip
    if json:
        print_json(render.restored_all_json(done))
    else:
        say(render.restored_all(done))
    raise typer.Exit(1 if any(one.unfinished for one in done) else 0)


def archive(
    session: SessionName,
    turns: Annotated[
        str | None, typer.Option("--turns", metavar="A..B", help="Only these turns, from 1 on.")
    ] = None,
    note: Annotated[
        str | None, typer.Option("--note", help="What the last of them came to.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would fold, and why not the rest.")
    ] = False,
    json: Json = False,
    config: Config = None,
) -> None:
    """Fold finished turns into their last answers now, whatever their size.

    What may go of the session by the rules goes in the same rewrite.

    \b
    Examples:
      brainsurgeon archive main/0f3c --dry-run
      brainsurgeon archive main/0f3c --turns 1..4
      brainsurgeon archive main/0f3c --turns 3..3 --note "The parser is fixed."
    """  # noqa: D301
    settings = settings_of(config, json=json)
    span = _span(turns) if turns is not None else None
    from brainsurgeon.operations.archive import archive as operation
    from brainsurgeon.render import turns as render
    from brainsurgeon.rewrite.recover import recover

    with store_to_read(settings) if dry_run else store_to_write(settings) as store:
        if store is not None and not dry_run:
            recover(store)
        answer = operation(
            settings, store, session, clock=time.time, turns=span, note_said=note, dry_run=dry_run
        )
    if json:
        print_json(render.archived_json(answer))
    else:
        say(render.archived(answer))


def _span(text: str) -> tuple[int, int]:
    first, _, last = text.partition("..")
    if all(word.isascii() and word.isdigit() and len(word) < 10 for word in (first, last)):  # noqa: PLR2004
        return int(first), int(last)
    raise UsageError(f"--turns: {text!r}: wants two numbers, as in 1..4")


def set_extractable(
    entry: Entry,
    value: Annotated[str, typer.Argument(help="true, false, or a number of recent messages.")],
    session: OneSession = None,
    json: Json = False,
    config: Config = None,
) -> None:
    """Pin an entry (false), have it cut (true), or give it a window of its own (N messages).

    \b
    Examples:
      brainsurgeon set-extractable 4f9d2a11 false
      brainsurgeon set-extractable 4f9d2a11 20 --session main/0f3c
    """  # noqa: D301
    settings = settings_of(config, json=json)
    wanted = _extractable(value)
    from brainsurgeon.operations.set_extractable import set_extractable as operation
    from brainsurgeon.render import sessions as render
    from brainsurgeon.rewrite.recover import recover

    with store_to_write(settings) as store:
        recover(store)
        answer = operation(settings, store, entry, wanted, clock=time.time, session=session)
    if json:
        print_json(render.set_json(answer))
    else:
        say(render.set_(answer))


def _extractable(text: str) -> bool | int:
    if text in ("true", "false"):
        return text == "true"
    if text.isascii() and text.isdigit() and len(text) < 20:  # noqa: PLR2004  the rest has no bound
        return int(text)
    raise UsageError(f"{text!r}: wants true, false, or a whole number from 0")


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
    from brainsurgeon.operations.relieve import relieve as operation
    from brainsurgeon.operations.relieve import would_relieve
    from brainsurgeon.render import printable, turns
    from brainsurgeon.rewrite.budget import Wanted
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
        print_json(printable(turns.relief_json(done, dry_run=dry_run)))
    else:
        say(turns.relief(done, dry_run=dry_run))
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
