"""The cost of the recorded calls of sessions under each policy: an estimate, not a time.

    sh deploy/bench.sh money [DIRECTORY] [--json]

Without a directory it replays the sessions in `tests/samples`.
"""

import os
import time
from pathlib import Path

from brainsurgeon.config import Settings
from brainsurgeon.operations.estimate import estimate
from brainsurgeon.render import estimate as render
from brainsurgeon.render.formatting import document
from brainsurgeon.store import open_to_read
from building.world import SAMPLES


def replay(directory):
    """Replay every session below a directory with the default configuration."""
    settings = Settings.model_validate({"roots": [{"path": str(directory)}]})
    return estimate(settings, open_to_read(settings.state_dir), (), time.time())


def show(directories, *, as_json):
    for directory in directories or [SAMPLES]:
        result = replay(Path(os.environ.get("FROM", ""), directory).absolute())
        print(document(render.estimate_json(result)) if as_json else render.estimate(result))
