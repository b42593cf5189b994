"""What is done before the command line is parsed in full: `show`, and `mcp`, as agents call them.

Most of what a command takes is importing. Whatever is unusual here, in the words, in the
configuration or in the store, gets no answer, and then the command itself gives it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from brainsurgeon.lookup.values import Contents


def answer(words: Sequence[str]) -> bool:
    """Do what the words of a command ask for, if that can be done at once; tell whether it was.

    Raise what the server's start raises.
    """
    if (served := _read_server(words)) is not None:
        from brainsurgeon.cli.serving import serve_agent

        serve_agent(served.get("--agent"), served.get("--session"), served.get("--config"))
        return True
    read = _read(words)
    shown = _shown(*read) if read else None
    if shown is None:
        return False
    from brainsurgeon.cli.printing import print_values

    print_values(shown.values, shown.same_as)
    return True


def _read(words: Sequence[str]) -> tuple[str, list[str], str | None] | None:
    """Read `show ENTRY [--key KEY]… [--config FILE]` to its parts; anything else is None."""
    plain: list[str] = []
    keys: list[str] = []
    configs: list[str] = []
    options = {"--key": keys, "--config": configs}
    left = iter(words)
    for word in left:
        name, mark, value = word.partition("=")
        if name in options:
            options[name].append(value if mark else next(left, "-"))
        else:
            plain.append(word)
    several = len(configs) > 1
    if plain[:1] != ["show"] or len(plain) != 2 or several:  # noqa: PLR2004  and its ENTRY
        return None
    if any(word.startswith("-") for word in (*plain, *keys, *configs)):
        return None
    return plain[1], keys, configs[0] if configs else None


def _read_server(words: Sequence[str]) -> dict[str, str] | None:
    """Read `mcp` with an option or some, each given once; anything else is None."""
    if words[:1] != ["mcp"] or len(words) % 2 == 0:
        return None
    options = dict(zip(words[1::2], words[2::2], strict=True))
    once = len(options) * 2 == len(words) - 1
    plain = not any(value.startswith("-") for value in options.values())
    known = options.keys() <= {"--agent", "--session", "--config"}
    return options if once and plain and known else None


def _shown(entry: str, keys: list[str], config: str | None) -> Contents | None:
    from brainsurgeon.config_glance import state_directory

    try:
        directory = state_directory(config)
        if directory is None:
            return None
        from brainsurgeon.lookup.glance import shown_at_once

        return shown_at_once(directory, entry, keys)
    except Exception:  # noqa: BLE001  the command itself comes upon it again, and says so
        return None
