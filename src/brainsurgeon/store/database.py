"""Create, open and lock the database; the base class of its tables."""

import fcntl
import json
import os
import re
import resource
import sqlite3
import stat
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Struct

from brainsurgeon.errors import (
    BrainsurgeonError,
    BusyError,
    StoreAccessError,
    StoreDamagedError,
    StoreFullError,
    StoreUnusableError,
    UsageError,
)
from brainsurgeon.model.entries import KeyPath
from brainsurgeon.store.schema import ADDED, SCHEMA, VERSION

SCARCE = 64 << 20  # bytes of free disk below which rewrites may soon fail
NONE_LEFT = 1 << 20  # bytes of free disk below which nothing can be stored
STORE_LOCK_SECONDS = 10.0  # to wait for another brainsurgeon process
STAGED = "store.db.new-"  # prefix of directories with unfinished databases
# The store's files in a state directory. `init.json` and backups may be there, too.
STORE_FILES = re.compile(
    r"store\.db(\.new|\.(replaced|damaged)-[0-9TZ-]+)?(-journal|-wal|-shm)?"
    r"|locks|daemon\.lock|last_run|report\.html"
)
_OTHER_FILES = re.compile(
    rf"{re.escape(STAGED)}.*|init\.json(\.new)?|report\.html\.[0-9a-f]+\.new|lost\+found"
)

DatabaseError = sqlite3.Error
PAGE = 4096  # bytes; with 8192, a store was 7 % larger for values of 40 KB, 12 % for 8 KB

ADVICE = (
    "`brainsurgeon store restore FILE` puts a backup in its place; without a backup,"
    " `brainsurgeon doctor --repair` saves the values that can be read"
)

NO_STORE = (
    "Set state_dir to the directory of the store, or put a backup of it in place (`brainsurgeon"
    " store restore FILE`). If it is lost, `brainsurgeon scan --new-store` begins a new store"
)

APPLICATION_ID = 0x62737267
_PRAGMAS = (
    "journal_mode = DELETE", "synchronous = EXTRA", "secure_delete = ON", "foreign_keys = ON",
    "trusted_schema = OFF", "cell_size_check = ON", "mmap_size = 0",
)  # fmt: skip
_LOCK = "hhqqi4x"  # struct flock of fcntl(2)
# Inodes on btrfs and other filesystems use all 64 bits; SQLite's integers are signed.
_WRAP = 1 << 64
_Record = TypeVar("_Record", bound=Struct)


