"""The commands, one module each. They return values and print nothing."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from brainsurgeon.operations import (  # noqa: F401, I001
        archive, cat, doctor, estimate, evidence, history, hook, init, relieve, report, restore,
        retention, scan, search, sessions, set_extractable, show, signals, status, store,
    )  # fmt: skip
else:

    def __getattr__(name: str) -> Any:
        """Import a module when it is first used: each command imports only what it needs."""
        try:
            return import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as error:
            raise AttributeError(f"{__name__} has no module {name}") from error
