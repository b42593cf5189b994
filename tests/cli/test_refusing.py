"""Bad input, bad stores, bad disks: one line that says so, and nothing lost."""

import os
import random
import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from building.processes import ROOT, error_line, json_output, program_for, run, run_parallel
from building.world import NOBODY, Conversation, World, dump, file_states

PATH = "message.content.0.text"


def bytes_below(directory):
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "why"),
    [(["extract"], "missing argument 'ENTRY'"), (["scan", "--bogus"], "no such option: --bogus"),
     (["sessions", "--sort", "bogus"], "'bogus' is not one of 'size', 'saved', 'age', 'name'"),
     (["bogus"], "no such command 'bogus'")],
    ids=lambda one: one[0] if isinstance(one, list) else "",
)  # fmt: skip
def test_wrong_words_are_named_in_one_line(cli, words, why):
    """It says what is wrong and where help is, with exit code 2; in JSON the same."""
    done = cli(*words)
    line = error_line(done)
    in_json = cli(*words, "--json")

    assert done.returncode == in_json.returncode == 2
    assert why in line
    assert "--help` says more" in line
    assert why in json_output(in_json)["error"]


@pytest.fixture
def shared_world(own_home):
    """Give a world that an ordinary user owns and reaches, also where the tests run as root."""
    with tempfile.TemporaryDirectory(prefix="brainsurgeon-test-") as base:
        world = World(Path(base))
        yield world
        world.close()


def give_away(world):
    """Make everything below a world the ordinary user's."""
    for path in [world.base, *world.base.rglob("*")]:
        if ROOT:
            os.lchown(path, NOBODY, NOBODY)


def test_an_unreadable_root_is_named_and_the_others_are_done(shared_world, conversation):
    """What cannot be read is named with what that means; the rest is pruned; the exit code is 1."""
    world = shared_world
    conversation.turn()
    conversation.turn()
    open_ = world.put("s.jsonl", conversation.bytes())
    shut = world.base / "shut"
    shut.mkdir()
    (shut / "s.jsonl").write_bytes(conversation.bytes())
    config = world.config_file()
    with open(config, "a") as file:
        file.write(f'[[roots]]\npath = "{shut}"\n[[roots]]\npath = "{world.base}/missing"\n')
    give_away(world)
    shut.chmod(0)
    done = run("scan", "--once", "--config", config, ordinary=True)
    shut.chmod(0o700)
    said = (done.stdout + done.stderr).decode()

    assert done.returncode == 1
    assert f"{shut}: Permission denied; nothing there was touched" in said
    assert f"{world.base}/missing: no such directory" in said
    assert b"[[extracted-" in open_.read_bytes()
    assert (shut / "s.jsonl").read_bytes() == conversation.bytes()


@pytest.mark.parametrize("most", range(6, 12))
def test_a_lack_of_descriptors_is_named_as_such(world, conversation, most):
    """Whatever cannot be opened for it, no lock or registry of an agent is blamed instead."""
    conversation.turn()
    conversation.turn()
    path = world.put("s.jsonl", conversation.bytes())
    (world.directory / "sessions.json").write_text("{}")
    config = world.config_file()

    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    done = run("scan", "--once", "--config", config, limit=limit)
    said = (done.stdout + done.stderr).decode()

    if done.returncode:
        assert "Too many open files" in said
        assert path.read_bytes() == conversation.bytes()
        advised = run("doctor", "--config", config, limit=limit).stdout.decode()
        assert "run as the user" not in advised
    else:
        assert "1 extracted" in said


def test_a_backup_into_a_directory_of_another_user_is_refused(shared_world, conversation):
    """Where nothing can even be looked up, it is said in words which directory cannot be used."""
    world = shared_world
    world.put("s.jsonl", conversation.bytes())
    world.scan()
    world.close()
    give_away(world)
    shut = world.base / "shut"
    shut.mkdir(mode=0)
    done = program_for(world)("store", "backup", shut / "kept.db", ordinary=True)

    assert done.returncode == 2
    assert f"{shut}: cannot be written by this user" in done.stderr.decode()


