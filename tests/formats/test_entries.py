"""Entries: what a line says, found in one pass."""

from itertools import islice

import pytest
from msgspec.structs import replace

from brainsurgeon.formats import FORMATS
from brainsurgeon.formats.openclaw import OpenClawRows
from brainsurgeon.model.transcript import Marks
from building.entry_answers import answers, marks
from building.format_reading import open_lines
from building.world import SAMPLES

FORMS = [*FORMATS.values(), OpenClawRows()]
LINES = 60  # of each file
FILES = sorted(SAMPLES.rglob("*.jsonl"))


@pytest.mark.parametrize("form", FORMS, ids=lambda form: type(form).__name__)
def test_an_entry_says_what_the_format_answers(form):
    """For every line, of its own agent or of another, the entry equals the separate answers."""
    for file in FILES:
        with open_lines(file.read_bytes()) as lines:
            for index, line in enumerate(islice(lines, LINES)):
                (entry,) = form.entries(line, index)
                expected = answers(form, line, index)
                for name in entry.__struct_fields__:
                    if name != "marks":
                        found, answer = getattr(entry, name), getattr(expected, name)
                        assert found == answer, (file.name, line.number, name)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: type(form).__name__)
def test_an_entry_has_the_marks_of_its_line(form):
    """What of ours is in a line is found, but for empty lists where no thinking can be."""
    for file in FILES:
        with open_lines(file.read_bytes()) as lines:
            for index, line in enumerate(islice(lines, LINES)):
                (entry,) = form.entries(line, index)
                found, every = entry.marks or Marks(), marks(form, line) or Marks()
                unseen = {path for path in every.stands if path[:2] != ("message", "content")}
                assert replace(found, stands={}) == replace(every, stands={})
                assert every.stands.items() >= found.stands.items()
                assert unseen >= every.stands.keys() - found.stands.keys(), file.name
