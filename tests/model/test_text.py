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


def test_names_have_as_much_of_the_id_as_no_other_begins_with():
    """No short name stands for two sessions, and none is longer than that takes."""
    third, fourth = f"5a5a5a5a-2222{FIRST[13:]}", f"6b{FIRST[2:]}"
    titles = [f"a-demo/{FIRST}", f"b-demo/{SECOND}", f"b-demo/{third}", f"b-demo/{fourth}"]
    alone = f"alone/{FIRST}"

    assert short_titles([*titles, alone]) == {
        titles[0]: f"demo/{FIRST}", titles[1]: f"demo/{SECOND}", titles[2]: "demo/5a5a5a5a-2222",
        titles[3]: "demo/6b5a5a5a", alone: "alone/5a5a5a5a",
    }  # fmt: skip
    assert short_titles([alone], only_some=True) == {alone: "alone/5a5a5a5a-1111"}


def test_files_of_one_session_have_the_same_name():
    """In the history, a later file of a session is called like the session."""
    titles = [f"x-demo/rollout-1-{BY_TIME}", f"x-demo/rollout-2-{BY_TIME}_{FIRST}"]

    assert short_titles(titles) == dict.fromkeys(titles, "demo/019a5a5a-1111")


def test_titles_with_equal_owners_and_ids_stay_whole():
    """So does a name that is the beginning of another."""
    titles = [f"a-demo/{FIRST}", f"b-demo/{FIRST}", "c-demo/5", "c-demo/name"]

    assert short_titles(titles) == {title: title for title in titles[:3]} | {titles[3]: "demo/name"}
