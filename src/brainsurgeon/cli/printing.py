"""Stored values on standard output, raw."""

from __future__ import annotations

import sys
from typing import Any


def print_values(values: dict[str, Any], same_as: dict[str, str]) -> None:
    """Print one value raw, several under their paths and those of their copies."""
    from json import dumps

    from brainsurgeon.model.texts import readable

    texts = []
    for path, value in values.items():
        text = value if isinstance(value, str) else dumps(value, ensure_ascii=False)
        places = ", ".join([path, *(copy for copy, of in same_as.items() if of == path)])
        texts.append(f"==> {readable(places)} <==\n{text}\n" if len(values) > 1 else text)
    if len(values) == 1 and sys.stdout.isatty():
        texts.append("\n")
    out = sys.stdout.buffer
    out.write("".join(texts).encode("utf-8", "surrogatepass"))
    out.flush()
