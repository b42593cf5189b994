"""The commands that set up: the first contact, and the configuration."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from brainsurgeon.cli.options import Config, Json, given, print_json, say, settings_of
from brainsurgeon.errors import UsageError

if TYPE_CHECKING:
    from brainsurgeon.model.reports import ScanReport
    from brainsurgeon.operations.init import Setup
    from brainsurgeon.operations.install import Done, Offer, Record


class Agent(StrEnum):
    """The agents that can be given the tool, by their commands."""

    openclaw = "openclaw"
    claude = "claude"
    codex = "codex"


NEXT = """
to prune now: brainsurgeon scan --once; how it stands: brainsurgeon status
to take this back: brainsurgeon init --undo"""
ONLY_LOOKED = "\nnothing was done: this was a look; brainsurgeon init --yes does it"
NO_ANSWER = "nothing was done: nobody can be asked here; add --yes, or --dry-run to only look"


def init(
    systemd: Annotated[
        bool, typer.Option("--systemd", help="Also run it as a service of your own.")
    ] = False,
    mcp: Annotated[
        list[Agent] | None,
        typer.Option(
            "--mcp",
            metavar="AGENT",
            help="Also give openclaw, claude or codex the tool. Repeatable.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it without asking.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Take back exactly what init did.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done; write nothing.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Name every value that a run would take.")
    ] = False,
    json: Json = False,
    config: Config = None,
) -> None:
    """Set up: find the agents, write a configuration, show what a first run would do.

    Everything is shown before it is done, and asked for. Nothing that is there already is written
    over; no session is touched.

    \b
    Examples:
      brainsurgeon init
      brainsurgeon init --systemd --mcp claude --yes
      brainsurgeon init --undo
    """  # noqa: D301
    given.json = json
    config = config or given.config
    asks = not (yes or dry_run or json) and sys.stdin.isatty() and sys.stdout.isatty()
    if undo:
        _undo(config, yes=yes, dry_run=dry_run, asks=asks)
        return
    from brainsurgeon.operations import init as operation
    from brainsurgeon.render import init as render

    setup = operation.set_up(
        _program(), config, systemd=systemd, mcp=[one.value for one in mcp or ()], ask=asks
    )  # fmt: skip
    for warning in setup.warnings:
        typer.echo(f"brainsurgeon: {warning}", err=True)
    report = _look(setup)
    if not json:
        say(render.found(setup, operation.why_nothing(setup)))
        say(render.totals(report, verbose=verbose))
    done = (
        [] if json and not (yes or dry_run) else _take(setup, yes=yes, dry_run=dry_run, asks=asks)
    )
    if json:
        print_json(render.init_json(setup, report, done))
    elif done and not any(one.left for one in done):
        say(NEXT)
    waits = any(one.waiting for one in setup.offers)
    if dry_run and waits and not json:
        say(ONLY_LOOKED)
    if waits and not (yes or dry_run or asks):
        raise UsageError(NO_ANSWER)
    raise typer.Exit(1 if any(one.left for one in done) else 0)


def _program() -> tuple[str, ...]:
    """Give the words by which this very program is started from anywhere."""
    called = os.path.abspath(sys.argv[0])
    if os.path.basename(called) == "brainsurgeon" and os.access(called, os.X_OK):
        return (called,)
    beside = os.path.join(os.path.dirname(sys.executable), "brainsurgeon")
    known = beside if os.access(beside, os.X_OK) else shutil.which("brainsurgeon")
    return (known,) if known else (sys.executable, "-m", "brainsurgeon")


def _look(setup: Setup) -> ScanReport:
    """Do a dry run with the settings that will be in force."""
    from brainsurgeon.cli.options import store_to_read
    from brainsurgeon.cli.progress import ahead_of_scan, progress_bar
    from brainsurgeon.operations.scan import scan

    with store_to_read(setup.settings) as store:
        ahead = partial(ahead_of_scan, setup.settings, store, ())
        with progress_bar("looking at", ahead, quiet=given.json) as progress:
            return scan(setup.settings, store, clock=time.time, dry_run=True, progress=progress)


def _take(setup: Setup, *, yes: bool, dry_run: bool, asks: bool) -> list[Done]:
    """Show each offer, and carry out those that are agreed to."""
    from brainsurgeon.operations.install import carry_out
    from brainsurgeon.render import init as render

    done = []
    for offer in setup.offers:
        if not given.json:
            say("\n" + render.offer(offer))
        if dry_run or not offer.waiting or not (yes or (asks and _agreed(offer))):
            continue
        came = carry_out(offer.waiting, setup.record)
        if not given.json:
            say(render.done(came))
        done += came
    return done


def _agreed(offer: Offer) -> bool:
    return typer.confirm("do this?", default=offer.asked)


def _undo(config: str | None, *, yes: bool, dry_run: bool, asks: bool) -> None:
    """Show what init did here, and take it back where that is agreed to."""
    from brainsurgeon.operations.install import read_record, take_back
    from brainsurgeon.render import init as render

    record = read_record(_state_directory(config))
    done: list[Done] = []
    if not given.json:
        say(render.undoing(record.entries[1:]) if record.entries else "there is nothing to undo")
        _say_what_stays(record)
    if record.entries and not dry_run:
        if not (yes or asks):
            raise UsageError(NO_ANSWER)
        if yes or typer.confirm("do this?", default=False):
            done = take_back(record)
            if not given.json:
                say(render.done(done))
                _say_how_to_purge(record.directory)
    if given.json:
        print_json(render.init_json(None, None, done))
    raise typer.Exit(1 if any(one.left for one in done) else 0)


def _state_directory(config: str | None) -> str:
    """Give the state directory, also where the configuration that named it was removed."""
    from brainsurgeon.config import config_path, load

    path = config_path(config)
    settings, _ = load(path if path and os.path.lexists(path) else os.devnull)
    return settings.state_dir


def _say_what_stays(record: Record) -> None:
    if os.path.lexists(os.path.join(record.directory, "store.db")):
        say(f"the values in {record.directory} stay, and so do placeholders in sessions;")
        say("to put everything back first: brainsurgeon restore --all --pristine")


def _say_how_to_purge(directory: str) -> None:
    """Say how the store is found from now on: a configuration that named it may be gone."""
    if os.path.lexists(os.path.join(directory, "store.db")):
        from brainsurgeon.config import default_state_dir

        usual = os.environ.get("BRAINSURGEON_STATE_DIR") or default_state_dir()
        where = f"BRAINSURGEON_STATE_DIR={shlex.quote(directory)} " if usual != directory else ""
        say(f"to remove the values once nothing leads to them: {where}brainsurgeon store purge")


def config(
    check: Annotated[
        bool, typer.Option("--check", help="Only say whether it is in order.")
    ] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema for editors.")
    ] = False,
    json: Json = False,
    config: Config = None,
) -> None:
    """Print the settings in force, and where each comes from.

    What is printed is a configuration itself. With a problem in it, it exits with 2 and names all.

    \b
    Examples:
      brainsurgeon config
      brainsurgeon config --check
      brainsurgeon config --schema > ~/.config/brainsurgeon/schema.json
    """  # noqa: D301
    if schema:
        from brainsurgeon.config.reference import schema as made
        from brainsurgeon.render import as_json

        typer.echo(as_json(made()))
        return
    from brainsurgeon.config import config_path

    settings = settings_of(config, json=json)
    source = config_path(config or given.config)
    if check and not json:
        say(f"{source}: no problems" if source else "there is no file: the defaults are in force")
        return
    from brainsurgeon.config.origins import settings_shown
    from brainsurgeon.render import init as render

    listed = settings_shown(settings, config or given.config)
    if json:
        print_json(render.settings_json([] if check else listed, source, given.warnings))
    else:
        say(render.settings(listed, source))
