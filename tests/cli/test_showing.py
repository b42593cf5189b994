"""What is printed, for people, for pipes, and for nobody."""

import json
import os
import pty
import re
import sys
from datetime import datetime, timedelta

import pytest

from brainsurgeon.store.database import hold_daemon_lock
from building.processes import json_output, program_for, run, run_parallel
from building.world import SAMPLES, Conversation, append, dump, entry_text, file_states

PATH = "message.content.0.text"


# --- printing ------------------------------------------------------------------------------------


def test_a_run_in_which_nothing_happened_prints_nothing(world, conversation, cli):
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
        ("sessions", "--json"): 0, ("show", "a"): 3, ("sessions", "a"): 3,
        ("--version",): 0, ("status",): 0, ("scan", "--retention", "--dry-run"): 0,
    }  # fmt: skip
    for words, done in run_parallel(run, expected).items():
        assert done.returncode == expected[words], words
        assert len(done.stderr.splitlines()) == (expected[words] > 0)
    looked = sorted(path.name for path in own_home.rglob("*"))
    later = {
        ("restore", "a"): 3, ("restore", "--all"): 0, ("pin", "a"): 3,
        ("restore", "--all", "--session", "a"): 3,
    }  # fmt: skip
    for words, done in run_parallel(run, later).items():
        assert done.returncode == later[words], words

    assert set(looked) <= {".local", "state", "brainsurgeon", "store.db", "locks"}


def test_looking_never_makes_a_store(own_home):
    """Commands that only look leave an empty home empty."""
    commands = [
        ("scan", "--once", "--dry-run"), ("sessions",), ("show", "a"), ("show", "a"),
        ("sessions", "a"), ("status",), ("scan", "--retention", "--dry-run"),
    ]  # fmt: skip
    run_parallel(run, commands)

    assert list(own_home.iterdir()) == []


def test_a_shown_value_is_its_bytes_and_nothing_else(world, conversation, cli):
    """`show` prints a value raw, without a newline of its own; several stand under their paths."""
    value = "tab\there, é 😀, \u2028, nul \x00, \x1b[31m and no newline" + "." * 600
    ident = conversation.turn(value, details={"aggregated": "a" * 700})
    conversation.turn("short")
    world.put("s.jsonl", conversation.bytes())
    world.scan()
    one = cli("show", ident, "--key", PATH)
    both = cli("show", ident)
    named = cli("show", ident, "--key", f"{PATH}, aggregated")

    assert one.stdout == value.encode()
    assert (one.stderr, both.stderr) == (b"", b"")
    assert named.stdout == both.stdout
    assert both.stdout.decode() == (
        f"==> {PATH} <==\n{value}\n==> message.details.aggregated <==\n{'a' * 700}\n"
    )


def test_a_value_that_stands_twice_is_printed_once(world, conversation, cli):
    """Equal values of an entry come once, raw, and in JSON with the paths of their copies."""
    conversation.user()
    conversation.call()
    copy = "message.details.aggregated"
    ident = conversation.result("v" * 6000, details={"aggregated": "v" * 6000})
    conversation.assistant()
    conversation.turn("short")
    path = world.put("s.jsonl", conversation.bytes())
    world.scan()
    shown, told = cli("show", ident), json_output(cli("show", ident, "--json"))
    conversation.user()
    append(path, [conversation.lines[-1]])
    printed, pending = cli("restore", ident), json_output(cli("restore", ident, "--json"))

    assert shown.stdout == b"v" * 6000
    assert printed.stdout.count(b"v" * 6000) == 1
    assert len(printed.stdout) < 6500
    for said in (told, pending):
        assert said["content"] == {PATH: "v" * 6000}
        assert said["same_as"] == {copy: PATH}
    assert pending["keys_restored"] == [PATH, copy]


