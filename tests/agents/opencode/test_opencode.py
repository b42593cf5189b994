"""Sessions in opencode's database: pruned, restored, and left alone where nothing is known."""

import json
import shutil
import threading

import pytest

from brainsurgeon.agents.opencode.rows import SECOND, OpencodeDatabases, Part
from brainsurgeon.errors import AmbiguousError
from brainsurgeon.files.transactions import NOT_WAL
from brainsurgeon.lookup.sessions import walk
from brainsurgeon.model.entries import PLACEHOLDER
from brainsurgeon.operations.doctor import doctor
from brainsurgeon.operations.restore import How, restore, restore_all
from brainsurgeon.operations.retention import retention
from brainsurgeon.operations.sessions import summaries
from brainsurgeon.operations.status import describe_databases, status
from brainsurgeon.operations.store import purge
from brainsurgeon.sessions.row_listing import NOT_NAMED
from building.opencode import (
    CHILD,
    FORK,
    KILO,
    KILO_SESSION,
    OPENCODE,
    WHOLE,
    OpencodeWorld,
    connected,
)

TABLES = ("session", "message", "event", "migration")
OUTPUT, IMAGE, THOUGHT, USER_IMAGE, SENT = (
    "prt_22360b556001JKLb6WXSAZWnh6", "prt_22360c766001PV8Aa9FAj3c8ub",
    "prt_22360be53001hUL0rULlU3Ss6e", "prt_22360c0dc002BR47AWDF7Lu9lo",
    "prt_22360e224001eIINmgyFWXCrTH",
)  # fmt: skip
RULES = {"keep_recent": 0, "min_value_length": 200}
USERS = {**RULES, "trigger_types": ("thinking", "tool_result", "user")}


@pytest.fixture
def world(tmp_path):
    world = OpencodeWorld(tmp_path)
    yield world
    world.close()


@pytest.mark.parametrize(("sample", "values"), [(OPENCODE, 16), (KILO, 13)])
def test_sessions_of_the_real_programs_are_pruned_and_undone(tmp_path, sample, values):
    """Only `data` of some parts changes. A second scan finds nothing, and undoing gives it back."""
    world = OpencodeWorld(tmp_path, sample)
    before, others = world.rows(), [world.rows(table) for table in TABLES]

    first, second = world.scan(**RULES), world.scan(**RULES)

    assert sum(len(one.plan.extracted) for one in first.sessions) == values
    assert all(one.outcome == "changed" for one in first.sessions)
    assert second.sessions == []
    pruned = world.rows()
    assert [row[:-1] for row in pruned] == [row[:-1] for row in before]
    assert all(json.loads(row[-1]) for row in pruned)
    answer = world.rollback(world.store.runs.last)
    assert sum(one.values_restored for one in answer.sessions) == values
    assert world.rows() == before
    assert [world.rows(table) for table in TABLES] == others
    world.close()


def test_each_kind_of_value_has_the_form_that_opencode_reads(world):
    """Texts become placeholders; the list of attachments is emptied, a user's picture a text."""
    world.scan(**USERS)

    name = f"[[extracted-{OUTPUT}]]"
    state = world.data(OUTPUT)["state"]
    assert (state["output"], state["metadata"]["output"]) == (name, name)
    assert state["input"] == {"command": "seq 1 400", "description": "run it"}
    state = world.data(IMAGE)["state"]
    assert state["attachments"] == []
    assert state["output"] == f"Image read successfully\n[[extracted-{IMAGE}]]"
    thought = world.data(THOUGHT)
    assert thought == {
        "type": "reasoning", "text": f"[[extracted-{THOUGHT}]]", "time": thought["time"],
    }  # fmt: skip
    assert world.data(USER_IMAGE) == {
        "type": "text", "text": f"[[extracted-{USER_IMAGE}]]", "synthetic": True,
    }  # fmt: skip
    with world.opened(WHOLE) as opened, connected(world.path) as database:
        kept = OpencodeDatabases("opencode")
        sizes = [(span.key, span.size) for span in opened.lines.index]
        rows = kept.fetch(database, opened.layout, WHOLE, [key for key, _ in sizes])
        assert sizes == [(key, len(row.line())) for key, row in rows]


