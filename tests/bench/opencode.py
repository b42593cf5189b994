"""Scans of a large database of opencode, and the time for which they hold its lock."""

import json
import shutil
import statistics
import sys

from bench.claw import measure_changes
from bench.measuring import above_empty, alternate, command_line, run, write_config
from bench.table import Row
from building.opencode import OPENCODE, WRITTEN, connected, unpack

READ = "read all parts with sqlite + loads"
_READ = (
    "import sqlite3, sys, orjson\n"
    "for (data,) in sqlite3.connect(sys.argv[1]).execute('SELECT data FROM part'):\n"
    "    orjson.loads(data)"
)
REWRITE = "loads + dumps + update of all parts"
_REWRITE = (
    "import sqlite3, sys, orjson\n"
    "with sqlite3.connect(sys.argv[1]) as database:\n"
    "    for ident, data in database.execute('SELECT id, data FROM part').fetchall():\n"
    "        text = orjson.dumps(orjson.loads(data)).decode()\n"
    "        database.execute('UPDATE part SET data = ? WHERE id = ?', (text, ident))"
)
MESSAGES = 400  # of a session
_COMMANDS = {
    "scan --once": "50 ms", "restore --all --pristine": "",
}  # fmt: skip


def rows(place, options):
    """Measure the first scan and a later one, then each hold of the lock."""
    template, data = place / "template.db", place / "opencode"
    megabytes = 500 if options.large else options.mb
    write_database(template, megabytes * 1_000_000)
    data.mkdir()
    config = write_config(place, data)

    def fresh():
        shutil.rmtree(place / "state", ignore_errors=True)
        for old in data.iterdir():
            old.unlink()
        shutil.copy2(template, data / "opencode.db")

    def known():
        fresh()
        run(command_line("scan", "--once", config=config))

    scan = command_line("scan", "--once", config=config)
    figures = alternate({
        READ: ([sys.executable, "-c", _READ, template], None),
        REWRITE: ([sys.executable, "-c", _REWRITE, data / "opencode.db"], fresh),
        "first scan": (scan, fresh), "later scan": (scan, known),
    }, options.runs)  # fmt: skip
    for name, least, most in (("first scan", REWRITE, 25), ("later scan", READ, 5)):
        figure = figures[name]
        yield Row(
            f"{name} of opencode's database, {megabytes} MB", figure.cpu, "s", least,
            figures[least].cpu, above_empty(figure.peak), least=figure.least, most=most,
            note=f"wall {figure.wall:.2f} s",
        )  # fmt: skip
    for verb, target in _COMMANDS.items():
        if verb.startswith("scan"):
            fresh()
        changes = measure_changes(place / "held.jsonl", verb.split(), config)
        milliseconds = sorted(1000 * change["held"] for change in changes)
        yield Row(
            f"hold of opencode's database, {verb}", statistics.median(milliseconds), "ms",
            target=target, note=f"worst {milliseconds[-1]:.1f} ms of {len(changes)} changes",
        )  # fmt: skip


def write_database(path, size):
    """Write sessions of `size` bytes in all: prompts, and answers with a call and its result."""
    unpack(OPENCODE, path)
    with connected(path) as database:
        database.execute("BEGIN")
        written = number = 0
        while written < size:
            session, number = f"ses_bench{number // MESSAGES}", number + 1
            if number % MESSAGES == 1:
                _copy_session(database, session)
            written += _write_turn(database, session, number)
        database.execute("COMMIT")
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _copy_session(database, session):
    found = database.execute("SELECT name FROM pragma_table_info('session') WHERE name != 'id'")
    columns = ", ".join(f'"{name}"' for (name,) in found)
    database.execute(
        f"INSERT INTO session (id, {columns}) SELECT ?, {columns} FROM session LIMIT 1", (session,)
    )


def _write_turn(database, session, number):
    now, prompt, answer = int(WRITTEN * 1000) + number, f"msg_p{number:08}", f"msg_q{number:08}"
    time = {"created": now, "completed": now}
    messages = (
        (prompt, {"role": "user", "time": {"created": now}}),
        (answer, {"role": "assistant", "parentID": prompt, "finish": "stop", "time": time}),
    )
    output = "".join(f"row {number} line {line} ä {number * line}\n" for line in range(200))
    state = {
        "status": "completed", "input": {"command": "x"}, "title": "x", "output": output,
        "metadata": {"output": output}, "time": {"start": now, "end": now},
    }  # fmt: skip
    parts = (
        (prompt, {"type": "text", "text": "go on"}), (answer, {"type": "step-start"}),
        (answer, {"type": "tool", "tool": "bash", "callID": f"c{number}", "state": state}),
        (answer, {"type": "text", "text": "done"}),
    )  # fmt: skip
    for ident, data in messages:
        row = ident, session, now, now, json.dumps(data)
        database.execute("INSERT INTO message VALUES (?, ?, ?, ?, ?)", row)
    for place, (message, data) in enumerate(parts):
        row = f"prt_{number:012x}{place:014}", message, session, now, now, json.dumps(data)
        database.execute("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)", row)
    return 2 * len(output)
