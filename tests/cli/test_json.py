"""JSON output of all commands: every name has one meaning and type, and is in the reference."""

import re

import pytest

from building.claw import Claw
from building.processes import json_output, run
from building.turns import conversation_of_turns
from building.world import TOP, append, sql

# Objects whose keys are data: paths, reasons, roots, states.
KEYED_BY_DATA = {
    "content", "same_as", "sizes_bytes", "reasons", "held_back", "sessions_by_state", "roles",
}  # fmt: skip


def collect_types(value, types):
    """Add the types of each name in a JSON document to `types`; int and float count as one."""
    for item in value if isinstance(value, list) else ():
        collect_types(item, types)
    for name, item in value.items() if isinstance(value, dict) else ():
        kind = float if type(item) is int else type(item)
        types.setdefault(name, set()).update({kind} - {type(None)})
        if name not in KEYED_BY_DATA:
            collect_types(item, types)


@pytest.fixture(scope="module")
def cached_results():
    return []


@pytest.fixture
def results(cached_results, world, conversation):
    """Return the results of every command with `--json`, in sessions with all kinds of values."""
    if not cached_results:
        cached_results.extend(run_every_command(world, conversation))
    return cached_results


@pytest.fixture
def documents(results):
    return [json_output(result) for result in results]


def run_every_command(world, conversation):
    ident = conversation.turn()
    conversation.lines[-1]["message"]["usage"] = {"input": 9_000, "output": 20}
    pair = conversation.turn("d" * 900, details={"aggregated": "d" * 900})
    expired = conversation.turn("l" * 900)
    conversation.turn("y" * 700)
    path = world.put("s.jsonl", conversation.bytes())
    config = world.config_file()
    config.write_text(config.read_text() + f'[[roots]]\npath = "{world.base}/none"\n')
    call = lambda *words: run(*words, "--json", "--config", config)  # noqa: E731
    results = [call("scan", "--once", "--dry-run"), call("scan", "--once"), call("sessions")]
    sql(world, "UPDATE extractions SET blob_id = NULL, expired_at = 1.0, expired_why = 'test'"
               " WHERE entry_id = ?", (expired,))  # fmt: skip
    results += [
        call("sessions", "main/s", "--preview"), call("sessions", "main/s", "--values"),
        call("sessions", "main/s"), call("status"), call("config", "--check", path),
        call("doctor"), call("scan", "--retention", "--dry-run"),
        call("show", "main/s"), call("show", pair), call("show", pair, "--why"),
        call("show", expired), call("show", "nothing"), call("sessions", "x"), call("restore"),
        call("restore", ident), call("restore", ident), call("pin", ident, "--recent", "7"),
        call("relieve", "main/s", "--dry-run"), call("status", "--estimate"),
    ]  # fmt: skip
    conversation.user()
    append(path, [conversation.lines[-1]])
    results += [call("restore", pair), call("pin", pair), call("restore", "--all")]
    results.append(call("relieve", "main/s"))
    world.put("t.jsonl", conversation.bytes())
    results += [
        call("scan", "--once"), call("sessions", "main/"), call("restore", "--all"),
        run("sessions", "--json", BRAINSURGEON_KEEP_RECENT="many"),
        call("history"), call("restore", "--run", "1"),
    ]  # fmt: skip
    sql(world, "INSERT INTO requests (session_id, entry_id, action, asked_at, lapses_at)"
               " VALUES (1, 'e', 'restore', 1.0, 2.0)")  # fmt: skip
    results += [call("scan", "--once"), call("history", "--events"), call("history", "--counts")]
    backup = world.base / "backup.db"
    results += [
        call("store", "backup", backup), call("store", "purge", "--yes"),
        call("store", "restore", backup, "--yes"),
        call("status", "--format", "html", "--output", world.base / "report.html"),
    ]  # fmt: skip
    talk, ends = conversation_of_turns(4, session="44444444-0000-4000-8000-000000000001")
    world.put("u.jsonl", talk.bytes())
    results += [
        call("archive", "main/u", "--dry-run"), call("archive", "main/u", "--turns", "1..1"),
        call("archive", "--list", "main/u"), call("show", ends[0][1], "--session", "main/u"),
        call("show", "main/u", "--search", "number 0"), call("evidence", "main/u"),
        call("archive", "main/u", "--turns", "2..9"),
    ]  # fmt: skip
    with open(config, "a") as file:
        file.write("[archive]\nenabled = true\n[signals]\nmax_turn_cost_usd = 0.5\n")
    talk, _ = conversation_of_turns(4, session="55555555-0000-4000-8000-000000000001")
    for _ in range(5):
        talk.call()
        talk.result("no")
    talk.lines[-2]["message"]["usage"] = {"input": 9_000, "cost": {"total": 0.5}}
    talk.assistant([], stop="error")
    talk.lines[-1]["message"]["errorMessage"] = "Prompt has 9 tokens, but the context size is 8"
    world.put("v.jsonl", talk.bytes())
    results += [
        call("scan", "--once", "--dry-run"), call("scan", "--once"),
        call("history", "--events", "--kind", "signal"),
    ]  # fmt: skip
    claw = Claw(world.base / "claw")
    config.write_text(f'state_dir = "{world.base}/other"\n[[roots]]\npath = "{claw.root}"\n')
    results += [call("status"), call("config"), call("init", "--yes")]
    return results


