"""The commands that run or check: scan, daemon, doctor, status, MCP server."""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

import typer
from typer import Option

from brainsurgeon import interruption, operations, render
from brainsurgeon.cli import options
from brainsurgeon.errors import UsageError
from brainsurgeon.model.plans import Outcome
from brainsurgeon.model.reports import RetentionReport, ScanReport, Watch
from brainsurgeon.model.text import readable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from brainsurgeon.config import Settings
    from brainsurgeon.store import Store

RETENTION_INTERVAL = 6 * 3600  # seconds after which a scan also deletes expired values


def scan(
    # Existing crontabs pass --once.
    once: bool = Option(False, help="Has no effect: a scan is always one run."),  # noqa: ARG001
    dry_run: bool = Option(False, help="Print what a run would do and why; write nothing."),
    session: options.Sessions = None,
    only_retention: bool = Option(
        False, "--retention", help="Only delete expired values from the store."
    ),
    verbose: bool = Option(False, help="With --dry-run, list every value that would be extracted."),
    quiet: bool = Option(False, help="Print only problems."),
    new_store: options.NewStore = False,
) -> None:
    """Replace large old values with placeholders: one run, then exit.

    Without --session, also deletes expired values from the store, at most every six hours.

    \b
    Example:
      brainsurgeon scan --dry-run --session main/0f3c
    """  # noqa: D301  \b keeps the example from being reflowed
    settings = options.load_settings()
    options.refuse(
        ("--verbose needs --dry-run", verbose and not dry_run),
        ("--quiet cannot be combined with --dry-run or --json",
         quiet and (dry_run or options.given.json)),
        ("--retention cannot be combined with --session, --verbose or --quiet",
         only_retention and (session or verbose or quiet)),
    )  # fmt: skip
    if only_retention:
        _run_retention(settings, dry_run=dry_run)
        return
    from brainsurgeon.lookup.sessions import session_named

    retained: RetentionReport | None = None
    options.check_store(settings, new_store=new_store)
    opened = options.store_to_read if dry_run else partial(options.store_to_write, new_store=True)
    with opened(settings) as store:
        named = [session_named(settings, store, name) for name in session or ()]
        only = {part.path for one in named for part in one.parts}
        is_first = store.facts.last_run_at() is None
        texts = _OutcomeTexts(settings, dry_run=dry_run, verbose=verbose, quiet=quiet)
        sizes = partial(operations.scan.sizes_to_scan, settings, store, only)
        hidden = quiet or options.given.json
        gc.freeze()  # garbage collections need not examine the loaded modules
        with interruption.deferred():  # an interrupted run is reported, too
            with options.progress_bar("looking at", sizes, quiet=hidden) as progress:
                watch = Watch(progress, ended=texts.add, alive=options.show_life)
                report = operations.scan.scan(
                    settings, store, clock=time.time, dry_run=dry_run,
                    watch=Watch(ended=texts.add) if quiet else watch,
                    only=operations.scan.Chosen(only, named=bool(only)),
                )  # fmt: skip
            if interruption.exit_code():
                _print_scan(settings, report, texts.texts, None, quiet=quiet)
        if not dry_run:
            _pass_on_signals(settings, store)
        if not (dry_run or session):
            last = store.facts.get("last_retention_run_at")
            if last is None or not 0 <= time.time() - last < RETENTION_INTERVAL:
                retained = operations.retention.retention(settings, store, clock=time.time)
    if texts.log:
        texts.log.scan_finished(report)
    _print_scan(settings, report, texts.texts, retained, is_first=is_first, quiet=quiet)
    raise typer.Exit(1 if report.failed else 0)


def _pass_on_signals(settings: Settings, store: Store) -> None:
    signals = store.events.take_signals()
    if not (signals and settings.signals.on_signal):
        return
    operations.signals.run_on_signal(
        settings, [(event, render.runs.event_line(event)) for event in signals], lambda: None,
        lambda event, why: operations.signals.note_failure(store, event, why, time.time()),
    )  # fmt: skip


class _OutcomeTexts:
    """The printed texts of a run's outcomes: they take less memory than the outcomes."""

    def __init__(self, settings: Settings, *, dry_run: bool, verbose: bool, quiet: bool) -> None:
        self._dry_run, self._verbose, self._quiet = dry_run, verbose, quiet
        self.texts = list[str]()
        self.log = None
        if settings.log_level == "debug":  # the only level at which a scan logs
            from brainsurgeon import log

            log.set_up(settings)
            self.log = log

    def add(self, outcome: Outcome) -> None:
        if options.given.json:
            in_json = render.runs.outcome_json(outcome, self._dry_run)
            self.texts.append(json.dumps(in_json, indent=2))
        elif not self._quiet or outcome.outcome == "failed":
            self.texts += render.runs.outcome_lines(outcome, self._dry_run, verbose=self._verbose)
        if self.log:
            self.log.session(outcome, dry_run=self._dry_run)


