"""A small new agent, quill: its folder and its line in the registry are all that it needs."""

import os
import shutil
from pathlib import Path

import pytest

import brainsurgeon
from building import quill
from building.processes import DaemonProcess, json_output, program_for
from building.talk import Talk
from building.world import TOP, World

LINE = "AGENTS = ("
TEXT = "a long page " * 500


@pytest.fixture
def program(tmp_path):
    """Return a directory with a copy of the program that has one more agent."""
    source = Path(brainsurgeon.__file__).parent
    shutil.copytree(source, copy := tmp_path / "clone" / "src" / "brainsurgeon")
    for name in ("config.toml.example", "deploy", "systemd"):
        (tmp_path / "clone" / name).symlink_to(TOP / name)
    shutil.copytree(Path(quill.__file__).parent, copy / "agents" / "quill")
    registry = copy / "agents" / "__init__.py"
    text = registry.read_text()
    assert text.count(f"\n{LINE}") == 1
    registry.write_text(
        text.replace(LINE, f"from brainsurgeon.agents.quill import QUILL\n{LINE}QUILL, ")
    )
    return copy.parent


@pytest.fixture
def world(tmp_path, own_home, program):
    """Return a world whose root is the home of quill, with one idle talk."""
    world = World(tmp_path)
    world.root = own_home / ".quill" / "desks"
    world.directory = world.root / "oak"
    world.directory.mkdir(parents=True)
    yield world
    world.close()


def put_talk(world, name):
    talk = Talk(name)
    ident = talk.turn(TEXT)
    talk.turn("short")
    return world.put(f"{name}.jsonl", talk.bytes()), ident


def test_new_agent_is_listed_pruned_deferred_restored_and_undone(world, program):
    """Every command treats its sessions as those of the other agents, after its own signs."""
    program_of = program_for(world, keep_recent=0)

    def call(*words, code=0):
        result = program_of(*words, fresh=True, PYTHONPATH=str(program))
        assert result.returncode == code, result.stderr
        return result

    path, ident = put_talk(world, "one")
    before = path.read_bytes()
    ink = path.with_name("one.jsonl.ink")

    (listed,) = json_output(call("sessions", "--json"))["sessions"]
    assert (listed["session"], listed["format"]) == ("quill:oak/one", "quill")
    ink.touch()
    deferred = json_output(call("scan", "--once", "--json"))
    assert deferred["sessions"][0]["reason"] == "its ink is wet"
    assert path.read_bytes() == before
    ink.unlink()
    call("scan", "--once")
    assert f"[[extracted-{ident}]]".encode() in path.read_bytes()
    assert TEXT.encode() not in path.read_bytes()
    assert TEXT.strip().encode() in call("show", ident).stdout
    call("restore", ident)
    assert TEXT.encode() in path.read_bytes()
    call("restore", "--all", "--pristine")
    assert path.read_bytes() == before
    assert f"Quill: {world.root}" in call("init", "--dry-run").stdout.decode()


def test_new_agent_is_watched(world, program):
    """The daemon extracts from a talk soon after quill has written its last line."""
    environment = {"PYTHONPATH": str(program)}
    settings = {"scan_interval_seconds": 3600, "quiet_seconds": 1, "keep_recent": 0}
    daemon = DaemonProcess(world, environment=environment, **settings)
    try:
        daemon.watching()
        daemon.wait_for("scan_finished")
        path, ident = put_talk(world, "two")
        os.utime(path)
        daemon.wait_for("scan_finished", sessions_changed=1)
    finally:
        daemon.kill()

    assert f"[[extracted-{ident}]]".encode() in path.read_bytes()
