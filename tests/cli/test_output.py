"""Output of commands: on a terminal, in a pipe and under cron."""

import json
import os
import re
from datetime import datetime, timedelta

import pytest

from brainsurgeon.store.database import hold_daemon_lock
from building.processes import json_output, program_for, run, run_parallel
from building.world import Conversation, append, dump, entry_text, file_states

PATH = "message.content.0.text"


def test_scan_that_changes_nothing_prints_nothing(world, conversation, cli):
    """Unchanged and deferred sessions print nothing and exit 0, so that cron sends no mail."""
    conversation.turn("short")
    world.put("s.jsonl", conversation.bytes())
    world.put("busy.jsonl", conversation.bytes() + dump(conversation.lines[1]), age=60)
    runs = [cli("scan", "--once") for _ in range(2)]
    first, elsewhere = run("scan", "--once"), run("scan", "--once")

    assert {(result.returncode, result.stdout, result.stderr) for result in (*runs, elsewhere)} == {
        (0, b"", b"")
    }
    assert first.stdout.startswith(b"no session was found below ")


def test_quiet_scan_prints_problems_only(world, conversation, cli):
    """With `--quiet`, a scan that changes sessions prints nothing but what went wrong."""
    conversation.turn("x" * 5000)
    conversation.turn("short")
    path = world.put("s.jsonl", conversation.bytes())
    quiet = cli("scan", "--quiet", "--config", world.config_file(keep_recent=0))
    world.root.rename(world.base / "elsewhere")
    failing = cli("scan", "--quiet")
    refused = cli("scan", "--quiet", "--json")

    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, b"", b"")
    assert b"[[extracted-" in (world.base / "elsewhere" / path.relative_to(world.root)).read_bytes()
    assert failing.stdout.decode().startswith(f"{world.root}: no such directory")
    assert refused.returncode == 2


def test_commands_work_in_an_empty_home(own_home):
    """Without configuration, sessions and store commands work; those that read create no file."""
    reading = {
        ("scan", "--once", "--dry-run"): 0, ("sessions",): 0, ("sessions", "--json"): 0,
        ("show", "a"): 3, ("sessions", "a"): 3, ("--version",): 0, ("status",): 0,
        ("scan", "--retention", "--dry-run"): 0,
    }  # fmt: skip
    for words, result in run_parallel(run, reading).items():
        assert result.returncode == reading[words], words
        assert len(result.stderr.splitlines()) == (reading[words] > 0)
    assert list(own_home.iterdir()) == []

    scan = run("scan", "--once")
    names = {path.name for path in own_home.rglob("*")}
    writing = {
        ("restore", "a"): 3, ("restore", "--all"): 0, ("pin", "a"): 3,
        ("restore", "--all", "--session", "a"): 3,
    }  # fmt: skip
    for words, result in run_parallel(run, writing).items():
        assert result.returncode == writing[words], words

    assert (scan.returncode, scan.stderr) == (0, b"")
    assert names <= {".local", "state", "brainsurgeon", "store.db", "locks"}


def test_show_prints_the_bytes_of_a_value(world, conversation, cli):
    """One value is printed raw, without an added newline; several follow their paths."""
    value = "tab\there, é 😀, \u2028, nul \x00, \x1b[31m and no newline" + "." * 600
    ident = conversation.turn(value, details={"aggregated": "a" * 700})
    conversation.turn("short")
    world.put("s.jsonl", conversation.bytes())
    world.scan()
    value_only = cli("show", ident, "--key", PATH)
    all_values = cli("show", ident)
    by_keys = cli("show", ident, "--key", f"{PATH}, aggregated")

    assert value_only.stdout == value.encode()
    assert (value_only.stderr, all_values.stderr) == (b"", b"")
    assert by_keys.stdout == all_values.stdout
    assert all_values.stdout.decode() == (
        f"==> {PATH} <==\n{value}\n==> message.details.aggregated <==\n{'a' * 700}\n"
    )


