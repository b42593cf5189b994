"""An agent that writes whole turns to a session until its input ends, in bursts with pauses.

    python appender.py SESSION REFERENCE STYLE WRITER

`path` opens, appends and closes for each line; `kept` has one appending descriptor for each turn.
`storm-path` and `storm-kept` write without pauses, the latter with one descriptor for all turns.
`rewrite` writes the whole session in place at the end of a turn, from what it read before;
`replace` renames a new file over it. `late` finds the session before an exchange and opens that
file after it. Each line is also written to REFERENCE.
"""

import contextlib
import json
import os
import random
import select
import sys
import time

APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND
TURN = (
    ("user", "go on"),
    (
        "assistant",
        [{"type": "toolCall", "id": "c", "name": "exec", "arguments": {"command": "ls"}}],
    ),
    ("toolResult", None),
    ("assistant", [{"type": "text", "text": "done."}]),
)
RESULT_CHARS = {"storm-path": 600, "storm-kept": 600}


def entries(writer, number, min_chars):
    """Yield the entries of one turn; the last one ends the run."""
    for step, (role, content) in enumerate(TURN):
        ident = number * (len(TURN) + 1) + step
        text = f"result {writer}.{number} " + "x" * (min_chars + number % 7 * min_chars * 2 // 3)
        message = {"role": role, "content": content or [{"type": "text", "text": text}]}
        if role == "assistant":
            message["stopReason"] = "stop" if step == len(TURN) - 1 else "toolUse"
        if role == "toolResult":
            message.update(toolCallId="c", toolName="exec", isError=False)
        yield {
            "type": "message", "id": f"{writer:02x}{ident + 1:06x}",
            "parentId": f"{writer:02x}{ident:06x}" if ident else None, "message": message,
        }  # fmt: skip
    yield {
        "type": "custom", "customType": "run-over", "data": {"run": number},
        "id": f"{writer:02x}{ident + 2:06x}", "parentId": f"{writer:02x}{ident + 1:06x}",
    }  # fmt: skip


def dump(entry):
    return json.dumps(entry, separators=(",", ":")).encode() + b"\n"


class OpenPerLine:
    """Opens, appends and closes for each line."""

    def __init__(self, session, random):
        self.session, self.random, self.rewrites = session, random, 0

    def begin(self):
        """Begin a turn."""

    def add(self, entry, *, last):
        descriptor = os.open(self.session, APPEND)
        os.write(descriptor, dump(entry))
        os.close(descriptor)

    def end(self):
        """End a turn."""


class OpenPerTurn(OpenPerLine):
    """Keeps one descriptor for a turn; some lines are written in two halves."""

    descriptor = None

    def begin(self):
        self.descriptor = os.open(self.session, APPEND)

    def add(self, entry, *, last):
        line = dump(entry)
        half = self.random.choice((0, 0, len(line) // 2))
        if half:
            os.write(self.descriptor, line[:half])
            time.sleep(self.random.uniform(0, 0.003))
        os.write(self.descriptor, line[half:])

    def end(self):
        os.close(self.descriptor)


class OpenThroughout(OpenPerTurn):
    """Keeps one descriptor for all turns."""

    def begin(self):
        if self.descriptor is None:
            super().begin()

    def add(self, entry, *, last):
        os.write(self.descriptor, dump(entry))

    def end(self):
        """Release nothing."""


class Rewrite(OpenPerLine):
    """Writes the session anew at the end of a turn, and the last entry only then.

    Half of the turns read the session first; the others use what is in memory. In every third
    turn it writes only if the file is unchanged since its last line, as OpenClaw does.
    """

    memory = None
    turns = 0
    last_state = None

    def begin(self):
        self.turns += 1
        if self.memory is None or self.random.random() < 0.5:
            with open(self.session, "rb") as handle:
                self.memory = [json.loads(line) for line in handle.read().split(b"\n")[:-1]]

    def add(self, entry, *, last):
        """Append the entry, or end the run with a whole new file."""
        self.memory.append(entry)
        if last:
            time.sleep(self.random.uniform(0, 0.06))
        if last and (self.turns % 3 or self.state() == self.last_state):
            self.rewrites += 1
            self.write(b"".join(map(dump, self.memory)))
            return
        super().add(entry, last=last)
        self.last_state = self.state()
        if last:
            self.memory = None

    def state(self):
        """Return the file status that OpenClaw compares."""
        status = os.stat(self.session)
        return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns

    def write(self, data):
        descriptor = os.open(self.session, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        time.sleep(self.random.choice((0, 0.002)))
        half = self.random.choice((0, len(data) // 2))
        os.write(descriptor, data[:half])
        time.sleep(self.random.choice((0, 0.002)))
        os.write(descriptor, data[half:])
        os.close(descriptor)


class Replace(Rewrite):
    """Renames a new file over the session."""

    def write(self, data):
        with open(self.session + ".new", "wb") as handle:
            handle.write(data)
        os.rename(self.session + ".new", self.session)


class LateOpener(OpenPerLine):
    """Finds the file before an exchange and opens it afterwards, for the first line of a turn."""

    first = True

    def begin(self):
        self.first = True

    def add(self, entry, *, last):
        """Append; the first line of a turn goes to the old file of an exchange, if there is one."""
        if not self.first or not self.add_late(dump(entry)):
            super().add(entry, last=last)
        self.first = False

    def add_late(self, line):
        """Append to the old file and wait until it is removed; False if there is none."""
        old = os.open(self.session, os.O_PATH)
        try:
            if not self.wait(lambda: os.stat(self.session).st_ino != os.fstat(old).st_ino):
                return False
            time.sleep(self.random.uniform(0, 0.03))
            descriptor = os.open(f"/proc/self/fd/{old}", os.O_WRONLY | os.O_APPEND)
            exists = os.fstat(descriptor).st_nlink == 1  # else nobody would read the line
            if exists:
                os.write(descriptor, line)
            os.close(descriptor)
        finally:
            os.close(old)
        if exists:
            self.rewrites += self.wait(lambda: not self.settling(), 10)
        return exists

    def settling(self):
        """Check whether an old file exists beside the session."""
        names = os.listdir(os.path.dirname(self.session))
        return any(name.startswith(".brainsurgeon-") for name in names)

    def wait(self, condition, seconds=0.5):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if condition():
                return True
            time.sleep(0.0005)
        return False


STYLES = {
    "path": OpenPerLine, "kept": OpenPerTurn, "storm-path": OpenPerLine,
    "storm-kept": OpenThroughout, "rewrite": Rewrite, "replace": Replace, "late": LateOpener,
}  # fmt: skip


def main(session, reference, style, writer):
    """Write turns until the input ends; print the counts."""
    random_source = random.Random(style + writer)
    storm = style.startswith("storm")
    agent = STYLES[style](session, random_source)
    reference_file = os.open(reference, APPEND, 0o600)
    number, written, longest = 0, 0, 0.0
    while not select.select([sys.stdin], [], [], 0)[0]:
        agent.begin()
        for entry in entries(int(writer), number, RESULT_CHARS.get(style, 1500)):
            started = time.monotonic()
            agent.add(entry, last=entry["type"] == "custom")
            longest = max(longest, time.monotonic() - started)
            os.write(reference_file, dump(entry))
            written += 1
            time.sleep(0.0003 if storm else random_source.uniform(0, 0.003))
        agent.end()
        number += 1
        if not storm:
            time.sleep(random_source.uniform(0.01, 0.15) if number % 6 else 0.5)
    print(json.dumps({
        "turns": number, "lines": written, "longest_ms": round(longest * 1e3, 1),
        "rewrites": agent.rewrites,
    }))  # fmt: skip


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