def test_stderr_is_empty_unless_the_document_is_an_error(results):
    """Each command prints one document on stdout; an error has its message on both streams."""
    for result in results:
        document = json_output(result)

        if "error" in document:
            # Times in texts are for readers, those in JSON for programs.
            message = re.sub(r"T([0-9:]{8})Z", r" \1 UTC", document["error"])
            assert message in result.stderr.decode()
            assert document["exit_code"] == result.returncode != 0
        else:
            assert not result.stderr, result.args
            # The document of these names the sessions or findings that made them fail.
            may_fail = result.args[0] in ("doctor", "restore", "scan", "store")
            assert result.returncode == 0 or may_fail, result.args


def test_every_document_begins_with_its_schema_number(documents):
    """The first key of every document, errors included, is `schema`."""
    assert {(next(iter(answer)), answer["schema"]) for answer in documents} == {("schema", 1)}


def test_a_pin_returns_the_value_of_the_field(documents):
    """`pin` returns false, and with `--recent` that number."""
    values = [document["extractable"] for document in documents if "extractable" in document]

    assert values == [7, False]


def test_a_name_has_the_same_type_in_every_document(documents):
    """A name that is a list in one document is not a number in another."""
    types = {}
    collect_types(documents, types)

    assert {name: kinds for name, kinds in types.items() if len(kinds) > 1} == {
        "extractable": {bool, float}  # both may be set
    }


def test_the_json_reference_lists_every_name(documents):
    """The reference explains each name that the commands print, and no other."""
    section = (TOP / "deploy" / "docs" / "json.md").read_text()
    explained = {
        name
        for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    }
    types = {}
    collect_types(documents, types)

    assert types.keys() - explained == set()
    assert explained - types.keys() <= {
        "insertions_removed", "interrupted", "command", "limit_blocks",
    }  # fmt: skip


def test_json_has_the_values_of_a_run_and_its_undo(world, conversation, cli):
    """A dry run counts what the next run extracts; `sessions` names the entry; undo is reported."""
    ident = conversation.turn()
    conversation.turn("y" * 2000)
    world.put("s.jsonl", conversation.bytes())
    commands = (
        ("scan", "--dry-run"), ("scan",), ("sessions", "main/s"),
        ("restore", ident), ("restore", "--all"),
    )  # fmt: skip
    dry, real, context, restored, undone = (
        json_output(cli(*words, "--json")) for words in commands
    )

    assert (dry["dry_run"], real["dry_run"]) == (True, False)
    assert dry["values_extracted"] == real["values_extracted"] == 1
    assert context["extracted"][0]["entry_id"] == ident
    assert restored["keys_restored"] == ["message.content.0.text"]
    assert undone["sessions"][0]["state"] == "nothing to undo"


def test_scan_reports_and_records_each_of_2100_sessions(world):
    """Sessions are recorded and packed by the thousand; none is lost at a page boundary."""
    for number in range(2100):
        world.put(f"{number:04}.jsonl", b"no session\n")
    first, second = (
        json_output(run("scan", "--once", "--json", "--config", world.config_file()))
        for _ in range(2)
    )

    assert [row["session"] for row in first["sessions"]] == [f"main/{n:04}" for n in range(2100)]
    assert {row["outcome"] for row in first["sessions"]} == {"skipped"}
    assert (second["sessions"], second["files_unchanged"]) == ([], 2100)
