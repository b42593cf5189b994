"""opencode's own database, as its program wrote it, and changes like those of the program.

Tables and columns are those of opencode 1.18.33; times are milliseconds since 1970.
"""

import json
import sqlite3
import tempfile
from contextlib import closing, contextmanager
from pathlib import Path

import zstandard

from brainsurgeon.agents.opencode.rows import OpencodeDatabases
from brainsurgeon.files import sqlite
from brainsurgeon.model.session_files import Root
from brainsurgeon.sessions.discovery import open_session
from brainsurgeon.sessions.row_listing import list_rows_at
from building.world import SAMPLES, Clock, World

OPENCODE, KILO = "opencode-1.18.33", "kilo-7.7.9"
# A conversation with pictures, a sub-agent and a compaction; the sub-agent; and a fork.
WHOLE, CHILD, FORK = (
    "ses_ddc9f6554ffe5PWXLXsE2uucW7", "ses_ddc9f2f22ffe7W7RQ2Yt9YfgRN",
    "ses_ddc9f1814ffeXEHmHJUl7HnFnY",
)  # fmt: skip
KILO_SESSION = "ses_ddc3716f7ffe6X6jneQQmRtmCz"
WRITTEN = 1_795_896_950.0  # seconds since 1970, after both samples


def unpack(sample, path):
    packed = (SAMPLES / "opencode-db" / f"{sample}.db.zst").read_bytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(zstandard.ZstdDecompressor().decompress(packed))
    path.chmod(0o600)
    with connected(path) as database:
        database.execute("PRAGMA journal_mode = WAL")


@contextmanager
def connected(path):
    with closing(sqlite3.connect(path, isolation_level=None, timeout=10)) as database:
        yield database


def lines_of(path, session):
    """Return the lines of a session, as they are read from its database."""
    kept = OpencodeDatabases(path.stem)
    with sqlite.opened(str(path), "rw") as database:
        layout = kept.layout(database)
        keys = [key for key, _ in kept.sizes(database, layout, session)]
        return [row.line() for _, row in kept.fetch(database, layout, session, keys)]


class Lines:
    """The lines of one session in a sample."""

    def __init__(self, sample, session):
        self.name = f"{sample}-{session[-4:]}"
        self._sample, self._session = sample, session

    def read_bytes(self):
        with tempfile.TemporaryDirectory() as place:
            path = Path(place) / f"{self._sample.partition('-')[0]}.db"
            unpack(self._sample, path)
            return b"".join(line + b"\n" for line in lines_of(path, self._session))


class OpencodeWorld(World):
    """A directory of opencode's data, a store, and the operations on both."""

    def __init__(self, base, sample=OPENCODE):
        super().__init__(base)
        program = sample.partition("-")[0]
        self.root = base / "data" / program
        self.path = self.root / f"{program}.db"
        unpack(sample, self.path)
        self.clock = Clock(WRITTEN + 3600)

    def rows(self, table="part"):
        with connected(self.path) as database:
            return database.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()

    def data(self, part):
        with connected(self.path) as database:
            query = "SELECT data FROM part WHERE id = ?"
            return json.loads(database.execute(query, (part,)).fetchone()[0])

    def write(self, statement, *values):
        with connected(self.path) as database:
            return database.execute(statement, values).fetchall()

    def opened(self, session):
        (file,) = list_rows_at([Root(str(self.root))], f"{self.path}/{session}")
        return open_session(file)