def _print_scan(
    settings: Settings, report: ScanReport, texts: list[str], retained: RetentionReport | None,
    *, is_first: bool = False, quiet: bool = False,
) -> None:  # fmt: skip
    if quiet:
        for line in [*render.runs.problems(report), *texts]:
            options.print_text(line)
        return
    happened = report.sessions_changed or report.failed or report.recovered or report.dry_run
    happened = happened or bool(is_first and (report.used_homes or report.homes))
    if options.given.json:
        answer = render.runs.report_json(report) | ({"retention": retained} if retained else {})
        before, after = render.formatting.document(answer).split('"sessions": []', 1)
        print(before, end='"sessions": [')
        for number, text in enumerate(texts):
            print("," * bool(number) + "\n    " + text.replace("\n", "\n    "), end="")
        print(("\n  ]" if texts else "]") + after)
        return
    if happened or sys.stdout.isatty():  # cron mails everything that is printed
        for line in render.runs.report(report, options.config_file(), sessions=texts):
            options.print_text(line)
    looked = not report.stopped and (is_first or happened or sys.stdout.isatty())
    if looked and not report.files_seen and not report.failed:
        roots = ", ".join(root.path for root in settings.root_directories())
        where = "`brainsurgeon init --dry-run` lists where agents keep them"
        options.print_text(f"no session was found below {readable(roots)}; {where}")
    if retained and (retained.held_back or retained.values_deleted):
        options.print_text(render.runs.retention(retained))


def run(new_store: options.NewStore = False) -> None:
    """Run as a daemon: scan by schedule and soon after each change.

    SIGTERM ends the daemon within two seconds. After SIGHUP, it reads the configuration again.

    \b
    Example:
      brainsurgeon run
    """  # noqa: D301
    from brainsurgeon import daemon
    from brainsurgeon.config import config_path, load

    def load_again() -> tuple[Settings, list[str]]:
        options.given.config = config_path(options.given.config)  # a reload needs the same file
        return load(options.given.config)

    if new_store:
        options.store_to_write(options.load_settings(), new_store=True).close()
    daemon.run(load_again)


def mcp(
    agent: str | None = Option(
        None, help="Serve only the sessions of this agent: its name, or its directory."
    ),
    session: str | None = Option(None, help="Serve only this session: its path or id."),
) -> None:
    """Serve purge_control, the tool of the agents, over MCP (stdio).

    \b
    Example:
      brainsurgeon mcp --agent main
    """  # noqa: D301
    settings = options.load_settings()
    from importlib.util import find_spec

    if find_spec("mcp") is None:
        raise UsageError("the MCP server needs its extra: pip install 'brainsurgeon[mcp]'")
    scope = None
    with options.store_to_read(settings) as store:  # fails if the store is unusable
        if agent is not None or session is not None:
            from brainsurgeon.lookup.scope import Scope, bound

            scope, warning = bound(settings, store, Scope(agent, session))
            if warning:
                text = f"{warning}; calls find nothing until it exists"
                print(f"brainsurgeon: {readable(text)}", file=sys.stderr)
    from brainsurgeon.mcp_server import serve

    serve(settings, scope)


def _run_retention(settings: Settings, *, dry_run: bool) -> None:
    options.check_store(settings)
    with options.store_to_read(settings) if dry_run else options.store_to_write(settings) as store:
        done = RetentionReport(dry_run)
        if store.exists:
            done = operations.retention.retention(settings, store, clock=time.time, dry_run=dry_run)
    if options.given.json:
        options.print_json(done)
    elif dry_run or done.held_back or done.values_deleted or os.isatty(1):
        options.print_text(render.runs.retention(done))


def doctor(
    repair: bool = Option(
        False,
        help="Finish interrupted rewrites, complete the store's list of placeholders, and copy "
        "the readable values of a damaged store into a new one.",
    ),
) -> None:
    """Check configuration, permissions, roots, store and placeholders.

    \b
    Example:
      brainsurgeon doctor --repair
    """  # noqa: D301
    settings = options.load_settings()
    from brainsurgeon.store.database import may_exist

    findings = operations.store.rescue(settings, time.time()) if repair else []
    repair = repair and may_exist(settings.state_dir)
    with options.store_to_write(settings) if repair else options.store_to_read(settings) as store:
        findings += operations.doctor.doctor(settings, store, repair=repair)
    options.print_answer({"findings": findings}, render.runs.findings, findings)
    raise typer.Exit(1 if any(finding.level == "error" for finding in findings) else 0)


