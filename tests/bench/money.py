"""The cost of the recorded calls of sessions under each policy: an estimate, not a time.

    sh deploy/bench.sh money [DIRECTORY] [--json]

Without a directory it replays the sessions in `tests/samples`. A second table shows the share of
the raw cost if the models' caches had other prices.
"""

import os
import time
from pathlib import Path

from brainsurgeon.config import Settings
from brainsurgeon.model.providers import Price
from brainsurgeon.operations.estimate import estimate
from brainsurgeon.render import estimate as render
from brainsurgeon.render.formatting import document, table
from brainsurgeon.store import open_to_read
from building.world import SAMPLES

READS = (0.1, 0.05, 0.025)  # prices of a cached token, as shares of an uncached one


def replay(directory, read=None):
    """Replay every session below a directory with the default configuration.

    `read` is the price of a cached token, for all models; None: their own prices.
    """
    settings = _Priced.model_validate({"roots": [{"path": str(directory)}]})
    settings._read = read
    return estimate(settings, open_to_read(settings.state_dir), (), time.time())


class _Priced(Settings):
    _read: float | None = None

    def price_rules(self):
        return (("*", Price(self._read)),) if self._read else super().price_rules()


def shares(directory, read):
    """Return the cost under each policy as a share of the raw cost."""
    paid = {name: bill.tokens_paid for name, bill in replay(directory, read).policies.items()}
    return {name: tokens / paid["raw"] for name, tokens in paid.items() if paid["raw"]}


def show(directories, *, as_json):
    for name in directories or [SAMPLES]:
        directory = Path(os.environ.get("FROM", ""), name).absolute()
        result = replay(directory)
        if as_json:
            print(document(render.estimate_json(result)))
            continue
        print(render.estimate(result))
        columns = [shares(directory, read) for read in READS]
        rows = [
            (name, *(f"{100 * column[name]:.1f} %" for column in columns))
            for name in columns[0] if name != "raw"
        ]  # fmt: skip
        print("\n" + table(("price of a cached token", *map(str, READS)), rows))