def test_show_prints_equal_values_of_an_entry_once(world, conversation, cli):
    """Equal values of an entry are printed once; in JSON `same_as` lists the copies."""
    conversation.user()
    conversation.call()
    copy = "message.details.aggregated"
    ident = conversation.result("v" * 6000, details={"aggregated": "v" * 6000})
    conversation.assistant()
    conversation.turn("short")
    path = world.put("s.jsonl", conversation.bytes())
    world.scan()
    shown, shown_answer = cli("show", ident), json_output(cli("show", ident, "--json"))
    conversation.user()
    append(path, [conversation.lines[-1]])
    printed, pending = cli("restore", ident), json_output(cli("restore", ident, "--json"))

    assert shown.stdout == b"v" * 6000
    assert printed.stdout.count(b"v" * 6000) == 1
    assert len(printed.stdout) < 6500
    for answer in (shown_answer, pending):
        assert answer["content"] == {PATH: "v" * 6000}
        assert answer["same_as"] == {copy: PATH}
    assert pending["keys_restored"] == [PATH, copy]


def test_restore_prints_the_value_while_a_turn_is_open(world, conversation, entry_id, cli):
    """During a turn `restore` records a pending request and prints a note and the raw value."""
    append(world.directory / "s.jsonl", [conversation.lines[1]])
    before = file_states(world.root)
    plain = cli("restore", entry_id)
    answer = json_output(cli("restore", entry_id, "--json"))
    every, waited = cli("restore", "--all"), cli("restore", "--all", "--wait", "1s")
    note = plain.stdout.removesuffix(b"x" * 2000).decode()

    assert note != plain.stdout.decode()
    assert "not restored yet" in note
    assert "brainsurgeon scan" in note
    assert plain.stderr == b""
    assert (answer["restored"], answer["pending"]) == (True, True)
    assert answer["content"] == {PATH: "x" * 2000}
    assert "main/s: pending" in every.stdout.decode()
    assert every.stdout.decode().splitlines()[-1] == (
        "0 values restored in 0 sessions; placeholders are left in 1 session, "
        "1 of them not idle: add --wait"
    )
    assert waited.stdout.decode().splitlines()[-1].endswith("session, 1 of them not idle")
    assert (plain.returncode, every.returncode) == (0, 1)
    assert file_states(world.root) == before


def test_restore_on_a_terminal_prints_the_value_while_a_turn_is_open(
    world, conversation, entry_id, run_on_terminal
):
    """On a terminal `restore` prints no id of an answer, and asks no scan to shorten the answer."""
    append(world.directory / "s.jsonl", [conversation.lines[1]])
    shown = run_on_terminal("restore", entry_id, "--config", world.config_file(log_level="debug"))

    assert "not restored yet" in shown
    assert "redacted=False" in re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert "x" * 2000 in shown
    assert "[answer" not in shown
    assert world.store.requests.count_open() == 1


def test_restore_says_to_a_person_until_when_the_value_stays(
    world, conversation, entry_id, run_on_terminal
):
    """It also prints the command that keeps the value longer."""
    shown = run_on_terminal("restore", entry_id, "--config", world.config_file())

    assert "It stays at least until " in shown
    assert f"brainsurgeon pin {entry_id}" in shown


def test_pristine_restore_of_everything_pauses_until_it_is_ended(world, entry_id, cli):
    """Scans leave what was undone alone, although nothing else protects it."""
    world.config_file(keep_after_restore="0s")
    path = world.directory / "s.jsonl"
    undone = cli("restore", "--all", "--pristine").stdout.decode()
    before = path.read_bytes()
    cli("scan", "--once")
    assert path.read_bytes() == before
    ended = cli("pause", "--end").stdout
    cli("scan", "--once")

    assert "brainsurgeon pause --end" in undone
    assert ended == b"the pause is ended; scans extract again\n"
    assert b"[[extracted-" in path.read_bytes()


def test_pristine_restore_of_nothing_pauses_nothing(cli):
    """Where nothing was ever extracted, later sessions are pruned as usual."""
    assert b"paused" not in cli("restore", "--all", "--pristine").stdout
    assert cli("pause", "--end").stdout == b"nothing was paused\n"


