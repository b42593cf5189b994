"""Keep the session files of coding agents small, and return every byte on demand."""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

__version__ = "0.2.0"


def import_at_first_use(package: str) -> Callable[[str], Any]:
    """Return a `__getattr__` that imports a module of a package when it is first used."""

    def module(name: str) -> Any:
        if find_spec(f"{package}.{name}") is None:
            raise AttributeError(f"{package} has no module {name}")
        return import_module(f"{package}.{name}")

    return module
