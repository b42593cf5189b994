"""How much memory a run takes, whatever its sessions say; the unit allows 512 MB."""

import os
import random
import resource
import subprocess
import sys

import pytest

from building.processes import ROOT, json_output, run
from building.world import Conversation, dump

MB = 1 << 20
ALLOWED = 512 * MB
# What the limits (deploy/docs/guarantees.md) say that a run needs at most, for lines of any kind.
STATED = 320 * MB
MEASURED = """
import faulthandler, runpy, sys
faulthandler.enable()
sys.argv[0] = "brainsurgeon"
try:
    runpy.run_module("brainsurgeon", run_name="__main__")
finally:
    with open("/proc/self/status") as lines:
        peak = next(line.split()[1] for line in lines if line.startswith("VmHWM"))
    with open({peak!r}, "w") as told:
        told.write(peak)
"""


def texts(*values):
    return b"[" + b",".join(b'{"type":"text","text":"' + value + b'"}' for value in values) + b"]"


LINES = {
    "a text as long as a line may be": lambda: texts(b"x" * (31 * MB)),
    "a text that no packing makes shorter": lambda: texts(
        random.Random(1).randbytes(15 * MB).hex().encode()
    ),
    "a text with one wide character": lambda: texts(b"x" * (18 * MB) + "\U0001f600".encode()),
    "escapes": lambda: texts(b"\\n" * (15 * MB)),
    "marks inside a text": lambda: texts(b"[],{}:" * (5 * MB)),
    "as many lists as may be": lambda: b"[" + texts(b"v" * 5000)[1:-1] + b",[]" * 480_000 + b"]",
    "as many objects as may be":
        lambda: b"[" + texts(b"v" * 5000)[1:-1] + b',{"k":1}' * 200_000 + b"]",
    "as many blocks as may be": lambda: texts(*[b"%d" % n * 120 for n in range(40_000)]),
    "11 MB of empty lists": lambda: b"[" + b"[]," * (11 * MB // 3) + b"1]",
    "54 MB of empty lists": lambda: b"[" + b"[]," * (54 * MB // 3) + b"1]",
    "a line of 100 MB": lambda: texts(b"x" * (100 * MB)),
}  # fmt: skip


@pytest.fixture
def allowed(tmp_path):
    """Give what holds a process in 512 MB: a memory group where one can be made, else a limit."""
    for place, name in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
                        ("/sys/fs/cgroup", "memory.max")):  # fmt: skip
        group = f"{place}/brainsurgeon-test-{os.getpid()}"
        try:
            os.mkdir(group)
        except OSError:
            continue
        try:
            with open(f"{group}/{name}", "w") as limit:
                limit.write(str(ALLOWED))
        except OSError:
            os.rmdir(group)
            continue

        def enter(group=group):
            with open(f"{group}/cgroup.procs", "w") as members:
                members.write(str(os.getpid()))

        yield enter
        os.rmdir(group)
        return
    yield lambda: resource.setrlimit(resource.RLIMIT_DATA, (ALLOWED, ALLOWED))


def test_no_line_takes_more_memory_than_is_stated(world, allowed, monkeypatch, tmp_path):
    """One run over every kind of line stays below what is stated, and does the small ones too."""
    ordinary = Conversation()
    ordinary.turn("x" * 4000)
    answer = dump({"type": "message", "id": "end", "message": {
        "role": "assistant", "content": [], "stopReason": "stop"}})  # fmt: skip
    for number, content in enumerate(LINES.values()):
        line = (b'{"type":"message","id":"big","message":{"role":"toolResult","toolCallId":"c",'
                b'"toolName":"exec","content":' + content() + b"}}\n")  # fmt: skip
        world.put(f"{number}.jsonl", dump(ordinary.lines[0]) + line + answer)
    world.put("z.jsonl", ordinary.bytes())
    config = world.config_file(keep_recent=0)
    peak = tmp_path / "peak"
    code = MEASURED.format(peak=str(peak))
    (tmp_path / "measured.py").write_text(code)
    done = run(
        "scan", "--once", "--json", "--config", config, limit=allowed,
        program=(sys.executable, str(tmp_path / "measured.py")),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    report = json_output(done)
    changed = {one["session"] for one in report["sessions"] if one["outcome"] == "changed"}
    print(f"peak {int(peak.read_text()) // 1024} MB over {len(LINES)} kinds of lines; {ROOT=}")

    assert {f"main/{number}" for number in range(7)} <= changed
    assert "main/z" in changed
    assert int(peak.read_text()) * 1024 < STATED


SHORT = """
import os, resource, sys
from brainsurgeon.model.entries import parse
raw = b'{"a":"' + b"x" * (31 << 20) + b'"}'
for limit in range(40, 560, 20):
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_DATA, (limit << 20, limit << 20))
        said = parse(raw)
        os._exit(0 if said is None or len(said["a"]) == 31 << 20 else 1)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(limit, ended)
"""


def test_a_long_line_for_which_memory_lacks_ends_nothing():
    """However little memory there is, a long line is read or is carried along unseen."""
    done = subprocess.run(
        [sys.executable, "-c", SHORT], capture_output=True, check=True, text=True, timeout=300
    )
    ended = dict(line.split() for line in done.stdout.splitlines())

    assert len(ended) == 26
    assert set(ended.values()) == {"0"}
