"""What comes with the program beside its code: the example of a configuration, units, skills.

A wheel carries them below `packaged/`; in a clone they lie where its builder takes them from.
"""

from __future__ import annotations

import os

EXAMPLE = "config.toml.example"
USER_UNIT = "systemd/user/brainsurgeon.service"
_INSTALLED = os.path.join(os.path.dirname(__file__), "packaged")
_CLONE = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))


def text(name: str) -> str:
    """Give the text of a file by its path in a clone, such as `config.toml.example`."""
    with open(os.path.join(directory(), name), encoding="utf-8") as handle:
        return handle.read()


def directory() -> str:
    """Give the directory below which the files lie."""
    return _INSTALLED if os.path.isdir(_INSTALLED) else _CLONE