Form = StrEnum("Form", ["text", "html", "prometheus"])


def status(
    check: bool = Option(False, help="For monitors: print one line; exit with 1 on trouble."),
    max_age: str | None = Option(
        None, help="With --check or --json: report a last run older than this. Default: 15m."
    ),
    estimate: bool = Option(
        False, help="Compare the cost of recorded calls under five policies, see below."
    ),
    session: list[str] | None = Option(
        None,
        help="With --estimate, only this session. Repeatable.",
        autocompletion=options.session_titles,
    ),
    form: Form = Option(
        Form.text, "--format", help="html: a report page; prometheus: metrics for a monitor."
    ),
    output: str | None = Option(
        None, help="Output file. Default of the page: report.html in state_dir."
    ),
    force: bool = Option(False, help="Replace an output file that brainsurgeon did not write."),
    show: bool = Option(False, "--open", help="Open the page in the browser."),
    previews: bool = Option(False, help="On the page, show the beginning of extracted values."),
) -> None:
    """Show runs, savings, and why sessions are not pruned.

    The report page is a single file. Without --previews it contains no content of sessions.

    \b
    Policies of --estimate:
      raw         extract nothing
      configured  extract by your configuration
      lean        extract by the profile lean
      cold        extract only when the provider's prompt cache is cold
      always      extract at once

    \b
    Examples:
      brainsurgeon status --format html --open
      brainsurgeon status --estimate
    """  # noqa: D301
    is_text, in_json = form is Form.text, options.given.json
    others = (check, max_age, not is_text, output, force, show, previews)
    options.refuse(
        ("--session needs --estimate", session and not estimate),
        ("--estimate takes --session and --json only", estimate and any(others)),
        ("--open and --previews need --format html", form is not Form.html and (show or previews)),
        (f"--check cannot be combined with --format {form.value}", check and not is_text),
        ("--json cannot be combined with --format prometheus", in_json and form is Form.prometheus),
        ("--output needs --format html or prometheus", output and is_text),
        ("--force needs --format html or prometheus", force and is_text),
        ("--max-age needs --check or --json", max_age and not (check or in_json)),
    )
    settings = options.load_settings()
    if estimate:
        _estimate(settings, session or ())
    elif form is Form.html:
        _write_page(settings, output, force=force, previews=previews, show=show)
    elif form is Form.prometheus:
        _write_metrics(settings, output, force=force)
    else:
        _print_status(settings, check=check, max_age=max_age or "15m")


def _print_status(settings: Settings, *, check: bool, max_age: str) -> None:
    now = time.time()
    with options.store_to_read(settings) as store:
        current = operations.status.status(settings, store, now)
    age = options.parse_seconds("--max-age", max_age)
    max_seconds = age if check or options.given.json else None
    troubles = operations.status.check(current, now, max_age=max_seconds)
    if options.given.json:
        options.print_json(render.runs.status_json(current) | {"troubles": troubles})
    elif check:
        options.print_text(render.runs.check(current, troubles, now))
    else:
        options.print_text(render.runs.status(current, now, options.config_file(), troubles))
    raise typer.Exit(1 if check and troubles else 0)


def _estimate(settings: Settings, names: Sequence[str]) -> None:
    with options.store_to_read(settings) as store:
        found = operations.estimate.estimate(settings, store, names, time.time())
    options.print_answer(render.estimate.estimate_json(found), render.estimate.estimate, found)


def _write_page(
    settings: Settings, output: str | None, *, force: bool, previews: bool, show: bool
) -> None:
    from brainsurgeon.log import PRIVATE, write_whole
    from brainsurgeon.store.database import make_directory

    if output is None:
        make_directory(settings.state_dir)
        force = True  # its file belongs to us
    path = os.path.abspath(output or os.path.join(settings.state_dir, "report.html"))
    with options.store_to_read(settings) as store:
        report = operations.report.report(settings, store, time.time(), previews=previews)
    write_whole(path, render.report.report(report), PRIVATE, force=force)
    if options.given.json:
        options.print_json({"path": path, "size_bytes": os.stat(path).st_size})
    else:
        options.print_text(path)
    if show:
        import webbrowser
        from pathlib import Path

        webbrowser.open(Path(path).as_uri())


def _write_metrics(settings: Settings, output: str | None, *, force: bool) -> None:
    from brainsurgeon.log import READABLE, write_whole

    with options.store_to_read(settings) as store:
        text = render.runs.metrics(operations.status.metrics(settings, store))
    if output is not None:
        write_whole(os.path.abspath(output), text, READABLE, force=force)
    else:
        print(text, end="")
