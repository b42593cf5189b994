"""What other Python programs may use is there, documented, and does what its text says."""

import ast
import inspect
import re
import textwrap

import pytest

from brainsurgeon import api, errors
from building.world import Conversation


def test_everything_offered_is_there_and_documented():
    """Each name of `__all__` exists, and says in a docstring what it is."""
    for name in api.__all__:
        offered = getattr(api, name)
        assert inspect.getdoc(offered), name
    assert sorted(api.__all__) == api.__all__


def test_everything_offered_is_typed():
    """Every function names the types of all it takes and of what it gives."""
    functions = [one for one in map(vars(api).get, api.__all__) if inspect.isfunction(one)]

    assert len(functions) >= 12
    for function in functions:
        signature = inspect.signature(function)
        assert signature.return_annotation is not inspect.Signature.empty, function
        for parameter in signature.parameters.values():
            assert parameter.annotation is not inspect.Parameter.empty, (function, parameter)


def test_every_error_is_offered_and_explained():
    """Each kind of error that may come out stands in the text."""
    kinds = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.BrainsurgeonError)
    } - {"UsageError"}  # what a command line or a tool call may get wrong

    assert {name for name in kinds if not re.search(rf"\b{name}\b", api.__doc__)} == set()


def test_the_example_does_what_it_says(world, monkeypatch, capsys):
    """The example in the text runs as it stands and prints the value that was asked for."""
    talk = Conversation()
    talk.turn("a long value " * 100)
    for _ in range(2):
        talk.turn("short")
    world.put("s.jsonl", talk.bytes())
    world.scan()
    world.close()
    monkeypatch.setenv("BRAINSURGEON_CONFIG", str(world.config_file()))
    example = textwrap.dedent(api.__doc__.split("\n\n", 1)[1].split("\n\n`open_store`")[0])

    exec(compile(ast.parse(example.replace("4f9d2a11", "00000003")), "example", "exec"), {})

    assert "a long value a long value" in capsys.readouterr().out


def test_errors_of_sqlite_come_out_as_ours(world):
    """Within an open store no exception of another package has to be known."""
    with pytest.raises(api.errors.StoreUnusableError), api.open_store(str(world.state)) as store:
        store._connection.execute("SELECT nothing FROM nowhere")
