"""A home of Claude Code, and sessions in the format that 2.1.330 writes."""

import itertools
import json
import os
import time
import uuid

from building.claw import start_time
from building.world import LONG_AGO, SAMPLES, World, copy_tree, dump

SESSION = "11111111-1111-4111-8111-111111111111"


class ClaudeConversation:
    """A session file; each line's parent is the line before unless another is passed."""

    def __init__(self, session=SESSION, version="2.1.330", side=False):
        self.lines = []
        self.last = None
        self._session, self._version, self._side = session, version, side
        self._seconds, self._ids = itertools.count(), itertools.count(1)

    def entry(self, kind, parent=..., **fields):
        ident = str(uuid.UUID(int=next(self._ids) + (1 << 100), version=4))
        self.lines.append({
            "parentUuid": self.last if parent is ... else parent, "isSidechain": self._side,
            "type": kind, "uuid": ident,
            "timestamp": f"2026-11-01T10:{next(self._seconds) // 60:02}:00.000Z",
            "cwd": "/w", "sessionId": self._session, "version": self._version, **fields,
        })  # fmt: skip
        self.last = ident
        return ident

    def note(self, kind, **fields):
        self.lines.append({"type": kind, "sessionId": self._session, **fields})

    def user(self, content="go on", **fields):
        return self.entry("user", message={"role": "user", "content": content}, **fields)

    def assistant(self, *blocks, stop="end_turn", message=None, **fields):
        """Add a line of a reply; without blocks it is a text."""
        content = list(blocks) or [{"type": "text", "text": "done."}]
        ident = message or f"msg_{next(self._ids)}"
        inner = {"id": ident, "type": "message", "role": "assistant", "model": "claude-opus-5-5",
                 "content": content, "stop_reason": stop}  # fmt: skip
        return self.entry("assistant", message=inner, **fields)

    def call(self, call="toolu_1", tool="Bash", arguments=None, **fields):
        block = {
            "type": "tool_use",
            "id": call,
            "name": tool,
            "input": arguments or {"command": "ls"},
        }
        return self.assistant(block, stop="tool_use", **fields)

    def result(self, content="x" * 2000, call="toolu_1", shown=..., **fields):
        if shown is ...:
            text = content if isinstance(content, str) else ""
            shown = {"stdout": text, "stderr": "", "interrupted": False, "isImage": False}
        block = {"tool_use_id": call, "type": "tool_result", "content": content}
        message = {"role": "user", "content": [block]}
        return self.entry("user", message=message, toolUseResult=shown, **fields)

    def turn(self, text="x" * 2000, call=None, **fields):
        call = call or f"toolu_{next(self._ids)}"
        self.user(**fields)
        self.call(call)
        ident = self.result(text, call)
        self.assistant()
        return ident

    def compaction(self, **metadata):
        self.entry("system", parent=None, subtype="compact_boundary", logicalParentUuid=self.last,
                   compactMetadata={"trigger": "manual", **metadata})  # fmt: skip
        return self.user("summary", isCompactSummary=True, isVisibleInTranscriptOnly=True)

    def bytes(self):
        return b"".join(dump(line) for line in self.lines)


class ClaudeWorld(World):
    """A home of Claude Code with one project as the root, and a store."""

    def __init__(self, base):
        super().__init__(base)
        self.home = base / "home" / ".claude"
        self.root = self.home / "projects"
        self.project = self.directory = self.root / "-w"
        self.records = self.home / "sessions"
        self.project.mkdir(parents=True)
        self.records.mkdir()

    def copy_samples(self):
        copy_tree(SAMPLES / "claude-code" / "projects", self.root)

    def files(self):
        return {
            path.relative_to(self.root): (path.read_bytes(), path.stat().st_mtime_ns)
            for path in sorted(self.root.rglob("*"))
            if path.is_file()
        }

    def record(self, pid, session=SESSION, **fields):
        content = {"pid": pid, "sessionId": session, "procStart": str(start_time(pid)), **fields}
        (self.records / f"{pid}.json").write_text(json.dumps(content))


def read_entries(path):
    lines = map(json.loads, path.read_bytes().splitlines())
    return {line["uuid"]: line for line in lines if "uuid" in line}


def fork_claude_session(path, session, *, says=True, directory=None):
    """Copy a session as `--fork-session` does: another session id, the same uuids.

    With `says`, replies name the original session, as 2.1.330 writes them.
    """
    lines = []
    for raw in path.read_bytes().splitlines():
        line = json.loads(raw)
        origin, line["sessionId"] = line["sessionId"], session
        if says and line["type"] == "assistant":
            line["requestSessionId"] = origin
        lines.append(dump(line))
    copy = (directory or path.parent) / f"{session}.jsonl"
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_bytes(b"".join(lines))
    os.utime(copy, (time.time() - LONG_AGO,) * 2)
    return copy
