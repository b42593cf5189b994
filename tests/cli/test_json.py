"""The JSON of all commands: one name for one thing, of one sort, and every name explained."""

import re

import pytest

from building.claw import Claw
from building.processes import json_output, run
from building.turns import conversation_of_turns
from building.world import TOP, append, sql

# Tables whose keys are no names of ours: paths, reasons, roots, states.
BY_DATA = {"content", "same_as", "sizes_bytes", "reasons", "held_back", "sessions_by_state"}


def names(value, found):
    for item in value if isinstance(value, list) else ():
        names(item, found)
    for name, item in value.items() if isinstance(value, dict) else ():
        sort = float if type(item) is int else type(item)
        found.setdefault(name, set()).update({sort} - {type(None)})
        if name not in BY_DATA:
            names(item, found)
    return found


_said = []


@pytest.fixture
def documents(world, conversation):
    """Give what every command says as JSON, made once, for three tests look at it."""
    if not _said:
        _said.extend(_documents(world, conversation))
    return _said


def _documents(world, conversation):
    """Ask every command for JSON, in a session with everything that may come up."""
    ident = conversation.turn()
    conversation.lines[-1]["message"]["usage"] = {"input": 9_000, "output": 20}
    twice = conversation.turn("d" * 900, details={"aggregated": "d" * 900})
    lost = conversation.turn("l" * 900)
    conversation.turn("y" * 700)
    path = world.put("s.jsonl", conversation.bytes())
    config = world.config_file()
    config.write_text(config.read_text() + f'[[roots]]\npath = "{world.base}/none"\n')
    call = lambda *words: run(*words, "--json", "--config", config)  # noqa: E731
    said = [call("scan", "--once", "--dry-run"), call("scan", "--once"), call("sessions")]
    sql(
        world,
        "UPDATE extractions SET blob_id = NULL, expired_at = 1.0,"
        " expired_why = 'test' WHERE entry_id = ?",
        (lost,),
    )
    said += [
        call("sessions", "main/s", "--preview"), call("sessions", "main/s"), call("status"),
        call("doctor"), call("scan", "--retention", "--dry-run"),
        call("show", "main/s"), call("show", twice),
        call("show", lost), call("show", "nothing"), call("sessions", "x"), call("restore"),
        call("restore", ident), call("restore", ident), call("pin", ident, "--recent", "7"),
        call("relieve", "main/s", "--dry-run"), call("estimate"),
    ]  # fmt: skip
    conversation.user()
    append(path, [conversation.lines[-1]])
    said += [
        call("restore", twice), call("pin", twice), call("restore", "--all"),
    ]  # fmt: skip
    said.append(call("relieve", "main/s"))
    world.put("t.jsonl", conversation.bytes())
    said += [
        call("scan", "--once"), call("sessions", "main/"), call("restore", "--all"),
        run("sessions", "--json", BRAINSURGEON_KEEP_RECENT="many"),
        call("history"), call("restore", "--run", "1"),
    ]  # fmt: skip
    sql(world, "INSERT INTO requests (session_id, entry_id, action, asked_at, lapses_at)"
               " VALUES (1, 'e', 'restore', 1.0, 2.0)")  # fmt: skip
    said += [call("scan", "--once"), call("history", "--events"), call("history", "--counts")]
    kept = world.base / "kept.db"
    said += [
        call("store", "backup", kept), call("store", "purge", "--yes"),
        call("store", "restore", kept, "--yes"),
        call("status", "--format", "html", "--output", world.base / "report.html"),
    ]  # fmt: skip
    talk, ends = conversation_of_turns(4, session="44444444-0000-4000-8000-000000000001")
    world.put("u.jsonl", talk.bytes())
    said += [
        call("archive", "main/u", "--dry-run"), call("archive", "main/u", "--turns", "1..1"),
        call("archive", "--list", "main/u"), call("show", ends[0][1], "--session", "main/u"),
        call("show", "main/u", "--search", "number 0"), call("evidence", "main/u"),
        call("archive", "main/u", "--turns", "2..9"),
    ]  # fmt: skip
    config.write_text(config.read_text() + "[archive]\nenabled = true\n")
    config.write_text(config.read_text() + "[signals]\nmax_turn_cost_usd = 0.5\n")
    talk, _ = conversation_of_turns(4, session="55555555-0000-4000-8000-000000000001")
    world.put("v.jsonl", talk.bytes())
    for _ in range(5):
        talk.call()
        talk.result("no")
    talk.lines[-2]["message"]["usage"] = {"input": 9_000, "cost": {"total": 0.5}}
    world.put("v.jsonl", talk.bytes())
    said += [
        call("scan", "--once", "--dry-run"),
        call("scan", "--once"),
        call("events", "--kind", "signal"),
    ]
    claw = Claw(world.base / "claw")
    config.write_text(f'state_dir = "{world.base}/other"\n[[roots]]\npath = "{claw.root}"\n')
    said += [call("status"), call("config"), call("init", "--yes")]
    return [json_output(one) for one in said]


def test_every_document_has_the_number_of_its_schema(documents):
    """Each is one table that begins with `schema`, errors too."""
    assert {(next(iter(one)), one["schema"]) for one in documents} == {("schema", 1)}


def test_one_name_is_of_one_sort_everywhere(documents):
    """What is a list in one answer is no number in another."""
    found = {}
    for one in documents:
        names(one, found)

    assert {name: sorts for name, sorts in found.items() if len(sorts) > 1} == {
        "extractable": {bool, float}  # which is what may be set
    }


def test_the_reference_explains_every_name(documents):
    """The table of names in the reference has all that the commands say, and no other."""
    section = (TOP / "deploy" / "docs" / "json.md").read_text()
    explained = {
        name
        for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    }
    found = {}
    for one in documents:
        names(one, found)

    assert found.keys() - explained == set()
    assert explained - found.keys() <= {"insertions_removed", "interrupted", "command"}


def test_a_run_over_many_sessions_reports_and_records_each(world):
    """Records are stored and outcomes packed by the thousand: none is lost between two of these."""
    for number in range(2100):
        world.put(f"{number:04}.jsonl", b"no session\n")
    first, again = (
        json_output(run("scan", "--once", "--json", "--config", world.config_file())) for _ in "12"
    )

    assert [one["session"] for one in first["sessions"]] == [f"main/{n:04}" for n in range(2100)]
    assert {one["outcome"] for one in first["sessions"]} == {"skipped"}
    assert (again["sessions"], again["files_unchanged"]) == ([], 2100)
