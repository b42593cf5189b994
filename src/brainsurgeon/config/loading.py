"""The settings: load and list them, and make their JSON schema."""

import json
import os
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Collection, Iterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from pydantic import ValidationError

from brainsurgeon.config import settings as models
from brainsurgeon.config.settings import ALIASES, BUILT_IN_PROFILES, REMOVED, Settings
from brainsurgeon.config.values import KEY, InvalidValueError, SettingsTable, closest
from brainsurgeon.errors import ConfigError
from brainsurgeon.files import configurations
from brainsurgeon.model.reports import Setting
from brainsurgeon.model.session_files import AUTO, Root

if TYPE_CHECKING:
    from brainsurgeon.agents import Formats

MAX_QUOTED = 120  # characters of a value that a message quotes
_TABLES: dict[str | int, type[SettingsTable]] = {
    "roots": models.RootTable, "rules": models.RuleTable, "use": models.UseTable,
    "profiles": models.ProfileTable, "budget": models.BudgetTable, "archive": models.ArchiveTable,
    "signals": models.SignalTable, "prices": models.PriceTable,
}  # fmt: skip
_WANTED = {  # descriptions of valid values, by pydantic's error types
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a table",
    "string_type": "a word",
    "model_type": "a table",
    "model_attributes_type": "a table",
}


def problem_text(error: Any, names: dict[str, str]) -> str:
    """Return the message of a pydantic error. `names` maps keys to the aliases in the file."""
    place = ""
    for step in error["loc"]:
        if isinstance(step, int):
            place += f"[{step}]"
        elif step != "[key]":
            place += f".{step}" if place else names.get(step, step)
    kind = error["type"]
    if kind == "extra_forbidden":  # the value may be a secret: do not quote it
        *above, key = error["loc"]
        table = next((_TABLES[step] for step in reversed(above) if step in _TABLES), Settings)
        is_misplaced = table is not Settings and key in Settings.model_fields
        hint = "put it above the tables" if is_misplaced else _hint(str(key), table.model_fields)
        return f"{place}: no such key; {hint}"
    if kind == "missing":
        return f"{place}: is missing"
    wanted, meant = _wanted(error)
    hint = f"; did you mean {meant}?" if meant else ""
    return f"{place}: {wanted}, but {quoted(error['input'])} is given{hint}"


def _wanted(error: Any) -> tuple[str, str | None]:
    context = error.get("ctx", {})
    if error["type"] == "literal_error":
        words = context["expected"].replace("'", "")
        value = error["input"]
        listed = words.replace(" or ", ", ").split(", ")
        return f"wants {words}", closest(value.lower(), listed) if isinstance(value, str) else None
    why = context.get("error")
    if isinstance(why, InvalidValueError):
        return str(why), why.meant
    return f"wants {_WANTED.get(error['type'], error['msg'])}", None


_MANY_KEYS = 12  # more are not listed in one line


def _hint(word: str, known: Collection[str]) -> str:
    if word in REMOVED:
        return f"it was removed: {REMOVED[word]}"
    former = {alias: key for alias, key in ALIASES.items() if key in known}
    meant = closest(word, [*known, *former])
    if meant:
        return f"did you mean {former.get(meant, meant)}?"
    is_long = len(known) > _MANY_KEYS
    return "`brainsurgeon config` lists the keys" if is_long else f"there are {', '.join(known)}"