def test_a_whole_session_is_printed_as_it_was(world, cli):
    """`cat` of a real session that was pruned is its original, byte for byte."""
    sample = SAMPLES / "pi" / "large-session.derived-v3.jsonl"
    world.copy("pi", sample.name)
    world.scan()
    done = cli("show", str(world.directory / sample.name))

    assert done.stdout == sample.read_bytes()
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_pending_restore_prints_the_value_at_once(world, conversation, session, cli):
    """What an agent asks for in its turn stands on stdout, raw, after what it should know."""
    append(world.directory / "s.jsonl", [conversation.lines[1]])
    before = file_states(world.root)
    plain = cli("restore", session)
    told = json_output(cli("restore", session, "--json"))
    every = cli("restore", "--all")
    note = plain.stdout.removesuffix(b"x" * 2000).decode()

    assert note != plain.stdout.decode()
    assert "not restored yet" in note
    assert "brainsurgeon scan" in note
    assert plain.stderr == b""
    assert (told["restored"], told["pending"]) == (True, True)
    assert told["content"] == {PATH: "x" * 2000}
    assert "main/s: pending" in every.stdout.decode()
    assert every.stdout.decode().splitlines()[-1] == (
        "0 values restored in 0 sessions; placeholders are left in 1 session, "
        "1 of them at work: add --wait"
    )
    assert (plain.returncode, every.returncode) == (0, 1)
    assert file_states(world.root) == before


def test_what_will_be_too_large_is_named_with_what_to_do(world, session, cli):
    """`restore --all` names it before it changes anything, and ends with a total and 0."""
    config = world.base / "config.toml"
    config.write_text(config.read_text() + '[windows]\n"*" = 700\n')
    done = cli("restore", "--all")
    named, advice = done.stderr.decode().splitlines()

    assert named.startswith("main/s: its next request will have about 1,000 tokens, its window")
    assert advice == "begin a new conversation there, or let its agent compact it"
    assert done.stdout.decode().splitlines()[-1] == (
        "1 value restored in 1 session; no placeholder is left"
    )
    assert done.returncode == 0


def test_a_pending_restore_knows_whether_a_daemon_runs(world, conversation, session, cli):
    """Who puts the value back is said: the daemon that runs, or the next scan."""
    append(world.directory / "s.jsonl", [conversation.lines[1]])
    alone, alone_json = cli("restore", session), json_output(cli("restore", session, "--json"))
    with hold_daemon_lock(str(world.state)):
        beside, beside_json = (
            cli("restore", session),
            json_output(cli("restore", session, "--json")),
        )

    assert b"No daemon runs: the next `brainsurgeon scan`" in alone.stdout
    assert b"The daemon restores it" in beside.stdout
    assert (alone_json["restored_by"], beside_json["restored_by"]) == ("scan --once", "daemon")


def test_a_switch_that_is_off_is_said(world, conversation):
    """`enabled = false` is told by scan (on a terminal), dry run, status and doctor."""
    conversation.turn()
    conversation.turn()
    path = world.put("s.jsonl", conversation.bytes())
    call = program_for(world, enabled=False)
    dry, in_cron = call("scan", "--dry-run"), call("scan", "--once")
    told = [dry, call("status"), call("doctor")]
    in_json = [call("scan", "--once", "--json"), call("status", "--json")]
    on_terminal = on_a_terminal("scan", "--once", "--config", world.base / "config.toml")

    for done in told:
        assert b"nothing is extracted: enabled = false" in done.stdout, done.args
    assert (in_cron.stdout, in_cron.stderr) == (b"", b"")
    assert b"nothing is extracted: enabled = false" in on_terminal
    for done in in_json:
        assert json_output(done)["enabled"] is False
    assert path.read_bytes() == conversation.bytes()


def test_moments_are_in_the_operators_zone_and_in_utc_in_json(world, session, cli):
    """Text for people has their own zone, JSON has UTC with a Z."""
    zone = {"TZ": "Etc/GMT-11"}  # eleven hours east of Greenwich, all the year round
    world.scan()
    status = cli("status", fresh=True, **zone).stdout.decode()
    told = json_output(cli("status", "--json", fresh=True, **zone))["last_run_at"]
    context = cli("sessions", "main/s", fresh=True, **zone).stdout.decode()
    east = datetime.fromisoformat(told) + timedelta(hours=11)
    [value] = json_output(cli("sessions", "main/s", "--json"))["extracted"]
    expires = datetime.fromisoformat(value["expires_at"])

    assert told.endswith("Z")
    assert f"last {east:%Y-%m-%d %H:%M:%S} +11" in status
    assert f"expires {expires + timedelta(hours=11):%Y-%m-%d}" in context
    assert not re.search(r"[0-9]Z\b", status + context)


