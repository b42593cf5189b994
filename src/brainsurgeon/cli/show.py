"""The read-only commands: sessions, estimate, show, evidence, history."""

from __future__ import annotations

import select
import sys
import time
from enum import StrEnum
from typing import TYPE_CHECKING

import typer
from typer import Argument, Option

from brainsurgeon import operations, render
from brainsurgeon.cli import options
from brainsurgeon.errors import NotFoundError, StoreUnusableError, UsageError
from brainsurgeon.model.text import readable

if TYPE_CHECKING:
    from brainsurgeon.config import Settings
    from brainsurgeon.model.reports import ArchivedTurn, ShownValues
    from brainsurgeon.store import Store


Sort = StrEnum("Sort", ["size", "saved", "age", "name"])
State = StrEnum("State", ["idle", "busy", "skipped", "failed", "unreadable", "gone"])


def sessions(
    session: str | None = Argument(
        None,
        help="Session to show in detail: its path, id, beginning of the id, or key.",
        autocompletion=options.session_titles,
    ),
    agent: str | None = Option(None, help="Only the sessions of this agent."),
    state: State | None = Option(
        None, help="Only sessions in this state: idle, busy, skipped, failed, unreadable or gone."
    ),
    sort: Sort = Option(
        Sort.size, help="Sort key: size or saved (largest first), age (oldest first), name."
    ),
    preview: bool = Option(
        False, help="With a session, also show the beginning of extracted values."
    ),
    values: bool = Option(
        False, help="With a session, list each value, and what the next scan does with it."
    ),
) -> None:
    """List the sessions, or show what fills one of them.

    For one session, shows its load and cost, the extracted values, the values that the next scan
    would extract, and why each other value is kept.

    \b
    Example:
      brainsurgeon sessions main/0f3c
    """  # noqa: D301
    if session is not None:
        if agent or state:
            raise UsageError("--agent and --state cannot be combined with a SESSION")
        if values and preview:
            raise UsageError("--values and --preview cannot be combined")
        if values:
            _print_decisions(session)
            return
        _print_context(session, preview=preview)
        return
    if preview or values:
        raise UsageError(f"{'--preview' if preview else '--values'} wants a SESSION")
    now = time.time()
    with options.reading() as (settings, store):
        listed = operations.sessions.sessions(
            settings, store, now, agent=agent, state=state, sort=sort.value
        )
        linked = operations.init.linked(settings)
    listing = render.sessions.sessions(listed, now, filtered=bool(agent or state))
    text = "\n".join([listing, *render.runs.homes(linked, options.config_file())])
    options.print_answer({"sessions": listed}, lambda: text)


def _print_context(session: str, *, preview: bool) -> None:
    now = time.time()
    with options.reading() as (settings, store):
        context = operations.sessions.context(settings, store, session, now)
        costs = operations.sessions.session_costs(settings, store, session)
        extracted = [
            operations.sessions.described(settings, store, context, value, now, preview=preview)
            for value in context.extracted
        ]
    in_json = render.turns.context_json(context, extracted) | render.estimate.costs_json(costs)
    lines = render.estimate.costs(costs, now)
    options.print_answer(in_json, render.turns.context, context, extracted, lines)


def _print_decisions(session: str) -> None:
    with options.reading() as (settings, store):
        context = operations.sessions.context(settings, store, session, time.time())
    in_json = {
        "session": context.session, "deferred": context.waits,
        "decisions": render.turns.decisions_json(context.plan.decisions),
    }  # fmt: skip
    options.print_answer(in_json, render.turns.decisions, context)