def test_one_part_is_restored_with_its_picture(world):
    """Its placeholder goes, too, and a field in the part protects it from the next scan."""
    before = world.data(IMAGE)
    world.scan(**USERS)

    world.restore(IMAGE, session=WHOLE)

    after = world.data(IMAGE)
    assert after.pop("_restored")
    assert after == before
    world.scan(**USERS)
    assert world.data(IMAGE)["state"] == before["state"]
    assert world.restore(USER_IMAGE, session=WHOLE).sizes == {"part": 1807}
    world.restore_all(pristine=True)
    assert world.data(IMAGE) == before


def test_what_no_request_contains_counts_as_unsent(world):
    """Copies for the screen, and everything before the last compaction, save no tokens."""
    report = world.scan(**RULES)

    whole = next(one for one in report.sessions if one.session.endswith(WHOLE))
    saving = {edit.entry_id: edit.path for edit in whole.plan.extracted if edit.tokens}
    assert saving == {SENT: ("part", "state", "output")}


def test_results_that_opencode_cleared_stay_cleared(world):
    """What `compaction.prune` did is neither counted again nor undone."""
    part = world.data(SENT)
    part["state"]["time"]["compacted"] = 1795889890000
    cleared = json.dumps(part, separators=(",", ":"), ensure_ascii=False)
    world.write("UPDATE part SET data = ? WHERE id = ?", cleared, SENT)

    report = world.scan(**RULES)

    assert sum(one.plan.tokens for one in report.sessions if one.session.endswith(WHOLE)) == 0
    assert world.data(SENT)["state"]["time"]["compacted"] == 1795889890000
    world.restore_all(pristine=True)
    assert world.data(SENT) == part


@pytest.mark.parametrize("change", [
    "UPDATE message SET data = json_remove(data, '$.time.completed') WHERE id = ?",
    "UPDATE message SET data = json_set(data, '$.finish', 'tool-calls') WHERE id = ?",
    """UPDATE part SET data = json_set(data, '$.state.status', 'running') WHERE message_id = ?""",
], ids=["unfinished", "calls", "running"])  # fmt: skip
def test_session_is_pruned_when_its_last_turn_is_closed(world, change):
    """Until then it is deferred, but an older call without a result does not matter."""
    ((last,),) = world.write(
        "SELECT id FROM message WHERE session_id = ? ORDER BY time_created DESC LIMIT 1", CHILD
    )
    world.write(change, last)
    ((older, _),) = world.write(
        "SELECT id, data FROM part WHERE session_id = ? AND data LIKE '%\"callID\"%' LIMIT 1", WHOLE
    )
    assert older == OUTPUT
    running = "UPDATE part SET data = json_set(data, '$.state.status', 'running') WHERE id = ?"
    world.write(running, OUTPUT)
    before = world.rows()

    report = world.scan(**RULES)

    outcomes = {one.session.split("/")[1]: one for one in report.sessions}
    assert outcomes[CHILD].outcome == "deferred"
    assert outcomes[CHILD].reason.startswith("the last turn is open: ")
    assert outcomes[WHOLE].outcome == "changed"
    at = [row[2] for row in before].index(CHILD)
    assert world.rows()[at] == before[at]


def test_prompt_without_an_answer_ends_its_turn_after_a_minute(world):
    """It may ask for none. Until then, its answer may be about to begin."""
    now = int(world.clock.now * 1000)
    prompt = json.dumps({"role": "user", "time": {"created": now}})
    world.write("INSERT INTO message VALUES ('msg_3', ?, ?, ?, ?)", WHOLE, now, now, prompt)
    outcomes = []
    for seconds in (50, 20):
        world.clock.now += seconds
        reports = {one.session: one for one in world.scan(**RULES).sessions}
        outcomes.append(reports[f"opencode/{WHOLE}"])

    assert [one.outcome for one in outcomes] == ["deferred", "changed"]
    assert outcomes[0].reason == "the last turn is open: a prompt without a complete answer"


def test_restore_takes_effect_within_a_turn(world):
    """The agent reads its rows again at each step, so a restore does not wait for the answer."""
    original = world.data(OUTPUT)
    world.scan(**RULES)
    world.clock.now += 3600
    now = int(world.clock.now * 1000)
    world.write(
        "INSERT INTO message VALUES ('msg_3', ?, ?, ?, ?)", WHOLE, now, now,
        json.dumps({"role": "user", "time": {"created": now}}),
    )  # fmt: skip

    answer = world.restore(OUTPUT, session=WHOLE, quiet_seconds=60)

    assert not answer.pending
    state = world.data(OUTPUT)["state"]
    assert state == original["state"]
    assert (
        world.scan(**RULES).sessions[0].reason
        == "the last turn is open: a prompt without a complete answer"
    )


