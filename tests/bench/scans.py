"""First scans of one large session and of many usual ones, and their undoing."""

import os
import shutil

from bench.measuring import (
    above_empty,
    alternate,
    command_line,
    limit,
    run,
    sessions_below,
    trace_syncs,
    traced_syncs,
    write_config,
)
from bench.table import Row
from building.world import write_session

REWRITE = "loads + dumps + write + fsync"
# Bytes of a usual session.
USUAL = 50_000


def rows(place, options):
    """Measure scans of sessions that were never scanned before."""
    yield from one_session(place / "one", options.mb, options.runs)
    if options.large:
        yield from one_session(place / "huge", 1000, 1)
    yield from many_sessions(place / "many", 2000, min(options.runs, 3))


def one_session(place, megabytes, runs):
    """Compare a scan, a dry run and a restore of a large session with the bare operations."""
    sessions = sessions_below(place / "agents")
    session, original = sessions / "big.jsonl", place / "original.jsonl"
    size = write_session(session, megabytes * 1_000_000)
    shutil.copy2(session, original)
    config = write_config(place, place / "agents")

    def fresh():
        shutil.rmtree(place / "state", ignore_errors=True)
        session.unlink()
        run(command_line("scan", "--once", config=config))
        shutil.copy2(original, session)

    figures = alternate({
        "read": (limit("read", original), None),
        "loads": (limit("loads", original), None),
        "cp": (limit("cp", original), None),
        REWRITE: (limit("rewrite", original), None),
        "dry": (command_line("scan", "--once", "--dry-run", config=config), fresh),
        "scan": (command_line("scan", "--once", config=config), fresh),
        "undo": (command_line("restore", "--all", "--pristine", config=config), None),
    }, runs, warm=megabytes < 1000)  # fmt: skip
    same = session.read_bytes() == original.read_bytes()
    wait = figures["scan"].wall - figures["scan"].cpu
    limits = ", ".join(f"{name} {figures[name].cpu:.2f} s" for name in ("read", "loads", "cp"))
    for name, command, target in (
        ("scan", "first scan", "3x, 64 MB"),
        ("dry", "scan --dry-run", ""),
        ("undo", "restore --all --pristine", ""),
    ):
        figure = figures[name]
        yield Row(
            f"{command}, one session of {size / 1e6:,.0f} MB", figure.cpu,
            limit=REWRITE, bound=figures[REWRITE].cpu, memory=above_empty(figure.peak),
            target=target, least=figure.least,
            note=f"wall: processor + {wait:.2f} s; {limits}" if name == "scan" else
            f"the bytes are {'the same' if same else 'DIFFERENT'} again" if name == "undo" else "",
        )  # fmt: skip


def many_sessions(place, count, runs):
    """Compare a first scan of sessions of usual size with rewriting each of them."""
    originals = sessions_below(place / "originals")
    bytes_ = sum(write_session(originals / f"{number:05}.jsonl", USUAL) for number in range(count))
    config = write_config(place, place / "agents")

    def fresh():
        shutil.rmtree(place / "state", ignore_errors=True)
        shutil.rmtree(place / "agents", ignore_errors=True)
        shutil.copytree(place / "originals", place / "agents")

    paths = [
        place / "agents" / "main" / "sessions" / name for name in sorted(os.listdir(originals))
    ]
    scan = command_line("scan", "--once", config=config)
    figures = alternate({
        REWRITE: (limit("rewrite", *paths), fresh), "scan": (scan, fresh),
    }, runs, warm=False)  # fmt: skip
    fresh()
    figure = figures["scan"]
    syncs = count_syncs(scan, place / "traced")
    yield Row(
        f"first scan, {count:,} sessions of {bytes_ / count / 1000:.0f} KB", figure.cpu,
        limit=REWRITE, bound=figures[REWRITE].cpu, memory=above_empty(figure.peak), target="4.5x",
        least=figure.least,
        note=f"wall {1000 * figure.wall / count:.1f} ms a session, limit"
        f" {1000 * figures[REWRITE].wall / count:.1f} ms",
    )  # fmt: skip
    if syncs is not None:
        yield Row(f"syncs a session, of {count:,} sessions", syncs / count, "", target="8")


def count_syncs(words, out):
    if shutil.which("strace") is None:
        return None
    run([*trace_syncs(out), *words])
    return traced_syncs(out)