def show(
    name: str | None = Argument(
        None,
        metavar="ENTRY|SESSION",
        help="Entry id or placeholder, or a session.",
        autocompletion=options.session_titles,
    ),
    session: options.OneSession = None,
    key: options.Keys = None,
    index: bool = Option(False, help="Print only the tool calls of an archived turn."),
    search: str | None = Option(
        None,
        metavar="TEXT",
        help="List the entries of SESSION, or of all sessions, that contain TEXT. Also searches "
        "extracted values. Ignores case.",
    ),
    regex: bool = Option(False, help="TEXT is a regular expression."),
    why: bool = Option(
        False, help="Print what the next scan does with each value of the entry, and why."
    ),
) -> None:
    """Print a stored value, an archived turn, or a whole session.

    Changes nothing. The lines of an archived turn or a session are printed as the agent wrote them.
    Values that cannot be restored, such as expired ones, stay placeholders. With --json, a byte
    that is not valid UTF-8 becomes a surrogate (\\udc80 to \\udcff).

    \b
    Example:
      brainsurgeon show 4f9d2a11 --key details > details.txt
    """  # noqa: D301
    if why:
        if name is None or key or index or search is not None:
            raise UsageError("--why takes an ENTRY and --session only")
        _print_why(name, session)
        return
    if search is not None:
        if key or index or (name and session):
            raise UsageError("--search takes SESSION or --session, and neither --key nor --index")
        _print_found(search, name or session, regex=regex)
        return
    if name is None or regex:
        what = "--regex wants" if regex else "show wants an ENTRY, a SESSION or"
        raise UsageError(f"{what} --search TEXT")
    _print_named(name, session, key or [], index=index)


def _print_found(text: str, session: str | None, *, regex: bool) -> None:
    with options.reading() as (settings, store):
        found = operations.show.search(settings, store, text, session, regex=regex)
    options.print_answer(found, render.turns.found, found)


def _print_named(name: str, session: str | None, key: list[str], *, index: bool) -> None:
    with options.reading() as (settings, store):
        try:
            if not key:
                turn = operations.show.show_turn(settings, store, name, session, time.time())
                if turn is not None:
                    _print_turn(turn, index=index)
                    return
            if index:
                raise UsageError(f"{name!r}: --index wants an archived turn, and no --key")
            shown = operations.show.show(settings, store, name, session, key)
        except (NotFoundError, StoreUnusableError) as error:
            no_entry = type(error) in (NotFoundError, StoreUnusableError)
            if session or key or index or not no_entry:
                raise
            _print_session(settings, store, name, error)
            return
    _print_values(shown)


def _print_why(entry: str, session: str | None) -> None:
    with options.reading() as (settings, store):
        answer = operations.sessions.why(settings, store, entry, session, time.time())
    options.print_answer(render.turns.why_json(answer), render.turns.why, answer)


def _print_values(shown: ShownValues) -> None:
    if options.given.json:
        options.print_json(shown)
    else:
        text = options.values_text(shown.content, shown.same_as)
        options.print_bytes([text.encode("utf-8", "surrogatepass")])
        for missed in shown.missed:
            print(f"brainsurgeon: {readable(missed)}", file=sys.stderr)
    options.exit_if_keys_are_unknown(shown)


def _print_session(
    settings: Settings, store: Store, name: str, no_entry: NotFoundError | StoreUnusableError
) -> None:
    from brainsurgeon.lookup.sessions import session_named

    try:
        chosen = session_named(settings, store, name)
    except NotFoundError:
        raise no_entry from None
    chunks = operations.show.cat(settings, store, chosen, time.time())
    if options.given.json:
        whole = b"".join(chunks).decode("utf-8", "surrogateescape")
        options.print_json({"session": name, "lines": whole.split("\n")})
    else:
        options.print_bytes(chunks)


def _print_turn(turn: ArchivedTurn, *, index: bool) -> None:
    if options.given.json:
        options.print_json(render.turns.turn_json(turn))
    elif index:
        options.print_text("\n".join(turn.index))
    else:
        options.print_bytes(line + b"\n" for line in turn.lines)


