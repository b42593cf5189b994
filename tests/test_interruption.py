"""Interruption: a signal at any moment of a run leaves sessions whole, and no file behind."""

import gc
import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from brainsurgeon import interruption
from brainsurgeon.agents import FORMATS
from brainsurgeon.cli import _run, commands
from brainsurgeon.daemon import OS_SIGNALS
from brainsurgeon.errors import StoppedError
from brainsurgeon.files import retire
from brainsurgeon.files.processes import output_of
from brainsurgeon.files.reading import recognise_at
from brainsurgeon.rewrite.apply import Batch
from building.world import Conversation

POINTS = 40  # moments at which a run is interrupted
# Only calls of these modules count: between two of them, a rewrite may be under way.
REWRITING = tuple(
    f"brainsurgeon.{name}"
    for name in ("rewrite.apply", "rewrite.recover", "operations.scan", "operations.restore")
)


class Interrupter:
    """Send this process SIGTERM when it enters or leaves its n-th function of REWRITING."""

    def __init__(self, at=0):
        self.at, self.count = at, 0

    def __call__(self, frame, event, _):
        name = frame.f_globals.get("__name__", "")
        if event in ("call", "return") and name in REWRITING:
            self.count += 1
            if self.count == self.at:
                os.kill(os.getpid(), signal.SIGTERM)

    def run(self, action):
        sys.setprofile(self)
        try:
            action()
        finally:
            sys.setprofile(None)


@pytest.fixture
def terminable():
    """Handle SIGTERM by SystemExit, as the command line does."""

    def end(*_):
        raise SystemExit(143)

    before = signal.signal(signal.SIGTERM, end)
    yield
    signal.signal(signal.SIGTERM, before)


class Life:
    """Two sessions below a root, which are replaced by two new ones before each run."""

    def __init__(self, world):
        self.world, self.serial = world, 0

    def contents(self):
        return {path.name: path.read_bytes() for path in self.world.directory.glob("*.jsonl")}

    def begin(self):
        """Write new sessions: restored values would stay protected from the next scan."""
        for path in self.world.directory.glob("*.jsonl"):
            path.unlink()
        for _ in range(2):
            self.serial += 1
            conversation = Conversation(f"{self.serial:08x}-0000-4000-8000-000000000000")
            conversation.turn("x" * 3000)
            self.world.put(f"s{self.serial}.jsonl", conversation.bytes())

    def scan(self):
        self.world.scan(keep_recent=0)

    def restore(self):
        self.world.restore_all(pristine=True)


def close_files_below(root):
    """Close the files that an exception outside of a run left open, as the end of a program does.

    Otherwise, no lease could be had on them.
    """
    gc.collect()
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            if link.readlink().is_relative_to(root):
                os.close(int(link.name))


