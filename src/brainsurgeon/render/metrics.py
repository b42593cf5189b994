"""Measures in the text format of Prometheus, version 0.0.4.

It is written plainly: a registry of counters is made for programs that count in memory, and what
is measured here stands in the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from brainsurgeon import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable

    from brainsurgeon.operations.metrics import Metric

_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def metrics(measured: Iterable[Metric]) -> str:
    """Write measures, each with its help and its type, behind the version of the program."""
    lines = [
        "# HELP brainsurgeon_build_info The version of the program, as a label.",
        "# TYPE brainsurgeon_build_info gauge",
        f'brainsurgeon_build_info{{version="{__version__}"}} 1',
    ]
    for one in measured:
        lines.append(f"# HELP brainsurgeon_{one.name} {one.says}")
        lines.append(f"# TYPE brainsurgeon_{one.name} {one.kind}")
        lines += [
            f"brainsurgeon_{one.name}{_labels(labels)} {_number(value)}"
            for labels, value in one.samples
        ]
    return "\n".join(lines) + "\n"


def metrics_json(measured: Iterable[Metric]) -> dict[str, Any]:
    """Give measures as other programs read them, each sample with its label, if it has one."""
    return {
        "metrics": [
            {"metric": f"brainsurgeon_{one.name}", "label": next(iter(labels.values()), None),
             "number": float(value)}
            for one in measured for labels, value in one.samples
        ]
    }  # fmt: skip


def _labels(labels: dict[str, str]) -> str:
    told = ",".join(f'{name}="{value.translate(_ESCAPED)}"' for name, value in labels.items())
    return f"{{{told}}}" if told else ""


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
