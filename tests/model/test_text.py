"""Text for people: names of sessions."""

import pytest

from brainsurgeon.model.text import short_titles

FIRST, SECOND = "5a5a5a5a-1111-4111-8111-000000000001", "5a5a5a5a-1111-4111-8111-000000000002"
BY_TIME = "019a5a5a-1111-7111-8111-000000000002"


@pytest.mark.parametrize(
    ("title", "short"),
    [
        ("main/s", "main/s"),
        (f"main/{FIRST}", "main/5a5a5a5a"),
        (f"claude-code:-home-me-demo/{FIRST}", "demo/5a5a5a5a"),
        (f"pi:--home-me-demo--/2026-11-21T10-00-00-000Z_{FIRST}", "demo/5a5a5a5a"),
        (f"codex:-home-me-demo/rollout-2026-11-21T10-00-00-{BY_TIME}", "demo/019a5a5a-1111"),
        (f"copilot:{FIRST}/events", "copilot/5a5a5a5a"),
        ("/", "/"),
    ],
)
def test_short_title_has_the_project_and_the_beginning_of_the_id(title, short):
    """Of ids that begin with the time, more is shown: many begin alike."""
    assert short_titles([title]) == {title: short}


def test_titles_that_would_look_alike_stay_whole():
    """No short name stands for two sessions."""
    titles = [f"a-demo/{FIRST}", f"b-demo/{SECOND}", f"c-other/{FIRST}"]

    assert list(short_titles(titles).values()) == [*titles[:2], "other/5a5a5a5a"]
