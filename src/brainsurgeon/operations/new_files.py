"""What `init` writes: a configuration and a user's unit, made of those that come with the program.

Pure but for reading these.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

from brainsurgeon import packaged

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from brainsurgeon.hosts.homes import Home

_STARTS = "ExecStart=%h/.local/bin/brainsurgeon run"
_WRITES = "ReadWritePaths="
_SPACE = re.compile(r"[\s\"';]")


def configuration(homes: Iterable[Home], state_dir: str | None) -> str:
    """Write a configuration for the homes that were found: defaults are comments, roots are not.

    A later version may change a default; what stands in a file would stay. `state_dir` is given
    where only the environment says it, which a service does not have.
    """
    example = packaged.text(packaged.EXAMPLE)
    if state_dir is not None:
        example = re.sub(
            r"(?m)^# state_dir = .*$", lambda _: _pair("state_dir", state_dir), example
        )
    head, samples, rest = example.partition("# [[roots]]\n")
    lines = [
        f"# {line}" if re.match(r"[a-z_]+ = ", line) and not line.startswith("state_dir") else line
        for line in head.splitlines()
    ]
    roots = [_root(one) for one in homes]
    return "\n".join(lines) + "\n" + ("\n".join(roots) if roots else samples + rest)


def _root(home: Home) -> str:
    note = f", {home.note}" if home.note else ""
    return f"# {home.agent}{note}\n[[roots]]\n{_pair('path', home.path)}\n"


def _pair(key: str, text: str) -> str:
    return f"{key} = {json.dumps(text, ensure_ascii=False)}"


def user_unit(command: Sequence[str], writable: Iterable[str]) -> str:
    """Write the unit of a user for this program, with what it has to write beside the usual."""
    lines = []
    for line in packaged.text(packaged.USER_UNIT).splitlines():
        if line == _STARTS:
            lines.append("ExecStart=" + " ".join(map(_word, command)))
        else:
            lines.append(line)
        if line.startswith(_WRITES):
            last = len(lines)
    more = [f"{_WRITES}{_word('-' + path)}" for path in writable]
    return "\n".join([*lines[:last], *more, *lines[last:]]) + "\n"


def _word(text: str) -> str:
    """Write a word of a unit: `%` begins a specifier there, `$` a variable."""
    escaped = text.replace("\\", "\\\\").replace("%", "%%").replace("$", "$$")
    if not _SPACE.search(text):
        return escaped
    return '"' + escaped.replace('"', '\\"') + '"'


def beside(places: Iterable[str], usual: Iterable[str]) -> list[str]:
    """Give the places that lie below none of the usual ones, each once."""
    around = [os.path.realpath(one) for one in usual]
    return list(dict.fromkeys(
        place for place in places
        if not any(os.path.commonpath([os.path.realpath(place), one]) == one for one in around)
    ))  # fmt: skip
