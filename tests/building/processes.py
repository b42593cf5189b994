"""Other processes: the program, the daemon, and a Python process that evaluates expressions."""

import ast
import functools
import inspect
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import brainsurgeon
from building.world import NOBODY, TESTS, Conversation, entry_text

WORKERS = TESTS / "workers"
# Seconds to wait for another process.
TIMEOUT = 60.0
ROOT = os.geteuid() == 0
PROGRAM = (sys.executable, str(WORKERS / "program.py"))
# Restores the interrupt signal, which a shell ignores in background jobs.
INTERRUPTIBLE = ("env", "--default-signal=INT")


class ForkServer:
    """Runs the program in forks of a process that has imported everything.

    Starting a command takes a third of a second, most of it for imports. The process drops root's
    rights after them, because another user may not be able to read root's Python.
    """

    def __init__(self):
        ours, orders = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, WORKERS / "fork_server.py", str(orders.fileno())],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[orders.fileno()],
        )  # fmt: skip
        orders.close()
        self._orders = ours

    def run(self, words, environment, user):
        reading, answering = os.pipe()
        order = json.dumps([words, environment, user]).encode("utf-8", "surrogateescape")
        with (
            open(reading, "rb", buffering=0) as answer, open(os.devnull, "rb") as nothing,
            tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err,
        ):  # fmt: skip
            streams = [nothing.fileno(), out.fileno(), err.fileno(), answering]
            socket.send_fds(self._orders, [order], streams)
            os.close(answering)
            pid = int(answer.readline())
            if not select.select([answer], [], [], 3 * TIMEOUT)[0]:
                os.kill(pid, signal.SIGKILL)
                raise NoAnswerError(words)
            code = int(answer.readline())
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(words, code, out.read(), err.read())


_prepared = functools.cache(ForkServer)
_preparing = threading.Lock()


def run(
    *words, ordinary=False, stdout=subprocess.PIPE, fresh=False, limit=None, program=PROGRAM,
    **environment,
):  # fmt: skip
    words, surroundings = [*map(str, words)], {**os.environ, **environment}
    if fresh or limit or stdout != subprocess.PIPE:
        result = subprocess.run(
            [*program, *words], stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE,
            timeout=900, check=False, env=surroundings, cwd="/", preexec_fn=limit,
        )  # fmt: skip
    else:
        with _preparing:
            prepared = _prepared()
        result = prepared.run(words, surroundings, NOBODY if ordinary and ROOT else None)

    assert b"Traceback" not in result.stderr, result.stderr.decode()
    if stdout == subprocess.PIPE:
        assert b"unexpected" not in result.stderr, result.stderr.decode()
    return result


def program_for(world, **settings):
    """Return a function that runs the program with the configuration of a world."""
    config = world.config_file(**settings)

    def call(*words, **keys):
        return run(*words, "--config", config, **keys)

    return call


def json_output(result):
    return json.loads(result.stdout)


def error_line(result):
    """Return the only line on stderr, after checking that stdout is empty."""
    lines = result.stderr.decode().splitlines()

    assert result.stdout == b""
    assert len(lines) == 1, lines
    return lines[0]


def run_parallel(call, commands):
    """Run commands that do not affect each other, four at a time; return their results."""
    with ThreadPoolExecutor(4) as pool:
        return dict(zip(commands, pool.map(lambda words: call(*words), commands), strict=True))