@pytest.mark.parametrize("is_second", [False, True])
def test_restore_waits_for_an_answer_that_may_be_signed(world, is_second):
    """Its thinking is in no row yet. The value comes back with the next scan after the turn.

    So it does in a session that opencode 2 continued, which is not pruned any more.
    """
    original = world.data(OUTPUT)
    world.scan(**RULES)
    if is_second:
        world.write("INSERT INTO session_message VALUES ('1', ?, 'user', 1, 1, 1, '{}')", WHOLE)
    pruned = world.data(OUTPUT)
    now = int(world.clock.now * 1000)
    model = {"providerID": "anthropic", "modelID": "claude-opus-5-5"}
    prompt = {"role": "user", "time": {"created": now}, "model": model}
    world.write("INSERT INTO message VALUES ('msg_3', ?, ?, ?, ?)", WHOLE, now, now,
                json.dumps(prompt))  # fmt: skip

    answer = world.restore(OUTPUT, session=WHOLE)

    assert (answer.pending, world.data(OUTPUT)) == (True, pruned)
    done = {"role": "assistant", "parentID": "msg_3", "finish": "stop",
            "time": {"created": now, "completed": now}, **model}  # fmt: skip
    world.write("INSERT INTO message VALUES ('msg_4', ?, ?, ?, ?)", WHOLE, now, now,
                json.dumps(done))  # fmt: skip
    world.clock.now += 300
    world.scan(**RULES)
    assert world.data(OUTPUT)["state"] == original["state"]
    assert world.store.requests.count_open() == 0


@pytest.mark.parametrize("model", ["gpt-5.5", "claude-opus-5-5"])
def test_dry_run_of_a_restore_foresees_its_wait(world, model):
    """Within a turn, it says the same as the restore, for a part and for a session."""
    world.scan(**RULES)
    now = int(world.clock.now * 1000)
    prompt = {"role": "user", "time": {"created": now}, "model": {"modelID": model}}
    world.write("INSERT INTO message VALUES ('msg_3', ?, ?, ?, ?)", WHOLE, now, now,
                json.dumps(prompt))  # fmt: skip
    before, settings = world.rows(), world.settings(quiet_seconds=60)

    seen = restore(settings, world.store, OUTPUT, clock=world.clock, session=WHOLE,
                   how=How(dry_run=True))  # fmt: skip
    [all_seen] = restore_all(settings, world.store, clock=world.clock, session=WHOLE, dry_run=True)

    assert world.rows() == before
    assert seen.pending == world.restore(OUTPUT, session=WHOLE, quiet_seconds=60).pending
    [done] = world.restore_all(WHOLE, quiet_seconds=60)
    assert (all_seen.state, seen.pending) == (done.state, done.state == "pending")


def test_copies_in_a_fork_resolve(world):
    """A fork has new ids, but its placeholders name the values of the session it was made from."""
    names = {row[0]: json.loads(row[-1]) for row in world.rows()}
    world.scan(**USERS, only=(f"{world.path}/{WHOLE}",))
    world.write("DELETE FROM part WHERE session_id = ?", FORK)
    copied = 0
    ids = dict(zip(*[
        [ident for (ident,) in world.write(
            "SELECT id FROM message WHERE session_id = ? ORDER BY time_created, id", session
        )] for session in (WHOLE, FORK)
    ], strict=False))  # fmt: skip
    for part, message, _, created, updated, data in world.rows():
        if message in ids:
            copied += 1
            fresh = f"prt_{copied:012x}00000000000000"
            world.write("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)", fresh, ids[message], FORK,
                        created, updated, data)  # fmt: skip
            names[fresh] = names[part]

    [fork] = [one for one in world.restore_all(pristine=True) if one.session.endswith(FORK)]

    assert (fork.state, fork.left, fork.missed) == ("restored", (), ())
    assert {row[0]: json.loads(row[-1]) for row in world.rows()} == {
        row[0]: names[row[0]] for row in world.rows()
    }


