"""The read-only commands: sessions, values, costs, runs and events."""

from __future__ import annotations

import select
import sys
import time
from enum import StrEnum
from typing import TYPE_CHECKING

import typer
from typer import Argument, Option

from brainsurgeon.cli import options
from brainsurgeon.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from brainsurgeon.config import Settings
    from brainsurgeon.model.reports import ArchivedTurn
    from brainsurgeon.store import Store


Sort = StrEnum("Sort", ["size", "saved", "age", "name"])


def sessions(
    session: str | None = Argument(
        None,
        help="Show this session in detail: its path, id, prefix of an id, or key.",
        autocompletion=options.session_titles,
    ),
    agent: str | None = Option(None, "--agent", help="Only the sessions of this agent."),
    state: str | None = Option(
        None,
        "--state",
        help="Only sessions in this state: idle, busy, skipped, failed, unreadable or gone.",
    ),
    sort: Sort = Option(
        Sort.size,
        "--sort",
        help="Sort key: size or saved (largest first), age (oldest first), name.",
    ),
    preview: bool = Option(
        False, "--preview", help="With a session, also show the beginning of extracted values."
    ),
) -> None:
    """List the sessions, or show what fills one of them.

    For one session, shows its load and cost, the extracted values, the values that the next scan
    would extract, and why each other value is kept.

    \b
    Example:
      brainsurgeon sessions main/0f3c
    """  # noqa: D301
    settings = options.load_settings()
    if session is not None:
        if agent or state:
            raise UsageError("--agent and --state cannot be combined with a SESSION")
        _print_context(settings, session, preview=preview)
        return
    from brainsurgeon.operations.sessions import sessions as operation
    from brainsurgeon.render import sessions as render

    now = time.time()
    with options.store_to_read(settings) as store:
        listed = operation(settings, store, now, agent=agent, state=state, sort=sort.value)
    if options.given.json:
        options.print_json({"sessions": listed})
    else:
        options.say(render.sessions(listed, now, chosen=bool(agent or state)))


def _print_context(settings: Settings, session: str, *, preview: bool) -> None:
    from brainsurgeon.operations.sessions import context as operation
    from brainsurgeon.operations.sessions import described, session_costs
    from brainsurgeon.render import estimate as costs_rendering
    from brainsurgeon.render import turns as render

    now = time.time()
    with options.store_to_read(settings) as store:
        context = operation(settings, store, session, now)
        costs = session_costs(settings, store, session)
        extracted = [
            described(settings, store, context, value, now, preview=preview)
            for value in context.extracted
        ]
    if options.given.json:
        options.print_json(
            render.context_json(context, extracted) | costs_rendering.costs_json(costs)
        )
    else:
        options.say(render.context(context, extracted, costs_rendering.costs(costs, now)))


def estimate(
    session: list[str] | None = Argument(None, help="Only these sessions."),
) -> None:
    """Compare the cost of recorded calls under five policies.

    Writes nothing.

    \b
    Policies:
      raw         extract nothing
      configured  extract by your configuration
      lean        extract by the profile lean
      cold        extract only once the provider's prompt cache is cold
      always      extract at once

    \b
    Examples:
      brainsurgeon estimate
      brainsurgeon estimate main/0f3c
    """  # noqa: D301
    settings = options.load_settings()
    from brainsurgeon.operations.estimate import estimate as operation
    from brainsurgeon.render import estimate as render

    with options.store_to_read(settings) as store:
        found = operation(settings, store, session or (), time.time())
    options.print_answer(render.estimate_json(found), render.estimate, found)


def show(
    name: str | None = Argument(
        None,
        metavar="ENTRY|SESSION",
        help="Entry id or placeholder, or a session.",
        autocompletion=options.session_titles,
    ),
    session: options.OneSession = None,
    key: options.Keys = None,
    index: bool = Option(False, "--index", help="Print only the tool calls of an archived turn."),
    search: str | None = Option(
        None,
        "--search",
        metavar="TEXT",
        help="List the entries that contain TEXT, in SESSION or in all sessions. Finds extracted "
        "values, too. Ignores case.",
    ),
    regex: bool = Option(False, "--regex", help="TEXT is a regular expression."),
) -> None:
    """Print a stored value, an archived turn, or a whole session.

    Changes nothing. The lines of an archived turn or a session are printed as the agent wrote them,
    with each placeholder filled. With --json, a byte that is not valid UTF-8 becomes a surrogate
    (\\udc80 to \\udcff).

    \b
    Example:
      brainsurgeon show 4f9d2a11 --key details > details.txt
    """  # noqa: D301
    settings = options.load_settings()
    if search is not None:
        from brainsurgeon.operations.search import search as find
        from brainsurgeon.render import turns as render

        with options.store_to_read(settings) as store:
            hits = find(settings, store, search, name or session, regex=regex)
        options.print_answer({"hits": hits}, render.hits, hits)
        return
    if name is None or regex:
        raise UsageError("show wants an ENTRY, a SESSION or --search TEXT")
    from brainsurgeon.operations.show import show as operation
    from brainsurgeon.operations.show import show_turn

    with options.store_to_read(settings) as store:
        try:
            turn = None if key else show_turn(settings, store, name, session, time.time())
            if turn is not None:
                _print_turn(turn, index=index)
                return
            if index:
                raise UsageError(f"{name!r} is no archived turn; --index needs one")
            shown = operation(settings, store, name, session, key or [])
        except NotFoundError as error:
            if session or key or index or type(error) is not NotFoundError:
                raise
            _print_session(settings, store, name, error)
            return
    if options.given.json:
        options.print_json(shown)
    else:
        options.print_raw(options.values_text(shown.content, shown.same_as))


