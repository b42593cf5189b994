"""OpenClaw's changes to the sessions in its database, with statements like its own.

Tables and columns are those of openclaw 2026.9.6; times are milliseconds since 1970.
"""

import json
from contextlib import closing, contextmanager

import zstandard

from building.claw import event_text, plain_connection

SESSION_TABLES = (
    "session_transcript_active_events", "transcript_event_identities", "transcript_events",
    "session_transcript_index_state", "transcript_rewrite_watermarks",
)  # fmt: skip


@contextmanager
def transaction(path):
    """Yield a connection for one transaction."""
    with closing(plain_connection(path)) as agent:
        agent.execute("PRAGMA synchronous = OFF")
        agent.execute("PRAGMA foreign_keys = ON")
        agent.execute("BEGIN IMMEDIATE")
        yield agent
        agent.execute("COMMIT")


def begin_session(agent, template, session, now):
    """Begin a session without events, described as the template is."""
    key = f"agent:main:explicit:{session}"
    _copy(agent, "session_nodes", f"session_key LIKE '%{template}'", session_key=key,
          current_session_id=session, updated_at=now, status=None)  # fmt: skip
    _copy(agent, "session_windows", f"session_id = '{template}'", session_id=session,
          session_key=key, status=None, created_at=now)  # fmt: skip
    agent.execute("INSERT INTO session_transcript_index_state VALUES (?, 0, NULL, 0, 0, 0, ?)",
                  (session, now))  # fmt: skip
    agent.execute("INSERT INTO transcript_rewrite_watermarks VALUES (?, hex(randomblob(16)), ?)",
                  (session, now))  # fmt: skip
    touch(agent, session, now)


def append(agent, session, text, now, *, packed=False):
    entry = json.loads(text)
    last, events, messages = agent.execute(
        "SELECT indexed_seq, active_event_count, active_message_count"
        " FROM session_transcript_index_state WHERE session_id = ?", (session,)
    ).fetchone()  # fmt: skip
    seq, is_message = last + 1, entry["type"] == "message"
    columns = (text.decode(), None, len(text), None)
    if packed:
        columns = (None, zstandard.compress(text, 1), len(text), _navigation(entry))
    agent.execute(
        "INSERT INTO transcript_events (session_id, seq, event_json, event_zstd, event_utf8_bytes,"
        " navigation_json, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (session, seq, *columns, now),
    )
    agent.execute(
        "INSERT INTO transcript_event_identities (session_id, event_id, seq, event_type,"
        " parent_id, created_at) VALUES (?, ?, ?, ?, ?, ?)",
        (session, entry["id"], seq, entry["type"], entry.get("parentId"), now),
    )
    agent.execute(
        "INSERT INTO session_transcript_active_events VALUES (?, ?, ?, ?, 1)",
        (session, events, seq, messages if is_message else None),
    )
    agent.execute(
        "UPDATE session_transcript_index_state SET indexed_seq = ?, leaf_event_id = ?,"
        " active_event_count = ?, active_message_count = ?, updated_at = ? WHERE session_id = ?",
        (seq, entry["id"], events + 1, messages + is_message, now, session),
    )
    touch(agent, session, now)
    return seq


def reappend(agent, session, count):
    """Remove the last events from the branch, so that others can replace them."""
    removed = agent.execute(
        "SELECT active_position, message_position FROM session_transcript_active_events"
        " WHERE session_id = ? ORDER BY active_position DESC LIMIT ?", (session, count),
    ).fetchall()  # fmt: skip
    agent.execute(
        "DELETE FROM session_transcript_active_events WHERE session_id = ?"
        " AND active_position >= ?", (session, removed[-1][0]),
    )  # fmt: skip
    agent.execute(
        "UPDATE session_transcript_index_state SET active_event_count = active_event_count - ?,"
        " active_message_count = active_message_count - ? WHERE session_id = ?",
        (len(removed), sum(message is not None for _, message in removed), session),
    )
    change_generation(agent, session)


def change_generation(agent, session):
    agent.execute("UPDATE transcript_rewrite_watermarks SET generation = hex(randomblob(16))"
                  " WHERE session_id = ?", (session,))  # fmt: skip


def touch(agent, session, now):
    agent.execute(
        "UPDATE session_windows SET updated_at = ?, transcript_observed_at = ?,"
        " transcript_updated_at = max(?, coalesce(transcript_updated_at, 0) + 1)"
        " WHERE session_id = ?", (now, now, now, session),
    )  # fmt: skip


def set_status(agent, session, word):
    """Set the status of a run in all three places."""
    agent.execute("UPDATE session_windows SET status = ? WHERE session_id = ?", (word, session))
    agent.execute(
        "UPDATE session_nodes SET status = ?, entry_json = json_set(entry_json, '$.status', ?)"
        " WHERE current_session_id = ?", (word, word, session),
    )  # fmt: skip


def fork(agent, session, other, now):
    key = f"agent:main:dashboard:{other}"
    _copy(agent, "session_nodes", f"current_session_id = '{session}'", session_key=key,
          current_session_id=other, fork_source_session_id=session, updated_at=now)  # fmt: skip
    _copy(agent, "session_windows", f"session_id = '{session}'", session_id=other,
          session_key=key, created_at=now)  # fmt: skip
    for table in reversed(SESSION_TABLES):
        _copy(agent, table, f"session_id = '{session}'", session_id=other)
    touch(agent, other, now)


def delete(agent, session, now, *, archived):
    if archived:
        lines = b"".join(text + b"\n" for _, text in texts(agent, session))
        agent.execute(
            "INSERT INTO session_transcript_archives (session_id, generation, session_key, reason,"
            " encoding, archive_blob, archive_sha256, archive_name, created_at)"
            " VALUES (?, 'g', 'k', 'deleted', 'zstd', ?, hex(zeroblob(32)), ?, ?)",
            (session, zstandard.compress(lines), f"{session}.jsonl.deleted.x.zst", now),
        )
    for table in (*SESSION_TABLES, "session_windows"):
        agent.execute(f"DELETE FROM {table} WHERE session_id = ?", (session,))
    agent.execute("DELETE FROM session_nodes WHERE current_session_id = ?", (session,))


def texts(agent, session):
    rows = agent.execute(
        "SELECT seq, event_json, event_zstd, event_utf8_bytes, navigation_json"
        " FROM transcript_events WHERE session_id = ? ORDER BY seq", (session,),
    )  # fmt: skip
    return [(row[0], event_text(row[1:])) for row in rows.fetchall()]


def _copy(agent, table, where, **other):
    columns = [row[1] for row in agent.execute(f"PRAGMA table_info({table})")]
    chosen = ", ".join("?" if name in other else name for name in columns)
    agent.execute(
        f"INSERT INTO {table} ({', '.join(columns)}) SELECT {chosen} FROM {table} WHERE {where}",
        [other[name] for name in columns if name in other],
    )


def _navigation(entry):
    """Return navigation data that the table accepts; only OpenClaw computes the real one."""
    return json.dumps({
        "version": 1, "report": {"kind": "canonical"}, "navigation": {"id": entry["id"]},
        "reset": {}, "model": {}, "modelBytes": 1, "modelWithoutCheckpointBytes": 1,
        "withoutCustomDataBytes": 1,
    })  # fmt: skip