class DaemonProcess:
    """The daemon in its own process."""

    def __init__(self, world, words=("run",), before=(), environment=(), **settings):
        config = world.config_file(**{"log_level": "debug", **settings})
        self.out, self.err = (world.base / f"{name}.{time.monotonic_ns()}" for name in ("o", "e"))
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.process = subprocess.Popen(
                [*before, *PROGRAM, *words, "--config", config], stdout=out, stderr=err,
                stdin=subprocess.DEVNULL, env={**os.environ, **dict(environment)},
            )  # fmt: skip

    @property
    def events(self):
        text = self.err.read_text()
        lines = text[: text.rfind("\n") + 1].splitlines()
        return [json.loads(line) if line.startswith("{") else {"event": line} for line in lines]

    def logged(self, event, **fields):
        return [
            entry for entry in self.events
            if entry["event"] == event and all(entry.get(key) == fields[key] for key in fields)
        ]  # fmt: skip

    def wait_for(self, event, count=1, **fields):
        """Wait until an event was logged `count` times; return the last one."""
        entries = []

        def has_logged():
            entries[:] = self.logged(event, **fields)
            if self.process.poll() is not None:
                raise AssertionError(f"it ended: {self.process.returncode}\n{self.err.read_text()}")
            return len(entries) >= count

        try:
            wait_until(has_logged)
        except NoAnswerError:
            raise AssertionError(f"no {event} {fields} in\n{self.err.read_text()}") from None
        return entries[count - 1]

    def started(self):
        """Wait for the start; return the daemon's pid, which a wrapper's pid is not."""
        return self.wait_for("daemon_started")["pid"]

    def watching(self):
        pid = self.started()

        def has_watches():
            for name in os.listdir(f"/proc/{pid}/fdinfo"):
                try:
                    with open(f"/proc/{pid}/fdinfo/{name}") as handle:
                        if "inotify wd:" in handle.read():
                            return True
                except OSError:
                    continue
            return False

        wait_until(has_watches)

    def stop(self, number=signal.SIGTERM):
        pid = self.started()
        started = time.monotonic()
        os.kill(pid, number)
        code = self.process.wait(30)
        return time.monotonic() - started, code

    def kill(self):
        if self.process.poll() is None:
            for entry in self.logged("daemon_started"):
                os.kill(entry["pid"], signal.SIGKILL)
            self.process.kill()
        self.process.wait()


def write_idle_session(world, name="s"):
    """Write a session with one extractable value; return its path and the entry's id."""
    conversation = Conversation()
    ident = conversation.turn()
    conversation.turn("short")
    return world.put(f"{name}.jsonl", conversation.bytes(), age=3600), ident


def is_extracted(path, ident):
    return entry_text(path, ident) == f"[[extracted-{ident}]]"


class NoAnswerError(AssertionError):
    """Another process did not answer in time: it is blocked or dead."""


class OtherProcess:
    """A Python process that evaluates expressions: another agent, program or command.

    `send` does not wait, so that the process may block in a call; `receive` waits for one value.
    """

    def __init__(self, *preparations):
        self.process = subprocess.Popen(
            [sys.executable, WORKERS / "evaluator.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self.pid = self.process.pid
        for expression in preparations:
            self.evaluate(expression)

    def send(self, *expressions):
        """Send expressions to evaluate in order, without waiting for their values."""
        for expression in expressions:
            self.process.stdin.write(expression.encode() + b"\n")

    def receive(self, patience=TIMEOUT):
        """Return the value of the oldest expression not yet received.

        Raises OSError for any exception in it, with the class name as the file name.
        """
        if not self.answers_within(patience):
            raise NoAnswerError
        line = self.process.stdout.readline()
        if not line:
            raise NoAnswerError
        kind, value = ast.literal_eval(line.decode())
        if kind == "raised":
            raise OSError(*value)
        return value

    def answers_within(self, seconds):
        """Check whether a value arrives within some seconds."""
        return bool(select.select([self.process.stdout], [], [], seconds)[0])

    def evaluate(self, expression):
        self.send(expression)
        return self.receive()

    def execute(self, code):
        self.send(f"exec({inspect.cleandoc(code)!r}, globals())")

    def kill(self):
        """Kill the process; killing it twice is no error."""
        self.process.kill()
        self.process.communicate()


def wait_until(happened, patience=TIMEOUT):
    deadline = time.monotonic() + patience
    while not happened():
        if time.monotonic() > deadline:
            raise NoAnswerError
        time.sleep(0.001)


def run_trial(worker, directory, scenario, fault, extent):
    """Run one trial of a worker below a directory; return its output.

    `extent` is "all" to stop at every point, or "kinds" for the first of each kind.
    """
    source = str(Path(brainsurgeon.__file__).parent.parent)
    others = os.environ.get("PYTHONPATH")
    environment = {"PYTHONPATH": f"{source}:{others}" if others else source, "HOME": str(directory)}
    result = subprocess.run(
        [sys.executable, str(worker), str(directory), scenario, fault, extent],
        env={**os.environ, **environment}, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return result.stdout
