"""What a tree costs in which nothing, or one file, changed."""

import os
import statistics

from bench.appends import going_on
from bench.measuring import ours, run, take_turns, timed, write_config
from bench.table import Row
from bench.watched import Daemon, idle
from building.world import Conversation, dump

AGENTS = 20


def rows(place, wanted):
    for files in (2000, 20_000, 100_000) if wanted.large else (2000, 10_000):
        yield from tree(place / str(files), files, wanted.runs)


def tree(place, files, runs):
    """Compare runs over an unchanged tree with its walk, and one over a changed path."""
    root = place / "agents"
    paths = [write(root, number) for number in range(files)]
    config = write_config(place, root, quiet_seconds=0, scan_interval_seconds=86_400)
    scan = ours("scan", "--once", config=config)
    run(scan)
    bound = statistics.median(timed(lambda: walk(root)) for _ in range(2 * runs + 1))
    figures = take_turns({
        "start": (ours("scan", "--once", config=elsewhere(place)), None), "scan": (scan, None),
    }, runs)  # fmt: skip
    yield Row(
        f"unchanged tree of {files:,} files, a command",
        1000 * (figures["scan"].cpu - figures["start"].cpu), "ms", "scandir + stat", bound,
        target="2x", note=f"net of the {1000 * figures['start'].cpu:.0f} ms of the same command"
        " without any file",
    )  # fmt: skip
    yield in_the_daemon(place, root, files, bound, runs)
    yield one_path(place, paths, files, runs)


def in_the_daemon(place, root, files, bound, runs):
    """See what a run takes in a daemon that makes one after the other."""
    often = max(1, files // 10_000)
    config = write_config(place, root, quiet_seconds=0, scan_interval_seconds=often, watch=False)
    with Daemon(config, place / "log") as daemon:
        begun = len(daemon.wait_for(2))
        before = daemon.taken()
        done = len(daemon.wait_for(begun + max(3, runs), pause=0.1)) - begun
        cpu = (daemon.taken().cpu - before.cpu) / done
    return Row(
        f"unchanged tree of {files:,} files, the daemon", 1000 * cpu, "ms", "scandir + stat",
        bound, target="1.5x",
    )  # fmt: skip


def one_path(place, paths, files, runs):
    """Let one file change, and see what the daemon takes to look at it."""
    stat = statistics.median(timed(lambda: os.stat(paths[0])) for _ in range(9))
    config = write_config(place, place / "agents", quiet_seconds=0, scan_interval_seconds=86_400)
    with Daemon(config, place / "log") as daemon:
        daemon.watching()
        daemon.wait_for(1)
        taken = []
        for number in range(runs + 1):
            done, before = len(daemon.runs()), daemon.taken()
            talk = going_on(paths[number * 7])
            talk.assistant(f"that is {number}.", ident=f"e{number}")
            with open(paths[number * 7], "ab") as file:
                file.write(b"".join(map(dump, talk.lines)))
            daemon.wait_for(done + 1)
            taken.append(daemon.taken().cpu - before.cpu)
    return Row(
        f"one changed path in a tree of {files:,} files, the daemon",
        1000 * statistics.median(taken[1:]), "ms", "one stat", stat, target="5 ms, flat",
    )  # fmt: skip


def write(root, number):
    directory = root / f"agent{number % AGENTS}" / "sessions"
    directory.mkdir(parents=True, exist_ok=True)
    talk = Conversation(f"{number:08x}-0000-4000-8000-000000000000")
    for _ in range(2):
        talk.turn("y" * 400)
    path = directory / f"{number:08x}.jsonl"
    path.write_bytes(talk.bytes())
    idle(path)
    return path


def walk(directory):
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                walk(entry.path)
            else:
                entry.stat(follow_symlinks=False)


def elsewhere(place):
    other = place / "elsewhere"
    (other / "agents").mkdir(parents=True, exist_ok=True)
    return write_config(other, other / "agents", quiet_seconds=0)
