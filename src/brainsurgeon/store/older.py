"""Read a store of an earlier version as if it were one of today: what only looks never migrates.

Views of the connection's own stand in front of the tables and give what these lack as unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection

_BEFORE_IDENTITIES = (
    """
    CREATE TEMP VIEW agents AS SELECT id, directory,
    iif(name LIKE 'openclaw:%', 'pi' || substr(name, 9), name) AS name FROM main.agents
    """,
    """
    CREATE TEMP VIEW sessions AS SELECT *, NULL AS identity, NULL AS device, NULL AS inode,
    NULL AS parent_id FROM main.sessions
    """,
    "CREATE TEMP VIEW places AS SELECT NULL AS path, NULL AS session_id WHERE 0",
    "CREATE TEMP VIEW files AS SELECT *, NULL AS identity FROM main.files",
)


_BEFORE_MOVING = (
    "CREATE TEMP VIEW journal AS SELECT *, NULL AS moving_to, NULL AS stays FROM main.journal",
)
_BEFORE_ROWS = (
    """
    CREATE TEMP VIEW row_columns AS SELECT NULL AS session_id, NULL AS entry_id, NULL AS digest,
    NULL AS packed, NULL AS size, NULL AS navigation WHERE 0
    """,
    "CREATE TEMP VIEW row_writes AS SELECT NULL AS session_id, NULL AS noted_ms WHERE 0",
)
_BEFORE_DUE = (
    """
    CREATE TEMP VIEW ages AS SELECT session_id, min(extracted_at) AS extracted_at,
    min(max(extracted_at, sighted_at)) AS sighted_at
    FROM main.extractions WHERE blob_id IS NOT NULL GROUP BY session_id
    """,
)
_BEFORE_RESUMING = (
    """
    CREATE TEMP VIEW resumes AS SELECT NULL AS path, NULL AS device, NULL AS inode, NULL AS size,
    NULL AS mtime_ns, NULL AS ctime_ns, NULL AS mark, NULL AS rules, NULL AS format,
    NULL AS identity, NULL AS session_id, NULL AS begins_at, NULL AS line, NULL AS cursor,
    NULL AS stubs, NULL AS whole_at WHERE 0
    """,
)
_BEFORE_PASSES = (
    """
    CREATE TEMP VIEW passes AS SELECT NULL AS id, NULL AS at, NULL AS command, NULL AS facts WHERE 0
    """,
    """
    CREATE TEMP VIEW events AS SELECT NULL AS id, NULL AS at, NULL AS pass_id, NULL AS session_id,
    NULL AS kind, NULL AS facts WHERE 0
    """,
)
_BEFORE_LOADS = (
    """
    CREATE TEMP VIEW calibration AS SELECT NULL AS session_id, NULL AS rate, NULL AS fixed,
    NULL AS calls, NULL AS method, NULL AS error, NULL AS load, NULL AS "window",
    NULL AS threshold, NULL AS model, NULL AS step, NULL AS at WHERE 0
    """,
)
_BEFORE_ARCHIVES = (
    """
    CREATE TEMP VIEW archives AS SELECT NULL AS id, NULL AS session_id, NULL AS entry_id,
    NULL AS prompt_id, NULL AS entries, NULL AS tokens_before, NULL AS tokens_after,
    NULL AS depth, NULL AS style, NULL AS note, NULL AS digest, NULL AS pass_id, NULL AS state,
    NULL AS made_at, NULL AS turns, NULL AS calls, NULL AS failed WHERE 0
    """,
    """
    CREATE TEMP VIEW summaries AS SELECT NULL AS digest, NULL AS blob_id, NULL AS blob_digest,
    NULL AS made_at WHERE 0
    """,
)
_BEFORE = {
    "m002_know_sessions_by_what_they_say": _BEFORE_IDENTITIES,
    "m003_note_what_is_being_moved": _BEFORE_MOVING,
    "m004_keep_rows": _BEFORE_ROWS,
    "m005_resume": _BEFORE_RESUMING,
    "m006_find_what_is_due": _BEFORE_DUE,
    "m007_keep_records_small": (),  # what is read can be read in either way
    "m008_name_passes": _BEFORE_PASSES,
    "m009_remember_loads": _BEFORE_LOADS,
    "m010_keep_archives": _BEFORE_ARCHIVES,
    "m011_count_what_folded": (),
    "m012_find_what_passes_made": (),
}
"""What stands in for each migration that a store may lack."""
_ADDED: dict[str, dict[str, tuple[str, ...]]] = {
    "m002_know_sessions_by_what_they_say": {"extractions": ("said", "whole")},
    "m008_name_passes": {
        "extractions": ("pass_id",),
        "fields": ("pass_id",),
        "wishes": ("rolls_back",),
    },
    "m010_keep_archives": {"extractions": ("archive_id",)},
    "m011_count_what_folded": {"archives": ("turns", "calls", "failed")},
}
"""Columns that a migration added to a table that others added to, too: one view gives them all."""
_MADE_BY = {"archives": "m010_keep_archives"}
"""Tables that a store may lack as a whole: then what stands in for them has every column."""


def read_as_today(connection: sqlite3.Connection, lacking: Collection[str]) -> None:
    """Make a store that some migrations have not reached readable by this program."""
    added: dict[str, list[str]] = {}
    for migration in lacking:
        connection.execute("PRAGMA temp_store = MEMORY")
        for statement in _BEFORE[migration]:
            connection.execute(statement)
        for table, names in _ADDED.get(migration, {}).items():
            if _MADE_BY.get(table) not in lacking:
                added.setdefault(table, []).extend(names)
    for table, columns in added.items():
        unknown = ", ".join(f"NULL AS {column}" for column in columns)
        connection.execute(
            f"CREATE TEMP VIEW {table} AS SELECT *, {unknown} FROM main.{table}"  # noqa: S608
        )