@pytest.mark.parametrize("command", ["show", "sessions", "restore"])
def test_an_unreadable_session_is_named(shared_world, conversation, command):
    """A session that may not be read is named in one line, by whatever command is asked for it."""
    world = shared_world
    ident = conversation.turn()
    conversation.turn()
    path = world.put("s.jsonl", conversation.bytes())
    world.scan()
    before = path.read_bytes()
    give_away(world)
    path.chmod(0)
    done = program_for(world)(command, ident if command == "restore" else "main/s", ordinary=True)
    line = error_line(done)
    path.chmod(0o600)

    assert done.returncode == 1
    assert "main/s" in line
    assert "Permission denied" in line
    assert path.read_bytes() == before


def test_a_session_that_cannot_be_taken_apart_is_named(world, cli):
    """`context` of a file of no known format or version says why in a line; `cat` prints it."""
    old = world.copy("pi", "large-session.v1.jsonl", name="old.jsonl")
    odd = world.put("odd.jsonl", b"no session\n")
    for name, why in (("main/old", "version 1"), ("main/odd", "no JSON objects")):
        done = cli("sessions", name)

        assert done.returncode == 1
        assert name in error_line(done)
        assert why in error_line(done)
    for path in (old, odd):
        assert cli("show", path).stdout == path.read_bytes()


@pytest.mark.parametrize("after", [0.3, 0.6, 0.9])
def test_told_to_stop_a_command_leaves_nothing_beside(world, session, after):
    """SIGTERM while the old file waits for its last look: it goes before the command ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", "brainsurgeon", "restore", session, "--config", world.config_file()],
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    time.sleep(after)
    process.terminate()

    assert process.wait(timeout=20) in (143, 0, -signal.SIGTERM)  # the last before anything began
    assert world.leftovers() == []


@pytest.mark.parametrize("words", [("scan", "--once"), ("restore", "--all")], ids=" ".join)
@pytest.mark.parametrize("after", [0.25, 0.5, 0.9])
def test_stopped_amid_many_sessions_nothing_is_left_beside(world, words, after):
    """SIGTERM in a run over many sessions: each is as before or as after, and nothing is left."""
    before = {}
    for number in range(12):
        talk = Conversation(f"{number:08x}-0000-4000-8000-000000000000")
        talk.turn("x" * 3000)
        talk.turn("y" * 3000)
        before[world.put(f"s{number}.jsonl", talk.bytes())] = talk.bytes()
    if words[0] == "restore":
        world.scan(keep_recent=0)
    config = world.config_file(keep_recent=0)
    process = subprocess.Popen(
        [sys.executable, "-m", "brainsurgeon", *words, "--config", config],
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    time.sleep(after)
    process.terminate()

    assert process.wait(timeout=20) in (143, 0, -signal.SIGTERM)
    assert world.leftovers() == []
    world.restore_all(pristine=True)
    assert {path: path.read_bytes() for path in before} == before


def test_cat_as_json_holds_every_byte(world, session, cli):
    """The lines of `cat --json` put together are the bytes of `cat`, broken ones included."""
    path = world.directory / "s.jsonl"
    path.write_bytes(path.read_bytes() + b'{"odd": "\xff\xfe"}\nno end')

    plain, said = cli("show", "main/s").stdout, json_output(cli("show", "main/s", "--json"))

    assert "\n".join(said["lines"]).encode("utf-8", "surrogateescape") == plain
    assert b"[[extracted-" not in plain
    assert said["session"] == "main/s"


def test_a_broken_configuration_lists_every_problem(world, session, monkeypatch):
    """All problems come at once, each with its place, and no command does anything."""
    monkeypatch.setenv("BRAINSURGEON_LOG_LEVEL", "loud")
    world.config_file()
    config = world.base / "broken.toml"
    config.write_text(
        f'state_dir = "{world.base}/fresh"\nkeep_recent = "three"\nretention = "1 day"\n'
        'trigger_types = ["thinking", "nonsense"]\nno_such_key = 1\nmin_reclaim = "lots"\n'
        f'[[roots]]\npath = "{world.root}"\nformat = "word"\n'
        '[[rules]]\nkind = "tool_result"\n[[roots]]\nname = "main"\n'
    )
    before = file_states(world.base)
    commands = [("scan", "--once"), ("restore", "--all"), ("sessions",), ("show", "main/s")]
    for done in run_parallel(lambda *words: run(*words, "--config", config), commands).values():
        said = done.stderr.decode()

        assert done.returncode == 2
        assert done.stdout == b""
        assert str(config) in said.splitlines()[0]
        assert "nothing was run" in said.splitlines()[0]
        for place in (
            "keep_recent", "retention", "trigger_types[1]", "no_such_key", "min_reclaim",
            "roots[0].format", "roots[1].path", "roots[1].name", "rules and trigger_types",
            "BRAINSURGEON_LOG_LEVEL",
        ):  # fmt: skip
            assert f"  {place}: " in said
        assert len(said.splitlines()) == 11
    assert file_states(world.base) == before


def test_unknown_and_ambiguous_names_are_told_apart(world, conversation, session, cli):
    """An unknown entry exits 3 with its name; an ambiguous one exits 4 with the candidates."""
    world.put("t.jsonl", conversation.bytes())
    world.scan()
    before = file_states(world.root)
    unknown = cli("restore", "deadbeef")
    nowhere = cli("restore", session, "--session", "nobody")
    ambiguous = cli("restore", session)
    key = cli("show", session, "--session", "main/s", "--key", "nothing")

    assert "deadbeef" in error_line(unknown)
    assert "nobody" in error_line(nowhere)
    assert PATH in error_line(key)
    assert [done.returncode for done in (unknown, nowhere, ambiguous, key)] == [3, 3, 4, 3]
    assert ambiguous.stderr.decode().splitlines()[1:] == ["  main/s", "  main/t"]
    assert file_states(world.root) == before


def no_database(path):
    path.write_text("these are not the bytes that you are looking for\n" * 100)


def newer(path):
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA user_version = 999")


def empty(path):
    path.write_bytes(b"")


@pytest.mark.parametrize("harm", [no_database, newer, empty])
def test_an_unusable_store_stops_every_command_and_is_left_alone(world, session, cli, harm):
    """Not a database, of a newer version, or empty: exit 7, one line, nothing is touched."""
    world.close()
    harm(world.state / "store.db")
    before = bytes_below(world.base)
    commands = [
        ("scan", "--once"), ("scan", "--once", "--dry-run"), ("restore", session),
        ("show", session),
    ]  # fmt: skip
    if harm is newer:
        commands += [
            ("restore", "--all"), ("show", "main/s"), ("sessions",), ("sessions", "main/s"),
            ("pin", session), ("status",), ("scan", "--retention"),
        ]  # fmt: skip
    for words, done in run_parallel(cli, commands).items():
        assert done.returncode == 7, words
        assert str(world.state / "store.db") in error_line(done)
        assert "nothing was touched" in error_line(done)
    assert bytes_below(world.base) == before


def test_a_damaged_value_is_not_put_back(world, session, cli):
    """A blob that is not what was stored stops the restore; session and store stay as they are."""
    with closing(sqlite3.connect(world.state / "store.db")) as database, database:
        database.execute("UPDATE blobs SET data = zeroblob(length(data))")
    before = file_states(world.root)
    restore, show = cli("restore", session), cli("show", session)

    assert (restore.returncode, show.returncode) == (7, 7)
    assert "damaged" in error_line(restore)
    assert file_states(world.root) == before


@pytest.mark.parametrize("place", ["the state directory", "its parent", "the store"])
def test_a_state_directory_that_cannot_be_written_is_named(shared_world, conversation, place):
    """Without a place for originals nothing is extracted: exit 7, one line, sessions untouched."""
    world = shared_world
    conversation.turn()
    conversation.turn()
    path = world.put("s.jsonl", conversation.bytes())
    shut = world.state
    if place == "its parent":
        shut = world.base / "parent"
        shut.mkdir()
        world.state = shut / "state"
    elif place == "the store":
        world.scan(min_session_bytes=10**9)
        world.close()
    else:
        shut.mkdir()
    call = program_for(world)
    give_away(world)
    shut.chmod(0o500)
    done = call("scan", "--once", ordinary=True)
    looked = call("sessions", ordinary=True)
    shut.chmod(0o700)

    assert done.returncode == 7
    assert str(world.state) in error_line(done)
    assert looked.returncode == 0
    assert path.read_bytes() == conversation.bytes()


@pytest.mark.parametrize("place", ["the state directory", "its parent", "the store", "a session"])
def test_the_doctor_sees_what_this_user_may_not(shared_world, conversation, place):
    """What cannot be written, made, opened or read for want of permission is said, and is no 0."""
    world = shared_world
    conversation.turn()
    path = world.put("s.jsonl", conversation.bytes())
    world.scan(min_session_bytes=10**9)
    world.close()
    shut, mode = world.state, 0o500
    if place == "its parent":
        shut = world.base / "parent"
        shut.mkdir()
        world.state = shut / "state"
    elif place == "the store":
        shut, mode = world.state / "store.db", 0o000
    elif place == "a session":
        shut, mode = path, 0o000
    call = program_for(world)
    give_away(world)
    shut.chmod(mode)
    done = call("doctor", ordinary=True)
    shut.chmod(0o700)
    said = (done.stdout + done.stderr).decode()
    told = {
        "the state directory": f"error    {world.state} cannot be written by this user",
        "its parent": f"error    {world.state} cannot be made: {shut} cannot be written",
        "the store": "this user may not open it (Permission denied); nothing was touched",
        "a session": f"error    {path}: Permission denied",
    }

    assert told[place] in said
    assert done.returncode == (7 if place == "the store" else 1)


# Others may not mount, and nothing else makes a disk that is really full.
@pytest.mark.skipif(not ROOT, reason="mounting a small file system takes root")
@pytest.mark.parametrize("where", ["state", "root"])
def test_the_doctor_sees_a_full_disk(world, cli, where):
    """A disk without room, of the store or of a root, is an error before anything fails."""
    with mounted_disk(getattr(world, where), "500k"):
        done = cli("doctor")

        assert done.returncode == 1
        assert f"error    {getattr(world, where)}: the disk is full" in done.stdout.decode()


@contextmanager
def small_disk(directory, size):
    directory.mkdir(exist_ok=True)
    words = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", str(directory)]
    allowed = ROOT and subprocess.run(words, capture_output=True, check=False).returncode == 0
    try:
        yield allowed
    finally:
        if allowed:
            subprocess.run(["umount", str(directory)], check=True)


@contextmanager
def mounted_disk(directory, size):
    """Mount a small file system; skip where root may not, as in most containers."""
    with small_disk(directory, size) as mounted:
        if not mounted:
            pytest.skip("mounting is not allowed here")  # nothing else makes a disk really full
        yield


def large(conversation, turns=4, size=400_000):
    for number in range(turns):
        conversation.turn(random.Random(number).randbytes(size // 2).hex())
    conversation.turn("short")
    return conversation.bytes()


def test_a_disk_that_fills_up_while_storing_loses_nothing(world, conversation, cli):
    """Without room for the originals the session is named and left; with room it is extracted."""
    path = world.put("s.jsonl", large(conversation))
    with small_disk(world.state, "900k") as mounted:

        def limit():
            if not mounted:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))

        done = cli("scan", "--once", limit=limit)
        said = (done.stdout + done.stderr).decode()

        assert path.read_bytes() == conversation.bytes()
        assert done.returncode == 1 if mounted else done.returncode in (1, 7)
        assert "main/s" in said or not mounted
        assert "disk is full" in said or not mounted
        assert world.leftovers() == []
        if mounted:
            subprocess.run(["mount", "-o", "remount,size=9m", str(world.state)], check=True)

        assert cli("scan", "--once").returncode == 0
        assert path.read_bytes() != conversation.bytes()
        assert cli("show", "main/s").stdout == conversation.bytes()


# Others may not mount, and nothing else makes a disk that is really full.
@pytest.mark.skipif(not ROOT, reason="mounting a small file system takes root")
def test_a_disk_without_room_for_a_new_file_loses_nothing(world, conversation, cli):
    """Where the new file does not fit beside the old one, the old one stays and is named."""
    with mounted_disk(world.root, "2m"):
        world.directory.mkdir(parents=True)
        path = world.put("s.jsonl", large(conversation, turns=3))
        (world.root / "ballast").write_bytes(b"b" * 800_000)
        world.put("t.jsonl", Conversation().bytes())
        done = cli("scan", "--once", BRAINSURGEON_KEEP_RECENT="8")
        said = (done.stdout + done.stderr).decode()

        assert done.returncode == 1
        assert "main/s: failed, No space left on device" in said
        assert path.read_bytes() == conversation.bytes()
        assert world.leftovers() == []


# Others may not mount, and nothing else makes a disk that is really full.
@pytest.mark.skipif(not ROOT, reason="mounting a small file system takes root")
def test_a_disk_without_room_for_a_store_is_one_line(world, conversation, cli):
    """Where not even an empty store fits, that is said, and nothing was touched."""
    path = world.put("s.jsonl", large(conversation, turns=1))
    with mounted_disk(world.state, "16k"):
        done = cli("scan", "--once")

        assert done.returncode == 1
        assert "the disk is full" in error_line(done)
        assert path.read_bytes() == conversation.bytes()


@contextmanager
def read_only(directory):
    """Make a directory read-only: by a mount where that is allowed, else by its mode."""
    mounted = ROOT and not any(
        subprocess.run(words, capture_output=True, check=False).returncode
        for words in (
            ["mount", "--bind", str(directory), str(directory)],
            ["mount", "-o", "remount,bind,ro", str(directory)],
        )
    )
    inner = [path for path in directory.rglob("*") if path.is_dir()]
    if not mounted:
        for path in inner:
            path.chmod(0o500)
    try:
        yield
    finally:
        for path in inner if not mounted else ():
            path.chmod(0o700)
        if mounted:
            subprocess.run(["umount", str(directory)], check=True)


def test_a_read_only_root_is_named_and_left_alone(shared_world, conversation):
    """Where nothing can be written every command says so in a line, and nothing is lost."""
    world = shared_world
    first = conversation.turn()
    conversation.turn("y" * 2000)
    path = world.put("s.jsonl", conversation.bytes())
    world.scan()
    pruned = path.read_bytes()
    conversation.turn("z" * 2000)
    other = world.put("t.jsonl", conversation.bytes())
    call = program_for(world)
    world.close()
    give_away(world)
    with read_only(world.root):
        scan = call("scan", "--once", ordinary=True)
        restore = call("restore", first, "--session", "main/s", ordinary=True)
        every = call("restore", "--all", ordinary=True)
        pinned = call("pin", first, "--session", "main/s", ordinary=True)
        show = call("show", first, "--session", "main/s", ordinary=True)
        cat = call("show", "main/s", ordinary=True)
    said = (scan.stdout + scan.stderr).decode()

    assert scan.returncode == 1
    assert "main/t: failed, " in said
    assert (path.read_bytes(), other.read_bytes()) == (pruned, conversation.bytes())
    assert world.leftovers() == []
    assert show.stdout == b"x" * 2000
    assert cat.stdout == b"".join(map(dump, conversation.lines[:9]))
    assert every.returncode == 1
    assert "main/s: failed" in (every.stdout + every.stderr).decode()
    for done in (restore, pinned):
        assert done.returncode == 1
        assert "main/s" in error_line(done)
        assert "untouched" in error_line(done) or "left as it is" in error_line(done)
