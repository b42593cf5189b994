"""The Python API: every offered name exists, is documented and typed, and the example runs."""

import ast
import inspect
import re
import textwrap

import pytest

from brainsurgeon import api, errors
from building.world import Conversation


def test_api_names_exist_and_have_docstrings():
    """Each name of `__all__` exists and has a docstring."""
    for name in api.__all__:
        offered = getattr(api, name)
        assert inspect.getdoc(offered), name
    assert sorted(api.__all__) == api.__all__


def test_api_functions_are_typed():
    """Every function annotates its parameters and its return value."""
    functions = [
        offered for offered in map(vars(api).get, api.__all__) if inspect.isfunction(offered)
    ]

    assert len(functions) >= 12
    for function in functions:
        signature = inspect.signature(function)
        assert signature.return_annotation is not inspect.Signature.empty, function
        for parameter in signature.parameters.values():
            assert parameter.annotation is not inspect.Parameter.empty, (function, parameter)


def test_api_docstring_names_every_error():
    """Every error that the API may raise is named in its docstring."""
    kinds = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.BrainsurgeonError)
    } - {"UsageError"}  # what a command line or a tool call may get wrong

    assert {name for name in kinds if not re.search(rf"\b{name}\b", api.__doc__)} == set()


def test_api_example_prints_the_restored_value(world, monkeypatch, capsys):
    """The example of the docstring runs unchanged and prints the value of the entry."""
    conversation = Conversation()
    conversation.turn("a long value " * 100)
    for _ in range(2):
        conversation.turn("short")
    world.put("s.jsonl", conversation.bytes())
    world.scan()
    world.close()
    monkeypatch.setenv("BRAINSURGEON_CONFIG", str(world.config_file()))
    example = textwrap.dedent(api.__doc__.split("\n\n", 1)[1].split("\n\n`open_store`")[0])

    exec(compile(ast.parse(example.replace("4f9d2a11", "00000003")), "example", "exec"), {})

    assert "a long value a long value" in capsys.readouterr().out


def test_api_turns_sqlite_errors_into_its_own(world):
    """An sqlite3 error inside `open_store` is raised as StoreUnusableError."""
    with pytest.raises(api.errors.StoreUnusableError), api.open_store(str(world.state)) as store:
        store._connection.execute("SELECT nothing FROM nowhere")
