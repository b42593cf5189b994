"""The tool purge_control as agents see it, and the arguments of one call."""

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
from brainsurgeon.model.reports import BUDGET

TOOL = "purge_control"
# Bytes of values in one answer unless the caller asks for more or less.
LIMIT = 65_536
# Extracted values in one list unless the caller asks for more or less.
LISTED = 50

# Other names that are accepted for the action `restore`; they are not listed.
ALSO_CALLED = ("restore", "restore_remote")

TITLE = "Values that were extracted from agent sessions"
INSTRUCTIONS = f"""\
brainsurgeon keeps the session files of agents lean: where a large old value stood, a text \
[[extracted-<id>]] stands, and the value is kept. The one tool, {TOOL}, gives it back. \
Show before you restore; pin (set_extractable false) what you need for long; never write such a \
text yourself."""

DESCRIPTION = """\
Read and control values that were extracted from agent sessions. A text [[extracted-<id>]] stands \
in a session where a large old value stood; the value is kept.
- show: get the value now. Prefer it: nothing changes.
- restore: get the value now and have it restored into its session once no turn is open there, \
where it stays for a while.
- set_extractable: false pins an entry for good, true lets it go at once, a number keeps it among \
that many recent messages.
- get_context: what is extracted in a session, and what will be next.
- done: close the task of this turn with a note; once you are idle, the turn is archived into it. \
An archived turn begins with [archived turn] and its id: show gives all of it.
- search: find a text in what was extracted and in the session.
- evidence: the calls of your session, or of a sub-agent's, and their results within a budget, \
failed ones first.
Name an entry by its id or by the whole text. Never write such a text yourself."""

ARGUMENTS = {
    "type": "object",
    "additionalProperties": False,
    "required": ["action"],
    "properties": {
        "action": {
            "type": "string",
            "enum": [
                "get_context",
                "restore",
                "show",
                "set_extractable",
                "done",
                "search",
                "evidence",
            ],
        },
        "entry": {
            "type": "string",
            "description": "Entry id, its beginning, or the whole [[extracted-<id>]].",
        },
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
        "budget": {
            "type": "integer",
            "minimum": 1,
            "description": f"For evidence: most bytes of results ({BUDGET}).",
        },
        "turn": {
            "type": "string",
            "description": 'For evidence: only the turn with this entry, or "last".',
        },
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


def _plain(value: Any) -> Any:
    """Return the boolean or the number that a text means, and anything else unchanged."""
    if not isinstance(value, str):
        return value
    if value.isascii() and value.isdigit() and len(value) < 20:  # noqa: PLR2004
        return int(value)
    return {"true": True, "false": False}.get(value.strip().lower(), value)


class Call(BaseModel):
    """The arguments of one call."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    action: Annotated[
        Literal["get_context", "restore", "show", "set_extractable", "done", "search", "evidence"],
        BeforeValidator(lambda action: "restore" if action in ALSO_CALLED else action),
    ]
    entry: str | None = Field(None, validation_alias=AliasChoices("entry", "entry_id"))
    keys: Annotated[list[str] | None, BeforeValidator(_listed)] = None
    value: Annotated[
        StrictBool | Annotated[StrictInt, Field(ge=0)] | None, BeforeValidator(_plain)
    ] = None
    note: Annotated[str, Field(max_length=8000)] | None = None
    text: str | None = None
    budget: int | None = Field(None, ge=1)
    turn: str | None = None
    session: str | None = None
    limit: int | None = Field(None, ge=1)
    offset: int | None = Field(None, ge=0)


def parse_call(arguments: dict[str, Any]) -> Call:
    """Return the call with these arguments; raise UsageError with everything wrong in them."""
    try:
        # Some hosts pass every argument, with null for those not given.
        given = {key: value for key, value in arguments.items() if value is not None}
        if "entry" in given and given.get("entry_id") == given["entry"]:
            del given["entry_id"]
        call = Call.model_validate(given)
    except ValidationError as error:
        problems = [
            f"{'.'.join(str(step) for step in one['loc'][:1]) or 'arguments'}: {one['msg']}"
            for one in error.errors(include_url=False, include_input=False, include_context=False)
        ]
        raise UsageError("; ".join(dict.fromkeys(problems))) from error
    if call.action == "done" and not call.note:
        raise UsageError("note: done wants a few words about what the task came to")
    if call.action == "search" and not call.text:
        raise UsageError("text: search wants a text")
    if call.action in ("show", "restore", "set_extractable") and not call.entry:
        raise UsageError(f"entry: {call.action} wants the id of an entry, or its whole placeholder")
    if call.action == "set_extractable" and call.value is None:
        raise UsageError("value: set_extractable wants true, false, or a whole number from 0")
    return call
