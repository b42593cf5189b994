"""The commands that show and touch nothing."""

from __future__ import annotations

import sys
import time
from enum import StrEnum
from typing import Annotated

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
)
from brainsurgeon.cli.printing import print_values


class Sort(StrEnum):
    """By what sessions are listed."""

    size = "size"
    saved = "saved"
    age = "age"
    name = "name"


def sessions(
    agent: Annotated[
        str | None, typer.Option("--agent", help="Only the sessions of this agent.")
    ] = None,
    state: Annotated[
        str | None, typer.Option("--state", help="Only those: settled, busy, skipped, failed, …")
    ] = None,
    sort: Annotated[
        Sort, typer.Option("--sort", help="The largest first, or by another column.")
    ] = Sort.size,
    json: Json = False,
    config: Config = None,
) -> None:
    """List the sessions: size, savings, age, and whether each is settled or why not.

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
    """Show what fills a session, what is extracted, and what the next scan would take.

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
        one = operation(settings, store, session, now)
        extracted = [
            described(settings, store, one, value, now, preview=preview) for value in one.extracted
        ]
    if json:
        print_json(printable(render.context_json(one, extracted)))
    else:
        say(render.context(one, extracted))


def show(
    entry: Entry,
    session: OneSession = None,
    key: Keys = None,
    json: Json = False,
    config: Config = None,
) -> None:
    """Print a stored value, raw; nothing is touched.

    \b
    Examples:
      brainsurgeon show 4f9d2a11
      brainsurgeon show 4f9d2a11 --key details > details.txt
    """  # noqa: D301
    settings = settings_of(config, json=json)
    from brainsurgeon.operations.show import show as operation
    from brainsurgeon.render import sessions as render

    with store_to_read(settings) as store:
        shown = operation(settings, store, entry, session, key or [])
    if json:
        print_json(render.shown_json(shown))
    else:
        print_values(shown.content, shown.same_as)


def cat(session: SessionName, json: Json = False, config: Config = None) -> None:
    """Print a whole session with every stub filled in; the file is not touched.

    With --json the lines are strings in a list; a byte that is no UTF-8 is written as \\udc80 to
    \\udcff.

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
