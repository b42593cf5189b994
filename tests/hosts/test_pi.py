"""Which habits of pi can be told from what is installed."""

import json

import pytest

from brainsurgeon.hosts.homes import PACKAGES, drops_blocks


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Give a way to install something called pi, linked from the path as npm does it."""
    places = tmp_path / "bin"
    places.mkdir()
    monkeypatch.setenv("PATH", str(places))

    def install(said, name="pi"):
        package = tmp_path / "lib" / "node_modules" / "some-package"
        (package / "dist" / "bundle").mkdir(parents=True)
        (package / "package.json").write_text(said)
        program = package / "dist" / "bundle" / "cli.js"
        program.write_text("#!/usr/bin/env node\n")
        program.chmod(0o755)
        (places / name).symlink_to(program)

    return install


@pytest.mark.parametrize(
    ("version", "asks"),
    [("1.5.2", True), ("0.85.1", True), ("0.86.0-beta.1", True), ("0.84.4", False),
     ("0.73.1", False), ("soon", False), (7, False)],
)  # fmt: skip
@pytest.mark.parametrize("name", PACKAGES)
def test_a_version_tells_whether_pi_asks_for_drop_block(installed, name, version, asks):
    """From 0.85.1 on it does, where it manages the effort of a model."""
    installed(json.dumps({"name": name, "version": version}))

    assert drops_blocks() is asks


@pytest.mark.parametrize("said", ['{"name": "pi", "version": "9.9.9"}', "[]", "{"])
def test_another_program_of_that_name_asks_for_nothing(installed, said):
    """What is no package of pi, or cannot be read, does not count."""
    installed(said)

    assert not drops_blocks()


def test_where_no_pi_is_found_nothing_is_asked_for(installed):
    """What cannot be found is unknown, and what is unknown is taken out."""
    installed(json.dumps({"name": PACKAGES[0], "version": "9.9.9"}), name="not-pi")

    assert not drops_blocks()
