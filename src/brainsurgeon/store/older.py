"""Read a store of an earlier version as if it were one of today: what only looks never migrates.

Views of the connection's own stand in front of the tables and give what these lack as unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

_BEFORE_IDENTITIES = (
    "PRAGMA temp_store = MEMORY",
    """
    CREATE TEMP VIEW agents AS SELECT id, directory,
    iif(name LIKE 'openclaw:%', 'pi' || substr(name, 9), name) AS name FROM main.agents
    """,
    """
    CREATE TEMP VIEW sessions AS SELECT *, NULL AS identity, NULL AS device, NULL AS inode,
    NULL AS parent_id FROM main.sessions
    """,
    "CREATE TEMP VIEW places AS SELECT NULL AS path, NULL AS session_id WHERE 0",
    "CREATE TEMP VIEW extractions AS SELECT *, NULL AS said, NULL AS whole FROM main.extractions",
    "CREATE TEMP VIEW files AS SELECT *, NULL AS identity FROM main.files",
)


def read_as_today(connection: sqlite3.Connection) -> None:
    """Make a store that the newest migration has not reached readable by this program."""
    for statement in _BEFORE_IDENTITIES:
        connection.execute(statement)
