"""What one more turn costs in a large session that the daemon knows."""

import json
import os
import random
import shutil
import statistics

from bench.measuring import ours, run, timed, write_config
from bench.table import Row
from bench.watched import Daemon, idle
from building.world import Conversation, write_session


def rows(place, wanted):
    """Measure appends that hold nothing to extract, and one large value each."""
    yield from appended(place / "one", write_talk, wanted.mb, wanted.runs)
    if wanted.large:
        yield from appended(place / "huge", write_talk, 1000, wanted.runs)
        yield from appended(place / "cut", write_session, 1000, wanted.runs)


def write_talk(path, size):
    """Write a session of about `size` bytes that stays as long: people talk, tools say little."""
    dice, talk, written = random.Random(2), Conversation(), 0
    words = [f"{dice.randrange(1 << 40):x}" for _ in range(5000)]
    with open(path, "wb") as out:
        while written < size:
            talk.user(" ".join(dice.choices(words, k=dice.choice((30, 200, 2000, 4000)))))
            talk.call()
            talk.result("done")
            talk.assistant()
            block = talk.bytes()
            talk.lines.clear()
            out.write(block)
            written += len(block)
    idle(path)
    return written


def appended(place, write, megabytes, runs):
    """Append to a session that was looked at before, and see what the daemon takes for it."""
    sessions = place / "agents" / "main" / "sessions"
    sessions.mkdir(parents=True)
    session = sessions / "big.jsonl"
    write(session, megabytes * 1_000_000)
    config = write_config(
        place, place / "agents", quiet_seconds=0, min_reclaim=0, keep_recent=0,
        scan_interval_seconds=86_400,
    )  # fmt: skip
    run(ours("scan", "--once", config=config))
    left = session.stat().st_size
    placeholders = " full of placeholders" if write is write_session else ""
    place_of_copy = place / "copy"

    def copied():
        shutil.copyfile(session, place_of_copy)
        with open(place_of_copy, "rb") as copy_file:
            os.fsync(copy_file.fileno())

    copy = statistics.median(timed(copied) for _ in range(runs))
    with Daemon(config, place / "log") as daemon:
        daemon.watching()
        daemon.wait_for(1)
        for name, length, limit, target in (
            ("1 KB, nothing to extract", 60, None, "20 ms, reads 2 MB"),
            ("a 40 KB value, forced", 40_000, copy, "2x"),
        ):
            taken = [one_turn(daemon, session, length) for _ in range(runs + 1)][1:]
            cpu, read, wall = map(statistics.median, zip(*taken, strict=True))
            yield Row(
                f"{name}, appended to {left / 1e6:,.0f} MB{placeholders}",
                1000 * cpu, "ms",
                "cp + fsync" if limit else "", limit, target=target,
                note=f"reads {read / 1e6:.2f} MB, the run takes {1000 * wall:.0f} ms wall",
            )  # fmt: skip


def going_on(session):
    """Give a conversation whose next lines go on where a session ends."""
    with open(session, "rb") as file:
        file.seek(max(0, os.path.getsize(session) - 1_000_000))
        last = json.loads(file.read().splitlines()[-1])
    talk = Conversation()
    talk.lines.clear()
    talk.last = last["id"]
    return talk


_numbers = iter(range(1, 1 << 30))


def one_turn(daemon, session, length):
    """Append a turn, wait for the run that looks at it, and give what that took."""
    number = next(_numbers)
    talk = going_on(session)
    talk.user(ident=f"u{number:07}")
    talk.call(ident=f"c{number:07}", call=f"call_{number}")
    text = f"{number} " + "lorem ipsum " * (length // 12)
    talk.result(text, call=f"call_{number}", ident=f"r{number:07}")
    talk.assistant(ident=f"a{number:07}")
    done, before = len(daemon.runs()), daemon.taken()
    with open(session, "ab") as file:
        file.write(talk.bytes())
    last = daemon.wait_for(done + 1)[-1]
    after = daemon.taken()
    return after.cpu - before.cpu, after.read - before.read, last["duration_seconds"]
