"""The README says what the program says."""

import re
import subprocess
import sys

from brainsurgeon import errors
from building.world import TOP

README = (TOP / "README.md").read_text()


def test_the_help_in_the_readme_is_the_help_of_the_program():
    """The text between the two markers equals `brainsurgeon --help`, word for word."""
    shown = re.search(r"<!-- help -->\n```text\n(.*?)```\n<!-- end of help -->", README, re.DOTALL)
    said = subprocess.run(
        [sys.executable, "-m", "brainsurgeon", "--help"],
        capture_output=True, text=True, check=True,
        env={"COLUMNS": "80", "PATH": "/usr/bin:/bin", "TERM": "dumb"},
    )  # fmt: skip

    assert said.stdout.replace("python -m brainsurgeon", "brainsurgeon") == shown[1]


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
