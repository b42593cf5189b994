"""A recorded agent: it writes a session as OpenClaw 2026.7.35 does, and fails as it does.

    python recorded.py DIRECTORY SESSION SEED

It reads turns from stdin, one JSON object a line, `{"text": …, "rounds": [[command, …], …]}`, and
prints what came of each. What was observed of the real one and is done here:

- the lock file is taken with O_EXCL and its payload written a millisecond later; it is held for the
  run, but let go at each model call and taken back 30 to 110 ms later;
- `sessions.json` is replaced by rename; it says `running` between the first lock and the end;
- each entry is one open for appending, one write, one close; a new session is written in one go at
  its first answer;
- about 55 ms after the last append, with 3 ms without a lock, the whole file is written again in
  place from memory, through truncation; then the lock comes and goes three more times;
- entries are kept between runs and read again when anything in the file's state has changed;
- a file that somebody else changed during a run fails that run (device, inode, size, both times).
"""

import json
import os
import random
import subprocess
import sys
import time
import uuid
from datetime import UTC, datetime

PLACEHOLDER = "[[extracted-"
LARGEST_DETAILS = 8192


class TakeoverError(Exception):
    """The session file changed during the run."""


class Agent:
    """One agent with one session."""

    def __init__(self, directory, session, seed):
        self.random = random.Random(seed)
        self.session = session
        self.path = os.path.join(directory, f"{session}.jsonl")
        self.registry = os.path.join(directory, "sessions.json")
        self.lock = self.path + ".lock"
        self.entries = []
        self.cached = self.fence = None
        self.written = []
        self.gaps = []
        self.calls = 0

    # -- the lock, the status, the fence

    def take(self):
        """Acquire the lock, which must be free."""
        descriptor = os.open(self.lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        time.sleep(0.001)
        with open("/proc/self/stat", "rb") as handle:
            started = int(handle.read().rsplit(b")", 1)[1].split()[19])
        payload = {"pid": os.getpid(), "createdAt": iso(), "maxHoldMs": 300_000,
                   "starttime": started}  # fmt: skip
        os.write(descriptor, json.dumps(payload, indent=2).encode())
        os.close(descriptor)

    def drop(self):
        os.unlink(self.lock)

    def say(self, **fields):
        """Replace `sessions.json`, with these fields of the session changed."""
        listed = {}
        if os.path.exists(self.registry):
            with open(self.registry, encoding="utf-8") as handle:
                listed = json.load(handle)
        entry = listed.setdefault(f"agent:main:explicit:{self.session}", {})
        entry |= {"sessionId": self.session, "sessionFile": self.path, "updatedAt": now(), **fields}
        if fields.get("status") == "running":
            entry.pop("endedAt", None)
        temporary = f"{self.registry}.{os.getpid()}.{uuid.uuid4()}.tmp"
        with open(temporary, "w", encoding="utf-8") as handle:
            json.dump(listed, handle, indent=2)
        os.rename(temporary, self.registry)

    def state(self):
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            return None
        return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns,
                status.st_ctime_ns)  # fmt: skip

    def check(self):
        """Raise TakeoverError if another process has changed the file."""
        state = self.state()
        if state != self.fence:
            raise TakeoverError(
                "session file changed while embedded prompt lock was released: "
                f"{self.fence} -> {state}"
            )

    # -- the file

    def load(self):
        """Read the file again if its state differs from the cached one."""
        state = self.state()
        if state != self.cached and state is not None:
            with open(self.path, "rb") as handle:
                self.entries = [json.loads(line) for line in handle.read().splitlines()]
            self.cached = state
        self.fence = state

    def add(self, kind, **fields):
        entry = {"type": kind, "id": f"{self.random.getrandbits(32):08x}",
                 "parentId": self.entries[-1]["id"] if len(self.entries) > 1 else None,
                 "timestamp": iso(), **fields}  # fmt: skip
        self.entries.append(entry)
        self.written.append(line(entry))
        if self.fence is not None:
            self.append(self.written[-1])
        elif fields.get("message", {}).get("role") == "assistant":
            self.append(b"".join(self.written))

    def append(self, data):
        self.check()
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.write(descriptor, data)
        os.close(descriptor)
        self.fence = self.cached = self.state()

    def message(self, role, **fields):
        self.add("message", message={"role": role, **fields, "timestamp": now()})

    def rewrite(self):
        self.check()
        data = b"".join(line(entry) for entry in self.entries)
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.write(descriptor, data)
        os.close(descriptor)
        self.fence = self.cached = self.state()

    # -- a run

    def turn(self, text, rounds):
        result = {"ok": True, "why": "", "placeholders": 0, "outputs": []}
        for _ in range(2):
            self.say()  # the request was accepted; the status is still the old one
            time.sleep(self.random.uniform(0.001, 0.02))
        self.take()
        try:
            self.load()
            if not self.entries:
                self.begin()
            self.say(status="running", startedAt=now())
            self.message("user", content=text)
            result["placeholders"] = json.dumps(self.entries, ensure_ascii=False).count(PLACEHOLDER)
            for commands in rounds:
                self.model()
                self.use(commands, result["outputs"])
            self.model()
            self.answer([{"type": "text", "text": f"done: {text}"}], "stop")
            self.end()
            status = "done"
        except TakeoverError as why:
            result |= {"ok": False, "why": str(why)}
            status = "failed"
            self.cached = None
        finally:
            if os.path.exists(self.lock):
                self.drop()
        time.sleep(self.random.uniform(0.05, 0.1))
        self.say(status=status, endedAt=now())
        return result

    def begin(self):
        """Begin a session, which is not on disk before its first answer."""
        header = {"type": "session", "version": 3, "id": self.session, "timestamp": iso(),
                  "cwd": os.getcwd()}  # fmt: skip
        self.entries.append(header)
        self.written.append(line(header))
        self.add("model_change", provider="mock", modelId="mock-1")
        self.add("thinking_level_change", thinkingLevel="off")

    def model(self):
        """Call the model; the lock is released until its stream begins."""
        self.drop()
        start = time.monotonic()
        time.sleep(self.random.uniform(0.030, 0.110))
        self.gaps.append(time.monotonic() - start)
        self.take()
        self.check()
        time.sleep(0.01)
        self.calls += 1

    def answer(self, content, stop):
        self.message(
            "assistant", content=content, api="openai-completions", provider="mock",
            model="mock-1", usage={"input": 100, "output": 20, "totalTokens": 120},
            stopReason=stop,
        )  # fmt: skip

    def use(self, commands, outputs):
        """Run the commands that the model asks for, and append their output as results."""
        self.answer([
            {"type": "text", "text": "working on it"},
            *(
                {"type": "toolCall", "id": f"call_{self.calls}_{index}", "name": "exec",
                 "arguments": {"command": command},
                 "partialArgs": json.dumps({"command": command})}
                for index, command in enumerate(commands)
            ),
        ], "toolUse")  # fmt: skip
        for index, command in enumerate(commands):
            process = subprocess.run(
                ["sh", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, check=False,
            )  # fmt: skip
            self.check()
            text = process.stdout.decode(errors="replace").strip() or "(no output)"
            outputs.append(text)
            self.message(
                "toolResult", toolCallId=f"call_{self.calls}_{index}", toolName="exec",
                content=[{"type": "text", "text": text}], details=details(text, process.returncode),
                isError=process.returncode != 0,
            )  # fmt: skip

    def end(self):
        """End the run: write the whole file again, and take the lock a few more times."""
        time.sleep(0.051)
        self.drop()
        time.sleep(0.003)
        self.take()
        self.rewrite()
        self.drop()
        for _ in range(3):
            time.sleep(self.random.uniform(0.01, 0.05))
            self.take()
            self.check()
            time.sleep(0.002)
            self.drop()


def details(text, code):
    """Return the details of a result, which repeat the output unless it is too large."""
    whole = {"status": "completed", "exitCode": code, "durationMs": 5, "aggregated": text,
             "cwd": os.getcwd()}  # fmt: skip
    if len(json.dumps(whole, ensure_ascii=False).encode()) <= LARGEST_DETAILS:
        return whole
    return {"persistedDetailsTruncated": True, "originalDetailsBytesAtLeast": LARGEST_DETAILS + 1,
            "originalDetailKeys": list(whole), "status": "completed", "exitCode": code}  # fmt: skip


def line(entry):
    return json.dumps(entry, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def iso():
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def now():
    return time.time_ns() // 1_000_000


def main():
    agent = Agent(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    for order in sys.stdin:
        result = agent.turn(**json.loads(order))
        result |= {"written": b"".join(agent.written).decode(), "gaps": agent.gaps}
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
