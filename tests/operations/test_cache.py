"""Prompt cache: a scan defers changes to a session with a warm cache until it is cold."""

import pytest

from brainsurgeon.model.text import iso
from brainsurgeon.operations.sessions import context
from brainsurgeon.sessions.transcripts import Transcripts
from building.cached_conversation import FIXED, CachedConversation
from building.claude import SESSION, ClaudeConversation, ClaudeWorld
from building.world import appending, entry_text, kept_reasons, pin

MINUTE = 60
LARGE_WINDOW = {"*": 2_000_000}
# The output of `/model` in Claude Code.
MODEL_CHANGED = "<local-command-stdout>Set model to Sonnet 5.2</local-command-stdout>"


def write_warm_session(world, clock, *, details=None, kept_chars=90_000, **keys):
    """Write a session with an old result before `kept_chars` that stay; return the result's id."""
    talk = CachedConversation(clock.now - MINUTE, **keys)
    ident = talk.turn("x" * 3000, details=details)
    talk.user("u" * kept_chars)
    talk.assistant()
    talk.user()
    talk.assistant()
    world.put("s.jsonl", talk.bytes(), age=MINUTE)
    return ident


def outcome(report):
    [session] = report.sessions
    return session.outcome, session.reason


@pytest.mark.parametrize(
    ("hour", "life"), [(False, 300), (True, 3600)], ids=["five minutes", "an hour"]
)
def test_a_warm_session_is_deferred_until_its_cache_is_cold(world, clock, path, hour, life):
    """It is not read again before that time, and then extracted."""
    write_warm_session(world, clock, hour=hour)
    before, until = path.read_bytes(), clock.now - MINUTE + life

    shown = iso(-(-until // 60) * 60)[:-4] + "Z"
    assert outcome(world.scan()) == ("deferred", f"its cache is warm until {shown}")
    clock.now = until - 1
    assert world.scan().files_unchanged == 1
    assert path.read_bytes() == before
    clock.now = until
    assert world.scan().values_extracted == 1


@pytest.mark.parametrize(
    ("settings", "extracted"),
    [
        ({"when": "always"}, 1),
        ({"when": "cold"}, 0),
        ({"windows": {"*": 48_000}}, 1),  # the last prompt had more than 0.85 of it
        ({"windows": {"*": 48_000}, "when": "cold"}, 0),
        ({"prices": {"*opus*": {"input": 5, "cache_read": 4.9, "cache_write": 5, "output": 9}}}, 1),
        ({"prices": {"*opus*": {"input": 5, "cache_read": 0.5, "cache_write": 5, "output": 9}}}, 0),
    ],
    ids=["always", "cold", "near its window", "near its window, cold", "dear reads", "cheap reads"],
)
def test_settings_decide_whether_a_warm_session_waits(world, clock, settings, extracted):
    """`when`, window and prices decide; a session near its window does not wait."""
    write_warm_session(world, clock)

    assert world.scan(**settings).values_extracted == extracted


@pytest.mark.parametrize(("model", "extracted"), [("claude-haiku-5-5", 1), ("claude-opus-5-5", 0)])
def test_session_just_above_a_line_of_prices_is_brought_below_it(world, clock, model, extracted):
    """Less than 1 % is saved, but prompts above 100,000 tokens cost five times as much."""
    talk = CachedConversation(clock.now - 2 * 3600, model=model)
    talk.turn("x" * 3000)
    talk.user("u")
    talk.lines[-1]["message"]["content"] = "u" * (3 * (100_000 - FIXED) - len(talk.bytes()))
    for _ in range(2):
        talk.assistant()
        talk.user()
    talk.assistant()
    world.put("s.jsonl", talk.bytes())
    load = talk.lines[-1]["message"]["usage"]["totalTokens"]

    assert 100_000 < load < 100_500
    assert world.scan(min_reclaim="1%").values_extracted == extracted


def test_values_that_are_not_sent_leave_a_warm_session(world, clock, path):
    """The value in the same entry that is sent waits, with its own reason."""
    ident = write_warm_session(world, clock, details={"stdout": "d" * 5000})

    assert world.scan().values_extracted == 1
    assert entry_text(path, ident) == "x" * 3000
    assert any(why.startswith("deferred: its cache is warm until ") for why in kept_reasons(world))
    clock.now += 300
    assert world.scan().values_extracted == 1


def test_session_is_shown_as_deferred_if_nothing_is_planned(world, clock):
    """While the cache is warm, `sessions` shows values that are not sent as planned."""
    plans = []
    for details in (None, {"stdout": "d" * 5000}):
        write_warm_session(world, clock, details=details)
        plans.append(context(world.settings(), world.store, "main/s", clock.now).plan)

    assert plans[0].deferred.startswith("its cache is warm until ")
    assert (plans[1].deferred, len(plans[1].removals)) == (None, 1)


def test_requests_do_not_wait_for_a_cold_cache(world, clock, path):
    """A forced value is extracted at once, and restored at once."""
    ident = write_warm_session(world, clock)
    world.scan()
    pin(world, ident, True)

    assert world.scan().values_extracted == 1
    world.restore(ident)
    assert entry_text(path, ident) == "x" * 3000


def test_a_named_session_does_not_wait_for_a_cold_cache(world, clock, path):
    """A scan that names a session prunes it at once."""
    write_warm_session(world, clock)

    assert world.scan(only=[str(path)], named=True).values_extracted == 1


def test_a_change_near_the_end_does_not_wait(world, clock):
    """The newest old value of a warm session leaves when little behind it is written again."""
    write_warm_session(world, clock, kept_chars=100)

    assert world.scan().values_extracted == 1


@pytest.mark.parametrize("kept_chars", [100, 90_000])
def test_an_earlier_extraction_ends_the_cached_prefix(world, clock, path, kept_chars):
    """The next prompt is written again from the earlier change on, not only from the later one."""
    talk = CachedConversation(clock.now - MINUTE)
    talk.turn("x" * 9_000)
    talk.turn("y" * 3_000, prompt="u" * kept_chars)
    world.put("s.jsonl", talk.bytes(), age=MINUTE)
    assert world.scan(when="always").values_extracted == 1

    talk.at = clock.now + 1
    with appending(path, talk):
        for _ in range(2):
            talk.user()
            talk.assistant()
    clock.now += 2 * MINUTE
    assert world.scan().values_extracted == (kept_chars == 100)


@pytest.mark.parametrize(
    ("last", "extracted"),
    [("cached", 1), ("without times", 1), ("written", 0), ("other model", 0)],
)
def test_a_call_that_read_no_cache_ends_older_prefixes(world, clock, last, extracted):
    """After a call that wrote its whole prompt, older prompts are not counted as cached."""
    talk = CachedConversation(clock.now - MINUTE)
    for _ in range(2):
        talk.user("u" * 45_000)
        talk.assistant()
    talk.turn("x" * 3000)
    talk.user()
    if last == "written":
        talk._read = 0
    if last == "other model":
        talk._model, talk._read = "claude-sonnet-4-5", FIXED
    talk.assistant()
    for line in talk.lines if last == "without times" else ():
        del line["timestamp"]
    world.put("s.jsonl", talk.bytes(), age=MINUTE)

    assert world.scan().values_extracted == extracted


def test_a_compaction_or_model_change_ends_the_cache(world, clock, path):
    """After either the next request shares no prefix, so that the change does not wait."""
    for kind in ("compaction", "model_change"):
        talk = CachedConversation(clock.now - MINUTE)
        first = talk.user()
        talk.call()
        talk.result("x" * 3000)
        talk.user("u" * 90_000)
        talk.assistant()
        talk.user()
        talk.assistant()
        talk.entry(kind, firstKeptEntryId=first, summary="short", tokensBefore=1,
                   provider="p", modelId="m")  # fmt: skip
        world.put(f"{kind}.jsonl", talk.bytes(), age=MINUTE)

    assert world.scan().values_extracted == 2


@pytest.mark.parametrize("entry", [
    ("system", {"subtype": "local_command", "content": MODEL_CHANGED}),
    ("user", {"message": {"role": "user", "content": MODEL_CHANGED}}),
    None,
], ids=["command", "message", "no change"])  # fmt: skip
def test_a_model_change_in_claude_code_ends_the_cache(tmp_path, entry):
    """A cache belongs to one model: after `/model` the change does not wait."""
    world, talk = ClaudeWorld(tmp_path), ClaudeConversation()
    talk.user()
    talk.call()
    talk.result("x" * 3000)
    for text in ("u" * 90_000, "go on", "go on"):
        talk.user(text)
        talk.assistant()
        talk.lines[-1]["message"]["usage"] = {"cache_creation_input_tokens": 40_000}
        talk.lines[-1]["timestamp"] = iso(world.clock() - MINUTE)
    if entry:
        talk.entry(entry[0], **entry[1])
    world.put(f"{SESSION}.jsonl", talk.bytes(), age=MINUTE)
    report = world.scan()
    world.close()

    never_sent = 1
    assert report.values_extracted == never_sent + bool(entry)


def test_a_session_without_cache_usage_does_not_wait(world, clock, conversation):
    """A session whose usage shows no caching, or that has none, counts as cold."""
    conversation.turn("x" * 3000)
    conversation.user("u" * 90_000)
    conversation.assistant()
    conversation.turn("short")
    world.put("s.jsonl", conversation.bytes(), age=MINUTE)

    assert world.scan().values_extracted == 1


def test_warm_session_that_a_daemon_keeps_waits_for_a_cold_cache(world, clock, path):
    """It is deferred after each append; the value leaves when the cache is cold."""
    world.kept = Transcripts()
    talk = CachedConversation(clock.now - MINUTE)
    for _ in range(20):
        talk.user("u" * 20_000)
        talk.assistant()
    talk.turn("x" * 3000)
    talk.user("u" * 90_000)
    talk.assistant()
    talk.user()
    talk.assistant()
    world.put("s.jsonl", talk.bytes(), age=MINUTE)
    assert outcome(world.scan(windows=LARGE_WINDOW))[0] == "deferred"
    with appending(path, talk):
        talk.user()
        talk.assistant()
    clock.now += 2
    assert outcome(world.scan(windows=LARGE_WINDOW))[0] == "deferred"
    clock.now += 300
    assert world.scan(windows=LARGE_WINDOW).values_extracted == 1


def test_a_change_below_min_reclaim_is_not_deferred(world, clock):
    """A warm session with too small a change says so, and is not read again when it is cold."""
    write_warm_session(world, clock, kept_chars=900_000)

    assert outcome(world.scan(windows=LARGE_WINDOW, min_reclaim="1%"))[1].startswith(
        "too little to gain"
    )
    clock.now += 300
    assert world.scan(windows=LARGE_WINDOW, min_reclaim="1%").files_unchanged == 1


@pytest.mark.parametrize(
    "keys",
    [
        {"archive": {"enabled": True, "tool_call_threshold": 1}},
        {"budget": {"max_messages": 20}},
        {"budget": {"max_messages": 20, "enabled": True}},
    ],
    ids=["archive rules", "message limit", "enabled budget"],
)
def test_an_archive_waits_for_a_cold_cache(world, clock, keys):
    """An archive by the rules or by a budget waits like any other change."""
    talk = CachedConversation(clock.now - MINUTE)
    for _ in range(30):
        talk.turn("x" * 600, prompt="u" * 3000)
    world.put("s.jsonl", talk.bytes(), age=MINUTE)

    assert outcome(world.scan(windows=LARGE_WINDOW, when="cold", **keys))[0] == "deferred"
    clock.now += 300
    assert "archived" in outcome(world.scan(windows=LARGE_WINDOW, when="cold", **keys))[1]