def test_restore_all_warns_of_a_session_beyond_its_window(world, entry_id, cli):
    """`restore --all` names the session and advises on stderr, restores it and exits 0."""
    config = world.base / "config.toml"
    config.write_text(config.read_text() + '[windows]\n"*" = 700\n')
    result = cli("restore", "--all")
    named, advice = result.stderr.decode().splitlines()

    assert named.startswith("main/s: the next request will have about 1,000 tokens, but the")
    assert advice == "start a new conversation, or let the agent compact the session"
    assert result.stdout.decode().splitlines()[-2:] == [
        "1 value restored in 1 session; no placeholder is left",
        "scans may extract these values again after 10 min; to prevent that: brainsurgeon pause",
    ]
    assert result.returncode == 0


def test_pending_restore_says_who_will_carry_it_out(world, conversation, entry_id, cli):
    """A running daemon carries out the pending request, otherwise the next scan does."""
    append(world.directory / "s.jsonl", [conversation.lines[1]])
    as_json = ("restore", entry_id, "--json")
    without, without_json = cli("restore", entry_id), json_output(cli(*as_json))
    with hold_daemon_lock(str(world.state)):
        beside, beside_json = cli("restore", entry_id), json_output(cli(*as_json))

    assert b"No daemon runs: the next `brainsurgeon scan`" in without.stdout
    assert b"The daemon restores it" in beside.stdout
    assert (without_json["restored_by"], beside_json["restored_by"]) == ("scan --once", "daemon")


def test_disabled_extraction_is_reported(world, conversation, run_on_terminal):
    """With `enabled = false` dry run, status, doctor and `scan` on a terminal say so."""
    conversation.turn()
    conversation.turn()
    path = world.put("s.jsonl", conversation.bytes())
    call = program_for(world, enabled=False)
    dry, in_cron = call("scan", "--dry-run"), call("scan", "--once")
    texts = [dry, call("status"), call("doctor")]
    answers = [call("scan", "--once", "--json"), call("status", "--json")]
    on_terminal = run_on_terminal("scan", "--once", "--config", world.base / "config.toml")

    for result in texts:
        assert b"nothing is extracted: enabled = false" in result.stdout, result.args
    assert (in_cron.stdout, in_cron.stderr) == (b"", b"")
    assert b"nothing is extracted: enabled = false" in on_terminal.encode()
    for result in answers:
        assert json_output(result)["enabled"] is False
    assert path.read_bytes() == conversation.bytes()


def test_times_are_local_in_text_and_utc_in_json(world, entry_id, cli):
    """Text shows times in the user's zone; JSON has UTC with a Z."""
    # Eleven hours east of Greenwich, all the year round.
    zone = {"TZ": "Etc/GMT-11", "BRAINSURGEON_RETENTION_STANDING": "30d"}
    world.scan()
    status = cli("status", fresh=True, **zone).stdout.decode()
    last_run = json_output(cli("status", "--json", fresh=True, **zone))["last_run_at"]
    context = cli("sessions", "main/s", fresh=True, **zone).stdout.decode()
    east = datetime.fromisoformat(last_run) + timedelta(hours=11)
    [value] = json_output(cli("sessions", "main/s", "--json", **zone))["extracted"]
    expires = datetime.fromisoformat(value["expires_at"])

    assert last_run.endswith("Z")
    assert f"full scan  {east:%Y-%m-%d %H:%M:%S} +11" in status
    assert f"expires {expires + timedelta(hours=11):%Y-%m-%d}" in context
    assert not re.search(r"[0-9]Z\b", status + context)


def test_counts_of_one_use_the_singular(world, conversation, cli):
    """A count of one has a singular noun; the size of a session that grew is `more`."""
    conversation.turn()
    conversation.turn("short")
    ident = conversation.user("z" * 5)
    conversation.assistant()
    conversation.turn("short")
    world.put("s.jsonl", conversation.bytes())
    results = [cli("scan", "--once", "--dry-run"), cli("sessions", "main/s")]
    world.scan()
    cli("extract", ident, "--session", "main/s")
    grown = cli("scan", "--once", "--dry-run")
    grown = cli("scan", "--once") if b"changed" in grown.stdout else grown
    text = b"".join(result.stdout for result in (*results, grown)).decode()

    assert not re.search(r"\b1 (\w+ )?(values|characters|sessions|fields|requests)\b", text), text
    assert re.search(r"\(\d+ % more\)", grown.stdout.decode()), text


