"""The commands for the setup and the configuration."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
import time
from contextlib import suppress
from enum import StrEnum
from functools import partial
from json import dumps, load
from typing import TYPE_CHECKING

import typer
from typer import Option

from brainsurgeon.cli.options import (
    ahead_of_scan,
    given,
    load_settings,
    print_json,
    progress_bar,
    say,
    store_to_read,
)
from brainsurgeon.errors import UsageError
from brainsurgeon.model.reports import Done, ScanReport

if TYPE_CHECKING:
    from brainsurgeon.operations.init import Setup


# The commands of the agents that can get the tool, and of the agents that can get hooks.
Agent = StrEnum("Agent", ["openclaw", "claude", "codex"])
HookedAgent = StrEnum("HookedAgent", ["claude"])
# Seconds after which a hook is ended: Claude Code waits for it.
HOOK_PATIENCE = 0.2
NEXT = """
to prune now: brainsurgeon scan; to see the state: brainsurgeon status
to undo this: brainsurgeon init --undo"""
INSTALL = """\
to install it: brainsurgeon init --systemd --system |
  sudo tee /etc/systemd/system/brainsurgeon.service && sudo systemctl enable --now brainsurgeon"""
NO_FILE = "there is no file: the defaults are in force; `brainsurgeon init` writes one"
NO_ANSWER = "nothing was done: no terminal to ask for confirmation; add --yes or --dry-run"


def init(
    systemd: bool = Option(False, "--systemd", help="Also install a service of your user."),
    system: bool = Option(
        False, "--system", help="With --systemd, only print the unit file of a system service."
    ),
    cron: bool = Option(False, "--cron", help="Also add a scan every two minutes to your crontab."),
    mcp: list[Agent] | None = Option(
        None,
        "--mcp",
        metavar="AGENT",
        help="Also register the tool with openclaw, claude or codex. Repeatable.",
    ),
    hooks: HookedAgent | None = Option(
        None,
        "--hooks",
        metavar="AGENT",
        help="Also install the plugin of claude: the tool, and a warning of a full context.",
    ),
    yes: bool = Option(
        False, "--yes", help="Do not ask. Writes the configuration, and does what the options name."
    ),
    undo: bool = Option(False, "--undo", help="Undo the steps of init."),
    dry_run: bool = Option(False, "--dry-run", help="Print what would be done; write nothing."),
    verbose: bool = Option(False, "--verbose", help="List every value that a run would extract."),
) -> None:
    """Find the agents, write a configuration, offer service and tool.

    Shows each step, and does it after you agree. Changes no session. Overwrites only files that
    it wrote itself.

    \b
    Example:
      brainsurgeon init --systemd --mcp claude --yes
    """  # noqa: D301
    json, config = given.json, given.config
    asks = not (yes or dry_run or json) and sys.stdin.isatty() and sys.stdout.isatty()
    if system:
        _print_system_unit(config, systemd=systemd)
        return
    if undo:
        _undo(config, yes=yes, dry_run=dry_run, asks=asks)
        return
    from brainsurgeon.operations import init as operation
    from brainsurgeon.render import init as render

    agents = [*(agent.value for agent in mcp or ()), *([operation.PLUGIN] if hooks else ())]
    setup = operation.set_up(_program(), config, systemd=systemd, cron=cron, mcp=agents, ask=asks)
    for warning in setup.warnings:
        typer.echo(f"brainsurgeon: {warning}", err=True)
    report, estimated = _look(setup)
    if not json:
        say(render.found(setup.homes, setup.foreign, setup.unused, operation.why_nothing(setup)))
        say(render.totals(report, verbose=verbose))
        say(estimated)
    done = [] if json and not (yes or dry_run) else _carry_out(setup, dry_run, yes, asks)
    if json:
        print_json(render.init_json(setup.homes, setup.offers, report, done))
    elif done and not any(one.left for one in done):
        keep = operation.keeps_running(setup)
        say(NEXT + (f"\nto keep it running: {keep}" if keep else ""))
    waits = any(one.waiting for one in setup.offers)
    if dry_run and waits and not json:
        say("\nnothing was done: this was a dry run; brainsurgeon init --yes does it")
    if waits and not (yes or dry_run or asks):
        raise UsageError(NO_ANSWER)
    impossible = any(offer.asked and not offer.steps for offer in setup.offers)
    raise typer.Exit(1 if impossible or any(one.left for one in done) else 0)


def _print_system_unit(config: str | None, *, systemd: bool) -> None:
    from brainsurgeon.operations.init import system_unit

    if not systemd:
        raise UsageError("--system goes with --systemd")
    print(system_unit(_program(), config), end="")
    if sys.stdout.isatty():
        typer.echo("\n" + INSTALL, err=True)


def hook() -> None:
    """Print a message for users of Claude Code when the context is too full.

    Claude Code's hooks call it with the JSON of a Stop or SessionStart event on stdin. It always
    exits with 0. It prints nothing if anything is wrong, or if 0.2 seconds are not enough.

    \b
    Example:
      brainsurgeon hook < event.json
    """  # noqa: D301
    # SIGALRM kills the child even in a call that Python cannot interrupt. The parent exits with 0.
    if child := os.fork():
        os.waitpid(child, 0)
        return
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, HOOK_PATIENCE)
    with suppress(Exception):  # no turn may fail because of a hook
        from brainsurgeon.operations.hook import advice

        settings, event = load_settings(), load(sys.stdin)
        resumed = event.get("hook_event_name") == "SessionStart"
        with store_to_read(settings) as store:
            path = event["transcript_path"]
            text = advice(settings, store, path, time.time(), resumed=resumed)
        if text:
            print(dumps({"systemMessage": text}))
    signal.setitimer(signal.ITIMER_REAL, 0)


def _program() -> tuple[str, ...]:
    """Return the command that starts this program from any directory."""
    called = os.path.abspath(sys.argv[0])
    if os.path.basename(called) == "brainsurgeon" and os.access(called, os.X_OK):
        return (called,)
    beside = os.path.join(os.path.dirname(sys.executable), "brainsurgeon")
    known = beside if os.access(beside, os.X_OK) else shutil.which("brainsurgeon")
    return (known,) if known else (sys.executable, "-m", "brainsurgeon")


def _look(setup: Setup) -> tuple[ScanReport, str]:
    """Return the report of a dry run with the settings that will be in force, and an estimate."""
    from brainsurgeon.model.reports import Watch
    from brainsurgeon.operations.estimate import estimate
    from brainsurgeon.operations.scan import scan
    from brainsurgeon.render.estimate import in_one_line

    settings, now = setup.settings, time.time()
    with store_to_read(settings) as store:
        ahead = partial(ahead_of_scan, settings, store, ())
        with progress_bar("looking at", ahead, quiet=given.json) as progress:
            report = scan(settings, store, clock=time.time, dry_run=True, watch=Watch(progress))
        estimated = "" if given.json else in_one_line(estimate(settings, store, (), now))
    return report, estimated


def _carry_out(setup: Setup, dry_run: bool, yes: bool, asks: bool) -> list[Done]:
    from brainsurgeon.operations.init import carry_out
    from brainsurgeon.render import init as render

    done = []
    for offer in setup.offers:
        if not given.json:
            say("\n" + render.offer(offer))
        if dry_run or not offer.waiting:
            continue
        if yes or (asks and typer.confirm("do this?", default=offer.asked)):
            carried_out = carry_out(offer.waiting, setup.record)
            if not given.json:
                say(render.done(carried_out))
            done += carried_out
    return done


def _undo(config: str | None, *, yes: bool, dry_run: bool, asks: bool) -> None:
    from brainsurgeon.config import config_path, load
    from brainsurgeon.operations.init import read_record, take_back
    from brainsurgeon.render import init as render

    path = config_path(config)
    # Without a configuration, the record is in the default state directory.
    settings, _ = load(path if path and os.path.lexists(path) else os.devnull)
    record = read_record(settings.state_dir)
    store_is_left = os.path.lexists(os.path.join(record.directory, "store.db"))
    done: list[Done] = []
    if not given.json:
        say(render.undoing(record.entries[1:]) if record.entries else "there is nothing to undo")
        if store_is_left:
            say(f"the values in {record.directory} stay, and so do placeholders in sessions;")
            say("to restore everything first: brainsurgeon restore --all --pristine")
    if record.entries and not dry_run:
        if not (yes or asks):
            raise UsageError(NO_ANSWER)
        if yes or typer.confirm("do this?", default=False):
            done = take_back(record)
            if not given.json:
                say(render.done(done))
                if store_is_left:
                    _say_how_to_purge(record.directory)
    if given.json:
        print_json(render.init_json((), (), None, done))
    raise typer.Exit(1 if any(one.left for one in done) else 0)


def _say_how_to_purge(directory: str) -> None:
    """Print how to remove the store; the configuration that named its directory may be gone."""
    from brainsurgeon.config import default_state_dir

    usual = os.environ.get("BRAINSURGEON_STATE_DIR") or default_state_dir()
    where = f"BRAINSURGEON_STATE_DIR={shlex.quote(directory)} " if usual != directory else ""
    say(f"to remove the values once no placeholder is left: {where}brainsurgeon store purge")


def config(
    check: bool = Option(False, "--check", help="Only check whether the configuration is valid."),
    schema: bool = Option(
        False, "--schema", help="Print a JSON schema of the configuration, for editors."
    ),
) -> None:
    """Print the settings in force and the source of each.

    The output is itself a configuration. If the configuration has problems, the command lists all
    of them and exits with 2.

    \b
    Example:
      brainsurgeon config --schema > ~/.config/brainsurgeon/schema.json
    """  # noqa: D301
    if schema:
        from brainsurgeon.config.origins import schema as made
        from brainsurgeon.render import as_json

        typer.echo(as_json(made()))
        return
    from brainsurgeon.config import config_path

    settings = load_settings()
    source = config_path(given.config)
    if check and not given.json:
        say(f"{source}: no problems" if source else NO_FILE)
        return
    from brainsurgeon.config.origins import settings_shown
    from brainsurgeon.render import init as render

    listed = settings_shown(settings, given.config)
    if given.json:
        shown = [] if check else listed
        print_json({"configuration": source, "settings": shown, "warnings": given.warnings})
    else:
        say(render.settings(listed, source))