@pytest.mark.parametrize(("change", "why"), [
    ("INSERT INTO migration VALUES ('20270101_next', 1)", "migrations up to 20270101_next"),
    ("ALTER TABLE part ADD COLUMN kind TEXT", "table part"),
    ("ALTER TABLE session_message RENAME COLUMN session_id TO owner", "table session_message"),
    ("ALTER TABLE part ADD COLUMN size INTEGER AS (length(data)) VIRTUAL", "table part"),
    ("CREATE TRIGGER kept AFTER UPDATE ON Part BEGIN DELETE FROM event; END", "trigger kept"),
])  # fmt: skip
def test_database_of_another_layout_is_only_read(world, change, why):
    """Its sessions are listed, and the reason names what is not known."""
    world.write(change)
    before = world.rows()

    report = world.scan(**RULES)

    assert world.rows() == before
    reasons = [one.reason for one in report.sessions] + [one.reason for one in report.unreadable]
    assert reasons
    assert all(why in reason and "only read" in reason for reason in reasons)


def test_database_outside_of_wal_mode_is_left_alone(world):
    """Each command says the same reason. In WAL mode again, its sessions are pruned."""
    world.write("PRAGMA journal_mode = DELETE")
    before, settings = world.path.read_bytes(), world.settings(**RULES)

    reports = [world.scan(dry_run=dry_run, **RULES) for dry_run in (True, False)]

    assert world.path.read_bytes() == before
    outcomes = {(one.outcome, one.reason) for report in reports for one in report.sessions}
    assert outcomes == {("skipped", NOT_WAL)}
    listed = summaries(settings, world.store, walk(settings, world.store).sessions, world.clock())
    assert {(one.state, one.reason) for one in listed} == {("skipped", NOT_WAL)}
    assert [one.left_alone for one in describe_databases(settings)] == [NOT_WAL]
    found = [one.what for one in doctor(settings, world.store)]
    assert any(NOT_WAL in one for one in found)
    assert not any("supported" in one for one in found)

    world.write("PRAGMA journal_mode = WAL")
    assert {one.outcome for one in world.scan(**RULES).sessions} == {"changed"}


def test_sessions_of_opencode_2_are_listed_but_never_changed(world):
    """Messages in its table are left alone, whether or not there are parts beside them."""
    world.write("DELETE FROM part WHERE session_id = ?", FORK)
    for number, session in enumerate((FORK, CHILD)):
        world.write(
            "INSERT INTO session_message VALUES (?, ?, 'user', 1, 1, 1, '{}')", str(number), session
        )
    before = world.rows()

    report = world.scan(**RULES)

    reasons = {one.session.split("/")[1]: one.reason for one in report.sessions}
    assert (reasons[FORK], reasons[CHILD]) == (SECOND, SECOND)
    assert [row for row in world.rows() if row[2] == CHILD] == [
        row for row in before if row[2] == CHILD
    ]


def test_values_of_a_session_that_opencode_2_continued_come_back(world):
    """One message in its table ends pruning. Every part is restored, at once and as it was."""
    before = world.rows()
    world.scan(**USERS)
    world.write("INSERT INTO session_message VALUES ('1', ?, 'user', 1, 1, 1, '{}')", WHOLE)
    title = f"opencode/{WHOLE}"

    assert not world.restore(OUTPUT, session=WHOLE).pending
    assert world.data(OUTPUT)["_restored"]
    reasons = {one.session: one.reason for one in world.scan(**USERS).sessions}
    states = {one.session: one.state for one in world.restore_all(pristine=True)}

    assert (reasons[title], states[title]) == (SECOND, "restored")
    assert world.rows() == before


def test_writer_beside_a_scan_loses_nothing(world):
    """A row that opencode writes meanwhile keeps what it wrote; all others come back."""
    stop, written = threading.Event(), {}

    def write():
        while not stop.wait(0.005):
            with connected(world.path) as database:
                for part in (OUTPUT, SENT):
                    number = written.get(part, 0) + 1
                    database.execute(
                        "UPDATE part SET time_updated = time_updated + 1, data ="
                        " json_set(data, '$.state.title', ?) WHERE id = ?", (str(number), part),
                    )  # fmt: skip
                    written[part] = number

    before = {row[0]: json.loads(row[-1]) for row in world.rows()}
    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(5):
            world.scan(**RULES, keep_after_restore_seconds=0)
            world.restore_all(pristine=True)
    finally:
        stop.set()
        writer.join()
    world.scan(**RULES, keep_after_restore_seconds=0)
    assert any(PLACEHOLDER.search(row[-1].encode()) for row in world.rows())
    world.restore_all(pristine=True)

    for part, number in written.items():
        before[part]["state"]["title"] = str(number)
    assert {row[0]: json.loads(row[-1]) for row in world.rows()} == before


