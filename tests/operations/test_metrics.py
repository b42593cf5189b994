"""The figures: true to the store, of the right form, and written whole."""

import os
import re
import stat

import pytest

from brainsurgeon.errors import UsageError
from brainsurgeon.log import READABLE, write_whole
from brainsurgeon.operations.status import metrics
from brainsurgeon.render.runs import metrics as render
from building.processes import program_for

SAMPLE = re.compile(
    r'(brainsurgeon_[a-z_]+)(?:\{([a-z_]+)="((?:[^"\\\n]|\\[\\"n])*)"\})? (-?[0-9.e+]+)'
)
HEAD = re.compile(r"# (HELP|TYPE) (brainsurgeon_[a-z_]+) (.+)")


def parsed(text):
    """Read the text format strictly: help, type, samples of each measure, in one block each."""
    assert text.endswith("\n")
    lines = text[:-1].split("\n")
    found, kinds, now = {}, {}, None
    for line in lines:
        if head := HEAD.fullmatch(line):
            what, name, said = head.groups()
            if what == "HELP":
                assert name not in kinds
                now = name
            else:
                assert name == now
                assert said in ("counter", "gauge")
                kinds[name] = said
            continue
        name, _, label, number = SAMPLE.fullmatch(line).groups()
        assert name == now
        assert name in kinds
        assert (name, label) not in found
        found[name, label] = float(number)
    assert all(name.endswith("_total") == (kind == "counter") for name, kind in kinds.items())
    return found


def test_the_figures_are_those_of_the_store(world, pruned):
    """What stands extracted, what ever was, and the sessions by outcome."""
    world.scan()
    world.restore(pruned)
    found = parsed(render(metrics(world.settings(), world.store)))

    assert found["brainsurgeon_extractions_total", None] == 1
    assert found["brainsurgeon_extracted_values", None] == 0
    assert found["brainsurgeon_store_bytes", None] == world.store.size
    assert found["brainsurgeon_last_run_timestamp_seconds", None] == world.clock()
    assert sum(number for (name, _), number in found.items()
               if name == "brainsurgeon_sessions") == 1  # fmt: skip


def test_before_the_first_run_there_are_figures_too(world):
    """Without a store it tells that extraction is on, and of roots and databases."""
    found = parsed(render(metrics(world.settings(), world.no_store)))

    assert found["brainsurgeon_enabled", None] == 1
    assert len(found) == 4


def test_a_file_of_figures_is_whole_and_readable_by_all(world, pruned):
    """`--output` leaves one file that others may read, and nothing beside it."""
    world.close()
    place = world.base / "figures" / "brainsurgeon.prom"
    place.parent.mkdir()
    program = program_for(world)
    done = program("status", "--format", "prometheus", "--output", place)
    printed = program("status", "--format", "prometheus").stdout.decode()

    assert done.returncode == 0
    assert place.read_text() == printed
    assert parsed(printed)["brainsurgeon_extracted_values", None] == 1
    assert stat.S_IMODE(place.stat().st_mode) == 0o644
    assert os.listdir(place.parent) == ["brainsurgeon.prom"]


def test_a_place_that_cannot_be_written_is_said(tmp_path):
    """Where figures cannot go that is one line, and a link there is replaced, not followed."""
    with pytest.raises(UsageError, match="cannot be written"):
        write_whole(str(tmp_path / "nowhere" / "a"), "", READABLE)
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    write_whole(str(tmp_path / "link"), "new", READABLE)

    assert (tmp_path / "mine").read_text() == "mine"
    assert (tmp_path / "link").read_text() == "new"
