"""The cost of one more turn in a large session that the daemon has scanned."""

import json
import os
import random
import shutil
import statistics

from bench.measuring import command_line, run, sessions_below, timed, write_config
from bench.table import Row
from bench.watched import Daemon
from building.file_moves import make_old
from building.world import Conversation, write_session


def rows(place, options):
    """Measure appends that hold nothing to extract, and one large value each."""
    yield from appended(place / "one", write_small_values, options.mb, options.runs)
    if options.large:
        yield from appended(place / "huge", write_small_values, 1000, options.runs)
        yield from appended(place / "cut", write_session, 1000, options.runs)


def write_small_values(path, size):
    """Write a session of about `size` bytes without a value to extract."""
    dice, conversation, written = random.Random(2), Conversation(), 0
    words = [f"{dice.randrange(1 << 40):x}" for _ in range(5000)]
    with open(path, "wb") as out:
        while written < size:
            conversation.user(" ".join(dice.choices(words, k=dice.choice((30, 200, 2000, 4000)))))
            conversation.call()
            conversation.result("done")
            conversation.assistant()
            block = conversation.bytes()
            conversation.lines.clear()
            out.write(block)
            written += len(block)
    make_old(path)
    return written


def appended(place, write, megabytes, runs):
    """Append to a session that was scanned before, and measure the daemon."""
    sessions = sessions_below(place / "agents")
    session = sessions / "big.jsonl"
    write(session, megabytes * 1_000_000)
    config = write_config(
        place, place / "agents", quiet_seconds=0, min_reclaim=0, keep_recent=0,
        scan_interval_seconds=86_400,
    )  # fmt: skip
    run(command_line("scan", "--once", config=config))
    size = session.stat().st_size
    placeholders = " full of placeholders" if write is write_session else ""
    copy_path = place / "copy"

    def copy_session():
        shutil.copyfile(session, copy_path)
        with open(copy_path, "rb") as copy_file:
            os.fsync(copy_file.fileno())

    copy = statistics.median(timed(copy_session) for _ in range(runs))
    with Daemon(config, place / "log") as daemon:
        daemon.watching()
        daemon.wait_for(1)
        for name, length, limit, target in (
            ("1 KB, nothing to extract", 60, None, "20 ms, reads 2 MB"),
            ("a 40 KB value, forced", 40_000, copy, "2x"),
        ):
            costs = [one_turn(daemon, session, length) for _ in range(runs + 1)][1:]
            cpu, read, wall = map(statistics.median, zip(*costs, strict=True))
            yield Row(
                f"{name}, appended to {size / 1e6:,.0f} MB{placeholders}",
                1000 * cpu, "ms",
                "cp + fsync" if limit else "", limit, target=target,
                note=f"reads {read / 1e6:.2f} MB, the run takes {1000 * wall:.0f} ms wall",
            )  # fmt: skip


def continuation_of(session):
    """Return a conversation whose next lines continue a session."""
    with open(session, "rb") as file:
        file.seek(max(0, os.path.getsize(session) - 1_000_000))
        last = json.loads(file.read().splitlines()[-1])
    conversation = Conversation()
    conversation.lines.clear()
    conversation.last = last["id"]
    return conversation


_numbers = iter(range(1, 1 << 30))


def one_turn(daemon, session, length):
    """Append a turn, wait for the run that scans it, and return its cost."""
    number = next(_numbers)
    conversation = continuation_of(session)
    conversation.user(ident=f"u{number:07}")
    conversation.call(ident=f"c{number:07}", call=f"call_{number}")
    text = f"{number} " + "lorem ipsum " * (length // 12)
    conversation.result(text, call=f"call_{number}", ident=f"r{number:07}")
    conversation.assistant(ident=f"a{number:07}")
    runs, before = len(daemon.runs()), daemon.cost()
    with open(session, "ab") as file:
        file.write(conversation.bytes())
    last = daemon.wait_for(runs + 1)[-1]
    after = daemon.cost()
    return after.cpu - before.cpu, after.read - before.read, last["duration_seconds"]
