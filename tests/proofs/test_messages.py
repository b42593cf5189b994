"""Error messages in the source: their form, their subject and their advice."""

import ast
import re

import pytest

from brainsurgeon import errors
from building.world import TOP

ROOT = TOP / "src" / "brainsurgeon"
# Errors for people; those of planning and rewriting are reasons inside a longer message.
NAMES = {
    name for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, errors.BrainsurgeonError)
    and name not in {"ConfigError", "AmbiguousError", "UnnamedError", "ExpiredError"}
}  # fmt: skip
# What to do: a command, an option, a wish, another try; or that nothing was done.
ADVICE = re.compile(
    r"`|--\w|\bwants\b|\bgoes? with|; \w+ |try again|stop it|[Mm]ake |[Nn]ame |Install|Start this|"
    r"as it (is|was)|nothing (more )?(is|was) |changed nothing|pip install|then: \{\}"
)
SUBJECT = re.compile(r"\{\}|--\w|`|\bthe \w|\bthis \w|\ba (?:\w+ )?value|[A-Z]{4,}|\w+ wants")


def text(node):
    match node:
        case ast.Constant():
            return str(node.value)
        case ast.JoinedStr():
            return "".join(map(text, node.values))
        case ast.BinOp():
            return text(node.left) + text(node.right)
    return "{}"


def messages():
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Raise(exc=ast.Call(func=ast.Name(id=name), args=[first, *_])):
                    if name in NAMES and not set(text(first)) <= set("{}: "):
                        yield f"{path.relative_to(ROOT)}: {text(first)}"


def test_collection_covers_the_messages_of_all_rooms():
    """At least 70 messages of 6 rooms are collected, so that the check below is not empty."""
    assert len({message.partition("/")[0] for message in messages()}) >= 6
    assert len(list(messages())) > 70


@pytest.mark.parametrize("form", ["begins", "ends", "subject", "advice"])
def test_every_error_message_names_its_subject_and_advice(form):
    """It begins in lower case, has no full stop, names its subject, and says what to do."""
    holds = {
        "begins": lambda message: not message[0].isupper() or message.split()[0].isupper(),
        "ends": lambda message: not message.endswith("."),
        "subject": SUBJECT.search,
        "advice": ADVICE.search,
    }[form]

    assert [message for message in messages() if not holds(message.partition(": ")[2])] == []
