"""The commands init, hook and config."""

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
from typer import Argument, Option

from brainsurgeon import operations, render
from brainsurgeon.agents import INSTALLS, PLUGINS
from brainsurgeon.cli import options
from brainsurgeon.cli.options import given, print_json, print_text
from brainsurgeon.errors import UsageError
from brainsurgeon.model.reports import Done, ScanReport, Watch

if TYPE_CHECKING:
    from brainsurgeon.operations.init import Setup


# The commands of agents.
Agent = StrEnum("Agent", [*INSTALLS])  # type: ignore[misc]
HookedAgent = StrEnum("HookedAgent", PLUGINS)  # type: ignore[misc]
HOOK_TIMEOUT = 0.2  # seconds until the hook is killed: Claude Code waits for it
CEILING_TIMEOUT = 5.0  # seconds, for the answer whether a prompt may be sent: it reads all calls
NEXT = """
to prune now: brainsurgeon scan; to see the state: brainsurgeon status
to undo this: brainsurgeon init --undo"""
INSTALL = """\
to install it: brainsurgeon init --systemd --system |
  sudo tee /etc/systemd/system/brainsurgeon.service && sudo systemctl enable --now brainsurgeon"""
NO_FILE = "no configuration file: the defaults apply; `brainsurgeon init` writes a file"
PARTLY_DECLINED = "not everything was done: the answer was no; --yes does the rest"
NO_ANSWER = "nothing was done: without a terminal or with --json, add --yes or --dry-run"


def init(
    systemd: bool = Option(False, help="Also install a systemd user service."),
    system: bool = Option(
        False, help="With --systemd, only print the unit file of a system service."
    ),
    cron: bool = Option(False, help="Also add a scan every two minutes to your crontab."),
    mcp: list[Agent] | None = Option(
        None,
        metavar="AGENT",
        help="Also register the tool with openclaw, claude, codex, copilot, gemini, opencode "
        "or kilo. Repeatable.",
    ),
    hooks: HookedAgent | None = Option(
        None,
        metavar="AGENT",
        help="Also install the plugin of claude: the tool, and a warning when the context is full.",
    ),
    yes: bool = Option(
        False, help="Do not ask: write the configuration, and do what the other options request."
    ),
    undo: bool = Option(False, help="Undo the steps of init."),
    dry_run: bool = Option(False, help="Print what would be done; write nothing."),
    verbose: bool = Option(False, help="List every value that a run would extract."),
    new_store: options.NewStore = False,
) -> None:
    """Find the agents, write a configuration, offer service and tool.

    Asks before each step. Changes no session. Overwrites only files that it wrote itself.

    \b
    Example:
      brainsurgeon init --systemd --mcp claude --yes
    """  # noqa: D301
    config = given.config
    interactive = not (yes or dry_run or given.json) and sys.stdin.isatty() and sys.stdout.isatty()
    if system:
        others = cron or mcp or hooks or yes or undo or dry_run or verbose or new_store
        _print_system_unit(config, valid=systemd and not others)
        return
    if undo:
        if systemd or cron or mcp or hooks or verbose or new_store:
            raise UsageError("--undo undoes all steps: it takes only --yes or --dry-run")
        _undo(config, yes=yes, dry_run=dry_run, interactive=interactive)
        return
    if systemd and cron:
        raise UsageError("--systemd and --cron would both run scans: choose one")
    setup = operations.init.set_up(
        _program(), config, systemd=systemd, cron=cron, mcp=[agent.value for agent in mcp or ()],
        plugin=hooks.value if hooks else None, offer_more=interactive,
    )  # fmt: skip
    for warning in setup.warnings:
        typer.echo(f"brainsurgeon: {warning}", err=True)
    options.check_store(setup.settings, new_store=new_store)
    report, estimated = _dry_run(setup)
    why_none = operations.init.why_no_agent(setup)
    _print(
        render.init.found(setup.homes, setup.foreign, setup.unused, why_none, options.config_file())
    )
    _print(render.init.totals(report, options.config_file(), verbose=verbose))
    _print(estimated)
    done = _carry_out(setup, dry_run, yes, interactive, new_store=new_store)
    waits = any(offer.waiting for offer in setup.offers)
    if waits and not (yes or dry_run or interactive):
        raise UsageError(NO_ANSWER)
    if given.json:
        print_json(render.init.init_json(setup.homes, setup.offers, report, done))
    elif done and not any(step.left for step in done):
        keep = operations.init.command_for_service(setup)
        print_text(NEXT + (f"\nto keep it running: {keep}" if keep else ""))
    if dry_run and waits:
        _print("\nnothing was done: this was a dry run; --yes instead of --dry-run does it")
    impossible = any(offer.asked and not offer.steps for offer in setup.offers)
    raise typer.Exit(1 if impossible or any(step.left for step in done) else 0)