def test_one_thing_is_not_called_many(world, conversation, cli):
    """One value is a value, and a session that grew is not called less."""
    conversation.turn()
    conversation.turn("short")
    ident = conversation.user("z" * 40)
    conversation.assistant()
    conversation.turn("short")
    world.put("s.jsonl", conversation.bytes())
    said = [cli("scan", "--once", "--dry-run"), cli("sessions", "main/s")]
    world.scan()
    cli("extract", ident, "--session", "main/s")
    grown = cli("scan", "--once", "--dry-run")
    grown = cli("scan", "--once") if b"changed" in grown.stdout else grown
    text = b"".join(done.stdout for done in (*said, grown)).decode()

    assert not re.search(r"\b1 (\w+ )?(values|characters|sessions|fields|requests)\b", text), text
    assert "-" not in re.findall(r"\((\S+) % ", text)


def test_an_idle_restore_says_what_it_did(world, conversation, session, cli):
    """The person reads what was restored; the second time, the advice to pin it."""
    done = cli("restore", f"[[extracted-{session}]]")
    again = cli("restore", session)

    assert f"main/s {session}" in done.stdout.decode()
    assert PATH in done.stdout.decode()
    assert "restored" in done.stdout.decode()
    assert (done.returncode, done.stderr) == (0, b"")
    assert entry_text(world.directory / "s.jsonl", session) == "x" * 2000
    assert (again.returncode, again.stderr) == (0, b"")
    assert "restored already" in again.stdout.decode()


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
        cli("scan", "--once", "--dry-run"), cli("sessions"), cli("sessions", "main/s"),
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
        assert re.match(rb"K|[12][AK]|\?25[lh]", part), part  # lines that go, the cursor


def test_a_locale_without_an_ellipsis_stops_nothing(world, cli):
    """Where the terminal knows ASCII alone, what it cannot print is escaped."""
    long = Conversation()
    for number in range(24):
        long.turn("x" * 1000, tool=f"t…{number}")
    world.put("s.jsonl", long.bytes())
    ascii_only = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PYTHONUTF8": "0", "fresh": True}
    dry = cli("scan", "--once", "--dry-run", **ascii_only)
    shown = cli("sessions", "main/s", **ascii_only)
    listed = cli("sessions", **ascii_only)

    assert (dry.returncode, shown.returncode, listed.returncode) == (0, 0, 0)
    assert b"t\\u202623" in shown.stdout


def test_tables_fit_the_terminal_and_cut_nothing_without_one(world, cli):
    """Long names are cut in their middle to fit a terminal; in a pipe they stay whole."""
    name = "n" * 150
    long = Conversation()
    for tool in ("mcp__" + "t" * 59, "exec"):
        long.turn("x" * 123_456, tool=tool)
    long.turn()
    world.put(f"{name}.jsonl", long.bytes())
    world.put("s.jsonl", long.bytes())
    config = world.config_file()
    listed, filling = (
        on_a_terminal(*words, "--config", config, TERM="xterm", COLUMNS="80")
        .decode().replace("\r", "").split("\n\n")[part].splitlines()
        for words, part in ((("sessions",), 0), (("sessions", "main/s"), 1))
    )  # fmt: skip
    piped = cli("sessions").stdout.decode()
    whole = cli("sessions", "main/s").stdout.decode()

    assert len(listed) == 3
    assert len(filling) > 4
    assert max(map(len, listed)) <= 80
    assert max(map(len, filling)) <= 80
    assert listed[0].split() == ["session", "format", "size", "saved", "age", "state"]
    assert any(line.startswith("main/nnn") and "nnn…nnn" in line for line in listed)
    assert f"main/{name} " in piped
    assert "mcp__" + "t" * 59 in whole
    assert cli("sessions", f"main/{name}").returncode == 0


