"""Render results as text, HTML or JSON. Nothing is printed here."""

from typing import TYPE_CHECKING

from brainsurgeon import import_at_first_use

if TYPE_CHECKING:
    from brainsurgeon.render import (  # noqa: F401, I001
        estimate, formatting, init, report, runs, sessions, turns,
    )  # fmt: skip
else:
    __getattr__ = import_at_first_use(__name__)
