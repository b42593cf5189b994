"""Errors of commands: invalid arguments and configuration, permissions, full disks, bad stores."""

import os
import random
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from building.processes import (
    PROGRAM,
    ROOT,
    error_line,
    json_output,
    program_for,
    run,
    run_parallel,
)
from building.world import NOBODY, Conversation, World, dump, entry_text, file_states, sql

PATH = "message.content.0.text"


def bytes_below(directory):
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("words", "why"),
    [(["extract"], "missing argument 'ENTRY'"), (["scan", "--bogus"], "no such option: --bogus"),
     (["sessions", "--sort", "bogus"], "'bogus' is not one of 'size', 'saved', 'age', 'name'"),
     (["bogus"], "no such command 'bogus'")],
    ids=["missing", "option", "choice", "command"],
)  # fmt: skip
def test_invalid_arguments_are_explained_in_one_line(cli, words, why):
    """The line names the problem and the help, exits 2, and is the `error` in JSON."""
    result = cli(*words)
    line = error_line(result)
    in_json = cli(*words, "--json")

    assert result.returncode == in_json.returncode == 2
    assert why in line
    assert "--help` says more" in line
    assert why in json_output(in_json)["error"]


def test_option_without_its_value_names_the_help_of_the_command():
    """The line names the command's help, although the parser does not know the command."""
    result = subprocess.run([*PROGRAM, "scan", "--session"], capture_output=True, check=False)

    assert "; `brainsurgeon scan --help` says more" in error_line(result)


@pytest.mark.parametrize(("words", "ignored"), [
    ("sessions --preview", "--preview"), ("sessions main/s --agent main", "--agent"),
    ("show a --regex", "--regex"), ("show a --key b --index", "--index"),
    ("show --search text --key a", "--key"), ("show --search text --index", "--index"),
    ("show a --search text --session b", "--session"), ("archive --list --note text", "--note"),
    ("archive --list --dry-run", "--dry-run"), ("history --follow --counts", "--counts"),
    ("history --follow --all", "--all"), ("init --undo --cron", "only --yes or --dry-run"),
    ("history --counts --events", "--events"), ("config --check --schema", "--check"),
    ("init --systemd --cron --system", "--systemd and nothing else"),
    ("init --system", "--systemd and nothing else"),
    ("init --undo --mcp claude", "only --yes or --dry-run"), ("status --open", "--open"),
    ("status --format prometheus --previews", "--previews"), ("status --output file", "--output"),
    ("restore --all a", "not both"),
])  # fmt: skip
def test_options_without_an_effect_are_refused(cli, words, ignored):
    """An option that a command would ignore is an error: exit 2, one line that names it."""
    result = cli(*words.split())

    assert result.returncode == 2
    assert ignored in error_line(result)


@pytest.fixture
def shared_world():
    """Yield a world in a directory that an ordinary user can reach if the tests run as root."""
    with tempfile.TemporaryDirectory(prefix="brainsurgeon-test-") as base:
        world = World(Path(base))
        yield world
        world.close()


def give_away(world):
    """Make the ordinary user the owner of all files of a world."""
    for path in [world.base, *world.base.rglob("*")]:
        if ROOT:
            os.lchown(path, NOBODY, NOBODY)


def test_scan_reports_an_unreadable_root_and_does_the_rest(shared_world, conversation):
    """Unreadable and missing roots are named, the other root is scanned, and the scan exits 1."""
    world = shared_world
    conversation.turn()
    conversation.turn()
    readable = world.put("s.jsonl", conversation.bytes())
    shut = world.base / "shut"
    shut.mkdir()
    (shut / "s.jsonl").write_bytes(conversation.bytes())
    config = world.config_file()
    with open(config, "a") as file:
        file.write(f'[[roots]]\npath = "{shut}"\n[[roots]]\npath = "{world.base}/missing"\n')
    give_away(world)
    shut.chmod(0)
    result = run("scan", "--once", "--config", config, ordinary=True)
    shut.chmod(0o700)
    output = (result.stdout + result.stderr).decode()

    assert result.returncode == 1
    assert f"{shut}: Permission denied; nothing was changed there" in output
    assert f"{world.base}/missing: no such directory" in output
    assert b"[[extracted-" in readable.read_bytes()
    assert (shut / "s.jsonl").read_bytes() == conversation.bytes()


