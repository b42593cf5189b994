"""The tests themselves: promises in words, names that fit a line, builders in one place."""

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


def promises_in(path):
    """Give the tests of a module, those of a class included."""
    return [
        node
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    ]


def test_every_test_says_what_it_promises():
    """Each test has a docstring, which is the promise that it keeps."""
    silent = [(path.name, one.name) for path in MODULES for one in promises_in(path)
              if not ast.get_docstring(one)]  # fmt: skip

    assert silent == []


def test_a_tests_whole_name_fits_a_line():
    """File and name together have at most 100 characters."""
    names = [f"{path.relative_to(TESTS.parent)}::{one.name}"
             for path in MODULES for one in promises_in(path)]  # fmt: skip

    assert [name for name in names if len(name) > LINE] == []


def test_each_folder_of_tests_is_a_room():
    """A test stands in the folder of the room that keeps its promise, or among the proofs."""
    house = Path(brainsurgeon.__file__).parent
    folders = {path.parent for path in MODULES} - {TESTS, TESTS / PROOFS}

    assert [path.name for path in folders if not (house / path.relative_to(TESTS)).is_dir()] == []


def test_no_test_module_imports_from_another():
    """What several share stands in `building`, and fixtures in a `conftest.py`."""
    shared = {
        (path.name, node.module)
        for path in MODULES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ImportFrom)
        and node.module.rpartition(".")[2].startswith(("test_", "conftest"))
    }

    assert shared == set()


def test_a_long_proof_says_which_parts_of_the_house_it_proves():
    """Each names rooms, or modules beside them, that have tests of their own too."""
    nodes = [node for path in MODULES for node in ast.walk(tree(path))]
    marks = [node for node in nodes if isinstance(node, ast.Attribute)
             and ast.unparse(node) == "pytest.mark.long"]  # fmt: skip
    named = [
        ast.literal_eval(node.keywords[0].value)
        for node in nodes
        if isinstance(node, ast.Call) and node.func in marks
    ]
    tested = {path.parent.name for path in MODULES}
    tested |= {path.stem.removeprefix("test_") for path in TESTS.glob("test_*.py")}

    assert len(named) == len(marks) > 0
    assert {part for parts in named for part in parts} <= tested - {PROOFS, TESTS.name}