@pytest.mark.usefixtures("terminable")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # outside of a run
@pytest.mark.parametrize("prepare", [(), ("scan",)], ids=["scan", "restore"])
def test_sigterm_at_any_call_of_a_run_leaves_every_session_whole(world, prepare, monkeypatch):
    """Wherever SIGTERM arrives, no file is left behind, and the values can be restored."""
    monkeypatch.setattr(retire, "LOOK_BACK", 0.0)
    life, interrupted = Life(world), 0
    run = life.restore if prepare else life.scan
    for point in range(-1, POINTS + 1):
        life.begin()
        original = life.contents()
        for name in prepare:
            getattr(life, name)()
        before = life.contents()
        if point < 1:  # twice: the first run calls some functions that later runs do not
            calls = Interrupter()
            calls.run(run)
            assert life.contents() != before
        else:
            try:
                Interrupter(point * calls.count // (POINTS + 1)).run(run)
            except SystemExit:
                interrupted += 1
            close_files_below(world.root)
        assert world.leftovers() == []
        life.restore()
        assert life.contents() == original
    assert interrupted > POINTS / 2  # not all: the number of calls depends on the time


def test_check_raises_only_for_a_pending_signal():
    """Before a signal nothing happens; after it, `check` raises and the handler runs at the end."""
    seen = []
    before = signal.signal(signal.SIGTERM, lambda *_: seen.append("handled"))
    try:
        with interruption.deferred():
            interruption.check()
            os.kill(os.getpid(), signal.SIGTERM)
            with pytest.raises(StoppedError):
                interruption.check()
            assert seen == []
        assert seen == ["handled"]
        interruption.check()
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("terminable")
def test_two_signals_during_a_run_end_only_this_run():
    """The next run of a program that handles the exception is not stopped by the second signal."""

    def interrupt_twice():
        with interruption.deferred():
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(SystemExit):
        interrupt_twice()
    with interruption.deferred():
        interruption.check()


def test_recovery_recognises_a_file_after_a_signal(world, monkeypatch):
    """A run that stops finishes its open rewrites. It may have to look for a renamed session."""
    path = world.put("s.jsonl", Conversation("some-id").bytes())
    monkeypatch.setattr(interruption, "_noted", [signal.SIGTERM])
    with open(path, "rb") as file:
        assert recognise_at(file.fileno(), FORMATS, "auto").identity == "some-id"


def test_ignored_signal_stops_nothing():
    """A program that was started with SIGINT ignored, as `sh` does with `&`, runs to its end."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interruption.deferred():
            os.kill(os.getpid(), signal.SIGINT)
            interruption.check()
    finally:
        signal.signal(signal.SIGINT, before)


def test_program_ends_although_a_library_replaced_the_exception(monkeypatch, terminable, capsys):
    """If code that SIGTERM interrupts raises its own error, the program still exits with 143."""

    def fail(**_):
        try:
            signal.raise_signal(signal.SIGTERM)
        except SystemExit:
            raise ValueError from None

    monkeypatch.setattr(interruption, "_noted", [])
    monkeypatch.setattr(commands, "application", lambda _: fail)
    signal.signal(signal.SIGTERM, interruption.end)

    assert commands.run() == 143
    assert capsys.readouterr().err == ""


@pytest.fixture
def interrupted_scan(world, monkeypatch, capsys):
    """Return a function that runs `scan`, which gets SIGINT as soon as `due` returns true.

    The function returns the exit code and the output. Each session is changed at once.
    """
    monkeypatch.setattr(Batch, "is_full", True)
    check, before = interruption.check, signal.signal(signal.SIGINT, interruption.end)

    def run(due, *words):
        def interrupt_and_check():
            if due() and not interruption.exit_code():
                signal.raise_signal(signal.SIGINT)
            check()

        monkeypatch.setattr(interruption, "_noted", [])
        monkeypatch.setattr(interruption, "check", interrupt_and_check)
        argv = ["brainsurgeon", "scan", "--config", str(world.config_file(keep_recent=0)), *words]
        monkeypatch.setattr(sys, "argv", argv)
        return _run(), capsys.readouterr().out

    yield run
    signal.signal(signal.SIGINT, before)


def test_interrupted_scan_reports_the_sessions_it_changed(world, interrupted_scan):
    """After Ctrl-C, `scan` exits with 130 and prints its report, also as JSON."""
    life = Life(world)
    life.begin()
    code, text = interrupted_scan(lambda: b"[[extracted-" in b"".join(life.contents().values()))

    assert code == 130
    assert "main/s1: 1 extracted" in text
    assert "1 session: 1 changed" in text
    assert text.endswith("interrupted; the next scan continues\n")

    code, text = interrupted_scan(lambda: True, "--json")

    assert (code, json.loads(text)["stopped"]) == (130, True)

    code, text = interrupted_scan(lambda: True, "--dry-run")

    assert (code, text.splitlines()[-1]) == (130, "interrupted")


def test_interrupted_scan_without_changes_prints_nothing(world, interrupted_scan):
    """If Ctrl-C comes before a session is changed, a scan without a terminal prints nothing."""
    Life(world).begin()

    assert interrupted_scan(lambda: True) == (130, "")


def test_program_of_the_daemon_is_ended_by_timeout():
    """Programs that the daemon starts do not inherit blocked signals, so `timeout` ends them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, OS_SIGNALS)
    try:
        printed = output_of(
            ["sh", "-c", "timeout 0.1 sleep 20; echo $?"], b"", lambda: None, timeout=10, limit=99
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert printed == b"124\n"