@pytest.mark.parametrize("limit", range(6, 12))
def test_too_few_file_descriptors_are_reported_as_such(world, conversation, limit):
    """Out of descriptors, a command reports that and does not advise to run as another user."""
    conversation.turn()
    conversation.turn()
    path = world.put("s.jsonl", conversation.bytes())
    (world.directory / "sessions.json").write_text("{}")
    config = world.config_file()

    def set_limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

    result = run("scan", "--once", "--config", config, limit=set_limit)
    output = (result.stdout + result.stderr).decode()

    if result.returncode:
        assert "Too many open files" in output
        assert path.read_bytes() == conversation.bytes()
        advice = run("doctor", "--config", config, limit=set_limit).stdout.decode()
        assert "run as the user" not in advice
    else:
        assert "1 extracted" in output


def test_store_backup_refuses_an_unwritable_directory(shared_world, conversation):
    """A target directory without permissions exits 2 with the name of the directory."""
    world = shared_world
    world.put("s.jsonl", conversation.bytes())
    world.scan()
    world.close()
    give_away(world)
    shut = world.base / "shut"
    shut.mkdir(mode=0)
    result = program_for(world)("store", "backup", shut / "backup.db", ordinary=True)

    assert result.returncode == 2
    assert f"{shut}: cannot be written by this user" in result.stderr.decode()


@pytest.mark.parametrize("command", ["show", "sessions", "restore"])
def test_commands_report_an_unreadable_session(shared_world, conversation, command):
    """A session without read permission exits 1 with one line and is left unchanged."""
    world = shared_world
    ident = conversation.turn()
    conversation.turn()
    path = world.put("s.jsonl", conversation.bytes())
    world.scan()
    before = path.read_bytes()
    give_away(world)
    path.chmod(0)
    result = program_for(world)(command, ident if command == "restore" else "main/s", ordinary=True)
    line = error_line(result)
    path.chmod(0o600)

    assert result.returncode == 1
    assert "main/s" in line
    assert "Permission denied" in line
    assert path.read_bytes() == before


def test_sessions_reports_a_file_of_unknown_format(world, cli):
    """`sessions` of a file of unknown format or version exits 1; `show` prints it."""
    old = world.copy("pi", "large-session.v1.jsonl", name="old.jsonl")
    odd = world.put("odd.jsonl", b"no session\n")
    for name, why in (("main/old", "version 1"), ("main/odd", "no JSON objects")):
        result = cli("sessions", name)

        assert result.returncode == 1
        assert name in error_line(result)
        assert why in error_line(result)
    for path in (old, odd):
        assert cli("show", path).stdout == path.read_bytes()


def terminate(world, words, after, number=signal.SIGTERM):
    """Run a command, send it a signal after some seconds, and check that it left no file behind."""
    process = subprocess.Popen([*PROGRAM, *words], stdout=subprocess.DEVNULL)
    time.sleep(after)
    process.send_signal(number)

    assert process.wait(timeout=20) in (128 + number, 0, -number)  # the last before its first line
    assert world.leftovers() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("after", [0.3, 0.6, 0.9])
def test_signal_during_restore_leaves_no_temporary_file(world, entry_id, after, number):
    """A restore that gets SIGTERM, or whose terminal is closed, removes the old file first."""
    terminate(world, ("restore", entry_id, "--config", world.config_file()), after, number)


@pytest.mark.parametrize("words", [("scan", "--once"), ("restore", "--all")], ids=" ".join)
@pytest.mark.parametrize("after", [0.25, 0.5, 0.9])
def test_sigterm_during_a_run_leaves_every_session_whole(world, words, after):
    """After SIGTERM each session is as before or after the run, without temporary files."""
    before = {}
    for number in range(12):
        conversation = Conversation(f"{number:08x}-0000-4000-8000-000000000000")
        conversation.turn("x" * 3000)
        conversation.turn("y" * 3000)
        before[world.put(f"s{number}.jsonl", conversation.bytes())] = conversation.bytes()
    if words[0] == "restore":
        world.scan(keep_recent=0)
    config = world.config_file(keep_recent=0)
    terminate(world, (*words, "--config", config), after)
    world.restore_all(pristine=True)
    assert {path: path.read_bytes() for path in before} == before


def test_show_names_a_value_that_expired_beside_others(world, conversation, cli):
    """The values that are still stored are printed; standard error names the expired one."""
    ident = conversation.turn("x" * 2000, details={"output": "y" * 2000})
    conversation.turn("short")
    world.put("s.jsonl", conversation.bytes())
    world.scan(keep_recent=0)
    sql(world, "UPDATE extractions SET blob_id = NULL, expired_at = 1.0, expired_why = 'test'"
               " WHERE entry_id = ? AND path LIKE '%output%'", (ident,))  # fmt: skip
    result = cli("show", ident)

    assert result.stdout == b"x" * 2000
    assert result.stderr == b"brainsurgeon: message.details.output: expired\n"
    assert result.returncode == 0


