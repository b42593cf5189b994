"""The README and the man page say what the program says."""

import importlib.util
import re

import pytest

from brainsurgeon import errors
from building.world import TOP

README = (TOP / "README.md").read_text()


@pytest.fixture(scope="module")
def man():
    """Give what makes the man page and the help in the README (deploy/man.py)."""
    spec = importlib.util.spec_from_file_location("man", TOP / "deploy" / "man.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_help_in_the_readme_is_the_help_of_the_program(man):
    """The text between the two markers equals `brainsurgeon --help`; else run deploy/man.py."""
    assert man.HELP.search(README)[2] == man.said()


def test_the_man_page_is_the_help_of_the_program(man):
    """Every command with its options stands in it, word for word; else run deploy/man.py."""
    assert man.PAGE.read_text() == man.page()


def test_every_exit_code_of_the_errors_stands_in_the_table():
    """The README explains every exit code that an error of ours can lead to."""
    listed = {int(code) for code in re.findall(r"^\| (\d) \|", README, re.MULTILINE)}
    raised = {
        value.exit_code
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.BrainsurgeonError)
    }

    assert raised <= listed
    assert listed == set(range(8))
