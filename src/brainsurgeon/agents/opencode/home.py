"""Where opencode and Kilo CLI keep their database, with the sessions of all projects.

`$XDG_DATA_HOME/opencode/opencode.db`, and `opencode-<channel>.db` of other releases (1.18.33);
`OPENCODE_DB` names another. `$XDG_DATA_HOME/kilo/kilo.db` (Kilo CLI 7.7.9).
"""

import os
import re
from collections.abc import Callable
from contextlib import suppress

from brainsurgeon.agents.agent import Home, Owner, directory_named
from brainsurgeon.errors import BusyError
from brainsurgeon.files import sqlite

_NAME = "{}(?:-[A-Za-z0-9._-]+)?[.]db"


def is_database(program: str, path: str) -> bool:
    """Check by its path whether a file may be a database of a program, opencode or Kilo CLI."""
    at = re.fullmatch(_NAME.format(program), os.path.basename(path))
    return at is not None or (program == "opencode" and path == named_database())


def named_database() -> str | None:
    """Return the path in `OPENCODE_DB`. A relative one begins in the directory of the data."""
    named = os.environ.get("OPENCODE_DB", "").strip()
    if named in ("", ":memory:"):
        return None
    return os.path.realpath(os.path.join(_data("opencode"), named))


def _data(program: str) -> str:
    return os.path.join(directory_named("XDG_DATA_HOME", "~/.local/share"), program)


class OpencodeHome(Home):
    program = "opencode"
    note = "pruning its database saves context, not disk"
    forks = True

    def root(self) -> str:
        named = named_database() if self.program == "opencode" else None
        return os.path.dirname(named) if named else _data(self.program)

    def holds(self, path: str) -> bool:
        return path.startswith(f"{_data(self.program)}/")

    def owner(self, path: str) -> Owner | None:
        database = os.path.dirname(path)
        held = is_database(self.program, database)
        return Owner(self.program, os.path.dirname(database)) if held else None

    def started(self, path: str, key: str | None) -> Callable[[str], bool]:
        database, parent = os.path.split(path)
        children = set[str]()
        if key is not None:
            with (
                suppress(OSError, BusyError),
                sqlite.reading(database, in_use=sqlite.held_open(database)) as opened,
            ):
                rows = opened.execute("SELECT id FROM session WHERE parent_id = ?", (parent,))
                children = {f"{database}/{ident}" for (ident,) in rows.fetchall()}
        return children.__contains__


class KiloHome(OpencodeHome):
    program = "kilo"
    any_format = True  # of two agents with one format, this one is asked by the path
