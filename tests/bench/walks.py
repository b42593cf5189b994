"""The cost of a tree in which no file, or one, changed."""

import os
import statistics

from bench.appends import continuation_of
from bench.measuring import alternate, command_line, run, timed, write_config
from bench.table import Row
from bench.watched import Daemon
from building.file_moves import make_old
from building.world import Conversation, dump

AGENTS = 20


def rows(place, options):
    for files in (2000, 20_000, 100_000) if options.large else (2000, 10_000):
        yield from tree(place / str(files), files, options.runs)


def tree(place, files, runs):
    """Compare runs over an unchanged tree with a bare walk, and one over a changed path."""
    root = place / "agents"
    paths = [write_small_session(root, number) for number in range(files)]
    config = write_config(place, root, quiet_seconds=0, scan_interval_seconds=86_400)
    scan = command_line("scan", "--once", config=config)
    run(scan)
    bound = statistics.median(timed(lambda: walk(root)) for _ in range(2 * runs + 1))
    figures = alternate({
        "start": (command_line("scan", "--once", config=empty_config(place)), None),
        "scan": (scan, None),
    }, runs)  # fmt: skip
    yield Row(
        f"unchanged tree of {files:,} files, a command",
        1000 * (figures["scan"].cpu - figures["start"].cpu), "ms", "scandir + stat", bound,
        target="2x", note=f"net of the {1000 * figures['start'].cpu:.0f} ms of the same command"
        " without any file",
    )  # fmt: skip
    yield measure_daemon(place, root, files, bound, runs)
    yield one_path(place, paths, files, runs)


def measure_daemon(place, root, files, bound, runs):
    """Measure the runs of a daemon over an unchanged tree."""
    interval = max(1, files // 10_000)
    config = write_config(place, root, quiet_seconds=0, scan_interval_seconds=interval, watch=False)
    with Daemon(config, place / "log") as daemon:
        first = len(daemon.wait_for(2))
        before = daemon.cost()
        runs_measured = len(daemon.wait_for(first + max(3, runs), pause=0.1)) - first
        cpu = (daemon.cost().cpu - before.cpu) / runs_measured
    return Row(
        f"unchanged tree of {files:,} files, the daemon", 1000 * cpu, "ms", "scandir + stat",
        bound, target="1.5x",
    )  # fmt: skip


def one_path(place, paths, files, runs):
    """Change one file, and measure the daemon's run over it."""
    stat = statistics.median(timed(lambda: os.stat(paths[0])) for _ in range(9))
    config = write_config(place, place / "agents", quiet_seconds=0, scan_interval_seconds=86_400)
    with Daemon(config, place / "log") as daemon:
        daemon.watching()
        daemon.wait_for(1)
        costs = []
        for number in range(runs + 1):
            count, before = len(daemon.runs()), daemon.cost()
            conversation = continuation_of(paths[number * 7])
            conversation.assistant(f"that is {number}.", ident=f"e{number}")
            with open(paths[number * 7], "ab") as file:
                file.write(b"".join(map(dump, conversation.lines)))
            daemon.wait_for(count + 1)
            costs.append(daemon.cost().cpu - before.cpu)
    return Row(
        f"one changed path in a tree of {files:,} files, the daemon",
        1000 * statistics.median(costs[1:]), "ms", "one stat", stat, target="5 ms, flat",
    )  # fmt: skip


def write_small_session(root, number):
    directory = root / f"agent{number % AGENTS}" / "sessions"
    directory.mkdir(parents=True, exist_ok=True)
    conversation = Conversation(f"{number:08x}-0000-4000-8000-000000000000")
    for _ in range(2):
        conversation.turn("y" * 400)
    path = directory / f"{number:08x}.jsonl"
    path.write_bytes(conversation.bytes())
    make_old(path)
    return path


def walk(directory):
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                walk(entry.path)
            else:
                entry.stat(follow_symlinks=False)


def empty_config(place):
    directory = place / "elsewhere"
    (directory / "agents").mkdir(parents=True, exist_ok=True)
    return write_config(directory, directory / "agents", quiet_seconds=0)