def evidence(
    session: options.SessionName,
    budget: int = Option(32_000, min=0, help="Largest number of bytes of results to print."),
    last: bool = Option(False, help="Only the last turn."),
    turn: str | None = Option(
        None, help="Only one turn: the id of an archived turn, or of any entry of the turn."
    ),
    subagents: bool = Option(
        False, help="Also those of the sub-agents that the session started, in the same budget."
    ),
) -> None:
    """Print a session's tool calls and results, failed ones first.

    The output begins with an index of the calls. Extracted and archived results are included.
    Each line that belongs to no result begins with the same mark, which no result contains.

    \b
    Examples:
      brainsurgeon evidence main/0f3c
      brainsurgeon evidence main/0f3c --last --budget 8000
    """  # noqa: D301
    if last and turn:
        raise UsageError("evidence takes --last or --turn, not both")
    with options.reading() as (settings, store):
        turn = operations.evidence.LAST if last else turn
        report = operations.evidence.evidence(
            settings, store, session, time.time(), budget=budget, turn=turn, subagents=subagents
        )
    if options.given.json:
        options.print_json(report)
    else:
        options.print_bytes([render.turns.evidence(report).encode()])


def history(
    events: bool = Option(
        False, help="List events instead of runs: changes, failures and signals."
    ),
    follow: bool = Option(False, help="Print new events until interrupted."),
    since: str | None = Option(
        None, help="Only events after this event number or time (ISO 8601; local without a zone)."
    ),
    session: options.OneSession = None,
    kind: list[str] | None = Option(None, help="Only events of this kind. Repeatable."),
    counts: bool = Option(False, help="Count extracted and restored values by kind and tool."),
    everything: bool = Option(False, "--all", help="List all runs or events, not only the newest."),
) -> None:
    """List the runs and their changes, the newest last.

    --events lists the newest 50 events, --since all events after an event or a time. Events are
    kept for 30 days, at most 100,000 of them. They never contain content of sessions. With
    --follow, --json prints one document a line.

    \b
    Example:
      brainsurgeon history --follow --since 4711 --json
    """  # noqa: D301
    if follow:
        _follow(since, session, kind or [], counts=counts, everything=everything)
        return
    if counts and events:
        raise UsageError("--counts cannot be combined with --events")
    with options.reading(only_store=True) as (settings, store):
        if not (events or counts or since or session or kind):
            most = None if everything else operations.history.LISTED_RUNS
            listed = operations.history.runs(store, most=most)
            options.print_answer(render.runs.runs_json(listed), render.runs.runs, listed)
            return
        happened = operations.history.events(
            settings, store, since=since, session=session, kinds=kind or [],
            everything=counts or everything,
        )  # fmt: skip
    if counts:
        tallies = operations.history.counts(happened)
        options.print_answer({"counts": tallies}, render.runs.counts, tallies)
    elif options.given.json:
        options.print_json({"events": list(map(render.runs.event_json, happened))})
    else:
        for event in happened:
            options.print_text(render.runs.event(event))
        if not happened:
            options.print_text("no such event; `history` lists the runs")


def _follow(
    since: str | None, session: str | None, kinds: list[str], *, counts: bool, everything: bool
) -> None:
    # Readers of standard output expect only events there: print no error as JSON.
    in_json, options.given.json = options.given.json, False
    if counts or everything:
        wrong = "--counts" if counts else "--all"
        raise UsageError(f"{wrong} cannot be combined with --follow")
    settings = options.load_settings()
    options.check_store(settings)
    follow = operations.history.follow
    try:
        for listed in follow(settings, since=since, session=session, kinds=kinds, wait=_wait):
            for event in listed:
                if in_json:
                    print(render.runs.event_line(event))
                else:
                    options.print_text(render.runs.event(event))
            if listed:
                sys.stdout.flush()
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def _wait() -> bool:
    """Wait for a second. Return False if nothing reads standard output any more."""
    output = select.poll()
    output.register(1, 0)
    lost = select.POLLERR | select.POLLHUP | select.POLLNVAL
    return not any(event & lost for _, event in output.poll(1000))
