"""`relieve`: its output, its `--to` option and its exit codes."""

import pytest

from building.processes import json_output
from building.world import Conversation


@pytest.fixture
def full_session(world, cli):
    """Return a session that does not fit the small window of its configuration."""
    conversation = Conversation()
    for _ in range(20):
        conversation.turn("x" * 3000)
    config = world.config_file(keep_recent=100)
    config.write_text(config.read_text() + '[windows]\n"*" = 20000\n')
    return world.put("s.jsonl", conversation.bytes())


def test_relieve_prints_the_same_as_its_dry_run(full_session, cli):
    """Both print the values extracted and kept, and the step after which the session fits."""
    before = full_session.read_bytes()
    preview = cli("relieve", "main/s", "--dry-run")
    assert full_session.read_bytes() == before
    result = cli("relieve", "main/s")
    output = result.stdout.decode()

    assert preview.returncode == result.returncode == 0
    assert preview.stdout.decode().replace("would be ", "") == output
    assert "tokens (10" in output
    assert "step 4: it fits" in output
    assert "extracted  9 tool_result of exec, 27,000 characters" in output
    assert "kept       20 assistant" in output
    assert all(len(line) <= 100 for line in output.splitlines())
    assert full_session.read_bytes() != before


def test_relieve_exits_1_when_the_session_cannot_fit(full_session, cli):
    """Below the size of what cannot be extracted, `relieve` exits 1 and changes nothing."""
    before = full_session.read_bytes()
    result = cli("relieve", "main/s", "--to", "10", "--json")
    answer = json_output(result)
    printed = cli("relieve", "main/s", "--to", "10").stdout.decode()

    assert result.returncode == 1
    assert answer["fits"] is False
    assert answer["after"]["load_tokens"] > answer["room_tokens"] == 10
    assert answer["least_tokens"] > 10
    least = answer["least_tokens"]
    assert f"nothing was extracted: at least {least} tokens would remain, but 10 fit" in printed
    assert answer["values_extracted"] == 0
    assert full_session.read_bytes() == before


def test_relieve_to_accepts_a_share_of_the_window(full_session, cli):
    """`--to 60%` means three fifths of the model's window."""
    answer = json_output(cli("relieve", "main/s", "--to", "60%", "--dry-run", "--json"))

    assert answer["room_tokens"] == 12_000
    assert answer["dry_run"] is True


@pytest.mark.parametrize("to", ["0", "1", "101%", "0%", "-5", "many", "1.5"])
def test_relieve_to_refuses_invalid_values(full_session, cli, to):
    """A `--to` that is neither tokens nor a share of the window exits 2."""
    result = cli("relieve", "main/s", f"--to={to}")

    assert result.returncode == 2
    assert (
        "wants tokens (such as 120000; at least 10), or a share of the window (such as 60%)"
        in result.stderr.decode()
    )


def test_sessions_and_status_show_the_context_load(full_session, cli):
    """`sessions` shows load, window, pressure and method; `status` sums remembered loads."""
    assert "of 20,000 tokens (10" in cli("sessions", "main/s").stdout.decode()
    answer = json_output(cli("sessions", "main/s", "--json"))["fullness"]
    assert answer["method"] == "default"
    assert answer["estimate_error"] is None
    assert answer["pressure"] > answer["threshold"] == 0.75
    assert "load   " not in cli("status").stdout.decode()

    cli("relieve", "main/s")

    assert "tokens in 1 session" in cli("status").stdout.decode()
    loads = json_output(cli("status", "--json"))["loads"]
    assert (loads["sessions_weighed"], loads["sessions_too_full"]) == (1, 0)
