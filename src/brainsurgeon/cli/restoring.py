"""The commands that change what stands in a session: put values back, set a field."""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from brainsurgeon.cli.given import (
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
from brainsurgeon.cli.printing import print_values
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
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the session is settled.")
    ] = False,
    json: Json = False,
    config: Config = None,
) -> None:
    """Put values back into their session.

    While the agent is at work its file is left alone: the values are printed at once and put back
    by the next scan that finds the session settled.

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
    from brainsurgeon.cli.progress import progress_bar
    from brainsurgeon.operations.ahead import ahead_of_restore
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
    from brainsurgeon.render import archives as render
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