def test_restore_names_the_restored_value(world, entry_id, cli):
    """`restore` names session, entry and key; repeated, it says that the value is restored."""
    result = cli("restore", f"[[extracted-{entry_id}]]")
    second = cli("restore", entry_id)

    assert f"main/s {entry_id}" in result.stdout.decode()
    assert PATH in result.stdout.decode()
    assert "restored" in result.stdout.decode()
    assert (result.returncode, result.stderr) == (0, b"")
    assert entry_text(world.directory / "s.jsonl", entry_id) == "x" * 2000
    assert (second.returncode, second.stderr) == (0, b"")
    assert "restored already" in second.stdout.decode()


def test_output_has_no_color_in_a_pipe_or_with_no_color(world, entry_id, cli, run_on_terminal):
    """A pipe gets no escape sequence, a terminal with NO_COLOR only those that erase lines."""
    config = world.config_file(log_level="debug")
    piped = [
        cli("scan", "--once", "--dry-run"), cli("sessions"), cli("sessions", "main/s"),
        cli("restore", "a"), cli("nonsense"), run("--help"),
    ]  # fmt: skip
    shown = "".join(
        run_on_terminal(*words, "--config", config, code=code, NO_COLOR="1", TERM="xterm-256color")
        for code, *words in (
            (0, "scan", "--once"),
            (0, "sessions"),
            (2, "nonsense"),
            (3, "restore", "a"),
        )
    )

    for result in piped:
        assert b"\x1b" not in result.stdout + result.stderr
    assert "main/s" in shown
    assert "scan_finished" in shown
    for part in shown.split("\x1b[")[1:]:
        assert re.match(r"K|[12][AK]|\?25[lh]", part), part  # lines that go, the cursor


def test_output_escapes_characters_that_ascii_lacks(world, cli):
    """With an ASCII locale, characters that cannot be printed are escaped."""
    conversation = Conversation()
    for number in range(24):
        conversation.turn("x" * 1000, tool=f"t…{number}")
    world.put("s.jsonl", conversation.bytes())
    ascii_only = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PYTHONUTF8": "0", "fresh": True}
    dry = cli("scan", "--once", "--dry-run", **ascii_only)
    shown = cli("sessions", "main/s", **ascii_only)
    listed = cli("sessions", **ascii_only)

    assert (dry.returncode, shown.returncode, listed.returncode) == (0, 0, 0)
    assert b"t\\u202623" in shown.stdout


def test_sessions_account_for_every_byte_of_a_file(world, cli):
    """What no rule can extract is listed by its key, and all the rest in one row."""
    conversation = Conversation()
    conversation.turn("x" * 900)
    conversation.lines[-1]["message"]["errorMessage"] = "e" * 700
    audio = {"type": "audio", "data": "A" * 800}
    conversation.lines[-1]["message"]["content"].append(audio)
    path = world.put("s.jsonl", conversation.bytes())
    cli("scan", "--once")

    filling = json.loads(cli("sessions", "main/s", "--json").stdout)["filling"]

    other = {row["tool"]: (row["chars"], row["live_chars"]) for row in filling
             if row["kind"] == "other"}  # fmt: skip
    assert other.pop(None)[1] == 0
    assert other == {"errorMessage": (700, 0), "data": (800, 800)}
    assert sum(row["chars"] for row in filling) == path.stat().st_size


def test_show_why_and_sessions_values_list_the_same_decisions(world, entry_id, cli):
    """`sessions SESSION --values` lists what `show ENTRY --why` explains; each wants its name."""
    answer = json_output(cli("show", entry_id, "--why", "--json"))
    listed = json_output(cli("sessions", answer["session"], "--values", "--json"))["decisions"]
    why, values = cli("show", entry_id, "--why"), cli("sessions", answer["session"], "--values")

    assert [one for one in listed if one["entry_id"] == entry_id] == answer["decisions"]
    assert b"stays: already extracted\n  changed by: brainsurgeon restore" in why.stdout
    assert b"the next scan would extract 0 values (-) and keep the others (=)" in values.stdout
    assert cli("sessions", "--values").returncode == cli("show", "--why").returncode == 2


