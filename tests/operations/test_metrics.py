"""The metrics: the counts in the store, in the Prometheus text format, written atomically."""

import os
import re
import stat
from typing import get_args

import pytest

from brainsurgeon.errors import UsageError
from brainsurgeon.log import READABLE, write_whole
from brainsurgeon.model.reports import TroubleKind
from brainsurgeon.operations.status import metrics
from brainsurgeon.render.runs import metrics as render
from building.processes import error_line, program_for

SAMPLE = re.compile(
    r'(brainsurgeon_[a-z_]+)(?:\{([a-z_]+)="((?:[^"\\\n]|\\[\\"n])*)"\})? (-?[0-9.e+]+)'
)
HEAD = re.compile(r"# (HELP|TYPE) (brainsurgeon_[a-z_]+) (.+)")


def parse(text):
    """Parse the Prometheus text format strictly: one block of help, type and samples per metric."""
    assert text.endswith("\n")
    lines = text[:-1].split("\n")
    samples, kinds, current = {}, {}, None
    for line in lines:
        if head := HEAD.fullmatch(line):
            field, name, value = head.groups()
            if field == "HELP":
                assert name not in kinds
                current = name
            else:
                assert name == current
                assert value in ("counter", "gauge")
                kinds[name] = value
            continue
        name, _, label, number = SAMPLE.fullmatch(line).groups()
        assert name == current
        assert name in kinds
        assert (name, label) not in samples
        samples[name, label] = float(number)
    assert all(name.endswith("_total") == (kind == "counter") for name, kind in kinds.items())
    return samples


def test_metrics_are_the_counts_of_the_store(world, pruned):
    """Metrics count values, extractions, sessions and bytes, and give the time of the last run."""
    world.scan()
    world.restore(pruned)
    samples = parse(render(metrics(world.settings(), world.store)))

    assert samples["brainsurgeon_extractions_total", None] == 1
    assert samples["brainsurgeon_extracted_values", None] == 0
    assert samples["brainsurgeon_store_bytes", None] == world.store.size
    assert samples["brainsurgeon_last_run_timestamp_seconds", None] == world.clock()
    assert sum(number for (name, _), number in samples.items()
               if name == "brainsurgeon_sessions") == 1  # fmt: skip


def test_metrics_before_the_first_run(world):
    """Without a store there are metrics of the troubles, and whether extraction is enabled."""
    samples = parse(render(metrics(world.settings(), world.no_store)))

    assert samples["brainsurgeon_enabled", None] == 1
    assert {name.removeprefix("brainsurgeon_") for name, _ in samples} == {
        "build_info", "enabled", "troubles", "lost_values", "expiring_values", "doubtful_roots",
        "unreadable_databases",
    }  # fmt: skip
    assert sum(samples["brainsurgeon_troubles", kind] for kind in get_args(TroubleKind)) == 0


def test_metrics_output_file_has_mode_644_and_no_temporary_file(world, pruned):
    """`--output` leaves one file with mode 644 that holds what `status` prints without it."""
    world.close()
    path = world.base / "figures" / "brainsurgeon.prom"
    path.parent.mkdir()
    program = program_for(world)
    process = program("status", "--format", "prometheus", "--output", path)
    printed = program("status", "--format", "prometheus").stdout.decode()

    assert process.returncode == 0
    assert path.read_text() == printed
    assert parse(printed)["brainsurgeon_extracted_values", None] == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert os.listdir(path.parent) == ["brainsurgeon.prom"]


def test_metrics_output_never_replaces_a_device(tmp_path):
    """A path that is no regular file, such as a pipe or a link to a device, is an error."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/null")
    for name in ("pipe", "link"):
        with pytest.raises(UsageError, match="not a regular file"):
            write_whole(str(tmp_path / name), "", READABLE)

    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert (tmp_path / "link").is_symlink()


def test_metrics_output_reports_a_bad_path_and_replaces_a_link(tmp_path):
    """A path in a missing directory is an error; `--force` replaces a link, not its target."""
    with pytest.raises(UsageError, match="cannot be written"):
        write_whole(str(tmp_path / "nowhere" / "a"), "", READABLE)
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    with pytest.raises(UsageError, match="is kept"):
        write_whole(str(tmp_path / "link"), "new", READABLE)
    write_whole(str(tmp_path / "link"), "new", READABLE, force=True)

    assert (tmp_path / "mine").read_text() == "mine"
    assert (tmp_path / "link").read_text() == "new"


@pytest.mark.parametrize("form", ["html", "prometheus"])
def test_output_replaces_only_files_that_brainsurgeon_wrote(world, form):
    """A file with another first line is kept unless `--force` is given; exit 2 names it."""
    program = program_for(world)
    path, link = world.base / "notes.txt", world.base / "link"
    link.symlink_to(world.base / "gone")
    path.write_text("my notes\n# HELP brainsurgeon_build_info\n")
    before = path.read_bytes(), path.stat().st_ino
    refused = {name: program("status", "--format", form, "--output", name) for name in (path, link)}
    kept = path.read_bytes(), path.stat().st_ino
    forced = program("status", "--format", form, "--output", path, "--force")
    again = program("status", "--format", form, "--output", path)

    for name, result in refused.items():
        expected = f"{name} was not written by brainsurgeon and is kept; --force replaces it"
        assert (result.returncode, error_line(result)) == (2, f"brainsurgeon: {expected}")
    assert kept == before
    assert link.is_symlink()
    assert (forced.returncode, again.returncode) == (0, 0)
    assert b"my notes" not in path.read_bytes()