def test_an_unknown_key_beside_a_known_one_exits_1(world, entry_id, cli):
    """Standard output or error names the key; the value of the known key is returned."""
    keys = ("--key", "text", "--key", "nothing")
    shown, restored = cli("show", entry_id, *keys), cli("restore", entry_id, *keys)
    in_json = [cli(word, entry_id, *keys, "--json") for word in ("show", "restore")]

    assert shown.stderr == b"brainsurgeon: nothing: no extracted value has this key\n"
    assert shown.stdout == b"x" * 2000
    assert b"not done: nothing: no extracted value has this key" in restored.stdout
    for result in in_json:
        assert json_output(result)["missed"] == ["nothing: no extracted value has this key"]
    assert {one.returncode for one in (shown, restored, *in_json)} == {1}
    assert entry_text(world.directory / "s.jsonl", entry_id) == "x" * 2000


def test_show_prints_every_byte_of_a_pruned_session(world, conversation, entry_id, cli):
    """As text and as JSON it prints the original session, invalid UTF-8 included."""
    path, ending = world.directory / "s.jsonl", b'{"odd": "\xff\xfe"}\nno end'
    path.write_bytes(path.read_bytes() + ending)
    plain, answer = cli("show", "main/s").stdout, json_output(cli("show", "main/s", "--json"))

    assert plain == conversation.bytes() + ending
    assert "\n".join(answer["lines"]).encode("utf-8", "surrogateescape") == plain
    assert answer["session"] == "main/s"


def test_an_invalid_configuration_lists_every_problem(world, entry_id, monkeypatch):
    """All problems are listed, each with its place, and no command runs."""
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
    for result in run_parallel(lambda *words: run(*words, "--config", config), commands).values():
        output = result.stderr.decode()

        assert result.returncode == 2
        assert result.stdout == b""
        assert str(config) in output.splitlines()[0]
        assert "nothing was run" in output.splitlines()[0]
        for place in (
            "keep_recent", "retention", "trigger_types[1]", "no_such_key", "min_reclaim",
            "roots[0].format", "roots[1].path", "roots[1].name", "rules and trigger_types",
            "BRAINSURGEON_LOG_LEVEL",
        ):  # fmt: skip
            assert f"  {place}: " in output
        assert len(output.splitlines()) == 11
    assert file_states(world.base) == before


def test_unknown_names_exit_3_and_ambiguous_names_exit_4(world, conversation, entry_id, cli):
    """The error repeats an unknown name, and lists the candidates of an ambiguous one."""
    world.put("t.jsonl", conversation.bytes())
    world.scan()
    before = file_states(world.root)
    unknown = cli("restore", "deadbeef")
    nowhere = cli("restore", entry_id, "--session", "nobody")
    ambiguous = cli("restore", entry_id)
    key = cli("show", entry_id, "--session", "main/s", "--key", "nothing")

    assert "deadbeef" in error_line(unknown)
    assert "nobody" in error_line(nowhere)
    assert PATH in error_line(key)
    assert [result.returncode for result in (unknown, nowhere, ambiguous, key)] == [3, 3, 4, 3]
    assert ambiguous.stderr.decode().splitlines()[1:] == ["  main/s", "  main/t"]
    assert file_states(world.root) == before


def not_a_database(path):
    path.write_text("these are not the bytes that you are looking for\n" * 100)


def newer_version(path):
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA user_version = 999")


def empty_file(path):
    path.write_bytes(b"")


@pytest.mark.parametrize("harm", [not_a_database, newer_version, empty_file])
def test_commands_refuse_an_unusable_store(world, entry_id, cli, harm):
    """A store that is no database, newer or empty exits 7 with one line; no file changes."""
    world.close()
    harm(world.state / "store.db")
    before = bytes_below(world.base)
    commands = [
        ("scan", "--once"), ("scan", "--once", "--dry-run"), ("restore", entry_id),
        ("show", entry_id),
    ]  # fmt: skip
    if harm is newer_version:
        commands += [
            ("restore", "--all"), ("show", "main/s"), ("sessions",), ("sessions", "main/s"),
            ("pin", entry_id), ("status",), ("scan", "--retention"),
        ]  # fmt: skip
    for words, result in run_parallel(cli, commands).items():
        assert result.returncode == 7, words
        assert str(world.state / "store.db") in error_line(result)
        assert re.search("nothing was touched|left as it is", error_line(result))
    assert bytes_below(world.base) == before


