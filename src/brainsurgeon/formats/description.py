"""What a log says, as data: where its ids, roles, values, calls and results are."""

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import combinations, product
from typing import Any, Literal, NamedTuple, get_args

import msgspec
from msgspec import Struct

from brainsurgeon.formats import base
from brainsurgeon.model.entries import KINDS, JsonObject, KeyPath, Kind, value_at

EntryRole = Literal["prompt", "reply", "result", "aside", "note"]
Words = str | list[str]  # one path or several; of several, the first that leads to something
# The values that paths lead to. "*": any but null; "-": none, or null.
Conditions = dict[str, str | bool | int | list[str]]


class EntryTable(Struct, frozen=True, forbid_unknown_fields=True):
    """What an entry is, if it meets every condition. The first that fits decides."""

    role: EntryRole | None = None  # None: no part of the conversation
    when: Conditions = {}
    kind: Kind | None = None  # of its texts, if the role does not say it
    closes: bool = False  # the turn ends with it


class CallTable(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where calls are within an entry. The other paths begin at the object of a call."""

    at: Words
    id: Words = "id"
    tool: Words = "name"
    arguments: str = "arguments"


class ResultTable(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where results are within an entry. The other paths begin at the object of a result."""

    at: str
    texts: Words
    id: Words = "id"
    tool: Words = "name"
    failed: list[Conditions] = []  # one is met by a result of a failed call


class UsageTable(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where the tokens of a model call are, if not under names that providers give them."""

    at: Words = []
    prompt: str = ""  # with those that were read from the cache
    input: str = ""  # without them
    cached: str = ""
    written: str = ""
    output: str = ""

    def read(self, entry: JsonObject) -> JsonObject | None:
        """Return the usage in an entry, under names that providers give it."""
        usage = first(entry, compiled(self.at), dict)
        if usage is None or not (self.prompt or self.input):
            return base.dict_or_empty(usage) if usage is not None else None
        cached = "cached_input_tokens" if self.prompt else "cacheRead"
        names = {"prompt_tokens": self.prompt, "input": self.input, cached: self.cached,
                 "cacheWrite": self.written, "output": self.output}  # fmt: skip
        return {name: first(usage, compiled(path), int) for name, path in names.items() if path}


class Description(Struct, frozen=True, forbid_unknown_fields=True):
    entries: list[EntryTable]
    recognise: list[Conditions]  # one is met by one of the first lines
    newest: int = 2  # number of messages that stay as they are
    within: Words = ""  # objects in an entry where `texts` and `thinking` begin
    session: Words = []  # in the first line, or in the first lines with a `[key=value]`
    id: Words = []
    time: Words = []
    texts: Words = []
    thinking: Words = []
    # Keys of thinking and calls, or beside them. What has one stays as it is.
    signatures: tuple[str, ...] = ("signature", "thinkingSignature", "thoughtSignature")
    unsent: Words = []  # what no request contains
    call_id: Words = []  # of an entry that is a call or a result
    tool: Words = []
    arguments: Words = []
    failed: list[Conditions] = []  # one is met by an entry whose results are of failed calls
    calls: list[CallTable] = []
    results: list[ResultTable] = []
    model: Words = []
    usage: UsageTable = UsageTable()

    @property
    def first_arguments(self) -> str:
        return next(iter(listed(self.arguments)), "arguments")

    def edited(self) -> Iterator["Steps"]:
        """Yield the paths to values."""
        paths = (self.texts, self.thinking, self.unsent, self.arguments)
        inner = (*(one.arguments for one in self.calls), *(one.texts for one in self.results))
        return (steps for words in (*paths, *inner) for steps in compiled(words))


_STEP = re.compile(r"(\*|[^.\[\]*]*)((?:\[[^.\[\]=*]+=[^\[\]]*\])*)(?:\.|$)")


class Step(Struct, frozen=True):
    key: str  # "": none; "*": each item
    where: tuple[tuple[str, str], ...] = ()  # values that an object must have


Steps = tuple[Step, ...]


def steps_of(path: str) -> Steps:
    """Parse a path such as `parts.*[thought=true].text`. Raises ValueError."""
    steps, at = list[Step](), 0
    while at < len(path):
        match = _STEP.match(path, at)
        if match is None or match.end() == at or not (match[1] or match[2]):
            raise ValueError(f"{path!r} is no path: it has names, `*` and `[key=value]`, with dots")
        pairs = [pair.partition("=") for pair in match[2][1:-1].split("][") if pair]
        steps.append(Step(match[1], tuple((key, value) for key, _, value in pairs)))
        at = match.end()
    return tuple(steps)


def listed(words: Words) -> list[str]:
    return [words] if isinstance(words, str) else words


@lru_cache(256)
def _compiled(*words: str) -> tuple[Steps, ...]:
    return tuple(map(steps_of, words))


def compiled(words: Words) -> tuple[Steps, ...]:
    return _compiled(*listed(words))


def last_key(steps: Steps) -> str:
    """Return the last key that a path names."""
    return next((step.key for step in reversed(steps) if step.key not in ("", "*")), "")


def found(value: Any, steps: Steps, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Yield what a path leads to, with the keys on the way."""
    if not steps:
        yield path, value
        return
    step = steps[0]
    for at, item in _items(value, step.key, path):
        if not step.where or (
            isinstance(item, dict)
            and all(_text(item.get(key)) == text for key, text in step.where)
        ):  # fmt: skip
            yield from found(item, steps[1:], at)


def _items(value: Any, key: str, path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    if not key:
        yield path, value
    elif key == "*":
        for name, item in (
            value.items() if isinstance(value, dict)
            else enumerate(value) if isinstance(value, list) else ()
        ):  # fmt: skip
            yield (*path, name), item
    elif isinstance(value, dict) and key in value:
        yield (*path, key), value[key]


def _text(value: Any) -> str | None:
    if isinstance(value, dict | list):  # no path names one, and it may be nested too deeply
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def first(entry: Any, paths: tuple[Steps, ...], kind: type = str) -> Any:
    """Return the first value of a type to which a path leads, or None."""
    values = (value for steps in paths for _, value in found(entry, steps))
    return next((value for value in values if isinstance(value, kind)), None)


Compiled = tuple[tuple[Steps, Any], ...]


def conditions(table: Conditions) -> Compiled:
    return tuple((steps_of(path), value) for path, value in table.items())


def met(entry: JsonObject, wanted: Compiled) -> bool:
    return all(
        any(_fits(value, want) for _, value in found(entry, steps)) != (want == "-")
        for steps, want in wanted
    )


def _fits(value: Any, want: Any) -> bool:
    if isinstance(want, list):
        return isinstance(value, str) and value in want
    return value is not None if want in ("*", "-") else type(value) is type(want) and value == want


_WITHIN = ("texts", "thinking", "arguments")  # their paths begin at the objects `within`
_NAMES = ("session", "id", "time", "call_id", "tool", "model")
PATHS = ("within", *_NAMES, *_WITHIN, "unsent")


_TABLES: dict[str, type[Struct]] = {
    "entries": EntryTable, "calls": CallTable, "results": ResultTable, "usage": UsageTable,
}  # fmt: skip


class ContradictionError(ValueError):
    """A description that is not valid. `key` is the place in its table."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(why)
        self.key = key


def description(table: Mapping[str, Any]) -> Description:
    """Read a description. Raises ContradictionError."""
    try:
        read = msgspec.convert(table, Description)
    except msgspec.ValidationError as error:
        raise _refused(*str(error).partition(" - at `$")[::2]) from None
    for key, why in _contradictions(read):
        raise ContradictionError(key, why)
    return read


def _refused(why: str, at: str) -> ContradictionError:
    place = at.strip(".`").replace("[...]", "")
    table = _TABLES.get(place.partition("[")[0], Description)
    words = {"role": get_args(EntryRole), "kind": KINDS}.get(place.rpartition(".")[2], ())
    if unknown := re.search(r"unknown field `(.*)`", why):
        place = ".".join(filter(None, (place, unknown[1])))
        return ContradictionError(
            place, f"no such key; there are {', '.join(table.__struct_fields__)}"
        )
    if given := re.search("enum value (.*)", why):
        return ContradictionError(place, f"wants {', '.join(words)}, but {given[1]} is given")
    return ContradictionError(place, why)


def _contradictions(read: Description) -> Iterator[tuple[str, str]]:
    for place in _places(read):
        try:
            steps_of(place.path)
        except ValueError as error:
            yield place.key, str(error)
            return
    if not all(read.recognise) or not read.recognise:
        yield "recognise", "wants tables with conditions: without one, every file would fit"
    roles = {table.role for table in read.entries}
    if missing := next((role for role in ("prompt", "reply") if role not in roles), None):
        yield "entries", f"no entry is a {missing}, so it would never be known when a turn ends"
    for (one, before), (two, later) in combinations(enumerate(read.entries), 2):
        if before.when.items() <= later.when.items():
            yield f"entries[{two}]", f"is never used: entries[{one}] fits whatever it fits"
    if any(table.kind == "tool_call" for table in read.entries) and not read.arguments:
        yield "arguments", "wants a path, as an entry is a call"
    sent = {*listed(read.texts), *listed(read.thinking)}
    if both := sorted(sent.intersection(listed(read.unsent))):
        yield "unsent", f"{both[0]!r} is among the texts or the thinking, which are sent"
    if not (sent or read.results or read.unsent):
        yield "texts", "wants a path: none leads to a value"


class _Place(NamedTuple):
    """A path in a description."""

    key: str  # in its table
    path: str
    above: Words = ""  # where the path begins in an entry
    kind: type = object  # of what must be there
    wanted: Any = None  # of a condition: the value that must be there

    def steps(self) -> Iterator[Steps]:
        return ((*above, *steps_of(self.path)) for above in compiled(self.above))


def _places(read: Description) -> Iterator[_Place]:
    for key in PATHS:
        above = read.within if key in _WITHIN else ""
        yield from (_Place(key, path, above) for path in listed(getattr(read, key)))
    for number, one in enumerate(read.entries):
        yield from _conditions(f"entries[{number}]", [one.when])
    yield from _conditions("recognise", read.recognise)
    yield from _conditions("failed", read.failed)
    yield from _inner("usage", read.usage, int)
    for number, call in enumerate(read.calls):
        yield from _inner(f"calls[{number}]", call)
    for number, result in enumerate(read.results):
        yield from _inner(f"results[{number}]", result)


def _conditions(key: str, tables: Iterable[Conditions], above: Words = "") -> Iterator[_Place]:
    for table in tables:
        yield from (_Place(key, path, above, wanted=wanted) for path, wanted in table.items())


def _inner(
    name: str, table: CallTable | ResultTable | UsageTable, kind: type = object
) -> Iterator[_Place]:  # fmt: skip
    given = msgspec.to_builtins(table)
    at = given.pop("at", [])
    yield from (_Place(f"{name}.at", path, kind=dict) for path in listed(at))
    yield from _conditions(f"{name}.failed", given.pop("failed", []), at)
    for key, words in given.items():
        yield from (_Place(f"{name}.{key}", path, at, kind) for path in listed(words))


class Names:
    """Where the names of an entry are, and the texts by which it is told apart from others.

    After one of these was replaced, no later run would know the entry.
    """

    def __init__(self, read: Description) -> None:
        self._known: dict[str, list[tuple[Steps, Any]]] = defaultdict(list)  # by the last key
        for place in _places(read):
            for steps in place.steps():
                self._add(place, steps)
        tables: tuple[CallTable | ResultTable, ...] = (*read.calls, *read.results)
        for table in tables:
            for at, inner in product(
                compiled(table.at), (*compiled(table.id), *compiled(table.tool))
            ):
                self._known[last_key(inner)].append(((*at, *inner), None))

    def _add(self, place: _Place, steps: Steps) -> None:
        if place.key in _NAMES or place.wanted not in (None, "*", "-"):
            self._known[steps[-1].key if steps else ""].append((steps, place.wanted))
        for at, step in enumerate(steps):
            for key, text in step.where:
                self._known[key].append(((*steps[:at], Step(step.key), Step(key)), [text]))

    def include(self, entry: JsonObject, path: KeyPath) -> bool:
        """Check whether a value is one of them, or contains one."""
        ends = {step for step in path[-1:] if isinstance(step, str)} | {"*", ""}
        if isinstance(value_at(entry, path), dict):
            ends.update(self._known)
        return any(
            at[: len(path)] == path and (wanted is None or _fits(value, wanted))
            for end in ends for steps, wanted in self._known.get(end, ())
            for at, value in found(entry, steps)
        )  # fmt: skip


def unmet(tables: Iterable[Conditions], entries: Collection[JsonObject]) -> str:
    """Return, of each table, a condition that no entry meets, or that they are met apart."""
    return "; ".join(
        f"no line meets {next(_unmet(f'recognise[{number}]', table, entries))}"
        for number, table in enumerate(tables)
    )


def _unmet(name: str, table: Conditions, entries: Collection[JsonObject]) -> Iterator[str]:
    for path, want in table.items():
        if not any(met(entry, conditions({path: want})) for entry in entries):
            yield f"{name} {path} = {json.dumps(want)}"
    yield f"all of {name}"


def unused(read: Description, entries: Iterable[JsonObject]) -> list[str]:
    """Return the keys of a description that lead to nothing in a log."""
    tables = [conditions(table.when) for table in read.entries]
    rows = {at: f"entries[{at}]" for at in range(len(tables))}
    unseen = [
        (place, [*place.steps()]) for place in _places(read)
        if place.key != "recognise" and not place.key.startswith("entries")
    ]  # fmt: skip
    for entry in entries:
        rows.pop(next((at for at, wanted in enumerate(tables) if met(entry, wanted)), -1), None)
        unseen = [one for one in unseen if not _leads(entry, one[1], one[0].kind)]
    return [*rows.values(), *(
        f"{key} {path}" + (f" (to no object; of a list, {path}.*)" if kind is dict else "")
        for (key, path, _, kind, _), _ in unseen
    )]  # fmt: skip


def _leads(entry: JsonObject, ways: Iterable[Steps], kind: type) -> bool:
    return any(isinstance(value, kind) for steps in ways for _, value in found(entry, steps))
