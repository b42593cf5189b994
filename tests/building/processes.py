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
PROGRAM = (sys.executable, "-m", "brainsurgeon")
# What makes a program heed interrupts that a shell in the background has it ignore.
INTERRUPTIBLE = ("env", "--default-signal=INT")


class ForkServer:
    """The program with everything imported, ready to run in a fork of a process of its own.

    A command takes a third of a second to start, and most of what it does is importing. Root's
    Python may stand where nobody else can read, so that rights are dropped inside it as well.
    """

    def __init__(self):
        ours, orders = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, WORKERS / "program.py", str(orders.fileno())],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[orders.fileno()],
        )  # fmt: skip
        orders.close()
        self._orders = ours

    def run(self, words, environment, user):
        reading, told = os.pipe()
        order = json.dumps([words, environment, user]).encode("utf-8", "surrogateescape")
        with (
            open(reading, "rb", buffering=0) as answer, open(os.devnull, "rb") as nothing,
            tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err,
        ):  # fmt: skip
            streams = [nothing.fileno(), out.fileno(), err.fileno(), told]
            socket.send_fds(self._orders, [order], streams)
            os.close(told)
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
        done = subprocess.run(
            [*program, *words], stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE,
            timeout=900, check=False, env=surroundings, cwd="/", preexec_fn=limit,
        )  # fmt: skip
    else:
        with _preparing:
            prepared = _prepared()
        done = prepared.run(words, surroundings, NOBODY if ordinary and ROOT else None)

    assert b"Traceback" not in done.stderr, done.stderr.decode()
    if stdout == subprocess.PIPE:
        assert b"unexpected" not in done.stderr, done.stderr.decode()
    return done


def program_for(world, **settings):
    """Bind the program to the configuration file of a world."""
    config = world.config_file(**settings)

    def call(*words, **keys):
        return run(*words, "--config", config, **keys)

    return call


def json_output(done):
    return json.loads(done.stdout)


def error_line(done):
    """Give the one line that stands on stderr, with nothing on stdout."""
    lines = done.stderr.decode().splitlines()

    assert done.stdout == b""
    assert len(lines) == 1, lines
    return lines[0]


def run_parallel(call, commands):
    """Run commands that do not disturb each other, some at a time; give what each came to."""
    with ThreadPoolExecutor(4) as pool:
        return dict(zip(commands, pool.map(lambda words: call(*words), commands), strict=True))


class DaemonProcess:
    """The daemon, as a process of its own."""

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
            one for one in self.events
            if one["event"] == event and all(one.get(key) == fields[key] for key in fields)
        ]  # fmt: skip

    def wait_for(self, event, count=1, **fields):
        """Wait until something was logged so many times; give the last of them."""
        wanted = []

        def there():
            wanted[:] = self.logged(event, **fields)
            if self.process.poll() is not None:
                raise AssertionError(f"it ended: {self.process.returncode}\n{self.err.read_text()}")
            return len(wanted) >= count

        try:
            wait_until(there)
        except NoAnswerError:
            raise AssertionError(f"no {event} {fields} in\n{self.err.read_text()}") from None
        return wanted[count - 1]

    def started(self):
        """Wait until it runs; give its process id, which is not ours where another starts it."""
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
        begun = time.monotonic()
        os.kill(pid, number)
        code = self.process.wait(30)
        return time.monotonic() - begun, code

    def kill(self):
        if self.process.poll() is None:
            for one in self.logged("daemon_started"):
                os.kill(one["pid"], signal.SIGKILL)
            self.process.kill()
        self.process.wait()


def write_idle_session(world, name="s", age=3600):
    """Put a session with a value to cut; give its file and the entry's id."""
    talk = Conversation()
    ident = talk.turn()
    talk.turn("short")
    return world.put(f"{name}.jsonl", talk.bytes(), age=age), ident


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


def run_trial(worker, place, scenario, fault, extent):
    """Let a worker carry out one trial below a place; return what it prints.

    `extent` is "all" to stop at every point, or "kinds" for the first of each kind.
    """
    source = str(Path(brainsurgeon.__file__).parent.parent)
    beside = os.environ.get("PYTHONPATH")
    ours = {"PYTHONPATH": f"{source}:{beside}" if beside else source, "HOME": str(place)}
    done = subprocess.run(
        [sys.executable, str(worker), str(place), scenario, fault, extent],
        env={**os.environ, **ours}, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout
