"""The real program as a process: what it prints, where, with which exit code, whatever comes."""

import json
import os
import pty
import random
import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import typer

from brainsurgeon.cli import app
from conftest import SAMPLES, Conversation, World, dump
from test_scan import NOBODY, append, entry_text, state

COMMANDS = sorted(typer.main.get_command(app).commands)
PATH = "message.content.0.text"
ROOT = os.geteuid() == 0

AS_ORDINARY_USER = f"""
import contextlib, importlib, os, pkgutil, sys
import brainsurgeon, sqlite_utils
for module in pkgutil.walk_packages(brainsurgeon.__path__, "brainsurgeon."):
    if not module.name.endswith(("__main__", "daemon", "mcp_server")):
        with contextlib.suppress(ImportError):
            importlib.import_module(module.name)
os.setgroups([])
os.setgid({NOBODY})
os.setuid({NOBODY})
brainsurgeon.cli.main()
"""
"""Root's Python may stand where nobody else can read, so that rights are dropped inside it."""


def run(*words, ordinary=False, stdout=subprocess.PIPE, limit=None, **environment):
    """Run the program as a process of its own; no traceback may ever reach a person."""
    start = ["-m", "brainsurgeon"]
    if ordinary and ROOT:
        start = ["-c", AS_ORDINARY_USER]
    done = subprocess.run(
        [sys.executable, *start, *map(str, words)],
        stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE, timeout=60, check=False,
        env={**os.environ, **environment}, cwd="/", preexec_fn=limit,
    )  # fmt: skip

    assert b"Traceback" not in done.stderr, done.stderr.decode()
    if stdout == subprocess.PIPE:
        assert b"unexpected" not in done.stderr, done.stderr.decode()
    return done


@pytest.fixture
def cli(world):
    """Give the program for this world: called with words, it runs as a process of its own."""
    return bound(world)


def bound(world, **settings):
    """Bind the program to the configuration file of a world."""
    config = world.config_file(**settings)

    def call(*words, **keys):
        return run(*words, "--config", config, **keys)

    return call


@pytest.fixture
def session(world, conversation):
    """Give the id of an old result in the settled, pruned session `main/s`."""
    ident = conversation.turn()
    conversation.turn("y" * 2000)
    world.put("s.jsonl", conversation.bytes())

    assert world.scan().values_extracted == 1
    return ident


def document(done):
    """Give the one JSON document that stands on stdout."""
    return json.loads(done.stdout)


def complaint(done):
    """Give the one line that stands on stderr, with nothing on stdout."""
    lines = done.stderr.decode().splitlines()

    assert done.stdout == b""
    assert len(lines) == 1, lines
    return lines[0]


def together(call, commands):
    """Run commands that do not disturb each other, some at a time; give what each came to."""
    with ThreadPoolExecutor(4) as pool:
        return dict(zip(commands, pool.map(lambda words: call(*words), commands), strict=True))


def bytes_below(directory):
    """Read every file below a directory."""
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


# --- help, options, JSON -------------------------------------------------------------------------


def test_every_command_explains_itself_with_an_example():
    """`--help` of each command has an example that calls it, within 80 columns."""
    for (command, _), done in together(run, [(name, "--help") for name in COMMANDS]).items():
        assert done.returncode == 0
        assert b"xample" in done.stdout
        assert f"brainsurgeon {command}".encode() in done.stdout
        assert max(map(len, done.stdout.decode().splitlines())) <= 80


def test_the_promised_commands_are_there():
    """Every command that the main job needs exists."""
    wanted = {"scan", "restore", "show", "cat", "set-extractable", "sessions", "context"}

    assert wanted <= set(COMMANDS)


def test_the_configuration_file_is_named_before_or_after_the_command(world, session):
    """`--config` counts on either side of the command, and the nearer one wins."""
    config = world.config_file()
    other = world.base / "other.toml"
    other.write_text(f'state_dir = "{world.base}/none"\n[[roots]]\npath = "{world.base}/none"\n')
    before = run("--config", config, "sessions", "--json")
    after = run("sessions", "--json", "--config", config)
    both = run("--config", other, "sessions", "--json", "--config", config)
    by_environment = run("sessions", "--json", BRAINSURGEON_CONFIG=str(config))

    assert [one["session"] for one in document(before)] == ["main/s"]
    assert before.stdout == after.stdout == both.stdout == by_environment.stdout


def test_every_success_is_one_json_document(world, conversation, cli):
    """With `--json` each command puts one JSON document on stdout and nothing beside it."""
    ident = conversation.turn()
    conversation.turn("y" * 2000)
    world.put("s.jsonl", conversation.bytes())
    done = {"dry": cli("scan", "--once", "--dry-run", "--json")}
    done["scan"] = cli("scan", "--once", "--json")
    looks = {
        "sessions": ("sessions", "--json"),
        "context": ("context", "main/s", "--json"),
        "status": ("status", "--json"),
        "retention": ("retention", "--dry-run", "--json"),
        "show": ("show", f"[[extracted-{ident}]]", "--json"),
    }
    looked = together(cli, looks.values())
    done |= {name: looked[words] for name, words in looks.items()}
    done["restore"] = cli("restore", ident, "--json")
    done["every"] = cli("restore", "--all", "--json")
    done["pinned"] = cli("set-extractable", conversation.last, "7", "--json")
    said = {name: (one.returncode, document(one), one.stderr) for name, one in done.items()}

    assert {(code, stderr) for code, _, stderr in said.values()} == {(0, b"")}
    assert said["dry"][1]["values_extracted"] == said["scan"][1]["values_extracted"] == 1
    assert (said["dry"][1]["dry_run"], said["scan"][1]["dry_run"]) == (True, False)
    assert said["sessions"][1][0]["session"] == "main/s"
    assert said["context"][1]["extracted"][0]["entry_id"] == ident
    assert said["show"][1]["entry_id"] == ident
    assert said["show"][1]["content"] == {PATH: "x" * 2000}
    assert said["restore"][1]["keys_restored"] == [PATH]
    assert said["every"][1]["sessions"][0]["state"] == "nothing to undo"
    assert said["pinned"][1]["extractable"] == 7


def test_every_failure_is_one_json_document_with_its_exit_code(world, conversation, session):
    """With `--json` an error is a document too, with the code that the program exits with."""
    other = world.put("t.jsonl", conversation.bytes())
    gone = conversation.turn("g" * 2000)
    lost = conversation.turn("l" * 2000)
    conversation.turn("short")
    path = world.put("u.jsonl", conversation.bytes())
    world.scan()
    forget(world, lost)
    path.write_bytes(path.read_bytes().replace(f"[[extracted-{gone}]]".encode(), b"back"))
    config = world.config_file()
    broken = world.base / "broken.toml"
    broken.write_text("keep_recent = -1\nno_such_key = 1\n")
    expected = {
        ("restore",): 2,
        ("restore", "--no-such-option"): 2,
        ("set-extractable", session, "maybe"): 2,
        ("sessions", "--config", broken): 2,
        ("restore", "deadbeef"): 3,
        ("show", "deadbeef"): 3,
        ("context", "nobody"): 3,
        ("restore", session): 4,
        ("show", session): 4,
        ("context", "main/"): 4,
        ("restore", lost): 5,
        ("show", lost): 5,
        ("restore", gone): 6,
    }
    before = state(world.root)
    went = together(lambda *words: run("--config", config, *words, "--json"), expected)
    for words, code in expected.items():
        done, told = went[words], document(went[words])

        assert (done.returncode, told["exit_code"]) == (code, code), words
        assert told["error"]
        if code == 4:
            assert len(told["candidates"]) >= 2
        if code == 5:
            assert told["tombstones"][0]["entry_id"] == lost
    assert state(world.root) == before
    assert other.exists()


def forget(world, entry):
    """Let a value expire, as retention does."""
    with closing(sqlite3.connect(world.state / "store.db")) as database, database:
        database.execute(
            "UPDATE extractions SET blob_id = NULL, state = 'expired', expired_at = 1771581600.0,"
            " expired_why = 'retention' WHERE entry_id = ?",
            (entry,),
        )


def test_wrong_words_are_usage_errors(world, cli):
    """Words that do not fit together exit 2, say why on stderr and touch nothing."""
    commands = [
        ("scan", "--json"), ("restore",), ("restore", "a", "--all"), ("restore", "--all", "--wait"),
        ("restore", "--all", "--key", "text"), ("no-such-command",), ("show",),
        ("set-extractable", "a"), ("set-extractable", "a", "-1"), ("set-extractable", "a", "1.5"),
    ]  # fmt: skip
    before = state(world.base)
    for words, done in together(cli, commands).items():
        assert done.returncode == 2, words
        assert done.stdout == b""
        assert done.stderr
    assert state(world.base) == before


# --- bad input -----------------------------------------------------------------------------------


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


@pytest.mark.parametrize("command", ["cat", "context", "restore"])
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
    done = bound(world)(command, ident if command == "restore" else "main/s", ordinary=True)
    line = complaint(done)
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
        done = cli("context", name)

        assert done.returncode == 1
        assert name in complaint(done)
        assert why in complaint(done)
    for path in (old, odd):
        assert cli("cat", path).stdout == path.read_bytes()


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
def test_told_to_stop_amid_many_sessions_nothing_is_left_beside(world, words, after):
    """SIGTERM in a pass over many sessions: each is as before or as after, and nothing is left."""
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

    plain, said = cli("cat", "main/s").stdout, document(cli("cat", "main/s", "--json"))

    assert "\n".join(said["lines"]).encode("utf-8", "surrogateescape") == plain
    assert b"[[extracted-" not in plain
    assert said["session"] == "main/s"


def test_a_broken_configuration_lists_every_problem_and_runs_nothing(world, session):
    """All problems come at once, each with its place, and no command does anything."""
    world.config_file()
    config = world.base / "broken.toml"
    config.write_text(
        f'state_dir = "{world.base}/fresh"\nkeep_recent = "three"\nretention = "1 day"\n'
        'trigger_types = ["thinking", "nonsense"]\nno_such_key = 1\nmin_reclaim = "lots"\n'
        f'[[roots]]\npath = "{world.root}"\nformat = "word"\n'
    )
    before = state(world.base)
    commands = [("scan", "--once"), ("restore", "--all"), ("sessions",), ("cat", "main/s")]
    for done in together(lambda *words: run(*words, "--config", config), commands).values():
        said = done.stderr.decode()

        assert done.returncode == 2
        assert done.stdout == b""
        assert str(config) in said.splitlines()[0]
        assert "nothing was run" in said.splitlines()[0]
        for place in (
            "keep_recent", "retention", "trigger_types[1]", "no_such_key", "min_reclaim",
            "roots[0].format",
        ):  # fmt: skip
            assert f"  {place}: " in said
        assert len(said.splitlines()) == 7
    assert state(world.base) == before


def test_a_configuration_that_is_missing_or_no_toml_is_named(world):
    """A file that is not there, or not TOML, or a bad variable, is one understandable problem."""
    config = world.base / "c.toml"
    missing = run("sessions", "--config", config)
    config.write_text("keep_recent = = 3\n")
    no_toml = run("sessions", "--config", config)
    config.write_text("")
    variable = run("sessions", "--config", config, BRAINSURGEON_KEEP_RECENT="many")

    assert {done.returncode for done in (missing, no_toml, variable)} == {2}
    assert "No such file" in missing.stderr.decode()
    assert "not TOML" in no_toml.stderr.decode()
    assert "BRAINSURGEON_KEEP_RECENT" in variable.stderr.decode()


def test_unknown_and_ambiguous_names_are_told_apart(world, conversation, session, cli):
    """An unknown entry exits 3 with its name; an ambiguous one exits 4 with the candidates."""
    world.put("t.jsonl", conversation.bytes())
    world.scan()
    before = state(world.root)
    unknown = cli("restore", "deadbeef")
    nowhere = cli("restore", session, "--session", "nobody")
    ambiguous = cli("restore", session)
    key = cli("show", session, "--session", "main/s", "--key", "nothing")

    assert "deadbeef" in complaint(unknown)
    assert "nobody" in complaint(nowhere)
    assert PATH in complaint(key)
    assert [done.returncode for done in (unknown, nowhere, ambiguous, key)] == [3, 3, 4, 3]
    assert ambiguous.stderr.decode().splitlines()[1:] == ["  main/s", "  main/t"]
    assert state(world.root) == before


def no_database(path):
    """Put text where the store should be."""
    path.write_text("these are not the bytes that you are looking for\n" * 100)


def newer(path):
    """Let a version to come have written the store."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(
            "INSERT INTO _sqlite_migrations (migration_set, name, applied_at)"
            " VALUES ('brainsurgeon', 'm999_from_the_future', '2030')"
        )


def empty(path):
    """Leave nothing of the store."""
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
            ("restore", "--all"), ("cat", "main/s"), ("sessions",), ("context", "main/s"),
            ("set-extractable", session, "false"), ("status",), ("retention",),
        ]  # fmt: skip
    for words, done in together(cli, commands).items():
        assert done.returncode == 7, words
        assert str(world.state / "store.db") in complaint(done)
        assert "nothing was touched" in complaint(done)
    assert bytes_below(world.base) == before


def test_a_damaged_value_is_not_put_back(world, session, cli):
    """A blob that is not what was stored stops the restore; session and store stay as they are."""
    with closing(sqlite3.connect(world.state / "store.db")) as database, database:
        database.execute("UPDATE blobs SET data = zeroblob(length(data))")
    before = state(world.root)
    restore, show = cli("restore", session), cli("show", session)

    assert (restore.returncode, show.returncode) == (7, 7)
    assert "damaged" in complaint(restore)
    assert state(world.root) == before


@pytest.mark.parametrize("place", ["the state directory", "its parent", "the store"])
def test_a_state_directory_that_cannot_be_written_is_named(shared_world, conversation, place):
    """Without a place for originals nothing is cut: exit 7, one line, sessions untouched."""
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
    call = bound(world)
    give_away(world)
    shut.chmod(0o500)
    done = call("scan", "--once", ordinary=True)
    looked = call("sessions", ordinary=True)
    shut.chmod(0o700)

    assert done.returncode == 7
    assert str(world.state) in complaint(done)
    assert looked.returncode == 0
    assert path.read_bytes() == conversation.bytes()


@contextmanager
def small_disk(directory, size):
    """Mount a small file system; say whether that was allowed."""
    directory.mkdir(exist_ok=True)
    words = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", str(directory)]
    allowed = ROOT and subprocess.run(words, capture_output=True, check=False).returncode == 0
    try:
        yield allowed
    finally:
        if allowed:
            subprocess.run(["umount", str(directory)], check=True)


def large(conversation, turns=4, size=400_000):
    """Add turns with results that do not compress."""
    for number in range(turns):
        conversation.turn(random.Random(number).randbytes(size // 2).hex())
    conversation.turn("short")
    return conversation.bytes()


def test_a_disk_that_fills_up_while_storing_loses_nothing(world, conversation, cli):
    """With no room for the originals nothing is cut, the session is named, and later it works."""
    path = world.put("s.jsonl", large(conversation))
    with small_disk(world.state, "600k") as mounted:

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
        assert cli("cat", "main/s").stdout == conversation.bytes()


@pytest.mark.skipif(not ROOT, reason="mounting a small file system takes root")
def test_a_disk_without_room_for_a_new_file_loses_nothing(world, conversation, cli):
    """Where the new file does not fit beside the old one, the old one stays and is named."""
    with small_disk(world.root, "2m") as mounted:
        if not mounted:
            # Root in most containers may not mount; nothing else makes a disk that is really full.
            pytest.skip("mounting is not allowed here")
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


@pytest.mark.skipif(not ROOT, reason="mounting a small file system takes root")
def test_a_disk_without_room_for_a_store_is_one_line(world, conversation, cli):
    """Where not even an empty store fits, that is said, and nothing was touched."""
    path = world.put("s.jsonl", large(conversation, turns=1))
    with small_disk(world.state, "16k") as mounted:
        if not mounted:
            # Root in most containers may not mount; nothing else makes a disk that is really full.
            pytest.skip("mounting is not allowed here")
        done = cli("scan", "--once")

        assert done.returncode == 1
        assert "the disk is full" in complaint(done)
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
    call = bound(world)
    world.close()
    give_away(world)
    with read_only(world.root):
        scan = call("scan", "--once", ordinary=True)
        restore = call("restore", first, "--session", "main/s", ordinary=True)
        every = call("restore", "--all", ordinary=True)
        pinned = call("set-extractable", first, "false", "--session", "main/s", ordinary=True)
        show = call("show", first, "--session", "main/s", ordinary=True)
        cat = call("cat", "main/s", ordinary=True)
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
        assert "main/s" in complaint(done)
        assert "untouched" in complaint(done) or "left as it is" in complaint(done)


# --- printing ------------------------------------------------------------------------------------


def test_a_run_from_cron_in_which_nothing_happened_prints_nothing(world, conversation, cli):
    """No output, no mail: unchanged and deferred sessions are silence, with exit code 0."""
    conversation.turn("short")
    world.put("s.jsonl", conversation.bytes())
    world.put("busy.jsonl", conversation.bytes() + dump(conversation.lines[1]), age=60)
    runs = [cli("scan", "--once") for _ in range(2)]
    elsewhere = run("scan", "--once")

    assert {(done.returncode, done.stdout, done.stderr) for done in (*runs, elsewhere)} == {
        (0, b"", b"")
    }


def test_every_command_works_in_an_empty_home(own_home):
    """Without a configuration, sessions or a store each command gives its plain answer."""
    expected = {
        ("scan", "--once"): 0, ("scan", "--once", "--dry-run"): 0, ("sessions",): 0,
        ("sessions", "--json"): 0, ("show", "a"): 3, ("cat", "a"): 3, ("context", "a"): 3,
        ("--version",): 0, ("status",): 0, ("retention", "--dry-run"): 0,
    }  # fmt: skip
    for words, done in together(run, expected).items():
        assert done.returncode == expected[words], words
        assert len(done.stderr.splitlines()) == (expected[words] > 0)
    looked = sorted(path.name for path in own_home.rglob("*"))
    later = {
        ("restore", "a"): 3, ("restore", "--all"): 0, ("set-extractable", "a", "false"): 3,
        ("restore", "--all", "--session", "a"): 3,
    }  # fmt: skip
    for words, done in together(run, later).items():
        assert done.returncode == later[words], words

    assert set(looked) <= {".local", "state", "brainsurgeon", "store.db", "locks"}


def test_looking_never_makes_a_store(own_home):
    """Commands that only look leave an empty home empty."""
    commands = [
        ("scan", "--once", "--dry-run"), ("sessions",), ("show", "a"), ("cat", "a"),
        ("context", "a"), ("status",), ("retention", "--dry-run"),
    ]  # fmt: skip
    together(run, commands)

    assert list(own_home.iterdir()) == []


CANARY = "CANARY-7f3a9"


def test_no_value_reaches_any_output_but_that_of_showing(world, conversation):
    """What sessions say stands in no log, report or error, only where it was asked for."""
    conversation.user(CANARY)
    conversation.call(arguments={"command": CANARY})
    ident = conversation.result(CANARY * 300, _extractable=CANARY, _restored=CANARY)
    conversation.assistant(CANARY)
    conversation.turn(CANARY * 200)
    torn = f'{{"type":"message","id":"torn","message":{{"role":"user","content":"{CANARY}'.encode()
    path = world.put("s.jsonl", conversation.bytes())
    world.put("torn.jsonl", conversation.bytes() + torn, age=60)
    world.put("odd.jsonl", f'{{"type":"session","version":"{CANARY}","id":"x"}}\n'.encode())
    world.put("none.jsonl", f"{CANARY}\n".encode())
    (world.directory / "s.jsonl.lock").write_text(f'{{"pid": "{CANARY}"}}')
    os.utime(world.directory / "s.jsonl.lock", (1, 1))
    call = bound(world, log_level="debug", keep_recent=0)
    scan = call("scan", "--once")
    looks = [
        ("scan", "--once", "--dry-run"), ("sessions",), ("sessions", "--json"), ("status",),
        ("context", "main/s"), ("context", "main/s", "--json"), ("show", "deadbeef"),
        ("cat", "main"), ("restore", ident, "--session", "main/s", "--key", "nothing"),
    ]  # fmt: skip
    quiet = [scan, *together(call, looks).values(), call("restore", ident, "--session", "main/s")]
    shows = [("show", ident, "--session", "main/s"), ("cat", "main/s")]
    loud = list(together(call, shows).values())
    append(path, [conversation.lines[1]])
    loud.append(call("restore", ident, "--session", "main/s"))

    for done in quiet:
        assert CANARY.encode() not in done.stdout + done.stderr, done.args
    for done in loud:
        assert CANARY.encode() in done.stdout
        assert CANARY.encode() not in done.stderr
    events = [json.loads(line) for line in scan.stderr.decode().splitlines()]
    cut = next(event for event in events if event.get("entry_id") == ident)

    assert cut["event"] == "extraction"
    assert (cut["module"], cut["session"], cut["level"]) == ("scan", "main/s", "debug")
    assert (cut["keys_extracted"], cut["sizes_bytes"]) == ([PATH], {PATH: len(CANARY) * 300 + 2})
    assert events[-1]["event"] == "scan_finished"


def test_a_shown_value_is_its_bytes_and_nothing_else(world, conversation, cli):
    """`show` prints a value raw, without a newline of its own; several stand under their paths."""
    value = "tab\there, é 😀, \u2028, nul \x00, \x1b[31m and no newline" + "." * 600
    conversation.user()
    conversation.call()
    ident = conversation.result(value, details={"aggregated": "a" * 700})
    conversation.assistant()
    conversation.turn("short")
    world.put("s.jsonl", conversation.bytes())
    world.scan()
    one = cli("show", ident, "--key", PATH)
    both = cli("show", ident)

    assert one.stdout == value.encode()
    assert (one.stderr, both.stderr) == (b"", b"")
    assert both.stdout.decode() == (
        f"==> {PATH} <==\n{value}\n==> message.details.aggregated <==\n{'a' * 700}\n"
    )


def test_a_whole_session_is_printed_as_it_was(world, cli):
    """`cat` of a real session that was pruned is its original, byte for byte."""
    sample = SAMPLES / "pi" / "large-session.derived-v3.jsonl"
    world.copy("pi", sample.name)
    world.scan()
    done = cli("cat", str(world.directory / sample.name))

    assert done.stdout == sample.read_bytes()
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_reader_that_goes_away_is_no_error(world, cli):
    """`cat` into a pipe that closes early ends without a word."""
    world.copy("pi", "large-session.derived-v3.jsonl", name="s.jsonl")
    words = [sys.executable, "-m", "brainsurgeon", "cat", "main/s", "--config",
             str(world.config_file())]  # fmt: skip
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.read(10)
        process.stdout.close()
        said = process.stderr.read()

        assert (process.wait(timeout=30), said) == (0, b"")


def test_an_output_that_cannot_be_written_is_an_error(world, session, cli):
    """A full disk behind stdout never looks like success."""
    with open("/dev/full", "wb") as full:
        done = cli("show", session, stdout=full)

    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1


def test_a_pending_restore_prints_the_value_at_once(world, conversation, session, cli):
    """What an agent asks for in its turn stands on stdout, raw, after what it should know."""
    append(world.directory / "s.jsonl", [conversation.lines[1]])
    before = state(world.root)
    plain = cli("restore", session)
    told = document(cli("restore", session, "--json"))
    every = cli("restore", "--all")
    note = plain.stdout.removesuffix(b"x" * 2000).decode()

    assert note != plain.stdout.decode()
    assert "not put back yet" in note
    assert "scan --once" in note
    assert plain.stderr == b""
    assert (told["restored"], told["pending"]) == (True, True)
    assert told["content"] == {PATH: "x" * 2000}
    assert "main/s: pending" in every.stdout.decode()
    assert {plain.returncode, every.returncode} == {0}
    assert state(world.root) == before


def test_a_settled_restore_says_what_it_did(world, conversation, session, cli):
    """The person reads what was put back; the second time, the advice to pin it."""
    done = cli("restore", f"[[extracted-{session}]]")
    again = cli("restore", session)

    assert f"main/s {session}" in done.stdout.decode()
    assert PATH in done.stdout.decode()
    assert "put back" in done.stdout.decode()
    assert (done.returncode, done.stderr) == (0, b"")
    assert entry_text(world.directory / "s.jsonl", session) == "x" * 2000
    assert again.returncode == 6
    assert "left as it is" in complaint(again)


def on_a_terminal(*words, **environment):
    """Run the program on a terminal of 80 columns; give everything that it wrote there."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(environment)
        os.execv(sys.executable, [sys.executable, "-m", "brainsurgeon", *map(str, words)])
    said = b""
    try:
        while chunk := os.read(terminal, 65536):
            said += chunk
    except OSError:  # the other end is closed
        pass
    os.waitpid(child, 0)
    os.close(terminal)
    return said


def test_there_is_no_colour_without_a_terminal_or_with_no_color(world, session, cli):
    """Nothing but text goes into a pipe, and no colour to a terminal that wants none."""
    config = world.config_file(log_level="debug")
    piped = [
        cli("scan", "--once", "--dry-run"), cli("sessions"), cli("context", "main/s"),
        cli("restore", "a"), cli("nonsense"), run("--help"),
    ]  # fmt: skip
    shown = b"".join(
        on_a_terminal(*words, "--config", config, NO_COLOR="1", TERM="xterm-256color")
        for words in (("scan", "--once"), ("sessions",), ("nonsense",), ("restore", "a"))
    )

    for done in piped:
        assert b"\x1b" not in done.stdout + done.stderr
    assert b"main/s" in shown
    assert b"scan_finished" in shown
    for part in shown.split(b"\x1b[")[1:]:
        assert part[:1] == b"K", part


def test_tables_fit_80_columns(world, cli):
    """However long names of sessions and tools are, the tables stay within the terminal."""
    name = "n" * 150
    long = Conversation()
    for tool in ("mcp__" + "t" * 59, "exec"):
        long.turn("x" * 123_456, tool=tool)
    long.turn()
    world.put(f"{name}.jsonl", long.bytes())
    world.put("s.jsonl", long.bytes())
    listed = cli("sessions").stdout.decode().split("\n\n")[0].splitlines()
    filling = cli("context", "main/s").stdout.decode().split("\n\n")[1].splitlines()

    assert len(listed) == 3
    assert len(filling) > 4
    assert max(map(len, listed)) <= 80
    assert max(map(len, filling)) <= 80
    assert listed[0].split() == ["session", "format", "size", "saved", "state"]


