"""The state directory of a configuration in which nothing is unusual, read at a glance.

A command that an agent waits for needs no more of it. Nothing that `config.load` would refuse or
warn about gets through here: what is not plainly in order is left to it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from brainsurgeon.hosts.homes_named import openclaw_agents

if TYPE_CHECKING:
    from collections.abc import Callable

_DIGITS = 9
"""Of a number that is in bounds wherever one may stand."""
_CONTROL = frozenset(map(chr, [*range(9), *range(11, 32), 127]))


def config_path(given: str | None) -> str | None:
    """Give the configuration file that holds: the first that exists of the four places."""
    if given or os.environ.get("BRAINSURGEON_CONFIG"):
        return given or os.environ["BRAINSURGEON_CONFIG"]
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    places = (os.path.join(home, "brainsurgeon/config.toml"), "/etc/brainsurgeon/config.toml")
    return next((place for place in places if os.path.exists(place)), None)


def default_state_dir() -> str:
    """Give the state directory of a user who configured none."""
    home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(home, "brainsurgeon")


def state_directory(path: str | None) -> str | None:
    """Give the state directory, or None where only `config.load` can tell it or what is wrong."""
    try:
        table, roots = _plain(_text(config_path(path)))
        for variable, value in os.environ.items():
            if variable == "BRAINSURGEON_STATE_DIR":
                table["state_dir"] = value
            elif variable.startswith("BRAINSURGEON_") and variable != "BRAINSURGEON_CONFIG":
                return None
        state = _absolute(table.get("state_dir", default_state_dir()))
        places = [os.path.realpath(_absolute(root["path"])) for root in roots]
        if len(set(places)) < len(places) or os.sep in places:
            return None
        beside = os.path.realpath(state)
        for place in places or [os.path.realpath(openclaw_agents())]:
            if os.path.commonpath([beside, place]) in (beside, place):
                return None
    except (OSError, ValueError, KeyError):
        return None
    return state


def _text(path: str | None) -> str:
    if path is None:
        return ""
    with open(path, "rb") as handle:
        return handle.read().decode()


def _plain(text: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Read lines that each hold one plain value, also of roots; raise ValueError or KeyError."""
    if not _CONTROL.isdisjoint(text):
        raise ValueError
    table: dict[str, Any] = {}
    roots: list[dict[str, Any]] = []
    at, known = table, _KEYS
    for line in map(str.strip, text.split("\n")):
        if not line or line.startswith("#"):
            continue
        if line == "[[roots]]":
            at, known = {}, _ROOT
            roots.append(at)
            continue
        if line == "[archive]" and "archive" not in table:
            at, known = {}, _ARCHIVE
            table["archive"] = at
            continue
        key, _, rest = line.partition("=")
        key, value = key.rstrip(), _value(rest.strip())
        if key in at or not known[key](value):
            raise ValueError
        at[key] = value
    return table, roots


def _value(text: str) -> Any:
    """Read one value and what may follow it, a comment; raise ValueError where it is not plain."""
    if text.startswith('"'):
        value, _, rest = text[1:].partition('"')
        if "\\" in value or text.count('"') % 2:
            raise ValueError
        return _alone(value, rest)
    if text.startswith("["):
        inside, closed, rest = text[1:].partition("]")
        words = [word.strip() for word in inside.split(",")] if inside.strip() else []
        if not closed or not all(
            word[:1] == word[-1:] == '"' and _is_word(word[1:-1]) for word in words
        ):
            raise ValueError
        return _alone([word[1:-1] for word in words], rest)
    word, mark, rest = text.partition("#")
    word = word.strip()
    if word in ("true", "false"):
        return _alone(word == "true", mark + rest)
    if not (word.isascii() and word.isdigit()) or str(int(word)) != word or len(word) > _DIGITS:
        raise ValueError
    return int(word)


def _alone(value: Any, rest: str) -> Any:
    if rest.strip()[:1] not in ("", "#"):
        raise ValueError
    return value


def _is_word(text: str) -> bool:
    return text.isascii() and text.replace("_", "").isalpha()


def _absolute(path: str) -> str:
    expanded = os.path.expanduser(path)
    if not os.path.isabs(expanded) or "\0" in path:
        raise ValueError
    return os.path.normpath(expanded)


def _switch(value: Any) -> bool:
    return isinstance(value, bool)


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _interval(value: Any) -> bool:
    return _count(value) and 1 <= value <= 31_536_000  # noqa: PLR2004  a year


def _text_given(value: Any) -> bool:
    return isinstance(value, str)


def _path_given(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("/") and "\0" not in value


def _duration(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    count = value[:-1]
    whole = count.isascii() and count.isdigit() and count[0] != "0" and len(count) <= 3  # noqa: PLR2004
    return value == "never" or (whole and value[-1] in "smhdw")


def _reclaim(value: Any) -> bool:
    share = isinstance(value, str) and value.isascii() and value[:-1].isdigit() and len(value) <= 3  # noqa: PLR2004
    return _count(value) or (share and value.endswith("%"))


def _one_of(*usual: Any) -> Callable[[Any], bool]:
    return lambda value: value in usual


_KEYS: dict[str, Callable[[Any], bool]] = {
    "enabled": _switch,
    "keep_recent": _count,
    "min_value_length": _count,
    "trigger_types": _one_of([], ["thinking", "tool_result"]),
    "dead_kinds": _one_of([]),
    "sealed": _one_of("take", "defer"),
    "sealed_models": _one_of([]),
    "exclude": _one_of([]),
    "min_session_bytes": _count,
    "min_reclaim": _reclaim,
    "scan_interval_seconds": _interval,
    "retention": _duration,
    "retention_standing": _duration,
    "retention_cron": _one_of("0 */6 * * *"),
    "keep_after_restore_seconds": _count,
    "keep_purge_control_calls": _switch,
    "watch": _switch,
    "quiet_seconds": _count,
    "abandoned_after_seconds": _count,
    "databases": _one_of("auto", "engines", "off"),
    "state_dir": _text_given,
    "log_level": _one_of("debug", "info", "warning", "error"),
    "log_format": _one_of("auto", "console", "json"),
    "metrics_file": _path_given,
}
"""What of the usual may stand behind a key; what may stand there beside it is not known here."""
_ARCHIVE: dict[str, Callable[[Any], bool]] = {
    "enabled": _switch,
    "token_threshold": _count,
    "tool_call_threshold": _count,
    "on_failed": _switch,
    "keep_turns": _count,
    "depth_cap": _count,
    "fold_after": _interval,
    "style": _one_of("structured", "paragraph"),
    "summary_chars": _interval,
    "command_timeout": _duration,
}
_ROOT: dict[str, Callable[[Any], bool]] = {
    "path": _text_given,
    "format": _one_of("auto", "openclaw", "claude-code", "codex", "generic"),
    "exclusive": _switch,
}