def test_tables_fit_a_terminal_but_keep_the_names_of_sessions(world, cli, run_on_terminal):
    """Other names are shortened there; a shortened name of a session could not be pasted."""
    name = "n" * 150
    conversation = Conversation()
    for tool in ("mcp__" + "t" * 59, "exec"):
        conversation.turn("x" * 123_456, tool=tool)
    conversation.turn()
    world.put(f"{name}.jsonl", conversation.bytes())
    world.put("s.jsonl", conversation.bytes())
    config = world.config_file()
    listed, filling = (
        run_on_terminal("sessions", *words, "--config", config)
        .replace("\r", "").split("\n\n")[part].splitlines()
        for words, part in (((), 0), (("main/s",), 1))
    )  # fmt: skip
    piped = cli("sessions").stdout.decode()
    whole = cli("sessions", "main/s").stdout.decode()

    assert len(listed) == 3
    assert len(filling) > 4
    assert max(map(len, filling)) <= 80
    assert any("ttt…ttt" in line for line in filling)
    assert listed[0].split() == ["session", "size"]
    assert any(line.startswith(f"main/{name} ") for line in listed)
    assert f"main/{name} " in piped
    assert "mcp__" + "t" * 59 in whole
    assert cli("sessions", f"main/{name}").returncode == 0


@pytest.mark.parametrize("columns", [60, 80, 200])
@pytest.mark.parametrize(
    "locale", [{}, {"LANG": "C", "LC_ALL": "C"}, {"NO_COLOR": "1"}], ids=["UTF-8", "C", "NO_COLOR"]
)
def test_sessions_table_fits_any_terminal(world, entry_id, run_on_terminal, columns, locale):
    """With wide characters in names, too, no line of the table is wider than the terminal."""
    wide = world.root / "名前の長いエージェント" / "sessions"
    wide.mkdir(parents=True)
    (world.directory / "s.jsonl").rename(wide / "長い名前のセッション.jsonl")
    config = world.config_file()
    shown = run_on_terminal("sessions", "--config", config, COLUMNS=str(columns), **locale)
    head = shown.splitlines()[:2]

    assert max(sum(2 if ord(c) > 0x2E80 else 1 for c in line) for line in head) <= columns
    assert "1 session, " in shown
    assert "\x1b" not in shown


def test_tables_have_the_width_of_the_terminal(world, conversation, run_on_terminal):
    """Without COLUMNS, which shells do not export, the terminal itself is asked."""
    world.put("s.jsonl", conversation.bytes())
    config = world.config_file()
    for width in (60, 150):
        shown = run_on_terminal("sessions", "--config", config, width=width, COLUMNS="")

        assert ("format" in shown.splitlines()[0]) == (width > 60)