def _print_session(
    settings: Settings, store: Store | None, name: str, no_entry: NotFoundError
) -> None:
    """Print a whole session; raise `no_entry` if there is no such session."""
    from brainsurgeon.lookup.sessions import session_named
    from brainsurgeon.operations.cat import cat

    try:
        chosen = session_named(settings, store, name)
    except NotFoundError:
        raise no_entry from None
    chunks = cat(settings, store, chosen, time.time())
    if options.given.json:
        whole = b"".join(chunks).decode("utf-8", "surrogateescape")
        options.print_json({"session": name, "lines": whole.split("\n")})
        return
    for chunk in chunks:
        sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()


def _print_turn(turn: ArchivedTurn, *, index: bool) -> None:
    from brainsurgeon.render import turns as render

    if options.given.json:
        options.print_json(render.turn_json(turn))
    elif index:
        options.say("\n".join(turn.index))
    else:
        sys.stdout.buffer.write(b"".join(line + b"\n" for line in turn.lines))
        sys.stdout.buffer.flush()


def evidence(
    session: options.SessionName,
    budget: int = Option(
        32_000, "--budget", min=0, help="Largest number of bytes of results to print."
    ),
    last: bool = Option(False, "--last", help="Only the last turn."),
    turn: str | None = Option(
        None,
        "--turn",
        help="Only one turn: the id of an archived turn, or of any entry of the turn.",
    ),
) -> None:
    """Print a session's tool calls and results, failed ones first.

    An index of the calls comes first. Extracted and archived results are included.

    \b
    Examples:
      brainsurgeon evidence main/0f3c
      brainsurgeon evidence main/0f3c --last --budget 8000
    """  # noqa: D301
    settings = options.load_settings()
    if last and turn:
        raise UsageError("evidence takes --last or --turn, not both")
    from brainsurgeon.operations.evidence import LAST
    from brainsurgeon.operations.evidence import evidence as operation
    from brainsurgeon.render import turns as render

    with options.store_to_read(settings) as store:
        now = time.time()
        turn = LAST if last else turn
        report = operation(settings, store, session, now, budget=budget, turn=turn)
    if options.given.json:
        options.print_json(report)
    else:
        sys.stdout.buffer.write(render.evidence(report).encode())
        sys.stdout.buffer.flush()


def history(
    events: bool = Option(
        False, "--events", help="List events instead of runs: what happened to each session."
    ),
    follow: bool = Option(False, "--follow", help="Print new events until interrupted."),
    since: str | None = Option(
        None, "--since", help="Only events after this event number or ISO 8601 time."
    ),
    session: options.OneSession = None,
    kind: list[str] | None = Option(None, "--kind", help="Only events of this kind. Repeatable."),
    counts: bool = Option(
        False, "--counts", help="Count extracted and restored values by kind and tool."
    ),
    everything: bool = Option(False, "--all", help="List all runs, not only the newest 20."),
) -> None:
    """List the runs and their changes, the newest last.

    --events lists the newest 50 events, or with --since all later ones. Events are kept for 30
    days. They never contain content of sessions. With --follow, --json prints one document a
    line.

    \b
    Example:
      brainsurgeon history --follow --since 4711 --json
    """  # noqa: D301
    each = options.given.json and follow
    options.given.json = options.given.json and not follow
    settings = options.load_settings()
    if follow and counts:
        raise UsageError("--counts cannot be combined with --follow")
    if follow:
        _follow(settings, since, session, kind or [], json=each)
        return
    from brainsurgeon.operations import history as operation
    from brainsurgeon.render import runs as render

    if not (events or counts or since or session or kind):
        with options.store_to_read(settings) as store:
            listed = operation.runs(store, most=None if everything else operation.LISTED_RUNS)
        options.print_answer(render.runs_json(listed), render.runs, listed)
        return
    with options.store_to_read(settings) as store:
        happened = operation.events(
            settings, store, since=since, session=session, kinds=kind or [], everything=counts
        )
    if counts:
        tallies = operation.counts(happened)
        options.print_answer({"counts": tallies}, render.counts, tallies)
    elif options.given.json:
        options.print_json({"events": list(map(render.event_json, happened))})
    else:
        for event in happened:
            options.say(render.event(event))


def _follow(
    settings: Settings, since: str | None, session: str | None, kinds: list[str], *, json: bool
) -> None:
    from brainsurgeon.operations.history import follow
    from brainsurgeon.render import runs as render

    try:
        for listed in follow(settings, since=since, session=session, kinds=kinds, wait=_wait):
            for event in listed:
                print(render.event_line(event)) if json else options.say(render.event(event))
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
