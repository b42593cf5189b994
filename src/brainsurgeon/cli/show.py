"""The read-only commands."""

from __future__ import annotations

import sys
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from brainsurgeon.cli.options import (
    Config,
    Entry,
    Json,
    Keys,
    OneSession,
    SessionName,
    given,
    print_answer,
    print_json,
    say,
    settings_of,
    store_to_read,
)
from brainsurgeon.cli.streams import print_raw, values_text
from brainsurgeon.errors import UsageError

if TYPE_CHECKING:
    from brainsurgeon.model.reports import ArchivedTurn


class Sort(StrEnum):
    """What the list of sessions is sorted by."""

    size = "size"
    saved = "saved"
    age = "age"
    name = "name"


def sessions(
    agent: Annotated[
        str | None, typer.Option("--agent", help="Only the sessions of this agent.")
    ] = None,
    state: Annotated[
        str | None,
        typer.Option("--state", help="Only sessions in this state: idle, busy, skipped, failed, …"),
    ] = None,
    sort: Annotated[
        Sort, typer.Option("--sort", help="What to sort by; sizes and savings largest first.")
    ] = Sort.size,
    json: Json = False,
    config: Config = None,
) -> None:
    """List the sessions: size, savings, age, and whether each is idle or why not.

    \b
    Examples:
      brainsurgeon sessions
      brainsurgeon sessions --agent main --state busy --sort age
    """  # noqa: D301
    settings = settings_of(config, json=json)
    from brainsurgeon.operations.sessions import sessions as operation
    from brainsurgeon.render import sessions as render

    now = time.time()
    with store_to_read(settings) as store:
        listed = operation(settings, store, now, agent=agent, state=state, sort=sort.value)
    if json:
        print_json(render.sessions_json(listed))
    else:
        say(render.sessions(listed, now, chosen=bool(agent or state)))


def context(
    session: SessionName,
    preview: Annotated[
        bool, typer.Option("--preview", help="Also show how each extracted value begins.")
    ] = False,
    json: Json = False,
    config: Config = None,
) -> None:
    """Show what fills a session, what is extracted, and what the next scan would extract.

    \b
    Examples:
      brainsurgeon context main/0f3c
      brainsurgeon context main/0f3c --preview
    """  # noqa: D301
    settings = settings_of(config, json=json)
    from brainsurgeon.operations.context import context as operation
    from brainsurgeon.operations.context import described
    from brainsurgeon.render import context as render
    from brainsurgeon.render import printable

    now = time.time()
    with store_to_read(settings) as store:
        context = operation(settings, store, session, now)
        extracted = [
            described(settings, store, context, value, now, preview=preview)
            for value in context.extracted
        ]
    if json:
        print_json(printable(render.context_json(context, extracted)))
    else:
        say(render.context(context, extracted))


def show(
    entry: Entry,
    session: OneSession = None,
    key: Keys = None,
    index: Annotated[
        bool, typer.Option("--index", help="Print only the tool calls of an archived turn.")
    ] = False,
    json: Json = False,
    config: Config = None,
) -> None:
    """Print a stored value, raw, or an archived turn as JSON lines; nothing is touched.

    \b
    Examples:
      brainsurgeon show 4f9d2a11
      brainsurgeon show 4f9d2a11 --key details > details.txt
      brainsurgeon show 7c01b9e2 --index         the calls of an archived turn
    """  # noqa: D301
    settings = settings_of(config, json=json)
    from brainsurgeon.operations.show import show as operation
    from brainsurgeon.operations.show import show_turn

    with store_to_read(settings) as store:
        turn = None if key else show_turn(settings, store, entry, session, time.time())
        if turn is not None:
            _print_turn(turn, index=index)
            return
        if index:
            raise UsageError(f"{entry!r} is no archived turn")
        shown = operation(settings, store, entry, session, key or [])
    if json:
        from brainsurgeon.render.sessions import shown_json

        print_json(shown_json(shown))
    else:
        print_raw(values_text(shown.content, shown.same_as))


def _print_turn(turn: ArchivedTurn, *, index: bool) -> None:
    from brainsurgeon.render import turns as render

    if given.json:
        print_json(render.turn_json(turn))
    elif index:
        say("\n".join(turn.index))
    else:
        sys.stdout.buffer.write(b"".join(line + b"\n" for line in turn.lines))
        sys.stdout.buffer.flush()


def archives(
    session: Annotated[
        str | None, typer.Argument(help="Path, id, prefix of the id, agent/id, or session key.")
    ] = None,
    json: Json = False,
    config: Config = None,
) -> None:
    """List the archived turns of a session, or of all.

    \b
    Examples:
      brainsurgeon archives
      brainsurgeon archives main/0f3c
    """  # noqa: D301
    settings = settings_of(config, json=json)
    from brainsurgeon.operations.archive import archives as operation
    from brainsurgeon.render import turns as render

    with store_to_read(settings) as store:
        listed = operation(settings, store, session)
    print_answer(render.archives_json, render.archives, listed, time.time())


def search(
    text: Annotated[list[str], typer.Argument(help="[SESSION] TEXT", metavar="[SESSION] TEXT")],
    regex: Annotated[bool, typer.Option("--regex", help="TEXT is a regular expression.")] = False,
    json: Json = False,
    config: Config = None,
) -> None:
    """Search the stored values and the sessions for a text, ignoring case.

    \b
    Examples:
      brainsurgeon search "connection refused"
      brainsurgeon search main/0f3c 'port [0-9]+' --regex
    """  # noqa: D301
    settings = settings_of(config, json=json)
    if len(text) > 2:  # noqa: PLR2004
        raise UsageError("search wants [SESSION] TEXT: put a text of several words in quotes")
    from brainsurgeon.operations.search import search as operation
    from brainsurgeon.render import turns as render

    with store_to_read(settings) as store:
        session = text[0] if len(text) > 1 else None
        hits = operation(settings, store, text[-1], session, regex=regex)
    print_answer(render.hits_json, render.hits, hits)


def cat(session: SessionName, json: Json = False, config: Config = None) -> None:
    """Print a whole session with every placeholder filled in; the file is not touched.

    With --json the lines are strings in a list; each byte that is not valid UTF-8 is written as a
    surrogate, \\udc80 to \\udcff.

    \b
    Example:
      brainsurgeon cat main/0f3c > full.jsonl
    """  # noqa: D301
    settings = settings_of(config, json=json)
    from brainsurgeon.operations.cat import cat as operation

    with store_to_read(settings) as store:
        chunks = operation(settings, store, session, time.time())
        if json:
            whole = b"".join(chunks).decode("utf-8", "surrogateescape")
            print_json({"session": session, "lines": whole.split("\n")})
            return
        for chunk in chunks:
            sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
