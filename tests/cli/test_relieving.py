"""`relieve` as it is typed: what it prints, and how it ends."""

import pytest

from building.processes import json_output
from building.world import Conversation


@pytest.fixture
def full(world, cli):
    """Give a session whose model takes little, and a configuration that says so."""
    one = Conversation()
    for _ in range(20):
        one.turn("x" * 3000)
    config = world.config_file(keep_recent=100)
    config.write_text(config.read_text() + '[windows]\n"*" = 20000\n')
    return world.put("s.jsonl", one.bytes())


def test_it_says_what_went_what_is_left_and_whether_it_fits(full, cli):
    """A look says the same as the deed, and changes nothing; the deed ends with 0."""
    before = full.read_bytes()
    looked = cli("relieve", "main/s", "--dry-run")
    assert full.read_bytes() == before
    done = cli("relieve", "main/s")

    assert looked.returncode == done.returncode == 0
    assert looked.stdout.decode().replace("would be ", "") == done.stdout.decode()
    assert "tokens (10" in done.stdout.decode()
    assert "step 4: it fits" in done.stdout.decode()
    assert "went   9 tool_result of exec, 27,000 characters" in done.stdout.decode()
    assert "stays  20 assistant" in done.stdout.decode()
    assert all(len(line) <= 100 for line in done.stdout.decode().splitlines())
    assert full.read_bytes() != before


def test_what_cannot_fit_ends_with_1(full, cli):
    """Less than what nothing can take off cannot be reached: it is said, and nothing changes."""
    before = full.read_bytes()
    done = cli("relieve", "main/s", "--to", "10", "--json")
    told = json_output(done)
    printed = cli("relieve", "main/s", "--to", "10").stdout.decode()

    assert done.returncode == 1
    assert told["fits"] is False
    assert told["after"]["load_tokens"] > told["room_tokens"] == 10
    assert told["least_tokens"] > 10
    least = f"{told['least_tokens']} of 10 tokens"
    assert f"nothing was extracted: what cannot be extracted needs {least}" in printed
    assert told["values_extracted"] == 0
    assert full.read_bytes() == before


def test_a_share_of_the_window_may_be_named(full, cli):
    """--to 60% is three fifths of what the model takes."""
    told = json_output(cli("relieve", "main/s", "--to", "60%", "--dry-run", "--json"))

    assert told["room_tokens"] == 12_000
    assert told["dry_run"] is True


@pytest.mark.parametrize("to", ["0", "1", "101%", "0%", "-5", "many", "1.5"])
def test_another_goal_is_refused(full, cli, to):
    """What is neither tokens nor a share of the window ends with 2."""
    done = cli("relieve", "main/s", f"--to={to}")

    assert done.returncode == 2
    assert "wants tokens (120000) or a share of the window (60%)" in done.stderr.decode()


def test_context_and_status_say_how_full_sessions_are(full, cli):
    """Load, window, pressure, the method and its error; status sums what was remembered."""
    assert "of 20,000 tokens (10" in cli("sessions", "main/s").stdout.decode()
    told = json_output(cli("sessions", "main/s", "--json"))["fullness"]
    assert told["method"] == "default"
    assert told["estimate_error"] is None
    assert told["pressure"] > told["threshold"] == 0.75
    assert "load   " not in cli("status").stdout.decode()

    cli("relieve", "main/s")

    assert "tokens in 1 session" in cli("status").stdout.decode()
    sums = json_output(cli("status", "--json"))["loads"]
    assert (sums["sessions_weighed"], sums["sessions_too_full"]) == (1, 0)