@pytest.mark.parametrize("wide", [40, 60, 80, 120, 200])
def test_bars_fit_every_terminal(world, cli, wide):
    """What fills a session is shown with bars that fit beside the columns there is room for."""
    long = Conversation()
    for tool in ("mcp__" + "t" * 59, "exec"):
        long.turn("x" * 5_000, tool=tool)
    long.turn()
    world.put("s.jsonl", long.bytes())
    shown = on_a_terminal(
        "context", "main/s", "--config", world.config_file(), TERM="xterm", COLUMNS=str(wide)
    )
    head, *filling = shown.decode().replace("\r", "").split("\n\n")[1].splitlines()

    assert head.split()[-1] == "sent"
    assert max(map(len, filling)) <= wide
    assert "#" * (wide // 5) in filling[0]
    assert all("%" in line for line in filling)


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
    for words, done in run_parallel(cli, [("sessions", name, "--json") for name in known]).items():
        assert json_output(done).get("session") == f"main/{names[0]}", words
    for (_, name), done in run_parallel(cli, [("sessions", name) for name in others]).items():
        assert done.returncode == others[name], name


def test_names_with_escapes_are_printed_escaped(world, conversation, cli):
    """What a file is called, or an agent wrote into a key, never steers the terminal."""
    hostile = "evil\x1b[31m\x07\r"
    conversation.turn("y" * 2000, hostile, ident=hostile, arguments={hostile: "x" * 2000})
    data = conversation.bytes()
    for number in (1, 2):
        world.put(f"{hostile}{number}.jsonl", data)
    (world.directory / os.fsdecode(b"broken\xff.jsonl")).write_bytes(data)
    settings = {"keep_recent": 0, "trigger_types": ["tool_result", "tool_call"]}
    call = program_for(world, **settings)
    dry = call("scan", "--once", "--dry-run")
    world.scan(**settings)
    looks = [
        ("sessions",), ("sessions", f"{hostile}1"), ("sessions", "evil"), ("show", hostile),
        ("restore", "\x1b"), ("sessions", "\x1b"), ("restore", hostile), ("show", "evil"),
        ("pin", hostile), ("show", "broken"), ("status",),
        ("scan", "--once", "--dry-run", "--json"), ("sessions", "--json"),
        ("sessions", f"{hostile}1", "--json"), ("sessions", "evil", "--json"),
    ]  # fmt: skip
    looked = run_parallel(call, looks)
    for done in (dry, *looked.values(), call("restore", "--all")):
        assert b"\x1b" not in done.stdout + done.stderr, done.args[3:-2]
        assert b"\x07" not in done.stdout + done.stderr, done.args[3:-2]
    for words in looks[-4:]:
        assert json_output(looked[words])
    assert b"evil\\x1b[31m" in dry.stdout
    assert b"broken\\xff" in dry.stdout


def test_an_entry_typed_in_other_bytes_than_text_is_not_found(world, conversation, cli):
    """A name that is not UTF-8 is no entry's: exit 3, in words."""
    conversation.turn()
    world.put("s.jsonl", conversation.bytes())
    world.scan(keep_recent=0)
    call, odd = program_for(world), os.fsdecode(b"a\xff")
    for words in (("show", odd), ("restore", odd), ("show", odd, "--json")):
        done = call(*words)
        assert done.returncode == 3, done.stderr
        assert b"unexpected" not in done.stderr


def test_names_with_half_a_character_are_printed_too(world, conversation, cli):
    """A tool name or key with a lone surrogate, as truncation leaves it, stops no command."""
    ident = conversation.turn(
        "y" * 2000, "T", details={"K": "z" * 2000}, arguments={"K": "x" * 2000}
    )
    data = conversation.bytes().replace(b'"T"', b'"t\\ud83d"').replace(b'"K"', b'"k\\ud83d"')
    path = world.put("s.jsonl", data)
    call = program_for(world, keep_recent=0, trigger_types=["tool_result", "tool_call"])
    steps = [
        [("scan", "--once", "--dry-run"), ("scan", "--once", "--dry-run", "--json")],
        [("scan", "--once", "--json")],
        [
            ("sessions", "main/s"), ("sessions", "main/s", "--json"), ("show", ident),
            ("show", ident, "--json"), ("show", "main/s"),
        ],
        [("restore", "--all", "--pristine")],
    ]  # fmt: skip
    for step in steps:
        for words, done in run_parallel(call, step).items():
            assert done.returncode == 0, (words, done.stderr)
            assert "--json" not in words or json_output(done)
    assert path.read_bytes() == data


def test_a_value_named_like_a_time_keeps_its_size(world, conversation):
    """The numbers of `sizes_bytes` and `reasons` are no times, however paths and reasons end."""
    conversation.user()
    ident = conversation.call(name="T", arguments={"look_at": "x" * 2000})
    conversation.result("done", tool="T")
    conversation.assistant()
    world.put("s.jsonl", conversation.bytes())
    world.put("t_at.jsonl", conversation.bytes())
    call = program_for(world, keep_recent=0, trigger_types=["tool_call"], exclude=["session:t_at"])
    call("scan", "--once")
    status = json_output(call("status", "--json"))
    restored = json_output(call("restore", ident, "--session", "main/s", "--json"))

    assert restored["sizes_bytes"] == {"message.content.0.arguments.look_at": 2002}
    assert status["reasons"] == {"excluded by session:t_at": 1}


def test_an_age_that_is_none_is_refused(world, cli):
    """`status` checks --max-age with or without --check, as every option."""
    for words in (("status", "--check"), ("status",)):
        assert cli(*words, "--max-age", "soon").returncode == 2


def test_monitors_get_one_line_and_a_code(world, session, cli):
    """`status --check` ends with 0 and one line after a run, with 1 and the reason without one."""
    well, old = run_parallel(
        cli, [("status", "--check"), ("status", "--check", "--max-age", "1")]
    ).values()
    (world.state / "store.db").unlink()
    never = cli("status", "--check")

    assert (well.returncode, never.returncode) == (0, 1)
    assert re.fullmatch(rb"brainsurgeon: ok, last run .+ ago, 1 session, .+ saved\n", well.stdout)
    assert old.returncode in (0, 1)
    assert never.stdout == b"brainsurgeon: no run was ever made\n"


def test_sessions_are_chosen_and_sorted(world, session, conversation, cli):
    """By agent, by state and by column; the totals speak of those that are listed."""
    other = world.root / "side" / "sessions"
    other.mkdir(parents=True)
    (other / "b.jsonl").write_bytes(conversation.bytes() * 3)
    asked = {
        "all": ("sessions", "--json"), "side": ("sessions", "--agent", "side", "--json"),
        "name": ("sessions", "--sort", "name", "--json"), "age": ("sessions", "--sort", "age"),
        "none": ("sessions", "--state", "nowhere"), "wrong": ("sessions", "--sort", "color"),
    }  # fmt: skip
    told = run_parallel(cli, asked.values())
    titles = {
        name: [one["session"] for one in json_output(told[words])["sessions"]]
        for name, words in asked.items() if "--json" in words
    }  # fmt: skip

    assert titles == {"all": ["side/b", "main/s"], "side": ["side/b"], "name": ["main/s", "side/b"]}
    assert b"2 sessions, " in told[asked["age"]].stdout
    assert b"no session matches" in told[asked["none"]].stdout
    assert told[asked["wrong"]].returncode == 2


# --- evidence ------------------------------------------------------------------------------------


def test_evidence_is_printed_between_two_lines(world, cli, session):
    """The index of the calls comes first; what stands between the lines keeps to the budget."""
    done = cli("evidence", "main/s", "--budget", "1500")
    index, _, rest = done.stdout.decode().partition("--- evidence ---\n")

    assert done.returncode == 0
    assert index == "1. exec [2,000 B]\n2. exec [2,000 B]\n"
    assert rest.endswith("y\n--- end ---\n")
    assert len(rest.removesuffix("--- end ---\n").encode()) <= 1500
    assert cli("evidence", "main/s", "--last", "--turn", session).returncode == 2
