"""What may be asked of purge_control: the tool as agents see it, and the arguments of one call."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    ValidationError,
)

from brainsurgeon.errors import UsageError

TOOL = "purge_control"
# Bytes of values in one answer unless the caller asks for more or less.
LIMIT = 65_536
# Extracted values in one list unless the caller asks for more or less.
LISTED = 50

# Characters that a note has at most.
NOTE = 8000
_OF_NO_ENTRY = ("get_context", "done", "search")

# Names of tools and actions that are understood as `restore`, though none is listed.
ALSO_CALLED = ("restore", "restore_remote")

TITLE = "Values that were cut out of agent sessions"
INSTRUCTIONS = f"""\
brainsurgeon keeps the session files of agents lean: where a large old value stood, a text \
[[extracted-<id>]] stands, and the value is kept. The one tool, {TOOL}, gives it back. \
Show before you restore; pin (set_extractable false) what you need for long; never write such a \
text yourself."""

DESCRIPTION = """\
Read and control values that were cut out of agent sessions. A text [[extracted-<id>]] stands in a \
session where a large old value stood; the value is kept.
- show: get the value now. Prefer it: nothing changes.
- restore: get the value now and have it put back into its session once no turn is open there, \
where it stays for a while.
- set_extractable: false pins an entry for good, true lets it go at once, a number keeps it among \
that many recent messages.
- get_context: what is extracted in a session, and what will be next.
- done: close the task of this turn with a note; the turn may fold into it later. An archived \
turn begins with [archived turn] and its id: show gives all of it.
- search: find a text in what was cut out and in the session.
Name an entry by its id or by the whole text. Never write such a text yourself."""

ARGUMENTS = {
    "type": "object",
    "additionalProperties": False,
    "required": ["action"],
    "properties": {
        "action": {
            "type": "string",
            "enum": ["get_context", "restore", "show", "set_extractable", "done", "search"],
        },
        "entry": {"type": "string", "description": "Entry id, or the whole [[extracted-<id>]]."},
        "entry_id": {"type": "string", "description": "Another name of entry."},
        "keys": {
            "anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}],
            "description": "Only these values: whole paths, or a name in a path. A list, or "
            "comma-separated.",
        },
        "value": {
            "anyOf": [{"type": "boolean"}, {"type": "integer", "minimum": 0}],
            "description": "For set_extractable.",
        },
        "note": {"type": "string", "description": "For done: what the task came to."},
        "text": {"type": "string", "description": "For search: the text, whatever its case."},
        "session": {
            "type": "string",
            "description": "Path, id, beginning of the id, or session key. Without it: the "
            "session that makes this call, else the only one that holds the entry.",
        },
        "limit": {
            "type": "integer",
            "minimum": 1,
            "description": f"Most bytes of values in the answer ({LIMIT}); longer ones come as "
            f"head and tail. For get_context: most values listed ({LISTED}).",
        },
        "offset": {
            "type": "integer",
            "minimum": 0,
            "description": "For one value: give the bytes from here on. For get_context: skip "
            "so many values.",
        },
    },
}


def _listed(keys: Any) -> Any:
    return (
        [key.strip() for key in keys.split(",") if key.strip()] if isinstance(keys, str) else keys
    )


def _restoring(action: Any) -> Any:
    return "restore" if action in ALSO_CALLED else action


def _plain(value: Any) -> Any:
    """Take what models write for a boolean or a number."""
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.strip().lower(), _number(value))
    return value


def _number(text: str) -> Any:
    digits = text.isascii() and text.isdigit() and len(text) < 20  # noqa: PLR2004
    return int(text) if digits else text


class Call(BaseModel):
    """The arguments of one call."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    action: Annotated[
        Literal["get_context", "restore", "show", "set_extractable", "done", "search"],
        BeforeValidator(_restoring),
    ]
    entry: str | None = Field(None, validation_alias=AliasChoices("entry", "entry_id"))
    keys: Annotated[list[str] | None, BeforeValidator(_listed)] = None
    value: Annotated[
        StrictBool | Annotated[StrictInt, Field(ge=0)] | None, BeforeValidator(_plain)
    ] = None
    note: Annotated[str, Field(max_length=NOTE)] | None = None
    text: str | None = None
    session: str | None = None
    limit: int | None = Field(None, ge=1)
    offset: int | None = Field(None, ge=0)


def understood(arguments: dict[str, Any]) -> Call:
    """Read the arguments of a call; raise UsageError with everything that is wrong with them."""
    try:
        # Some hosts name every argument, and give null for what is not meant.
        given = {key: value for key, value in arguments.items() if value is not None}
        if "entry" in given and given.get("entry_id") == given["entry"]:
            del given["entry_id"]
        call = Call.model_validate(given)
    except ValidationError as error:
        told = [
            f"{'.'.join(str(step) for step in one['loc'][:1]) or 'arguments'}: {one['msg']}"
            for one in error.errors(include_url=False, include_input=False, include_context=False)
        ]
        raise UsageError("; ".join(dict.fromkeys(told))) from error
    if call.action == "done" and not call.note:
        raise UsageError("note: done wants a few words about what the task came to")
    if call.action == "search" and not call.text:
        raise UsageError("text: search wants a text")
    if call.action not in _OF_NO_ENTRY and not call.entry:
        raise UsageError(f"entry: {call.action} wants the id of an entry, or its whole placeholder")
    if call.action == "set_extractable" and call.value is None:
        raise UsageError("value: set_extractable wants true, false, or a whole number from 0")
    return call
