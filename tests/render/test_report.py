"""The HTML report: hostile names, secret content, no external resources, complete figures."""

import base64
import hashlib
import re
import stat
from html.parser import HTMLParser

import pytest

from brainsurgeon.errors import BusyError
from brainsurgeon.model.text import bytes_
from brainsurgeon.operations import report as operation
from brainsurgeon.operations.report import report
from brainsurgeon.render.report import report as render
from building.processes import program_for
from building.world import Conversation

HOSTILE = "<script>alert(1)<\"'&"
SECRET = "c4n4ry-51f0"


class Elements(HTMLParser):
    """The elements of a page with their attributes; fails if one is not closed."""

    def __init__(self, text):
        super().__init__()
        self.all, self._open = [], []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag, attributes):
        self.all.append((tag, dict(attributes)))
        if tag not in ("meta", "br", "input"):
            self._open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.all.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag


@pytest.fixture
def page(world):
    world.directory = world.root / HOSTILE / "sessions"
    world.directory.mkdir(parents=True)
    conversation = Conversation()
    for _ in range(3):
        conversation.turn(SECRET + "x" * 3000, tool=HOSTILE)
        usage = {"input": 900, "output": 30, "cost": {"total": 0.75}}
        conversation.lines[-1]["message"] |= {"model": HOSTILE, "usage": usage}
    world.put(f"{HOSTILE}.jsonl", conversation.bytes())
    world.scan()
    return lambda **keys: render(report(world.settings(), world.store, world.clock(), **keys))


def test_report_begins_with_cost_and_the_largest_sessions(page):
    """The first figure is the cost so far; the sections are money, largest sessions, sizes."""
    text = page()
    places = [text.index(f'<section id="{name}"') for name in ("money", "largest", "sizes")]

    assert places == sorted(places)
    assert text.index("<dt>") == text.index("<dt>Cost so far</dt><dd>$2.25<")
    money, largest = text[places[0] : places[1]], text[places[1] : places[2]]
    assert "Cost so far, as recorded: $2.25; 3 recorded calls." in money
    assert '<td class="number" data-is="cost">$2.25</td>' in money
    assert '<td class="number" data-is="cost">$2.25</td>' in largest


def test_report_begins_with_the_outcome_and_what_waits(page, world):
    """One sentence before four figures names what was achieved and what waits."""
    text = page()
    lead = re.search(r'<p class="lead">(.*?)</p>', text)[1]
    before = render(report(world.settings(), world.no_store, world.clock()))

    assert re.fullmatch(
        r"\d values are extracted: the sessions are [\d.,]+ K?B \(\d+ %\) smaller, and their next"
        r" requests [\d.,]+k? tokens shorter; nothing waits\.", lead,
    )  # fmt: skip
    assert text.count("<dt>") == 4
    assert '<p class="lead">Nothing is extracted at present; ' in before


def test_report_has_no_chart_of_one_day_and_no_column_of_zeros(page):
    """Values of a single day need no chart, and a column with zeros only is left out."""
    text = page()

    assert 'id="time"' not in text
    assert '<th scope="col" class=number>Saved</th>' in text
    assert "Next scan</th>" not in text


def test_report_groups_sessions_by_agent(page, world):
    """Sessions have short names, below those of their agents if there are several."""
    assert 'class="agent"' not in page()
    other = world.root / "other" / "sessions"
    other.mkdir(parents=True)
    name = "5a5a5a5a-0001-4000-8000-000000000001"
    (other / f"{name}.jsonl").write_bytes(Conversation(name).bytes())
    (world.root / "logs").mkdir()
    (world.root / "logs" / "log.jsonl").write_text('{"id": "1", "role": "user", "content": "x"}\n')
    section = page().partition('<section id="sessions"')[2]
    groups = re.findall(r'class="agent" open><summary><span class="name">(.*?)</span>', section)

    assert groups == ["OpenClaw", "openai-chat"]
    assert '<span class="name">other/5a5a5a5a</span>' in section


def test_report_shows_only_sessions_of_the_chosen_kind(page, world):
    """Each choice has a number and a rule of the style that hides the other sessions."""
    unread = world.directory / "unread.jsonl"
    unread.write_bytes(Conversation("5a5a5a5a-0001-4000-8000-000000000001").bytes()[:-3])
    text = page()
    choices = re.findall(r'id="show-(.*?)"( checked)?> .*? \((\d)\)', text)
    kinds = re.findall(r'class="session (.*?)"', text)

    assert choices == [("every", " checked", "2"), ("pruned", "", "1"), ("waits", "", "1")]
    assert sorted(kinds) == ["pruned", "waits"]
    assert all(f"#show-{kind}:checked) .session:not(.{kind})" in text for kind in kinds)


def test_report_contains_content_only_with_previews(page):
    """The beginnings of values are in the page only if `previews` is set."""
    assert SECRET not in page()
    assert SECRET in page(previews=True)


def test_report_labels_the_figures_of_extracted_values(page):
    """Sizes and times carry a label, since a narrow screen hides the column headings."""
    extracted = page().partition("<h3>Extracted values</h3>")[2].partition("</table>")[0]
    labels = re.findall(r'data-is="(.*?)"', extracted)

    assert labels[:2] == ["size", "extracted"]
    assert set(labels) == {"size", "extracted"}