def test_a_session_has_many_names(world, conversation, cli):
    """A session is known by path, id, prefix, each behind its agent, and by its session key."""
    names = ("0f3c1111-0000-4000-8000-000000000001", "0f3c2222-0000-4000-8000-000000000002")
    first, _ = (world.put(f"{name}.jsonl", conversation.bytes()) for name in names)
    registry = {"agent:main:main": {"sessionId": names[0], "sessionFile": str(first)},
                "agent:main:cron:1": {"sessionId": names[1]}}  # fmt: skip
    (world.directory / "sessions.json").write_text(json.dumps(registry))
    (world.base / "link.jsonl").symlink_to(first)
    known = [
        str(first), names[0], "0f3c1", f"main/{names[0]}", "main/0f3c1", "agent:main:main",
        world.base / "link.jsonl", os.path.relpath(first, "/"),
    ]  # fmt: skip
    others = {"0f3c": 4, "main/0f3c": 4, "other/0f3c1": 3, "f3c1": 3, "": 3}
    for words, done in together(cli, [("context", name, "--json") for name in known]).items():
        assert document(done).get("session") == f"main/{names[0]}", words
    for (_, name), done in together(cli, [("context", name) for name in others]).items():
        assert done.returncode == others[name], name


def test_names_with_escapes_are_printed_escaped(world, conversation, cli):
    """What a file is called, or an agent wrote into a key, never steers the terminal."""
    hostile = "evil\x1b[31m\x07\r"
    conversation.user()
    conversation.call(name=hostile, arguments={hostile: "x" * 2000})
    conversation.result("y" * 2000, tool=hostile, ident=hostile)
    conversation.assistant()
    data = conversation.bytes()
    for number in (1, 2):
        world.put(f"{hostile}{number}.jsonl", data)
    (world.directory / os.fsdecode(b"broken\xff.jsonl")).write_bytes(data)
    settings = {"keep_recent": 0, "trigger_types": ["tool_result", "tool_call"]}
    call = bound(world, **settings)
    dry = call("scan", "--once", "--dry-run")
    world.scan(**settings)
    looks = [
        ("sessions",), ("context", f"{hostile}1"), ("context", "evil"), ("show", hostile),
        ("restore", "\x1b"), ("context", "\x1b"), ("restore", hostile), ("cat", "evil"),
        ("set-extractable", hostile, "false"), ("cat", "broken"), ("status",),
        ("scan", "--once", "--dry-run", "--json"), ("sessions", "--json"),
        ("context", f"{hostile}1", "--json"), ("context", "evil", "--json"),
    ]  # fmt: skip
    looked = together(call, looks)
    for done in (dry, *looked.values(), call("restore", "--all")):
        assert b"\x1b" not in done.stdout + done.stderr, done.args[3:-2]
        assert b"\x07" not in done.stdout + done.stderr, done.args[3:-2]
    for words in looks[-4:]:
        assert document(looked[words])
    assert b"evil\\x1b[31m" in dry.stdout
    assert b"broken\\xff" in dry.stdout


def test_names_with_half_a_character_are_printed_too(world, conversation, cli):
    """A tool name or key with a lone surrogate, as truncation leaves it, stops no command."""
    conversation.user()
    conversation.call(name="T", arguments={"K": "x" * 2000})
    ident = conversation.result("y" * 2000, tool="T", details={"K": "z" * 2000})
    conversation.assistant()
    data = conversation.bytes().replace(b'"T"', b'"t\\ud83d"').replace(b'"K"', b'"k\\ud83d"')
    path = world.put("s.jsonl", data)
    call = bound(world, keep_recent=0, trigger_types=["tool_result", "tool_call"])
    steps = [
        [("scan", "--once", "--dry-run"), ("scan", "--once", "--dry-run", "--json")],
        [("scan", "--once", "--json")],
        [
            ("context", "main/s"), ("context", "main/s", "--json"), ("show", ident),
            ("show", ident, "--json"), ("cat", "main/s"),
        ],
        [("restore", "--all", "--pristine")],
    ]  # fmt: skip
    for step in steps:
        for words, done in together(call, step).items():
            assert done.returncode == 0, (words, done.stderr)
            assert "--json" not in words or document(done)
    assert path.read_bytes() == data