@pytest.mark.parametrize("wide", [40, 60, 80, 120, 200])
def test_context_bars_fit_any_terminal(world, run_on_terminal, wide):
    """The bars of a session's context fill the width that the columns leave."""
    conversation = Conversation()
    for tool in ("mcp__" + "t" * 59, "exec"):
        conversation.turn("x" * 5_000, tool=tool)
    conversation.turn()
    world.put("s.jsonl", conversation.bytes())
    shown = run_on_terminal("context", "main/s", "--config", world.config_file(), COLUMNS=str(wide))
    head, *filling = shown.replace("\r", "").split("\n\n")[1].splitlines()

    assert head.split()[-1] == "sent"
    assert max(map(len, filling)) <= wide
    assert "#" * (wide // 5) in filling[0]
    assert all("%" in line for line in filling)


def test_a_session_is_found_by_path_id_prefix_and_key(world, conversation, cli):
    """The agent may precede it; ambiguous names exit 4, unknown ones 3, empty ones 2."""
    names = ("0f3c1111-0000-4000-8000-000000000001", "0f3c2222-0000-4000-8000-000000000002")
    first, _ = (world.put(f"{name}.jsonl", conversation.bytes()) for name in names)
    registry = {"agent:main:main": {"sessionId": names[0], "sessionFile": str(first)},
                "agent:main:cron:1": {"sessionId": names[1]}}  # fmt: skip
    (world.directory / "sessions.json").write_text(json.dumps(registry))
    (world.base / "link.jsonl").symlink_to(first)
    names_of_first = [
        str(first), names[0], "0f3c1", f"main/{names[0]}", "main/0f3c1", "agent:main:main",
        world.base / "link.jsonl", os.path.relpath(first, "/"),
    ]  # fmt: skip
    others = {"0f3c": 4, "main/0f3c": 4, "other/0f3c1": 3, "f3c1": 3, "": 2}
    for words, result in run_parallel(
        cli, [("sessions", name, "--json") for name in names_of_first]
    ).items():
        assert json_output(result).get("session") == f"main/{names[0]}", words
    for (_, name), result in run_parallel(cli, [("sessions", name) for name in others]).items():
        assert result.returncode == others[name], name


def test_control_characters_in_names_are_escaped(world, conversation):
    """Control characters in file names, tools, keys and ids reach no output unescaped."""
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
    commands = [
        ("sessions",), ("sessions", f"{hostile}1"), ("sessions", "evil"), ("show", hostile),
        ("restore", "\x1b"), ("sessions", "\x1b"), ("restore", hostile), ("show", "evil"),
        ("pin", hostile), ("show", "broken"), ("status",),
        ("scan", "--once", "--dry-run", "--json"), ("sessions", "--json"),
        ("sessions", f"{hostile}1", "--json"), ("sessions", "evil", "--json"),
    ]  # fmt: skip
    results = run_parallel(call, commands)
    for result in (dry, *results.values(), call("restore", "--all")):
        assert b"\x1b" not in result.stdout + result.stderr, result.args[3:-2]
        assert b"\x07" not in result.stdout + result.stderr, result.args[3:-2]
    for words in commands[-4:]:
        assert json_output(results[words])
    assert b"evil\\x1b[31m" in dry.stdout
    assert b"broken\\xff" in dry.stdout


def test_an_entry_id_that_is_not_utf8_exits_3(world, conversation, cli):
    """An entry named by bytes that are not UTF-8 is an unknown entry."""
    conversation.turn()
    world.put("s.jsonl", conversation.bytes())
    world.scan(keep_recent=0)
    odd = os.fsdecode(b"a\xff")
    for words in (("show", odd), ("restore", odd), ("show", odd, "--json")):
        result = cli(*words)
        assert result.returncode == 3, result.stderr
        assert b"unexpected" not in result.stderr


def test_lone_surrogates_in_names_stop_no_command(world, conversation):
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
        for words, result in run_parallel(call, step).items():
            assert result.returncode == 0, (words, result.stderr)
            assert "--json" not in words or json_output(result)
    assert path.read_bytes() == data


def test_json_formats_no_data_key_as_a_time(world, conversation):
    """Numbers in `sizes_bytes` and `reasons` stay numbers even if the key ends in `_at`."""
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


def test_status_check_prints_one_line_and_an_exit_code(world, entry_id, cli):
    """`status --check` exits 0 with one line after a run, and 1 with the reason without one."""
    well, old = run_parallel(
        cli, [("status", "--check"), ("status", "--check", "--max-age", "1")]
    ).values()
    (world.state / "store.db").unlink()
    never = cli("status", "--check")

    assert (well.returncode, never.returncode) == (0, 1)
    assert re.fullmatch(rb"brainsurgeon: ok, last run .+ ago, 1 session, .+ saved\n", well.stdout)
    assert old.returncode in (0, 1)
    assert never.stdout.startswith(b"brainsurgeon: no full scan is recorded; ")
    assert (b"no stored value" in never.stdout, never.stdout.count(b"\n")) == (True, 1)


def test_sessions_filters_by_agent_and_state_and_sorts(world, entry_id, conversation, cli):
    """The totals count the listed sessions only; an unknown column or state exits 2."""
    other = world.root / "side" / "sessions"
    other.mkdir(parents=True)
    (other / "b.jsonl").write_bytes(conversation.bytes() * 3)
    commands = {
        "all": ("sessions", "--json"), "side": ("sessions", "--agent", "side", "--json"),
        "name": ("sessions", "--sort", "name", "--json"), "age": ("sessions", "--sort", "age"),
        "none": ("sessions", "--state", "gone"), "wrong": ("sessions", "--sort", "color"),
        "unknown": ("sessions", "--state", "nowhere"),
    }  # fmt: skip
    results = run_parallel(cli, commands.values())
    titles = {
        name: [row["session"] for row in json_output(results[words])["sessions"]]
        for name, words in commands.items() if "--json" in words
    }  # fmt: skip

    assert titles == {"all": ["side/b", "main/s"], "side": ["side/b"], "name": ["main/s", "side/b"]}
    assert b"2 sessions, " in results[commands["age"]].stdout
    assert b"no session matches" in results[commands["none"]].stdout
    assert results[commands["wrong"]].returncode == 2
    assert results[commands["unknown"]].returncode == 2


@pytest.mark.usefixtures("entry_id")
def test_end_of_a_pause_tells_whether_there_was_one(cli):
    """Also for one of two pauses, and for a session that was not paused."""
    outputs = [
        cli("pause", *words).stdout.decode().splitlines()
        for words in ((), ("--session", "main/s"), ("--end", "--session", "main/s"),
                      ("--end", "--session", "main/s"), ("--end",), ("--end",))
    ]  # fmt: skip

    assert [lines[0] for lines in outputs[2:]] == [
        "the pause is ended",
        "no pause was ended",
        "the pause is ended; scans extract again, restored values 10 min after their restore",
        "nothing was paused",
    ]
    assert [len(lines) for lines in outputs] == [1, 2, 2, 2, 1, 1]


def test_evidence_prints_an_index_and_a_bounded_text(cli, entry_id):
    """After an index of calls, the text between the markers keeps to `--budget` bytes."""
    result = cli("evidence", "main/s", "--budget", "1500")
    mark = result.stdout.decode()[:9]
    index, _, rest = result.stdout.decode().partition(f"{mark}--- evidence ---\n")

    assert result.returncode == 0
    assert index == f"{mark}1. exec [2,000 B]\n{mark}2. exec [2,000 B]\n"
    assert rest.endswith(f"y\n{mark}--- end ---\n")
    assert len(rest.removesuffix(f"{mark}--- end ---\n").encode()) <= 1500
    assert cli("evidence", "main/s", "--last", "--turn", entry_id).returncode == 2
    assert cli("evidence", "main/s", "--last", "--subagents").returncode == 2


CODE = re.compile("\x1b\\[[0-9;]*m")


def test_colours_are_for_terminals(world, cli, run_on_terminal, conversation):
    """Headings, amounts and trouble are coloured on a terminal or if asked for, or never."""
    conversation.turn()
    world.put("s.jsonl", conversation.bytes())
    config = world.config_file()
    words = ("sessions", "--config", config)
    shown = run_on_terminal(*words, NO_COLOR="")
    always = cli("--color", "always", "sessions").stdout.decode()

    assert shown.startswith("\x1b[1m")
    assert shown.count("\x1b[1m") == 1
    assert "\x1b[1m" in always
    assert re.search("\x1b\\[36m[0-9.,]+ K?B\x1b\\[0m", always)
    assert CODE.sub("", always) == cli("sessions").stdout.decode()
    for plain in (
        run_on_terminal(*words), run_on_terminal(*words, NO_COLOR="", TERM="dumb"),
        run_on_terminal("--color", "never", *words, NO_COLOR=""),
    ):  # fmt: skip
        assert not CODE.search(plain)
    config.write_text(config.read_text().replace(str(world.root), f"{world.root}/none"))
    assert "\x1b[31merror\x1b[0m" in run_on_terminal(
        "doctor", "--config", config, code=1, NO_COLOR="",
    )  # fmt: skip
