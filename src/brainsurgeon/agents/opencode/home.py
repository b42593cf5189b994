"""Where opencode and Kilo CLI keep their database, with the sessions of all projects.

`$XDG_DATA_HOME/opencode/opencode.db`, and `opencode-<channel>.db` of other releases (1.18.33).
`OPENCODE_DB` names another. `$XDG_DATA_HOME/kilo/kilo.db` (Kilo CLI 7.7.9).
"""

import os
from collections.abc import Callable
from contextlib import suppress

from brainsurgeon.agents.agent import Home, Owner, directory_named
from brainsurgeon.errors import BusyError
from brainsurgeon.files import sqlite

_NAMES = {"opencode": ("opencode", "opencode-beta", "opencode-dev", "opencode-local")}


def name_of(program: str, path: str) -> str | None:
    """Return the name of a database in titles. None: it is another file, such as a copy of one."""
    stem, ending = os.path.splitext(os.path.basename(path))
    if ending == ".db" and stem in _NAMES.get(program, (program,)):
        return stem
    return f"{program}:{stem}" if path == _database(program) else None


def _database(program: str) -> str:
    named = os.environ.get("OPENCODE_DB", "").strip() if program == "opencode" else ""
    name = f"{program}.db" if named in ("", ":memory:") else named
    return os.path.realpath(os.path.join(_data(program), name))


def _data(program: str) -> str:
    return os.path.join(directory_named("XDG_DATA_HOME", "~/.local/share"), program)


class OpencodeHome(Home):
    program = "opencode"
    note = "pruning its database saves context, not disk"
    forks = True

    def root(self) -> str:
        # Elsewhere, its directory may have files of other programs: only the user makes it a root.
        directory = os.path.dirname(_database(self.program))
        own = os.path.realpath(_data(self.program))
        return directory if os.path.commonpath([directory, own]) == own else ""

    def holds(self, path: str) -> bool:
        return path.startswith(f"{_data(self.program)}/")

    def owner(self, path: str) -> Owner | None:
        name = name_of(self.program, database := os.path.dirname(path))
        return Owner(name, os.path.dirname(database)) if name else None

    def started(self, path: str, key: str | None) -> Callable[[str], bool]:
        database, parent = os.path.split(path)
        children, query = set[str](), "SELECT id FROM session WHERE parent_id = ?"
        with suppress(OSError, BusyError):
            in_use = key is not None and sqlite.held_open(database)
            with sqlite.reading(database, in_use=in_use) as opened:
                children = {f"{database}/{ident}" for (ident,) in opened.execute(query, (parent,))}
        return children.__contains__


class KiloHome(OpencodeHome):
    program = "kilo"
    any_format = True  # of two agents with one format, this one is asked by the path