def _print(text: str) -> None:
    if not given.json:
        print_text(text)


def _print_system_unit(config: str | None, *, valid: bool) -> None:
    if not valid:
        raise UsageError("--system only prints a unit file: it takes --systemd and nothing else")
    print(operations.init.system_unit(_program(), config), end="")
    if sys.stdout.isatty():
        typer.echo("\n" + INSTALL, err=True)


def hook() -> None:
    """Print a message for users of Claude Code when the context is too full.

    Hooks of Claude Code run this command with the JSON of an event on stdin: Stop, SessionStart, or
    UserPromptSubmit, where it can stop the prompt (`signals.stop_prompts`). It always exits with 0.
    It prints nothing if an error occurs or if it needs more than 0.2 seconds, or more than 5 to
    add up what a session has cost.

    \b
    Example:
      brainsurgeon hook < event.json
    """  # noqa: D301
    # SIGALRM kills the child even in a call that Python cannot interrupt. The parent exits with 0.
    if child := os.fork():
        os.waitpid(child, 0)
        return
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, HOOK_TIMEOUT)
    with suppress(Exception):  # an error must not disturb the turn
        event = load(sys.stdin)
        name, path = event.get("hook_event_name"), event["transcript_path"]
        with options.reading() as (settings, store):
            if name == "UserPromptSubmit":
                signal.setitimer(signal.ITIMER_REAL, CEILING_TIMEOUT)
                why = operations.hook.refusal(settings, store, path)
                answer = {"decision": "block", "reason": why} if why else None
            else:
                resumed = name == "SessionStart"
                text = operations.hook.advice(settings, store, path, time.time(), resumed=resumed)
                answer = {"systemMessage": text} if text else None
        if answer:
            print(dumps(answer))
    signal.setitimer(signal.ITIMER_REAL, 0)


def _program() -> tuple[str, ...]:
    """Return a command that starts this program from any directory."""
    called = os.path.abspath(sys.argv[0])
    if os.path.basename(called) == "brainsurgeon" and os.access(called, os.X_OK):
        return (called,)
    beside = os.path.join(os.path.dirname(sys.executable), "brainsurgeon")
    known = beside if os.access(beside, os.X_OK) else shutil.which("brainsurgeon")
    return (known,) if known else (sys.executable, "-m", "brainsurgeon")


def _dry_run(setup: Setup) -> tuple[ScanReport, str]:
    settings = setup.settings
    with options.store_to_read(settings) as store:
        sizes = partial(operations.scan.sizes_to_scan, settings, store)
        with options.progress_bar("looking at", sizes, quiet=given.json) as progress:
            report = operations.scan.scan(
                settings,
                store,
                clock=time.time,
                dry_run=True,
                watch=Watch(progress, alive=options.show_life),
            )
        if given.json:
            return report, ""
        estimated = operations.estimate.estimate(settings, store, (), time.time())
    return report, render.estimate.in_one_line(estimated)