def has_access(path: str, mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def _nearest_existing(path: str) -> str:
    while not os.path.lexists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path


def why_not_writable(directory: str) -> str | None:
    above = _nearest_existing(directory)
    if has_access(above, os.W_OK | os.X_OK):
        return None
    if above == directory:
        return f"{directory} cannot be written by this user"
    return f"{directory} cannot be made: {above} cannot be written by this user"


def free(path: str) -> int | None:
    """Return how many bytes can be stored at a path that may not exist yet; None if unknown."""
    try:
        status = os.statvfs(_nearest_existing(path))
    except OSError:
        return None
    return 0 if status.f_files and not status.f_favail else status.f_bavail * status.f_frsize


def database_path(directory: str) -> str:
    return os.path.join(directory, "store.db")


def identity(directory: str) -> tuple[int, int] | None:
    try:
        status = os.stat(database_path(directory))
    except OSError:
        return None
    return status.st_dev, status.st_ino


def may_exist(directory: str) -> bool:
    """Check for a database. If the directory is unreadable, return true: opening it says why."""
    try:
        os.stat(database_path(directory))
    except OSError as error:
        return not isinstance(error, FileNotFoundError | NotADirectoryError)
    return True


def make_directory(directory: str) -> None:
    refuse_other_directory(directory)
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        status = os.lstat(directory)
    except OSError as error:
        raise StoreUnusableError(
            f"{directory}: the state directory cannot be made: {error.strerror}; make it writable "
            "for this user, or set state_dir"
        ) from error
    if stat.S_ISLNK(status.st_mode) or status.st_uid != os.geteuid():
        raise StoreUnusableError(
            f"{directory}: the state directory is a symbolic link or belongs to another user; set "
            "state_dir, or run as that user"
        )
    if status.st_mode & 0o077:
        os.chmod(directory, 0o700)


def refuse_other_directory(directory: str) -> None:
    """Raise UsageError if a directory has files, and none shows that it is a state directory.

    Its mode would be changed, and its owner could lose files.
    """
    names: list[str] = []
    with suppress(OSError):  # it is missing, or its use fails with a message about the reason
        names = os.listdir(directory)
    foreign = (
        name for name in names
        if name == "store.db" or not (STORE_FILES.fullmatch(name) or _OTHER_FILES.fullmatch(name))
    )  # fmt: skip
    if not (
        next(foreign, None) is None
        or _is_lock_file(os.path.join(directory, "locks"))
        or _is_marked(database_path(directory))
    ):  # fmt: skip
        raise UsageError(
            f"state_dir: {directory} has files of others and no store: nothing was changed. Name "
            "an empty or new directory"
        )


def _is_lock_file(path: str) -> bool:
    with suppress(OSError):
        status = os.lstat(path)
        return stat.S_ISREG(status.st_mode) and status.st_size == 0
    return False


def _is_marked(path: str) -> bool:
    """Check for the mark of our databases. Other processes' write-ahead logs stay as they are."""
    uri = address(path, "ro&immutable=1")
    with suppress(sqlite3.Error), closing(sqlite3.connect(uri, uri=True)) as connection:
        return bool(connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID)
    return False


def open_database(directory: str, locks: int | None = None) -> sqlite3.Connection:
    """Open the database: for writing if `locks` is a descriptor of the lock file, else to read."""
    path = database_path(directory)
    while True:
        before = identity(directory)
        with translated(directory):
            if locks is not None and before is None:
                _create(directory, path, locks)
            _refuse_foreign(path)
            # If a crash interrupted a transaction, SQLite must undo it before the database is read.
            if locks is None and os.path.exists(path + "-journal"):
                with suppress(sqlite3.OperationalError), closing(connect(path, "rw")) as writer:
                    writer.execute("SELECT 1 FROM sqlite_master").fetchone()
            connection = connect(path, "ro" if locks is None else "rw")
            try:
                refuse_unknown(connection, path)
                _complete(connection, writes=locks is not None)
            except BaseException:
                connection.close()
                raise
        if before is None or identity(directory) == before:
            return connection
        connection.close()  # the database was replaced meanwhile: this is the old one


def _complete(connection: sqlite3.Connection, *, writes: bool) -> None:
    """Add the tables that stores of earlier programs lack; for a reader, empty temporary ones."""
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
    for name, table in ADDED.items():
        if name not in names:
            # Another process may do this at the same time.
            wanted = table.replace("TABLE", "TABLE IF NOT EXISTS", 1)
            connection.execute(f"CREATE {'' if writes else 'TEMP '}{wanted}")


def empty_database() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.executescript(SCHEMA)
    return connection


def _create(directory: str, path: str, locks: int) -> None:
    """Create the database under another name and rename it: nobody sees half a schema."""
    fcntl.flock(locks, fcntl.LOCK_EX)
    try:
        if os.path.lexists(path):
            return
        fresh = path + ".new"
        with suppress(FileNotFoundError):
            os.unlink(fresh)
        os.close(create_file(fresh))
        with closing(connect(fresh, "rw")) as connection:
            create_schema(connection)
        os.rename(fresh, path)
        sync_directory(directory)
    finally:
        fcntl.flock(locks, fcntl.LOCK_UN)


def create_file(path: str) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(path, flags, 0o600)


def create_schema(connection: sqlite3.Connection) -> None:
    from sqlite_utils import Database  # noqa: PLC0415  takes 1/3 s, used once per store

    connection.execute(f"PRAGMA page_size = {PAGE}")
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    Database(connection).executescript(f"BEGIN; {SCHEMA} COMMIT;")  # one commit for all tables
    connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute("VACUUM")  # puts the schema on the same pages in every store, for `salvage`


def sync_directory(directory: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def address(path: str, mode: str) -> str:
    return f"file:{quote(os.fsencode(path))}?mode={mode}"


def connect(path: str, mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        address(path, mode), timeout=STORE_LOCK_SECONDS, isolation_level=None, uri=True,
        check_same_thread=False,
    )  # fmt: skip
    try:
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
    except BaseException:
        connection.close()
        raise
    return connection


def why_unknown(connection: sqlite3.Connection) -> tuple[str, str] | None:
    """Return why a database cannot be used as a store, and what to do, or None."""
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        advice = (
            "`brainsurgeon store restore FILE` puts a backup in its place; without a backup, move "
            "it away: a new store begins empty and cannot restore earlier values"
        )
        return "is not a brainsurgeon store (empty, damaged or another program's)", advice
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    known = f"(version {version} of the store, this program knows {VERSION})"
    if version > VERSION:
        return f"was written by a newer brainsurgeon {known}", "Install that version again"
    if version < VERSION:
        advice = (
            "Stop the daemon. With that version, run `brainsurgeon restore --all --pristine` until "
            "nothing waits; then move it away"
        )
        return f"was written by an older brainsurgeon {known}", advice
    return None


def refuse_unknown(connection: sqlite3.Connection, path: str) -> None:
    if unknown := why_unknown(connection):
        why, advice = unknown
        raise StoreUnusableError(f"{path} {why}: nothing was touched. {advice}")


def _refuse_foreign(path: str) -> None:
    """Refuse a database that is not a store, without changing it.

    A normal connection would merge another program's write-ahead log into its database. Reading the
    file without SQLite would release the locks of this process. Errors of SQLite are ignored: the
    normal connection reports them.
    """
    uri = address(path, "ro&immutable=1")
    with suppress(sqlite3.DatabaseError), closing(sqlite3.connect(uri, uri=True)) as connection:
        refuse_unknown(connection, path)


@contextmanager
def translated(directory: str) -> Iterator[None]:
    """Raise SQLite errors as ours. SQLite's own message may contain session content."""
    try:
        yield
    except sqlite3.Error as error:
        raise explain(error, directory) from error


def explain(error: sqlite3.Error, directory: str) -> BrainsurgeonError:
    path = database_path(directory)
    code = getattr(error, "sqlite_errorname", "")
    no_room = code.startswith(("SQLITE_CANTOPEN", "SQLITE_IOERR")) and free(directory) == 0
    if no_room or code.startswith("SQLITE_FULL"):  # it could create no journal, or sync no file
        return StoreFullError(f"{path}: the disk is full; make room and run again")
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return BusyError(f"{path}: another process is writing to the store; try again")
    if code.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH")):
        refused = os.path.lexists(path) and not has_access(path, os.R_OK | os.W_OK)
        why = "this user may not open it (Permission denied)" if refused else code
        return StoreAccessError(
            f"{path} cannot be opened or written: {why}; it was left as it is. Run as the user "
            "that it belongs to, and make it writable for that user"
        )
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if code == "SQLITE_IOERR_WRITE" and limit != resource.RLIM_INFINITY:
        return StoreAccessError(
            f"{path}: the limit of the size of a file was reached ({limit:,} bytes, ulimit -f). "
            "Raise it; the next command completes or undoes an interrupted rewrite"
        )
    if code.startswith("SQLITE_IOERR"):
        return StoreAccessError(
            f"{path}: the disk fails ({code}); the next command completes or undoes an "
            "interrupted rewrite. Check the disk first, then run `brainsurgeon doctor`"
        )
    return StoreDamagedError(
        f"{path} is unusable ({code or 'damaged'}) and was left as it is. {ADVICE}"
    )


def open_locks(directory: str, name: str) -> int:
    make_directory(directory)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    path = os.path.join(directory, name)
    try:
        return os.open(path, flags, 0o600)
    except OSError as error:
        unwritable = path if os.path.lexists(path) else directory
        raise StoreUnusableError(
            f"{unwritable} cannot be written: {error.strerror}; nothing was touched. Make it "
            "writable for this user, or set state_dir"
        ) from error


@contextmanager
def hold_daemon_lock(directory: str) -> Iterator[None]:
    """Hold the daemon's lock; raise BusyError with the pid of the process that has it."""
    descriptor = open_locks(directory, "daemon.lock")
    try:
        if not _lock_bytes(descriptor, 0, 0, fcntl.F_WRLCK):
            pid = _pid_in(descriptor) or "unknown"
            raise BusyError(f"{directory} is used by another brainsurgeon (pid {pid}); stop it")
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def daemon_holder(directory: str) -> int | None:
    if is_locked(directory, "daemon.lock"):
        with suppress(OSError), open(os.path.join(directory, "daemon.lock"), "rb") as file:
            return _pid_in(file.fileno())
    return None


def is_locked(directory: str, name: str, start: int = 0, length: int = 0) -> bool:
    with suppress(OSError), open(os.path.join(directory, name), "rb") as file:
        request = _request(fcntl.F_WRLCK, start, length)
        answer = fcntl.fcntl(file, fcntl.F_OFD_GETLK, request)
        return bool(struct.unpack(_LOCK, answer)[0] != fcntl.F_UNLCK)
    return False


def _pid_in(descriptor: int) -> int | None:
    text = os.pread(descriptor, 32, 0).strip()
    return int(text) if text.isdigit() else None


@contextmanager
def hold_store(directory: str) -> Iterator[None]:
    with hold_daemon_lock(directory), hold_sessions(directory):
        yield


@contextmanager
def hold_sessions(directory: str, patience: float = STORE_LOCK_SECONDS) -> Iterator[None]:
    descriptor = open_locks(directory, "locks")
    try:
        busy = "another brainsurgeon has locked a session; try again"
        with hold_bytes(descriptor, 0, 0, busy, patience):
            yield
    finally:
        os.close(descriptor)


@contextmanager
def hold_bytes(
    descriptor: int, start: int, length: int, busy: str, patience: float,
    check_stop: Callable[[], None] = lambda: None,
) -> Iterator[None]:  # fmt: skip
    """Lock bytes of a lock file, in which byte N stands for session N. Length 0: up to the end.

    Raises BusyError after `patience` seconds. The kernel releases the locks of a dead process.
    """
    deadline = time.monotonic() + patience
    while not _lock_bytes(descriptor, start, length, fcntl.F_WRLCK):
        if time.monotonic() > deadline:
            raise BusyError(busy)
        check_stop()
        time.sleep(0.05)
    try:
        yield
    finally:
        _lock_bytes(descriptor, start, length, fcntl.F_UNLCK)


def _request(kind: int, start: int, length: int) -> bytes:
    return struct.pack(_LOCK, kind, os.SEEK_SET, start, length, 0)


def _lock_bytes(descriptor: int, start: int, length: int, kind: int) -> bool:
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _request(kind, start, length))
    except (BlockingIOError, PermissionError):
        return False
    return True


class Table:
    """The caller begins and ends transactions."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._executemany = connection.executemany

    def _first(self, statement: str, *values: object) -> Any:
        row = self._execute(statement, values).fetchone()
        return row[0] if row else None

    def _column(self, statement: str, *values: object) -> list[Any]:
        return [row[0] for row in self._execute(statement, values)]

    def _records(self, kind: type[_Record], source: str, *values: object) -> list[_Record]:
        statement = f"SELECT {', '.join(kind.__struct_fields__)} FROM {source}"  # noqa: S608
        return [kind(*row) for row in self._execute(statement, values)]

    def _decoded(self, kind: type[_Record], source: str, *values: object) -> Iterator[_Record]:
        """Yield records stored as MessagePack; skip records of other versions."""
        for text in self._column(f"SELECT {source}", *values):
            with suppress(msgspec.DecodeError):
                yield msgspec.msgpack.decode(text, type=kind)

    def _insert(self, table: str, row: Mapping[str, object], verb: str = "INSERT") -> int:
        places = ", ".join("?" * len(row))
        statement = f"{verb} INTO {table} ({', '.join(row)}) VALUES ({places})"
        return self._execute(statement, (*row.values(),)).lastrowid or 0


def signed(number: int) -> int:
    return number - _WRAP if number >= _WRAP // 2 else number


def unsigned(number: int) -> int:
    return number % _WRAP


def path_text(name: str) -> str:
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def key_path_text(path: KeyPath) -> str:
    """Return a key path as JSON, or in the short form of `extractions.path` in the schema."""
    match path:
        case ("message", "content", int() as at, "text"):
            return f"t{at}"
        case ("message", "content", int() as at, "content"):
            return f"c{at}"
    return json.dumps(path)


@lru_cache(4096)  # a session has thousands of values at few paths
def key_path_read(text: str) -> KeyPath:
    if text.startswith("["):
        return tuple(json.loads(text))
    return ("message", "content", int(text[1:]), "text" if text[0] == "t" else "content")