def test_report_escapes_names(page):
    """Names of sessions, agents and tools create no element and no attribute."""
    text = page(previews=True)
    elements = Elements(text).all

    assert {tag for tag, _ in elements} & {"script", "img", "iframe", "object", "link"} == set()
    assert [
        name for _, attributes in elements for name in attributes if name.startswith("on")
    ] == []
    assert "&lt;script&gt;alert(1)&lt;&quot;&#x27;&amp;" in text
    assert HOSTILE not in text


def test_report_loads_no_external_resource(page):
    """The content policy allows only the style in the page, and nothing refers outside."""
    text = page()
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    (policy,) = [attributes["content"] for _, attributes in Elements(text).all
                 if attributes.get("http-equiv") == "Content-Security-Policy"]  # fmt: skip

    assert policy == (
        f"default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'sha256-{digest}'"
    )
    assert re.findall(r"(?:src|href)=\"(?!#)", text) == []
    assert "url(" not in style
    assert "style=" not in text


def test_report_leaves_out_the_estimate_of_a_busy_session(page, monkeypatch):
    """A session whose database is in use has no estimate; the rest of the page is complete."""

    def be_busy(*_):
        raise BusyError("its agent began to use it while it was read; try again")

    monkeypatch.setattr("brainsurgeon.operations.estimate.examine_to_show", be_busy)
    text = page()
    Elements(text)

    assert "Cost so far, as recorded: $2.25" in text


def test_report_reads_a_session_that_took_over_the_path_of_another(world, conversation):
    """The session in the file is read; the one that it replaced is gone."""
    for _ in range(3):
        conversation.turn("x" * 3000)
        conversation.lines[-1]["message"]["usage"] = {"input": 900, "output": 30}
    for ident in ("11111111-0000-4000-8000-000000000001", "22222222-0000-4000-8000-000000000002"):
        conversation.lines[0]["id"] = ident
        (world.directory / "s.jsonl").unlink(missing_ok=True)
        world.put("s.jsonl", conversation.bytes())
        world.scan()
    result = report(world.settings(), world.store, world.clock())

    assert [page.about.state for page in result.sessions] == ["idle", "gone"]
    assert [page.next_bytes is None for page in result.sessions] == [False, True]
    assert len(result.estimate.sessions) == 1


def test_report_of_an_empty_home_says_so(world):
    """Without sessions and store the page says that nothing is extracted and none was found."""
    text = render(report(world.settings(), world.no_store, world.clock()))
    Elements(text)

    assert "Nothing is extracted at present." in text
    assert "No sessions were found." in text


def test_report_figures_match_the_store(page, world):
    """Values by day and by tool add up to the store's total; the next run is estimated."""
    conversation = Conversation("33333333-0000-4000-8000-000000000003")
    conversation.turn("z" * 50_000)
    for _ in range(3):
        conversation.turn("short")
    world.put("late.jsonl", conversation.bytes())
    data = report(world.settings(), world.store, world.clock())
    by_name = {row.about.session.rpartition("/")[2]: row for row in data.sessions}

    assert sum(values for _, values, _ in data.days) == data.status.store.values_extracted
    assert by_name["late"].next_values == 1
    assert 49_000 < by_name["late"].next_bytes < 50_100
    assert sum(row.number for row in data.tools) == data.status.store.values_extracted


def test_report_file_is_private(world, page):
    """The file that the command writes has mode 0600."""
    result = program_for(world)(
        "status", "--format", "html", "--output", str(world.base / "page.html")
    )

    assert result.returncode == 0
    assert stat.S_IMODE((world.base / "page.html").stat().st_mode) == 0o600


def test_report_sums_sessions_beyond_its_limit(world, monkeypatch):
    """Its figures count all sessions; it says how to list those that it leaves out."""
    for number in range(5):
        conversation = Conversation(f"{number:08}-0000-4000-8000-000000000009")
        for _ in range(3):
            conversation.turn("x" * 3000 * (number + 1))
        world.put(f"many{number}.jsonl", conversation.bytes())
    world.scan()
    whole = report(world.settings(), world.store, world.clock())
    monkeypatch.setattr(operation, "LISTED", 2)
    data = report(world.settings(), world.store, world.clock())
    text = render(data)
    size = sum(row.about.size_bytes for row in whole.sessions[2:])

    assert len(whole.sessions) == 5
    assert data.sessions == whole.sessions[:2]
    assert text.count('<details class="session ') == 2
    assert "These are the 2 largest sessions." in text
    assert f"The figures above include 3 smaller sessions ({bytes_(size)}, " in text
    assert "<code>brainsurgeon sessions</code> lists all" in text
    assert "5 idle" in text
    assert "These are the" not in render(whole)


def test_report_sums_small_places_that_pruning_leaves(world, monkeypatch):
    """The largest directories that pruning does not reach are named, the others summed."""
    for number in range(4):
        side = world.directory / f"many{number}" / "tool-results"
        side.mkdir(parents=True)
        (side / "copy.txt").write_bytes(b"x" * (number + 1))
        world.put(f"many{number}.jsonl", Conversation().bytes())
    monkeypatch.setattr(operation, "_PLACES", 1)
    data = report(world.settings(), world.store, world.clock())

    assert [(row.number, row.size) for row in data.unreached] == [(1, 4), (3, 6)]
    assert data.unreached[1].name == "3 smaller places"