def _carry_out(
    setup: Setup, dry_run: bool, yes: bool, interactive: bool, *, new_store: bool
) -> list[Done]:
    done, declined = list[Done](), False
    for offer in setup.offers:
        _print("\n" + render.init.offer(offer))
        if dry_run or not offer.waiting:
            continue
        if yes or (interactive and typer.confirm("do this?", default=offer.asked)):
            carried_out = operations.init.carry_out(offer.waiting, setup.record)
            _print(render.init.done(carried_out))
            done += carried_out
        else:
            declined |= interactive and offer.asked
    if declined:
        raise UsageError(options.DECLINED if not done else PARTLY_DECLINED)
    if new_store and not dry_run and (done or not any(offer.waiting for offer in setup.offers)):
        options.store_to_write(setup.settings, new_store=True).close()
    return done


def _undo(config: str | None, *, yes: bool, dry_run: bool, interactive: bool) -> None:
    from brainsurgeon.config import config_path, load

    path, named = config_path(config), config or os.environ.get("BRAINSURGEON_CONFIG")
    only = os.path.abspath(named) if named else None
    # Without a configuration, the record is in the default state directory.
    settings, _ = load(path if path and os.path.lexists(path) else os.devnull)
    record = operations.init.read_record(settings.state_dir)
    store_is_left = os.path.lexists(os.path.join(record.directory, "store.db"))
    done: list[Done] = []
    steps = record.steps(only)
    _print(render.init.undoing(steps) if steps else "there is nothing to undo")
    if store_is_left:
        _print(f"the store in {record.directory} and your sessions are not changed;")
        _print("to restore everything first: brainsurgeon restore --all --pristine")
    if steps and not dry_run:
        if not (yes or interactive):
            raise UsageError(NO_ANSWER)
        if not (yes or typer.confirm("do this?", default=False)):
            raise UsageError(options.DECLINED)
        done = operations.init.undo(record, only)
        _print(render.init.done(done))
        if store_is_left:
            _print_purge_command(record.directory)
    if given.json:
        print_json(render.init.init_json((), (), None, done))
    raise typer.Exit(1 if any(step.left for step in done) else 0)


def _print_purge_command(directory: str) -> None:
    from brainsurgeon.config import default_state_dir

    # The undo may have removed the configuration that set state_dir.
    usual = os.environ.get("BRAINSURGEON_STATE_DIR") or default_state_dir()
    where = f"BRAINSURGEON_STATE_DIR={shlex.quote(directory)} " if usual != directory else ""
    _print(f"to remove the values once no placeholder is left: {where}brainsurgeon store purge")


def config(
    file: str | None = Argument(None, help="With --check: a log, to see what is found in it."),
    check: bool = Option(False, help="Only check whether the configuration is valid."),
    schema: bool = Option(False, help="Print a JSON schema of the configuration, for editors."),
) -> None:
    """Print each setting and its source.

    The output is a valid configuration. If your configuration has problems, the command lists all
    of them and exits with 2. `--check FILE` prints how its format is described, and what of it
    nothing reaches. It changes nothing and stores nothing.

    \b
    Example:
      brainsurgeon config --schema > ~/.config/brainsurgeon/schema.json
    """  # noqa: D301
    from brainsurgeon.config import loading
    from brainsurgeon.store.database import refuse_other_directory

    if file and not check:
        raise UsageError("FILE needs --check")
    if schema:
        if check:
            raise UsageError("--check cannot be combined with --schema")
        typer.echo(dumps(loading.schema(), indent=2))
        return
    settings = options.load_settings()
    refuse_other_directory(settings.state_dir)
    source = loading.config_path(given.config)
    if file:
        seen = operations.log_check.check_log(settings, file)
        options.print_answer(seen, render.init.log, seen)
        if seen.faults:
            raise typer.Exit(1)
        return
    if check and not given.json:
        print_text(f"{source}: no problems" if source else NO_FILE)
        return
    listed = loading.settings_shown(settings, given.config)
    if given.json:
        shown = [] if check else listed
        print_json({"configuration": source, "settings": shown, "warnings": given.warnings})
    else:
        print_text(render.init.settings(listed, source))
