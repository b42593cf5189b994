"""A home of Codex with paginated threads, its index, and the offsets in both."""

import json
import sqlite3
from contextlib import closing

from building.world import SAMPLES, World, dump

INDEX = "thread_history_1.sqlite"
LOCKS = "thread-writer-locks"


def thread_id(number):
    return f"01a2236{number}-f7dc-74e3-8c6f-0d1f3a61e424"


class CodexWorld(World):
    """A home of Codex without sessions."""

    def __init__(self, base):
        super().__init__(base)
        self.directory = self.root / "sessions" / "2026" / "11" / "28"
        self.directory.mkdir(parents=True)
        self.locks = self.root / LOCKS

    def sample(self, name, to):
        return self.put(to, (SAMPLES / "codex" / f"{name}.jsonl").read_bytes())

    def index(self, *paths):
        """Write the index of these files as Codex 0.171.0 does."""
        self.locks.mkdir(exist_ok=True)
        with closing(sqlite3.connect(self.root / INDEX)) as index:
            index.executescript((SAMPLES / "codex" / "thread_history_1.sql").read_text())
            for path in paths:
                self.project(index, path)
            index.commit()
            index.execute("PRAGMA journal_mode = wal")

    def project(self, index, path):
        lines, at = path.read_bytes().splitlines(keepends=True), 0
        for line in lines:
            entry, begin, at = json.loads(line), at, at + len(line)
            kind, turn = entry["payload"].get("type"), entry["payload"].get("turn_id")
            if kind == "task_started":
                index.execute(
                    "INSERT INTO thread_turns (thread_id, turn_id, rollout_ordinal, status,"
                    " rollout_byte_offset) VALUES (?, ?, ?, 'completed', ?)",
                    (key(path), turn, entry["ordinal"], begin),
                )
            elif kind == "task_complete":
                index.execute(
                    "UPDATE thread_turns SET rollout_end_ordinal = ?, rollout_end_byte_offset = ?"
                    " WHERE thread_id = ? AND turn_id = ?", (entry["ordinal"], at, key(path), turn),
                )  # fmt: skip
        index.execute(
            "INSERT INTO thread_history_projection_state VALUES (?, ?, ?)",
            (key(path), at, entry["ordinal"] + 1),
        )

    def thread(self, number=1, turns=6, base=None, page=None, **more):
        """Write a thread, or another file of it, a `page`.

        `base` is the file and the ordinal at which it begins.
        """
        first, found = 0, {}
        if base:
            path, first = base
            found = {"history_base": {
                "thread_id": key(path), "end_ordinal_exclusive": first,
                "end_byte_offset": edges(path)[first],
            }}  # fmt: skip
        ident = thread_id(number)
        payloads = [("session_meta", {
            "id": ident, "cwd": "/w", "history_mode": "paginated", **found, **more})]  # fmt: skip
        for turn in range(turns):
            payloads += turn_of(f"{page or number}-{turn}")
        own = f"{ident}_{thread_id(page)}" if page else ident
        name = f"rollout-2026-11-28T18-23-3{page or number}-{own}.jsonl"
        return self.put(name, numbered(payloads, first), age=3 * 86_400)

    def offsets(self):
        """Return all offsets that are wrong, and how many are right."""
        wrong, right = [], 0
        paths = {key(path): path for path in self.root.rglob("rollout-*.jsonl")}
        for path in paths.values():
            found = json.loads(path.read_bytes().split(b"\n")[0])["payload"].get("history_base")
            if found:
                place = edges(paths[found["thread_id"]])[found["end_ordinal_exclusive"]]
                wrong += [path.name] if place != found["end_byte_offset"] else []
                right += 1
        with closing(sqlite3.connect(f"file:{self.root / INDEX}?mode=ro", uri=True)) as index:
            rows = [*index.execute(
                "SELECT thread_id, next_rollout_ordinal, next_rollout_byte_offset"
                " FROM thread_history_projection_state UNION ALL"
                " SELECT thread_id, rollout_ordinal, rollout_byte_offset FROM thread_turns"
                " UNION ALL SELECT thread_id, rollout_end_ordinal + 1, rollout_end_byte_offset"
                " FROM thread_turns"
            )]  # fmt: skip
        wrong += [row for row in rows if edges(paths[row[0]])[row[1]] != row[2]]
        return wrong, right + len(rows)


def key(path):
    return path.stem[-36:]


def edges(path):
    """Return where each line begins, by its ordinal."""
    found, at = {}, 0
    for line in path.read_bytes().splitlines(keepends=True):
        ordinal = json.loads(line)["ordinal"]
        found[ordinal], at = at, at + len(line)
    return {**found, ordinal + 1: at}


def numbered(payloads, first=0):
    return b"".join(
        dump({"timestamp": f"2026-11-28T18:23:{at % 60:02}.000Z", "ordinal": at, "type": kind,
              "payload": payload})
        for at, (kind, payload) in enumerate(payloads, first)
    )  # fmt: skip


def turn_of(name, size=3000):
    """Return the lines of a turn with one call."""
    call, turn = f"call_{name.replace('-', 'x'):0>24}", f"turn-{name}"
    text = f"Exit code: 0\nOutput:\n{name} ".ljust(size, "o")
    message = {"type": "message", "role": "assistant", "id": f"msg-{name}",
               "content": [{"type": "output_text", "text": "done."}]}  # fmt: skip
    return [
        ("event_msg", {"type": "task_started", "turn_id": turn}),
        ("response_item", {"type": "message", "role": "user", "id": f"user-{name}",
                           "content": [{"type": "input_text", "text": f"do {name}"}]}),
        ("response_item", {"type": "function_call", "name": "exec_command", "call_id": call,
                           "arguments": "{}"}),
        ("response_item", {"type": "function_call_output", "call_id": call, "output": text}),
        ("event_msg", {"type": "item_completed", "turn_id": turn, "item": {
            "type": "CommandExecution", "id": call, "aggregated_output": text}}),
        ("response_item", message),
        ("event_msg", {"type": "task_complete", "turn_id": turn}),
    ]  # fmt: skip
