"""The page as text: names are hostile, content is secret, and nothing is loaded."""

import base64
import hashlib
import re
import stat
from html.parser import HTMLParser

import pytest

from brainsurgeon.model.text import bytes_
from brainsurgeon.operations import report as operation
from brainsurgeon.operations.report import report
from brainsurgeon.render.report import report as render
from building.processes import program_for
from building.world import Conversation

HOSTILE = "<script>alert(1)<\"'&"
SECRET = "c4n4ry-51f0"


class Elements(HTMLParser):
    """Gathers every element with its attributes, and looks whether each is closed."""

    def __init__(self, text):
        super().__init__()
        self.found, self._open = [], []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        if tag not in ("meta", "br"):
            self._open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag


@pytest.fixture
def page(world):
    world.directory = world.root / HOSTILE / "sessions"
    world.directory.mkdir(parents=True)
    one = Conversation()
    for _ in range(3):
        one.turn(SECRET + "x" * 3000, tool=HOSTILE)
        usage = {"input": 900, "output": 30, "cost": {"total": 0.75}}
        one.lines[-1]["message"] |= {"model": HOSTILE, "usage": usage}
    world.put(f"{HOSTILE}.jsonl", one.bytes())
    world.scan()
    return lambda **keys: render(report(world.settings(), world.store, world.clock(), **keys))


def test_the_page_begins_with_money_and_the_largest_sessions(page):
    """The first figure is what the calls have cost; then come models, and sessions with theirs."""
    text = page()
    places = [text.index(f'<section id="{name}"') for name in ("money", "largest", "time")]

    assert places == sorted(places)
    assert text.index("<dt>") == text.index("<dt>Cost so far</dt><dd>$2.25<")
    money, largest = text[places[0] : places[1]], text[places[1] : places[2]]
    assert "Cost so far, as scans read it: $2.25; 3 recorded calls." in money
    assert '<td class="number" data-is="cost">$2.25</td>' in money
    assert '<td class="number" data-is="cost">$2.25</td>' in largest


def test_what_is_no_text_has_its_name_beside_it(page):
    """A phone shows no heads of columns, so sizes and times of extracted values are labelled."""
    extracted = page().partition("<h3>Extracted</h3>")[2].partition("</table>")[0]
    labels = re.findall(r'data-is="(.*?)"', extracted)

    assert labels[:2] == ["size", "taken"]
    assert set(labels) == {"size", "taken"}


def test_names_are_shown_and_never_obeyed(page):
    """Whatever sessions, agents and tools are called, no element and no attribute comes of it."""
    text = page(previews=True)
    found = Elements(text).found

    assert {tag for tag, _ in found} & {"script", "img", "iframe", "object", "link"} == set()
    assert [name for _, given in found for name in given if name.startswith("on")] == []
    assert "&lt;script&gt;alert(1)&lt;&quot;&#x27;&amp;" in text
    assert HOSTILE not in text


def test_nothing_is_loaded_and_only_its_own_style_counts(page):
    """The policy forbids everything but the one style in the page, and no address is named."""
    text = page()
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    (policy,) = [given["content"] for tag, given in Elements(text).found
                 if given.get("http-equiv") == "Content-Security-Policy"]  # fmt: skip

    assert policy == (
        f"default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'sha256-{digest}'"
    )
    assert re.findall(r"(?:src|href)=\"(?!#)", text) == []
    assert "url(" not in style
    assert "style=" not in text


def test_without_previews_no_content_stands_there(page):
    """How values begin is shown on request alone."""
    assert SECRET not in page()
    assert SECRET in page(previews=True)


def test_an_empty_home_has_a_page_too(world):
    """Without sessions and without a store the page says so."""
    text = render(report(world.settings(), world.no_store, world.clock()))
    Elements(text)

    assert "Nothing is extracted at present." in text
    assert "No sessions were found." in text


def test_the_figures_are_those_of_the_store(page, world):
    """What is saved, what comes next and each value are told as they are."""
    late = Conversation("33333333-0000-4000-8000-000000000003")
    late.turn("z" * 50_000)
    late.turn("short")
    late.turn("short")
    late.turn("short")
    world.put("late.jsonl", late.bytes())
    told = report(world.settings(), world.store, world.clock())
    by_name = {one.about.session.rpartition("/")[2]: one for one in told.sessions}

    assert sum(values for _, values, _ in told.days) == told.status.values_extracted
    assert by_name["late"].next_values == 1
    assert 49_000 < by_name["late"].next_bytes < 50_100
    assert sum(one.number for one in told.tools) == told.status.values_extracted


def test_the_page_is_its_owners_alone(world, page):
    """The file that the command writes is 0600."""
    done = program_for(world)(
        "status", "--format", "html", "--output", str(world.base / "page.html")
    )

    assert done.returncode == 0
    assert stat.S_IMODE((world.base / "page.html").stat().st_mode) == 0o600


def test_a_page_of_many_sessions_names_what_it_leaves_out(world, monkeypatch):
    """Its figures count all sessions; those beyond the cap are summed up, with how to see them."""
    for number in range(5):
        one = Conversation(f"{number:08}-0000-4000-8000-000000000009")
        for _ in range(3):
            one.turn("x" * 3000 * (number + 1))
        world.put(f"many{number}.jsonl", one.bytes())
    world.scan()
    whole = report(world.settings(), world.store, world.clock())
    monkeypatch.setattr(operation, "LISTED", 2)
    told = report(world.settings(), world.store, world.clock())
    text = render(told)

    size = sum(one.about.size for one in whole.sessions[2:])

    assert len(whole.sessions) == 5
    assert told.sessions == whole.sessions[:2]
    assert text.count("<details>") == 2
    assert f"These are the 2 largest. 3 smaller sessions ({bytes_(size)}, " in text
    assert "<code>brainsurgeon sessions</code> lists all" in text
    assert "5 idle" in text
    assert "These are the" not in render(whole)


def test_many_places_with_copies_are_summed_up(world, monkeypatch):
    """Of the directories that no pruning reaches the largest are named, the others added up."""
    for number in range(4):
        side = world.directory / f"many{number}" / "tool-results"
        side.mkdir(parents=True)
        (side / "copy.txt").write_bytes(b"x" * (number + 1))
        world.put(f"many{number}.jsonl", Conversation().bytes())
    monkeypatch.setattr(operation, "_PLACES", 1)
    told = report(world.settings(), world.store, world.clock())

    assert [(one.number, one.size) for one in told.unreached] == [(1, 4), (3, 6)]
    assert told.unreached[1].name == "3 smaller places of this kind"