def test_commands_refuse_a_state_directory_with_files_of_others(world, entry_id, cli):
    """Without a store of ours, each command exits 2 with one line, and nothing changes there."""
    world.close()
    shutil.rmtree(world.state)
    world.state.mkdir(mode=0o755)
    (world.state / "passwd").write_text("root:x:0:0")
    before = file_states(world.base, directories=True)
    commands = [
        ("scan",), ("scan", "--dry-run"), ("run",), ("restore", entry_id), ("status",),
        ("status", "--format", "html"), ("sessions",), ("doctor",), ("config", "--check"),
        ("init", "--yes"), ("store", "restore", world.state / "passwd"),
    ]  # fmt: skip
    for words, result in run_parallel(cli, commands).items():
        assert result.returncode == 2, words
        assert f"state_dir: {world.state} has files of others" in error_line(result)
    assert file_states(world.base, directories=True) == before


def test_restore_refuses_a_damaged_value(world, entry_id, cli):
    """A blob that fails its digest exits 7 and leaves the session unchanged."""
    sql(world, "UPDATE blobs SET data = zeroblob(length(data))")
    before = file_states(world.root)
    restore, show = cli("restore", entry_id), cli("show", entry_id)

    assert (restore.returncode, show.returncode) == (7, 7)
    assert "damaged" in error_line(restore)
    assert file_states(world.root) == before


@pytest.mark.parametrize("place", ["the state directory", "its parent", "the store"])
def test_scan_refuses_an_unwritable_state_directory(shared_world, conversation, place):
    """Without a place for originals nothing is extracted: exit 7, one line, sessions unchanged."""
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
        world.scan(enabled=False)
        world.close()
    else:
        shut.mkdir()
    call = program_for(world)
    give_away(world)
    shut.chmod(0o500)
    result = call("scan", "--once", ordinary=True)
    sessions = call("sessions", ordinary=True)
    shut.chmod(0o700)

    assert result.returncode == 7
    assert str(world.state) in error_line(result)
    assert sessions.returncode == 0
    assert path.read_bytes() == conversation.bytes()


@pytest.mark.parametrize(
    "place",
    ["the state directory", "its parent", "the store", "a session", "a root", "a directory"],
)
def test_doctor_reports_missing_permissions(shared_world, conversation, place):
    """A place that this user may not write, create, open or read is an error and exits non-zero."""
    world = shared_world
    conversation.turn()
    path = world.put("s.jsonl", conversation.bytes())
    world.scan(enabled=False)
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
    elif place == "a root":
        shut = world.root
    elif place == "a directory":
        shut = world.directory
    call = program_for(world)
    give_away(world)
    shut.chmod(mode)
    result = call("doctor", ordinary=True)
    shut.chmod(0o700)
    output = (result.stdout + result.stderr).decode()
    expected = {
        "the state directory": f"error    {world.state} cannot be written by this user",
        "its parent": f"error    {world.state} cannot be made: {shut} cannot be written",
        "the store": "this user may not open it (Permission denied); it was left as it is",
        "a session": f"error    {path}: Permission denied\n         run as its owner; "
        "if you are the owner, chmod u+rwX it\n",
        "a root": "Permission denied\n         run as its owner",
        "a directory": f"error    main: 1 session cannot be changed (s): {shut} cannot be written",
    }

    assert expected[place] in output
    assert result.returncode == (7 if place == "the store" else 1)


def test_doctor_accepts_an_unwritable_directory_that_is_excluded(shared_world, conversation):
    """The doctor's advice to exclude sessions that cannot be changed ends its error."""
    world = shared_world
    conversation.turn()
    world.put("s.jsonl", conversation.bytes())
    world.scan(enabled=False)
    world.close()
    call = program_for(world, exclude=[f"{world.directory}/*"])
    give_away(world)
    world.directory.chmod(0o500)
    result = call("doctor", ordinary=True)
    world.directory.chmod(0o700)

    assert b"cannot be changed" not in result.stdout
    assert result.returncode == 0


# Only root may mount, and nothing else makes a disk that is really full.
needs_mount = pytest.mark.skipif(not ROOT, reason="mounting a small file system takes root")