@pytest.mark.parametrize("data", [
    b'{"type":"tool","state":{"output":"a\\n[[extracted-prt_1]]","attachments":[]}}',
    b'{"type":"tool","state":{"attachments":[],"output":"\\\\\\n[[extracted-prt_1]]"},"a":[]}',
    b'{"type":"tool","state":{"output":"a\\\\n[[extracted-prt_1]]","attachments":[]}}',
    b'{"type":"tool","state":{"output":"[[extracted-prt_1]]","attachments":[]}}',
    b'{"type":"text","text":"[[extracted-prt_1]]","synthetic":true,"_extractable":false}',
    b'{"type":"text","text":"[[extracted-prt_1]]"}',
    b'{"type":"text","text":"x","_restored":"2026-11-01T00:00:00Z","_extractable":false}',
    b'{"type":"text","text":"{\\"_extractable\\":false}"}', b'{"type":"text"}', b"{}",
])  # fmt: skip
def test_every_row_has_one_line_and_every_line_one_row(world, data):
    """What a line shows in another place is found again when it is stored."""
    row = Part(b'{"id":"prt_1"}', data)

    line = row.line()

    assert json.loads(line)["row"] == {"id": "prt_1"}
    with world.opened(WHOLE) as opened:
        assert opened.row_with(row, line) == row


def test_status_says_that_changes_rely_on_transactions(world):
    """A root whose sessions are all in databases needs no lease."""
    [root] = status(world.settings(), world.store, world.clock()).places.roots

    assert root.protocol == "transactions"


def test_values_of_a_database_out_of_sight_are_kept(world, monkeypatch):
    """A service without OPENCODE_DB does not list it. No value expires, and purge refuses."""
    shutil.copy(world.path, work := world.root / "work.db")
    world.write("DELETE FROM part")
    world.write("UPDATE session SET id = 'other-' || id")
    settings = world.settings(**RULES)
    monkeypatch.setenv("XDG_DATA_HOME", str(world.root.parent))
    monkeypatch.setenv("OPENCODE_DB", str(work))
    monkeypatch.setattr("brainsurgeon.files.processes.boot_clock", lambda: world.clock.now)
    extracted = world.scan(**RULES).values_extracted
    retention(settings, world.store, clock=world.clock)
    monkeypatch.delenv("OPENCODE_DB")

    for _ in range(5):
        world.clock.now += 10 * 86_400
        retention(settings, world.store, clock=world.clock)

    reasons = {one.reason for one in world.restore_all() if one.state != "nothing to undo"}
    assert len(reasons) == 1
    assert NOT_NAMED in reasons.pop()
    assert not purge(settings).removed
    monkeypatch.setenv("OPENCODE_DB", str(work))
    assert sum(one.values_restored for one in world.restore_all()) == extracted > 0


def test_copies_of_the_database_are_left_alone(world, monkeypatch):
    """A known release has a database of its own, and its sessions have its name in their titles."""
    for name in ("opencode-backup.db", "opencode-dev.db", "opencode.old.db", "work.db"):
        shutil.copy(world.path, world.root / name)
    monkeypatch.setenv("OPENCODE_DB", str(world.root / "work.db"))

    report = world.scan(**RULES)

    assert [one.reason for one in report.unreadable] == []
    assert {one.session.split("/")[0] for one in report.sessions} == {
        "opencode", "opencode-dev", "opencode:work",
    }  # fmt: skip
    assert {one.session.split("/")[1] for one in report.sessions} >= {WHOLE}
    with pytest.raises(AmbiguousError, match=f"opencode-dev/{WHOLE}"):
        world.restore(OUTPUT)
    assert world.restore(OUTPUT, session=f"opencode-dev/{WHOLE}").session.startswith("opencode-dev")


def test_kilo_cli_keeps_its_own_name(tmp_path):
    """Its sessions are listed and found under its name, although the rows are opencode's."""
    world = OpencodeWorld(tmp_path, KILO)

    report = world.scan(**RULES)

    assert f"kilo/{KILO_SESSION}" in [one.session for one in report.sessions]
    world.close()
