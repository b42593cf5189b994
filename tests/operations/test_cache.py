"""A scan leaves a warm prompt cache alone, and extracts when it is cold."""

import pytest

from brainsurgeon.model.text import iso
from building.cached_conversation import FIXED, CachedConversation
from building.claude import SESSION, ClaudeConversation, ClaudeWorld
from building.world import append, entry_text, kept_reasons, pin

MINUTE = 60
WIDE = {"*": 2_000_000}
# What Claude Code prints after `/model`.
SET = "<local-command-stdout>Set model to Sonnet 5.2</local-command-stdout>"


def warm(world, clock, *, details=None, kept_chars=90_000, **keys):
    """Write a session whose old result is followed by much that stays; give the result's id."""
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


@pytest.mark.parametrize(("hour", "life"), [(False, 300), (True, 3600)])
def test_a_warm_session_waits_and_becomes_due_by_itself(world, clock, path, hour, life):
    """It is deferred until its cache is gone, not read again before, and extracted then."""
    warm(world, clock, hour=hour)
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
        ({"windows": {"*": 48_000}}, 1),  # 0.85 of it are fewer tokens than the last prompt had
        ({"windows": {"*": 48_000}, "when": "cold"}, 0),
        ({"prices": {"*opus*": {"input": 5, "cache_read": 4.9, "cache_write": 5, "output": 9}}}, 1),
        ({"prices": {"*opus*": {"input": 5, "cache_read": 0.5, "cache_write": 5, "output": 9}}}, 0),
    ],
)
def test_the_settings_decide_whether_a_warm_cache_is_worth_it(world, clock, settings, extracted):
    """`when`, the window of the model and its prices decide; a full session does not wait."""
    warm(world, clock)

    assert world.scan(**settings).values_extracted == extracted


def test_values_that_are_never_sent_do_not_wait(world, clock, path):
    """They go from a warm session; the live value in the same entry has its own reason."""
    ident = warm(world, clock, details={"stdout": "d" * 5000})

    assert world.scan().values_extracted == 1
    assert entry_text(path, ident) == "x" * 3000
    assert any(why.startswith("deferred: its cache is warm until ") for why in kept_reasons(world))
    clock.now += 300
    assert world.scan().values_extracted == 1


def test_what_was_requested_does_not_wait(world, clock, path):
    """A forced value goes at once, and a restored one comes back at once."""
    ident = warm(world, clock)
    world.scan()
    pin(world, ident, True)

    assert world.scan().values_extracted == 1
    world.restore(ident)
    assert entry_text(path, ident) == "x" * 3000


def test_a_session_that_is_named_does_not_wait(world, clock, path):
    """Whoever names a session wants it pruned now."""
    warm(world, clock)

    assert world.scan(only=[str(path)], named=True).values_extracted == 1


def test_a_change_that_keeps_little_behind_it_is_made_at_once(world, clock):
    """The newest old value of a warm session leaves when little behind it is written again."""
    warm(world, clock, kept_chars=100)

    assert world.scan().values_extracted == 1


@pytest.mark.parametrize("kept_chars", [100, 90_000])
def test_what_an_earlier_extraction_changed_is_not_in_the_cache(world, clock, path, kept_chars):
    """The next prompt is written again from there on, not only behind the later change."""
    talk = CachedConversation(clock.now - MINUTE)
    talk.turn("x" * 9_000)
    talk.turn("y" * 3_000, prompt="u" * kept_chars)
    world.put("s.jsonl", talk.bytes(), age=MINUTE)
    assert world.scan(when="always").values_extracted == 1

    before, talk.at = len(talk.lines), clock.now + 1
    for _ in range(2):
        talk.user()
        talk.assistant()
    append(path, talk.lines[before:])
    clock.now += 2 * MINUTE
    assert world.scan().values_extracted == (kept_chars == 100)


@pytest.mark.parametrize(
    ("last", "extracted"),
    [("cached", 1), ("without times", 1), ("written", 0), ("other model", 0)],
)
def test_a_call_that_wrote_its_whole_prompt_leaves_none_before_it(world, clock, last, extracted):
    """After it the prompts in front of the change are not in the cache, and would be paid again."""
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


def test_a_compaction_leaves_no_cache_behind(world, clock, path):
    """After a compaction or a change of the model the next request shares no prefix."""
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
    ("system", {"subtype": "local_command", "content": SET}),
    ("user", {"message": {"role": "user", "content": SET}}),
    None,
])  # fmt: skip
def test_a_change_of_the_model_in_claude_code_leaves_no_cache_behind(tmp_path, entry):
    """The cache is that of a model: after `/model` the next request finds nothing in it."""
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


def test_a_session_without_a_cache_never_waits(world, clock, conversation):
    """A session whose usage shows no caching, or has none, is always cold."""
    conversation.turn("x" * 3000)
    conversation.user("u" * 90_000)
    conversation.assistant()
    conversation.turn("short")
    world.put("s.jsonl", conversation.bytes(), age=MINUTE)

    assert world.scan().values_extracted == 1


def test_a_large_warm_session_is_read_from_where_it_waits(world, clock, path):
    """While it waits, an append costs its tail; the value goes when the cache is cold."""
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
    assert outcome(world.scan(windows=WIDE))[0] == "deferred"
    resume = world.store.resumes.at(str(path))
    assert resume.offset > 20 * 20_000

    talk.user()
    talk.assistant()
    append(path, talk.lines[-2:])
    clock.now += 2
    assert outcome(world.scan(windows=WIDE))[0] == "deferred"
    clock.now += 300
    assert world.scan(windows=WIDE).values_extracted == 1


def test_what_frees_too_little_waits_for_nothing(world, clock):
    """A warm session whose change is too small says so, and is not read again when it is cold."""
    warm(world, clock, kept_chars=900_000)

    assert outcome(world.scan(windows=WIDE, min_reclaim="1%"))[1].startswith("too little to gain")
    clock.now += 300
    assert world.scan(windows=WIDE, min_reclaim="1%").files_unchanged == 1


@pytest.mark.parametrize(
    "keys",
    [
        {"archive": {"enabled": True, "tool_call_threshold": 1}},
        {"budget": {"max_messages": 20}},
        {"budget": {"max_messages": 20, "enabled": True}},
    ],
)
def test_an_archive_waits_like_any_other_change(world, clock, keys):
    """It changes what is sent from behind its prompt on; one that nobody requested waits."""
    talk = CachedConversation(clock.now - MINUTE)
    for _ in range(30):
        talk.turn("x" * 600, prompt="u" * 3000)
    world.put("s.jsonl", talk.bytes(), age=MINUTE)

    assert outcome(world.scan(windows=WIDE, when="cold", **keys))[0] == "deferred"
    clock.now += 300
    assert "archived" in outcome(world.scan(windows=WIDE, when="cold", **keys))[1]
