"""The tests themselves: docstrings, lengths of names, folders and imports."""

import ast
from functools import cache
from pathlib import Path

import brainsurgeon
from building.world import TESTS

MODULES = sorted(path for path in TESTS.rglob("test_*.py") if "samples" not in path.parts)
LINE = 100
# Where the proofs stand that are of no single room.
PROOFS = "proofs"


@cache
def tree(path):
    return ast.parse(path.read_text())


def functions_of(path):
    """Return the tests of a module, including those of its classes."""
    return [
        node
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    ]


def test_every_test_has_a_docstring():
    """The docstring of a test is its promise."""
    missing = [(path.name, test.name) for path in MODULES for test in functions_of(path)
              if not ast.get_docstring(test)]  # fmt: skip

    assert missing == []


def test_path_and_name_of_a_test_fit_a_line():
    """Path, `::` and name have at most 100 characters."""
    names = [f"{path.relative_to(TESTS.parent)}::{test.name}"
             for path in MODULES for test in functions_of(path)]  # fmt: skip

    assert [name for name in names if len(name) > LINE] == []


def test_every_folder_of_tests_is_a_room_or_proofs():
    """Tests are in the folder of the room whose promise they prove, or in `proofs`."""
    house = Path(brainsurgeon.__file__).parent
    folders = {path.parent for path in MODULES} - {TESTS, TESTS / PROOFS}

    assert [path.name for path in folders if not (house / path.relative_to(TESTS)).is_dir()] == []


def test_no_test_module_imports_from_another():
    """Shared code is in `building`, and fixtures are in a `conftest.py`."""
    shared = {
        (path.name, node.module)
        for path in MODULES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ImportFrom)
        and node.module.rpartition(".")[2].startswith(("test_", "conftest"))
    }

    assert shared == set()


def test_long_proofs_name_the_rooms_they_prove():
    """Each long proof names rooms or modules that have tests of their own, too."""
    nodes = [node for path in MODULES for node in ast.walk(tree(path))]
    marks = [node for node in nodes if isinstance(node, ast.Attribute)
             and ast.unparse(node) == "pytest.mark.long"]  # fmt: skip
    named = [
        ast.literal_eval(node.keywords[0].value)
        for node in nodes
        if isinstance(node, ast.Call) and node.func in marks
    ]
    tested = {path.relative_to(TESTS).parts[0] for path in MODULES}
    tested |= {path.stem.removeprefix("test_") for path in TESTS.glob("test_*.py")}

    assert len(named) == len(marks) > 0
    assert {part for parts in named for part in parts} <= tested - {PROOFS, TESTS.name}
