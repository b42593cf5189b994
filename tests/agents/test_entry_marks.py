"""What of ours a format finds in a line."""

from itertools import islice

import pytest
from msgspec.structs import replace

from brainsurgeon.agents import FORMATS
from brainsurgeon.agents.openclaw.format import OpenClawRows
from brainsurgeon.formats.marks import marks_in
from brainsurgeon.model.entries import parse
from brainsurgeon.model.transcript import Marks
from building.format_reading import open_lines
from building.world import SAMPLES

FORMS = [*(form for form in FORMATS.values() if not form.repeats), OpenClawRows()]


def marks(form, line):
    """Return what of ours is in a line, wherever something emptied may stand."""
    return marks_in(line.raw, parse(line.raw), form.emptied, has_emptied=True)


LINES = 60  # of each file
FILES = sorted(SAMPLES.rglob("*.jsonl"))


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
