"""Schema and validation of the arguments of purge_control."""

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    ValidationError,
)
from pydantic.json_schema import SkipJsonSchema

from brainsurgeon.errors import UsageError
from brainsurgeon.model.reports import BUDGET, LIMIT, LISTED

# As a tool or an action, both mean the action `restore`. No such tool is advertised.
ALSO_CALLED = ("restore", "restore_remote")
Absent = SkipJsonSchema[None]
Positive = Annotated[int, Field(ge=1)]


def _listed(keys: Any) -> Any:
    if not isinstance(keys, str):
        return keys
    return [key.strip() for key in keys.split(",") if key.strip()]


def _from_text(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value.isascii() and value.isdigit() and len(value) < 20:  # noqa: PLR2004
        return int(value)
    return {"true": True, "false": False}.get(value.strip().lower(), value)


class Call(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    action: Annotated[
        Literal["get_context", "restore", "show", "set_extractable", "done", "search", "evidence"],
        BeforeValidator(lambda action: "restore" if action in ALSO_CALLED else action),
    ]
    entry: str | Absent = Field(
        None, description="Entry id, its beginning, or the whole [[extracted-<id>]]."
    )
    entry_id: str | Absent = Field(None, description="Another name of entry.")
    keys: Annotated[
        list[str] | Absent, BeforeValidator(_listed, json_schema_input_type=list[str] | str)
    ] = Field(
        None,
        description="Only these values: whole paths, or a name in a path. A list, or "
        "comma-separated.",
    )
    value: Annotated[
        StrictBool | Annotated[StrictInt, Field(ge=0)] | Absent, BeforeValidator(_from_text)
    ] = Field(None, description="For set_extractable.")
    note: Annotated[str, Field(max_length=8000)] | Absent = Field(
        None, description="For done: the outcome of the task."
    )
    budget: Positive | Absent = Field(
        None, description=f"For evidence: largest number of bytes of results, {BUDGET} by default."
    )
    turn: str | Absent = Field(
        None, description='For evidence: only the turn with this entry, or "last".'
    )
    text: str | Absent = Field(None, description="For search: the text; case is ignored.")
    session: str | Absent = Field(
        None,
        description="Path, id, beginning of the id, or session key. Without it: your own session; "
        "if that lacks the entry, another session of your agent that has it.",
    )
    limit: Positive | Absent = Field(
        None,
        description=f"Largest number of bytes of values in the answer, {LIMIT} by default. A "
        "longer value is returned as head and tail. For get_context: largest number of values "
        f"listed, {LISTED} by default.",
    )
    offset: Annotated[int, Field(ge=0)] | Absent = Field(
        None,
        description="For one value: give the bytes from here on. For get_context: skip this many "
        "values.",
    )


def schema() -> dict[str, Any]:
    whole = Call.model_json_schema()
    del whole["title"]  # titles and defaults would only cost tokens
    for field in whole["properties"].values():
        field.pop("title", None)
        field.pop("default", None)
    return whole


def parse_call(arguments: dict[str, Any]) -> Call:
    """Return the call with these arguments. Raises UsageError."""
    # Some hosts pass null for each omitted argument, and some models an empty text.
    given = {key: value for key, value in arguments.items() if value not in (None, "")}
    if "entry_id" in given:
        given.setdefault("entry", given["entry_id"])
    try:
        call = Call.model_validate(given)
    except ValidationError as error:
        problems = [
            f"{'.'.join(str(step) for step in one['loc'][:1]) or 'arguments'}: {one['msg']}"
            for one in error.errors(include_url=False, include_input=False, include_context=False)
            if one["type"] != "none_required"  # `| Absent` adds it to the actual problem
        ]
        raise UsageError("; ".join(dict.fromkeys(problems))) from error
    if call.entry_id not in (None, call.entry):
        raise UsageError("entry_id: is another name of entry; give one of the two")
    if call.action == "done" and not call.note:
        raise UsageError("note: done wants a few words about the outcome of the task")
    if call.action == "search" and not call.text:
        raise UsageError("text: search wants a text")
    if call.action in ("show", "restore", "set_extractable") and not call.entry:
        raise UsageError(f"entry: {call.action} wants the id of an entry, or its whole placeholder")
    if call.action == "set_extractable" and call.value is None:
        raise UsageError("value: set_extractable wants true, false, or a whole number from 0")
    return call
