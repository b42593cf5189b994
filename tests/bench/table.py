"""Rows of the benchmark: a piece of work, its cost, and the cost of the least work to compare."""

import dataclasses
import json

HEAD = ("work", "took", "least", "limit", "ratio", "memory", "target")


@dataclasses.dataclass(frozen=True)
class Row:
    """A measured piece of work: `took`, in `unit`, is its cost.

    `limit` names a simpler piece of work that it cannot beat, and `bound` is the cost of that.
    `least` is the lowest cost where `took` is a median. `memory` is the peak in megabytes above
    that of an empty interpreter. `target` is the promised value in words, `note` a remark. The
    benchmark fails if the ratio is above `most`.
    """

    work: str
    took: float
    unit: str = "s"
    limit: str = ""
    bound: float | None = None
    memory: float | None = None
    target: str = ""
    note: str = ""
    least: float | None = None
    most: float | None = None

    @property
    def ratio(self):
        """The cost as a multiple of the limit's; None without a limit."""
        return self.took / self.bound if self.bound else None

    def cells(self):
        bound = "" if self.bound is None else f" {amount(self.bound, self.unit)}"
        return (
            self.work, amount(self.took, self.unit),
            "-" if self.least is None else amount(self.least, self.unit),
            f"{self.limit}{bound}" or "-",
            "-" if self.ratio is None else f"{self.ratio:.2f}",
            "-" if self.memory is None else f"{self.memory:.0f} MB",
            self.target or "-",
        )  # fmt: skip

    def json(self):
        return {**dataclasses.asdict(self), "ratio": self.ratio}


def amount(number, unit):
    digits = 0 if abs(number) >= 100 else 1 if abs(number) >= 10 else 2 if abs(number) >= 1 else 3
    return f"{number:,.{digits}f} {unit}"


class Table:
    """Rows, printed one by one when measured, or together as JSON."""

    def __init__(self, *, as_json):
        self.rows, self._as_json = [], as_json
        if not as_json:
            print(line(HEAD), line(["-" * len(word) for word in HEAD]), sep="\n", flush=True)

    def add(self, row):
        self.rows.append(row)
        if not self._as_json:
            print(line(row.cells()), flush=True)
            if row.note:
                print(f"    {row.note}", flush=True)

    def end(self, machine):
        """Print the rest; return whether no row has a ratio above its `most`.

        `machine` describes where this was measured.
        """
        if self._as_json:
            print(json.dumps({"machine": machine, "rows": [row.json() for row in self.rows]}))
        else:
            print(", ".join(f"{key} {value}" for key, value in machine.items()))
        return not any(row.most and row.ratio and row.ratio > row.most for row in self.rows)


def line(cells):
    widths = (58, 11, 11, 36, 7, 8)
    fitted = [cell.ljust(width) for cell, width in zip(cells, widths, strict=False)]
    return " ".join([*fitted, cells[-1]]).rstrip()