@needs_mount
@pytest.mark.parametrize("where", ["state", "root"])
def test_doctor_reports_a_full_disk(world, cli, where):
    """A disk without free space below the store or a root is an error and exits 1."""
    with mounted_disk(getattr(world, where), "500k"):
        result = cli("doctor")

        assert result.returncode == 1
        line = rf"^error    {getattr(world, where)}: [\d,.]+ [KMG]?B of disk are left$"
        assert re.search(line, result.stdout.decode(), re.MULTILINE)


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
    """Mount a small file system; skip the test if mounting is forbidden, as in most containers."""
    with small_disk(directory, size) as mounted:
        if not mounted:
            pytest.skip("mounting is not allowed here")  # only a small disk can be full
        yield


def large_session(conversation, turns=4):
    for number in range(turns):
        conversation.turn(random.Random(number).randbytes(200_000).hex())
    conversation.turn("short")
    return conversation.bytes()


def test_scan_survives_a_disk_full_while_storing(world, conversation, cli):
    """Without space for originals the session is unchanged; with space it is extracted."""
    path = world.put("s.jsonl", large_session(conversation))
    with small_disk(world.state, "900k") as mounted:

        def limit():
            if not mounted:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))

        result = cli("scan", "--once", limit=limit)
        output = (result.stdout + result.stderr).decode()

        assert path.read_bytes() == conversation.bytes()
        assert result.returncode == 1 if mounted else result.returncode in (1, 7)
        assert "main/s" in output or not mounted
        assert "disk is full" in output or not mounted
        assert world.leftovers() == []
        if mounted:
            subprocess.run(["mount", "-o", "remount,size=9m", str(world.state)], check=True)

        assert cli("scan", "--once").returncode == 0
        assert path.read_bytes() != conversation.bytes()
        assert cli("show", "main/s").stdout == conversation.bytes()


def test_limit_of_the_file_size_is_named(world, conversation, cli):
    """If a limit of the file size stops the store, the error names the limit, not the disk."""
    world.put("s.jsonl", large_session(conversation))

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))

    result = cli("scan", "--once", limit=limit)
    output = (result.stdout + result.stderr).decode()

    assert "the limit of the size of a file was reached (300,000 bytes, ulimit -f)" in output
    assert "the disk fails" not in output


@needs_mount
def test_scan_survives_a_disk_without_room_for_a_file(world, conversation, cli):
    """If the new file does not fit beside the old one, the old one stays and is named."""
    with mounted_disk(world.root, "2m"):
        world.directory.mkdir(parents=True)
        path = world.put("s.jsonl", large_session(conversation, turns=3))
        (world.root / "ballast").write_bytes(b"b" * 800_000)
        world.put("t.jsonl", Conversation().bytes())
        result = cli("scan", "--once", BRAINSURGEON_KEEP_RECENT="8")
        output = (result.stdout + result.stderr).decode()

        assert result.returncode == 1
        assert "main/s: failed, No space left on device" in output
        assert path.read_bytes() == conversation.bytes()
        assert world.leftovers() == []


@needs_mount
def test_scan_reports_a_disk_without_room_for_a_store(world, conversation, cli):
    """If not even an empty store fits, the scan exits 1 with one line and changes nothing."""
    path = world.put("s.jsonl", large_session(conversation, turns=1))
    with mounted_disk(world.state, "16k"):
        result = cli("scan", "--once")

        assert result.returncode == 1
        assert "the disk is full" in error_line(result)
        assert path.read_bytes() == conversation.bytes()


@contextmanager
def read_only(directory):
    """Make a directory read-only: by a mount if allowed, else by its mode."""
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


def test_commands_report_a_read_only_root(shared_world, conversation):
    """On a read-only root commands that write exit 1 with a line; `show` works, nothing changes."""
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
    output = (scan.stdout + scan.stderr).decode()

    assert scan.returncode == 1
    assert f"main/t: failed, {world.directory}: " in output
    assert (path.read_bytes(), other.read_bytes()) == (pruned, conversation.bytes())
    assert world.leftovers() == []
    assert show.stdout == b"x" * 2000
    assert cat.stdout == b"".join(map(dump, conversation.lines[:9]))
    assert every.returncode == 1
    assert "main/s: failed" in (every.stdout + every.stderr).decode()
    for result in (restore, pinned):
        assert result.returncode == 1
        assert "main/s" in error_line(result)
        assert "untouched" in error_line(result) or "left as it is" in error_line(result)