def quoted(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MAX_QUOTED else text[: MAX_QUOTED - 3] + "..."


def _formats(table: dict[str, Any], problems: list[str]) -> "Formats":
    """Return the formats that a configuration describes. Note what is wrong about formats."""
    given, roots = table.get("formats"), table.get("roots")
    described = given if isinstance(given, dict) else {}
    named = {
        number: root.get("format", AUTO)
        for number, root in enumerate(roots if isinstance(roots, list) else ())
        if isinstance(root, dict) and isinstance(root.get("format", AUTO), str)
    }
    if not described and {*named.values()} <= {AUTO}:
        return []
    from brainsurgeon import agents  # noqa: PLC0415

    tables = {name: one for name, one in described.items() if isinstance(one, dict)}
    forms, wrong = agents.described_in(tables)
    problems += [f"formats.{name}{'.' * bool(key)}{key}: {why}" for name, key, why in wrong]
    known = [AUTO, *dict.fromkeys((*agents.OWN_FORMATS, *tables))]
    for number, format_name in named.items():
        if format_name not in known:
            meant = closest(format_name.lower(), known)
            hint = f"; did you mean {meant}?" if meant else ""
            wanted = f"wants {', '.join(known)}"
            given_text = f"{wanted}, but {quoted(format_name)} is given{hint}"
            problems.append(f"roots[{number}].format: {given_text}")
    return forms


def _contradictions(settings: Settings, table: dict[str, Any]) -> Iterator[str]:
    yield from _directory_problems(settings, table)
    for name, profile in settings.profiles.items():
        if {"rules", "trigger_types"} <= profile.model_fields_set and profile.rules:
            yield f"profiles.{name}: wants rules or trigger_types, but a table with both is given"
    yield from _profile_problems(settings)


def _real_roots(settings: Settings) -> list[Root]:
    return [replace(one, path=os.path.realpath(one.path)) for one in settings.root_directories()]


def _with_each_root_once(settings: Settings) -> tuple[Settings, list[str]]:
    """Leave out roots that were given before. Also return warnings about them."""
    roots = _real_roots(settings) if settings.roots else []
    firsts = [roots.index(root) for root in roots]
    once = tuple(root for at, root in enumerate(settings.roots) if firsts[at] == at)
    warnings = [
        f"roots[{number}].path: roots[{first}] is the same directory; it counts once"
        for number, first in enumerate(firsts) if first != number
    ]  # fmt: skip
    return settings.model_copy(update={"roots": once}) if warnings else settings, warnings


def _directory_problems(settings: Settings, table: dict[str, Any]) -> Iterator[str]:
    listed = _real_roots(settings)
    roots = [root.path for root in listed]
    for number, root in enumerate(roots):
        first = roots.index(root)
        if listed[first] != listed[number]:
            yield (
                f"roots[{number}].path: wants another directory than roots[{first}], "
                f"but {quoted(table['roots'][number]['path'])} is given with other options"
            )
    state = os.path.realpath(settings.state_dir)
    for root in dict.fromkeys(roots):
        if os.path.commonpath([state, root]) in (state, root):
            yield (
                "state_dir: wants a directory that neither is in a root nor contains one, but "
                f"{quoted(settings.state_dir)} is given and {quoted(root)} is a root"
            )


def _profile_problems(settings: Settings) -> Iterator[str]:
    known = list(dict.fromkeys((*BUILT_IN_PROFILES, *settings.profiles)))
    chosen = [(f"use[{number}].", use.profile) for number, use in enumerate(settings.use)]
    for table, profile in [*chosen, *([("", settings.profile)] if settings.profile else [])]:
        if profile not in known:
            name, hint = json.dumps(profile), _hint(profile, known)
            yield f"{table}profile: wants a profile, but {name} is given; {hint}"
    earlier: list[str] = []
    for number, use in enumerate(settings.use):
        covering = [
            next((before for before in earlier if _covers(before, glob)), None)
            for glob in use.sessions
        ]
        if all(covering):
            names = ", ".join(map(json.dumps, dict.fromkeys(covering)))
            listed = json.dumps(list(use.sessions), ensure_ascii=False)
            yield (
                f"use[{number}].sessions: {listed} is given, but it can never match: "
                f"earlier globs ({names}) cover it"
            )
        earlier += use.sessions


def _covers(earlier: str, later: str) -> bool:
    if earlier == later:
        return True
    if any(mark in earlier for mark in "?["):
        return False
    # Every session has a title (`agent/name`), but not every session has a key.
    if later.startswith(KEY) and not earlier.startswith(KEY):
        return re.fullmatch(r"\*+(/\*+)?", earlier) is not None
    return earlier.startswith(KEY) == later.startswith(KEY) and fnmatchcase(later, earlier)


_KEY = re.compile(r"""\s*("[^"]*"|'[^']*'|[\w.-]+)\s*=""")
_STRING = re.compile(r"""#.*|"([^"\\]|\\.)*"|'[^']*'""")
_TABLE = re.compile(r"""\s*\[(\[?)\s*([\w."'*/: -]+?)\s*\]""")
SYSTEM_CONFIG = "/etc/brainsurgeon/config.toml"
PREFIX = "BRAINSURGEON_"  # of environment variables that override keys
FORMER_KEYS = ("last_run_at", "last_retention_run_at")  # the store keeps these times now


def user_config() -> str:
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return os.path.join(home, "brainsurgeon/config.toml")


def config_path(given: str | None) -> str | None:
    if path := given or os.environ.get("BRAINSURGEON_CONFIG"):
        return path
    usual = (user_config(), SYSTEM_CONFIG)
    # A link whose target is missing is chosen, too: reading it fails. Defaults would be a surprise.
    return next((path for path in usual if os.path.lexists(path) or _is_cut_off(path)), None)


def _is_cut_off(path: str) -> bool:
    directory = os.path.dirname(path)
    return os.path.islink(directory) and not os.path.exists(directory)


def default_state_dir() -> str:
    home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(home, "brainsurgeon")


def load(path: str | None = None) -> tuple[Settings, list[str]]:
    """Return the settings, and warnings about them. Raises ConfigError with all problems found."""
    source = config_path(path)
    table, lines = read_file(source) if source else ({}, {})
    problems: list[str] = []
    warnings = _override(table, problems)
    warnings += [_ignored_text(key) for key in FORMER_KEYS if table.pop(key, None) is not None]
    names = {key: alias for alias, key in ALIASES.items() if alias in table}
    table.setdefault("state_dir", default_state_dir())
    if table.get("rules") and "trigger_types" in table:
        problems.append("rules and trigger_types: give one of the two")
    forms = _formats(table, problems)
    try:
        settings = Settings.model_validate(table)
    except ValidationError as error:
        problems += [problem_text(problem, names) for problem in error.errors()]
        raise _invalid(source, problems, lines) from None
    problems += _contradictions(settings, table)
    if problems:
        raise _invalid(source, problems, lines)
    # Not earlier: after an error, a daemon goes on with its former settings.
    if forms or "brainsurgeon.agents" in sys.modules:  # else no former settings described any
        from brainsurgeon import agents  # noqa: PLC0415

        agents.learn(forms)
    settings, repeated = _with_each_root_once(settings)
    return settings, [*warnings, *repeated]


def _invalid(source: str | None, problems: list[str], lines: dict[str, int]) -> ConfigError:
    if source is None or all(problem.startswith(PREFIX) for problem in problems):
        return ConfigError("environment", problems)
    numbered = []
    for problem in problems:
        place = problem.partition(": ")[0]
        while place and place not in lines:  # try the table that contains it
            place = re.sub(r"(^|[.\[])[^.\[]*$", "", place)
        numbered.append(f"{problem} (line {lines[place]})" if place else problem)
    return ConfigError(source, numbered)


def read_file(path: str) -> tuple[dict[str, Any], dict[str, int]]:
    """Parse a file. Also return the probable line numbers of its keys and tables."""
    try:
        text = configurations.read(path, configurations.MEGABYTE).decode().replace("\r\n", "\n")
        table = tomllib.loads(text)
    except PermissionError:
        raise ConfigError(path, [f"cannot be read: {configurations.forbidding(path)}"]) from None
    except OSError as error:
        raise ConfigError(path, [f"cannot be read: {error.strerror}"]) from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(path, [f"not TOML: {error}"]) from None
    lines: dict[str, int] = {}
    section = name = ""
    counts: Counter[str] = Counter()  # tables of each list
    for number, line in enumerate(text.split("\n"), 1):
        if heading := _TABLE.match(line):
            name = re.sub("[\"']", "", heading[2])
            lines.setdefault(name, number)
            section = f"{name}."
            if heading[1]:
                lines[f"{name}[{counts[name]}]"] = number
                section = f"{name}[{counts[name]}]."
                counts[name] += 1
        elif key := _KEY.match(line):
            name = section + key[1].strip("\"'")
            lines.setdefault(name, number)
        for _ in range(_count_tables(line)):  # each may be an item of a list
            lines.setdefault(f"{name}[{counts[name]}]", number)
            counts[name] += 1
    return table, lines


def _count_tables(line: str) -> int:
    """Count the inline tables in a line, without those in them."""
    count = depth = 0
    for brace in re.findall(r"[{}]", _STRING.sub("", line)):
        count += brace == "{" and not depth
        depth = max(0, depth + (1 if brace == "{" else -1))
    return count


def _override(table: dict[str, Any], problems: list[str]) -> list[str]:
    """Override keys by variables BRAINSURGEON_<KEY>. Return warnings about ignored variables."""
    warnings = []
    for variable, text in sorted(os.environ.items()):
        key = variable.removeprefix(PREFIX).lower()
        if not variable.startswith(PREFIX) or key == "config":
            continue
        key = ALIASES.get(key, key)
        if key in FORMER_KEYS:
            warnings.append(_ignored_text(variable))
            continue
        if key not in Settings.model_fields:
            meant = closest(key, Settings.model_fields)
            hint = f"; did you mean {PREFIX}{meant.upper()}?" if meant else ""
            hint = f"; it was removed: {REMOVED[key]}" if key in REMOVED else hint
            warnings.append(f"{variable} is no setting of this program: ignored{hint}")
            continue
        try:
            value = _from_text(key, text)
            Settings.model_validate({key: value})
        except (ValueError, ValidationError) as error:
            problems.append(f"{variable}{_problem(error, text)}")
            table.pop(key, None)
        else:
            table[key] = value
    return warnings


def _from_text(key: str, text: str) -> Any:
    field = Settings.model_fields[key]
    if field.default_factory:
        return json.loads(text)
    if key in ("roots", "rules", "use"):
        if key == "roots" and not text.lstrip().startswith(("[", "{")):
            return [{"path": path.strip()} for path in text.split(",") if path.strip()]
        value = json.loads(text)
        return value if isinstance(value, list) else [value]
    if isinstance(field.default, tuple):
        return [word.strip() for word in text.split(",") if word.strip()]
    if isinstance(field.default, bool):
        if text.lower() not in ("true", "false", "1", "0", "yes", "no"):
            raise InvalidValueError("true or false")
        return text.lower() in ("true", "1", "yes")
    if isinstance(field.default, int) and re.fullmatch(r"-?[0-9]+", text):
        return int(text)
    return text


def _problem(error: ValueError, text: str) -> str:
    if isinstance(error, ValidationError):  # the variable's name replaces the key
        return re.sub(r"^\w+", "", problem_text(error.errors()[0], {}))
    wanted = "wants JSON" if isinstance(error, json.JSONDecodeError) else str(error)
    return f": {wanted}, but {quoted(text)} is given"


def _ignored_text(name: str) -> str:
    return f"{name}: ignored; the store keeps this time now, and `brainsurgeon status` shows it"


def settings_shown(settings: Settings, path: str | None) -> list[Setting]:
    file = config_path(path)
    given, lines = read_file(file) if file else ({}, {})
    shown = []
    for key, value, _ in flat(settings):
        if key == "roots" and not value:
            value = [{"path": root.path} for root in settings.root_directories()]  # noqa: PLW2901
        if key == "trigger_types" and settings.rules:  # a file may set only one of these two keys
            value = None  # noqa: PLW2901
        shown.append(Setting(key, toml(value), _source(key, given, lines, file)))
    return shown


def flat(table: SettingsTable, above: str = "") -> Iterator[tuple[str, Any, str]]:
    """Yield each key of a table with its value and description. Keys of inner tables are dotted."""
    whole, given = (table.model_dump(mode="json", exclude_unset=unset) for unset in (False, True))
    for name, field in type(table).model_fields.items():
        value = getattr(table, name)
        if isinstance(value, SettingsTable):
            yield from flat(value, f"{above}{name}.")
        else:  # a table in a list or dict is listed without its defaults
            yield f"{above}{name}", given.get(name, whole[name]), field.description or ""


def toml(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, dict):
        inner = ", ".join(
            f"{key if re.fullmatch('[A-Za-z0-9_-]+', key) else toml(key)} = {toml(inner)}"
            for key, inner in value.items() if inner is not None
        )  # fmt: skip
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        return "\n".join(["[", *(f"  {toml(item)}," for item in value), "]"])
    if isinstance(value, list):
        return f"[{', '.join(str(toml(item)) for item in value)}]"
    return json.dumps(value, ensure_ascii=False)


def _source(key: str, given: dict[str, Any], lines: dict[str, int], file: str | None) -> str:
    first, *inner = key.split(".")
    names = [first, *(alias for alias, meant in ALIASES.items() if meant == first)]
    for name in names:
        if f"{PREFIX}{name.upper()}" in os.environ:
            return f"${PREFIX}{name.upper()}"
    for name in names:
        within: Any = given
        for step in (name, *inner):
            within = within.get(step) if isinstance(within, dict) else None
        if within is not None:
            line = lines.get(".".join((name, *inner)))
            return f"{file}:{line}" if line else str(file)
    return "default"


def schema() -> dict[str, Any]:
    made = Settings.model_json_schema()
    for name, table in (("Settings", made), *made["$defs"].items()):
        table.pop("description", None)
        defaults = getattr(models, name).model_construct().model_dump(mode="json")
        for key, field in table["properties"].items():
            field.pop("title", None)
            if key == "state_dir" or field.get("default", "") is None:
                del field["default"]
            elif "default" in field:
                field["default"] = defaults[key]
    dialect = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": dialect, **made, "title": "brainsurgeon"}
