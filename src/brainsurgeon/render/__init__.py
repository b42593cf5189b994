"""Results as text, tables or JSON. Returns strings, prints nothing."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from brainsurgeon.render import (  # noqa: F401, I001
        estimate, formatting, init, report, runs, sessions, turns,
    )  # fmt: skip
else:

    def __getattr__(name: str) -> Any:
        """Import a module when it is first used: each command imports only what it needs."""
        try:
            return import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as error:
            raise AttributeError(f"{__name__} has no module {name}") from error
