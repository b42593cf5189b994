"""The configuration read at a glance: never otherwise than it is read in full."""

import os

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from brainsurgeon.config import Settings, load
from brainsurgeon.config_glance import _KEYS, _ROOT, state_directory
from brainsurgeon.config_values import RootTable
from brainsurgeon.errors import ConfigError
from building.world import TOP

VALUES = [
    "true", "false", "0", "1", "007", "999999999", "9999999999", "-1", "1.5", '"never"', '"24h"',
    '"0d"', '"999w"', '"1%"', '"99%"', '"100%"', '"64KB"', '"auto"', '"off"', '"take"', '"info"',
    '"0 */6 * * *"', '"/a"', '"~/b"', '"/"', '"relative"', '"/a/../b"', '"/a" # where', '"a#b"',
    '"a\\"b"', "'/c'", "[]", "[ ]", '["thinking", "tool_result"]', '["user"]', '["a]"]', "1 # one",
    "1 2", '"""x"""', '""', "{}", "1_000", "0x1", '"/a', "[", "", '"ü"', "²", "\u0661", "true#x",
]  # fmt: skip
LINES = st.one_of(
    st.sampled_from(["[[roots]]", "# a comment", "", "[roots]", "\t", "x", "=", "[[rules]]", "\r"]),
    st.builds(
        "{}{}={}{}".format,
        st.sampled_from([*Settings.model_fields, *_ROOT, "no_such", "roots.path", '"path"']),
        st.sampled_from(["", " "]), st.sampled_from(["", " ", "\t"]), st.sampled_from(VALUES),
    ),
)  # fmt: skip
ROOT = '[[roots]]\npath = "/a"\n'


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(LINES, max_size=6).map("\n".join))
@example((TOP / "config.toml.example").read_text())
@example('state_dir = "/a/b"\n' + ROOT)
@example('state_dir = "/s"\n' + ROOT + ROOT)
@example(ROOT + 'path = "/b"')
@example("[[roots]]\nexclusive = true")
def test_what_is_read_at_a_glance_is_what_is_loaded(tmp_path, text):
    """Whatever the glance understands loads, with the same state directory and no warning."""
    path = tmp_path / "c.toml"
    path.write_text(text, newline="")
    seen = state_directory(str(path))
    if seen is not None:
        loaded, warnings = load(str(path))

        assert (loaded.state_dir, warnings) == (seen, [])


@pytest.mark.parametrize("key", _KEYS)
def test_no_value_passes_that_is_refused(tmp_path, key):
    """Behind every key the glance lets through only what the configuration takes."""
    path = tmp_path / "c.toml"
    for value in VALUES:
        path.write_text(f"{key} = {value}\n")
        try:
            expected = load(str(path))[0].state_dir
        except ConfigError:
            expected = None

        assert state_directory(str(path)) in (None, expected), value


def test_the_usual_is_understood_at_a_glance(tmp_path, monkeypatch):
    """No configuration at all, the example, and one with roots need nothing more than a glance."""
    assert state_directory(None) == load()[0].state_dir

    example = str(TOP / "config.toml.example")
    path = tmp_path / "c.toml"
    path.write_text(f'state_dir = "{tmp_path}/state"  # here\nmin_reclaim = "2%"\n{ROOT}')

    assert state_directory(example) == load(example)[0].state_dir
    assert state_directory(str(path)) == f"{tmp_path}/state"

    monkeypatch.setenv("BRAINSURGEON_STATE_DIR", "~/elsewhere")

    assert state_directory(str(path)) == os.path.expanduser("~/elsewhere")

    monkeypatch.setenv("BRAINSURGEON_WATCH", "true")

    assert state_directory(str(path)) is None


def test_it_knows_no_key_that_there_is_not():
    """Every key of the glance is one of the configuration; those beside it are left to that."""
    assert _KEYS.keys() <= Settings.model_fields.keys()
    assert _ROOT.keys() == RootTable.model_fields.keys()
