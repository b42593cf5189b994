"""Append messages to a session in OpenClaw's database, with the statements of its own program.

    python claw_appender.py DATABASE SESSION ROWS PAUSE

One transaction a message, as in openclaw 2026.9.6: the event, its identity, its place on the active
branch, the state of the index, the times of the window. Half of them are tool results of some
thousand characters. Prints the texts' digests and the longest wait (seconds) as JSON.
"""

import hashlib
import json
import sqlite3
import sys
import time
import uuid


def main():
    path, session, rows, pause = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    agent = sqlite3.connect(path, isolation_level=None, timeout=5)
    agent.create_function("octet_length", 1, lambda v: v and len(v), deterministic=True)
    agent.execute("PRAGMA synchronous = NORMAL")
    digests, longest = {}, 0.0
    print("appending", flush=True)
    for number in range(rows):
        started = time.monotonic()
        ident, text = append(agent, session, number)
        longest = max(longest, time.monotonic() - started)
        digests[ident] = hashlib.sha256(text.encode()).hexdigest()
        time.sleep(pause)
    print(json.dumps({"rows": digests, "longest": longest}), flush=True)


def append(agent, session, number):
    agent.execute("BEGIN IMMEDIATE")
    last, leaf, events, messages = agent.execute(
        "SELECT indexed_seq, leaf_event_id, active_event_count, active_message_count"
        " FROM session_transcript_index_state WHERE session_id = ?", (session,)
    ).fetchone()  # fmt: skip
    ident, now = str(uuid.uuid4()), time.time_ns() // 1_000_000
    text = json.dumps(entry(ident, leaf, number, now), separators=(",", ":"), ensure_ascii=False)
    seq = last + 1
    agent.execute(
        "INSERT INTO transcript_events (session_id, seq, event_json, created_at, event_utf8_bytes)"
        " VALUES (?, ?, ?, ?, ?)", (session, seq, text, now, len(text.encode())),
    )  # fmt: skip
    agent.execute(
        "INSERT INTO transcript_event_identities"
        " (session_id, event_id, seq, event_type, parent_id, created_at)"
        " VALUES (?, ?, ?, 'message', ?, ?)", (session, ident, seq, leaf, now),
    )  # fmt: skip
    agent.execute(
        "INSERT INTO session_transcript_active_events VALUES (?, ?, ?, ?, 1)",
        (session, events, seq, messages),
    )
    agent.execute(
        "UPDATE session_transcript_index_state SET indexed_seq = ?, leaf_event_id = ?,"
        " active_event_count = ?, active_message_count = ?, updated_at = ? WHERE session_id = ?",
        (seq, ident, events + 1, messages + 1, now, session),
    )
    agent.execute(
        "UPDATE session_windows SET transcript_updated_at = max(?, transcript_updated_at + 1),"
        " transcript_observed_at = ?, updated_at = ? WHERE session_id = ?",
        (now, now, now, session),
    )
    agent.execute("COMMIT")
    return ident, text


def entry(ident, parent, number, now):
    if number % 2 == 0:
        call = {"type": "toolCall", "id": f"c{number}", "name": "exec", "arguments": {}}
        message = {"role": "assistant", "content": [call], "stopReason": "toolUse"}
    else:
        text = "".join(f"row {number} line {line} ä {number * line}\n" for line in range(100))
        message = {"role": "toolResult", "toolCallId": f"c{number - 1}", "toolName": "exec",
                   "content": [{"type": "text", "text": text}], "isError": False}  # fmt: skip
    return {"type": "message", "id": ident, "parentId": parent, "timestamp": now,
            "message": {**message, "timestamp": now}}  # fmt: skip


if __name__ == "__main__":
    main()
