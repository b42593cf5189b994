"""OpenClaw's own databases, as its program wrote them, in its directory layout."""

import hashlib
import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import zstandard

from brainsurgeon.files import sqlite
from brainsurgeon.model.entries import PLACEHOLDER
from brainsurgeon.model.session_files import Root
from brainsurgeon.sessions.row_listing import list_rows_at
from building.world import LATER, WRITTEN, Clock, World

SAMPLES = Path(__file__).parent.parent / "samples" / "openclaw-db"
VERSIONS = ("2026.8.2", "2026.9.5", "2026.9.6")
NEWEST = VERSIONS[-1]
# A day before `LATER`, in milliseconds.
DAY_BEFORE = int(LATER - 86_400) * 1000
GATEWAY, COMPACTED, RESET, REWOUND, KILLED, LOCAL = (
    f"00000000-0000-4000-8000-00000000000{number}" for number in range(1, 7)
)
# A turn of the gateway's session waits for its context engine since a time (milliseconds).
WAITS_FOR_ENGINE = (
    "INSERT INTO context_engine_turn_outbox (advancement_key, engine_id, session_id,"
    f" payload_json, created_at) VALUES ('a', 'e', '{GATEWAY}', '{{}}', %d)"
)
WINDOW_AFTER_REWIND = "0731b86b-a991-4066-bbc0-5a2a61f301a9"
FORK = "12c93316-15b9-4714-a32b-36b5323d68e1"


class Claw:
    """A state directory of OpenClaw with one agent whose sessions are in a database.

    It is created, or exists already if `version` is None.
    """

    def __init__(self, base, version=NEWEST, agent="main"):
        self.base, self.agent = Path(base), agent
        self.root = self.base / "agents"
        self.path = self.root / agent / "agent" / "openclaw-agent.sqlite"
        self.state = self.base / "state" / "openclaw.sqlite"
        if version:
            unpack(f"openclaw-agent-{version}", self.path)
            unpack(f"openclaw-state-{NEWEST}", self.state)

    def sql(self, statement, values=(), state=False):
        """Run a statement as the agent does, leaving no log behind."""
        path = self.state if state else self.path
        with sqlite.opened(str(path), "rw") as connection:
            return connection.execute(statement, values).fetchall()

    def lease(self, pid=None, since=None, started=None):
        """Record in the state database that a process has the agent's database open."""
        pid = os.getpid() if pid is None else pid
        if started is None:
            started = start_time(pid)
        self.sql(
            "INSERT INTO agent_database_leases VALUES (hex(randomblob(8)), ?, ?, ?, ?, ?)",
            (self.agent, str(self.path), pid, started, int((since or WRITTEN - 3600) * 1000)),
            state=True,
        )  # fmt: skip

    def session(self, session, own=None):
        path = f"{self.path}/{session}"
        (session_rows,) = list_rows_at(
            [Root(str(self.root))], path, {} if own is None else {path: own}
        )  # fmt: skip
        return session_rows

    def configure(self, text):
        (self.base / "openclaw.json").write_text(
            text if isinstance(text, str) else json.dumps(text)
        )

    def contents(self):
        return {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(self.path.parent.iterdir())
        }

    def texts(self, session):
        return [text for _, text in self.events(session)]

    def events(self, session):
        rows = self.columns(session)
        return [(row[0], event_text(row[1:])) for row in rows]

    def columns(self, session):
        with sqlite.opened(str(self.path), "rw") as connection:
            known = {
                name
                for (name,) in connection.execute(
                    "SELECT name FROM pragma_table_info('transcript_events')"
                )
            }
            extra = "event_zstd, event_utf8_bytes, navigation_json"
            return connection.execute(
                f"SELECT seq, event_json, {extra if 'event_zstd' in known else 'NULL, NULL, NULL'}"
                " FROM transcript_events WHERE session_id = ? ORDER BY seq",
                (session,),
            ).fetchall()

    def sound(self):
        with sqlite.opened(str(self.path), "rw") as connection:
            integrity = [row[0] for row in connection.execute("PRAGMA integrity_check")]
            return (integrity if integrity != ["ok"] else []) + connection.execute(
                "PRAGMA foreign_key_check"
            ).fetchall()


def unpack(name, path):
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    packed = (SAMPLES / f"{name}.sqlite.zst").read_bytes()
    path.write_bytes(zstandard.ZstdDecompressor().decompress(packed))
    path.chmod(0o600)


def migrate(agent_directory):
    """Give an agent of session files a database with a transcript; return its path."""
    path = agent_directory / "agent" / "openclaw-agent.sqlite"
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE transcript_events (id)")
        database.execute("INSERT INTO transcript_events VALUES (1)")
    return path


def event_text(columns):
    text, packed, size, _ = columns
    if text is not None:
        return text.encode()
    return zstandard.ZstdDecompressor().decompress(packed, max_output_size=size)


def start_time(pid):
    with open(f"/proc/{pid}/stat", "rb") as handle:
        return int(handle.read().rsplit(b")", 1)[1].split()[19])


def plain_connection(path):
    connection = sqlite3.connect(path, isolation_level=None, timeout=10)
    connection.create_function("octet_length", 1, _octets, deterministic=True)
    return connection


def _octets(value):
    return None if value is None else len(value if isinstance(value, bytes) else value.encode())


class ClawWorld(World):
    """A state directory of OpenClaw, a store, and the operations on both."""

    def __init__(self, base, version=NEWEST):
        super().__init__(base)
        self.claw = Claw(base / "claw", version)
        self.root = self.claw.root
        self.clock = Clock(LATER)

    def settings(self, **keys):
        return super().settings(**{"quiet_seconds": 30, **keys})

    def outcome(self, session, **keys):
        report = self.scan(**keys)
        for session_report in report.sessions:
            if session_report.session == f"main/{session}":
                return session_report.outcome, session_report.reason
        return None

    def restore(self, entry, session=GATEWAY, **keys):
        return super().restore(entry, session, **keys)

    def later(self, seconds):
        self.clock.now += seconds

    def placeholders(self, session=GATEWAY):
        """Return the ids of a session's entries whose text is a placeholder, in order."""
        entries = []
        for text in self.claw.texts(session):
            match = PLACEHOLDER.search(text)
            if match:
                entries.append(json.loads(text)["id"])
        return entries
