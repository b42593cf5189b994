"""A server that imports the program once and runs each order in a fork.

    python fork_server.py SOCKET

An order is JSON, [words, environment, user or null], with four descriptors: the program's stdin,
stdout and stderr, and a pipe for its process id and, at its end, its exit code. The server ends
when the other end of the socket is closed.
"""

import io
import json
import os
import signal
import socket
import sys
from pathlib import Path

import typer.main

import brainsurgeon
import brainsurgeon.cli.commands

sys.path.insert(0, str(Path(__file__).parent.parent))
from building import machine, unsynced
from building.imports import import_everything

LONGEST = 1 << 20


def prepare():
    unsynced.install()
    machine.hide_configuration()
    import_everything()
    typer.main.get_command(brainsurgeon.cli.commands.application())


def next_order(orders):
    """Wait for orders in the parent; return each in the process that runs it."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        order, descriptors, _, _ = socket.recv_fds(orders, LONGEST, 4)
        if not order:
            os._exit(0)
        if os.fork() == 0:
            orders.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            *streams, answering = descriptors
            if pid := os.fork():
                _watch(pid, streams, answering)
            os.close(answering)
            return json.loads(order), streams
        for descriptor in descriptors:
            os.close(descriptor)


def _watch(pid, streams, answering):
    for descriptor in streams:
        os.close(descriptor)
    os.write(answering, b"%d\n" % pid)
    _, status = os.waitpid(pid, 0)
    os.write(answering, b"%d\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def become(words, environment, user, streams):
    """Make this process like a fresh one, except for its imported modules."""
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        before = getattr(sys, name)
        fresh = io.TextIOWrapper(
            open(number, "rb" if name == "stdin" else "wb"),  # noqa: SIM115  open until the end
            encoding=before.encoding, errors=before.errors, line_buffering=name == "stderr",
        )  # fmt: skip
        setattr(sys, name, fresh)
        setattr(sys, f"__{name}__", fresh)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir("/")
    if user is not None:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    sys.argv = [os.path.join(brainsurgeon.__path__[0], "__main__.py"), *words]
    sys.modules["__main__"].__package__ = "brainsurgeon"


if __name__ == "__main__":
    prepare()
    with socket.socket(fileno=int(sys.argv[1])) as orders:
        order, streams = next_order(orders)
    become(*order, streams)
    brainsurgeon.cli.main()
