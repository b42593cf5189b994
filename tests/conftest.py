"""Fixtures for every test: a home of its own, a world of sessions, and the guard."""

import codecs
import collections
import os
import signal
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from brainsurgeon.files import exchange, retire
from building import machine, unsynced
from building.claw import VERSIONS, Claw
from building.processes import OtherProcess
from building.world import NOBODY, Conversation, World
from guard import guard

settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")  # a busy machine is slow

LONGEST_PROOF = 2 * 60 * 60  # seconds
ALLOWED_SKIPS = Path(__file__).parent / "allowed_skips.txt"


def pytest_addoption(parser):
    """Add options to fail on skips that are not allowed, and to list the long proofs."""
    parser.addoption("--strict-skips", action="store_true", help="fail on skips not allowed")
    parser.addoption("--list-proofs", action="store_true", help="name the proofs, run nothing")


# Modules of tests that start first, so that none runs alone at the end.
SLOWEST = (
    "kill",
    "state_machine",
    "kill_strace",
    "hammer",
    "broken_databases",
    "memory",
    "installation",
    "recorded_agent",
    "live_openclaw",
    "live_openclaw_rows",
    "live_openclaw_upgrade",
    "live_archive",
    "live_relief",
)


def pytest_collection_modifyitems(items):
    order = [f"test_{name}" for name in SLOWEST]
    items.sort(
        key=lambda item: order.index(item.path.stem) if item.path.stem in order else len(order)
    )


def pytest_itemcollected(item):
    """Attach to each long proof what it proves, so that reports from all workers have it.

    A long proof may take longer than any test that has no limit of its own.
    """
    for mark in item.iter_markers("long"):
        item.user_properties.append(("proves", ", ".join(mark.kwargs["proves"])))
        item.add_marker(pytest.mark.timeout(LONGEST_PROOF))


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session):
    """With `--list-proofs`, print the selected proofs and what they prove, and run nothing."""
    if not session.config.getoption("--list-proofs"):
        return None
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    _print_proofs(reporter, [(item.nodeid, item.user_properties, "") for item in session.items])
    return True


def pytest_terminal_summary(terminalreporter):
    """Print after the long proofs what each of them has proved, or failed to."""
    reports = [
        (report.nodeid, getattr(report, "user_properties", ()), outcome)  # a collection has none
        for outcome in ("passed", "failed", "error", "skipped")
        for report in terminalreporter.stats.get(outcome, ())
    ]
    _print_proofs(terminalreporter, reports)


def _print_proofs(reporter, proofs):
    """Print for each long proof its outcomes and the parts that it proves."""
    proved = collections.defaultdict(collections.Counter)
    for nodeid, properties, outcome in proofs:
        for parts in (value for name, value in properties if name == "proves"):
            proved[nodeid.partition("[")[0], parts][outcome] += 1
    if proved:
        reporter.section("what the long proofs prove")
    for (name, parts), outcomes in proved.items():
        counts = ", ".join(f"{count} {outcome}".strip() for outcome, count in outcomes.items())
        reporter.write_line(f"{name} ({counts})")
        reporter.write_line(f"    {parts}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    """With `--strict-skips`, fail if a test was skipped for a reason that is not listed."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not session.config.getoption("--strict-skips") or reporter is None:
        return
    allowed = [line for line in ALLOWED_SKIPS.read_text().splitlines() if line.strip()]
    for report in reporter.stats.get("skipped", ()):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        known = any(words in reason for words in allowed)
        reporter.write_line(f"skipped: {report.nodeid}: {reason}")
        if not known:
            reporter.write_line(f"not allowed to be skipped: {report.nodeid}", red=True)
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


machine.set_up()
sys.addaudithook(guard)
unsynced.install()


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    return home


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    """Wait for late openers for 2 ms, and check the old file for the last time after 20 ms.

    In-process tests make many rewrites. Those beside other processes set the wait of the program.
    """
    monkeypatch.setattr(exchange, "WAIT_FOR_OPENERS", 0.002)
    monkeypatch.setattr(retire, "LOOK_BACK", 0.02)


@pytest.fixture
def interruptible():
    """Handle SIGINT by KeyboardInterrupt, which a shell's background job ignores."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def synced(monkeypatch):
    """Sync files and databases as the program does."""
    for place, value in unsynced.SYNCED.items():
        monkeypatch.setattr(*place, value)


@pytest.fixture
def world(tmp_path, request):
    created = getattr(request.module, "WORLD", World)(tmp_path)
    yield created
    created.close()


@pytest.fixture
def claw(tmp_path):
    return Claw(tmp_path / "claw")


@pytest.fixture(params=VERSIONS)
def every_claw(request, tmp_path):
    return Claw(tmp_path / "claw", request.param)


@pytest.fixture
def conversation():
    return Conversation()


@pytest.fixture
def other_process():
    process = OtherProcess()
    yield process
    process.kill()


@pytest.fixture
def second_process():
    process = OtherProcess()
    yield process
    process.kill()


@pytest.fixture
def unprivileged_world():
    """Yield a world of an ordinary user; root becomes that user for the test."""
    import sqlite_utils  # noqa: F401, PLC0415  an ordinary user may not read root's packages

    codecs.lookup("ascii")  # nor root's standard library
    with tempfile.TemporaryDirectory(prefix="brainsurgeon-test-") as base:
        world = World(Path(base))
        root = os.geteuid() == 0
        if root:
            for path in [Path(base), *Path(base).rglob("*")]:
                os.chown(path, NOBODY, NOBODY)
            os.setegid(NOBODY)
            os.seteuid(NOBODY)
        try:
            yield world
        finally:
            world.close()
            if root:
                os.seteuid(0)
                os.setegid(0)
