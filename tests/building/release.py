"""A world as release 0.1.0 left it: sessions, a store, wishes, a rewrite that was cut off.

It was made with the program of that release; see `samples/NOTE.md`.
"""

import os
import shutil
import sqlite3
from contextlib import closing

from building.world import SAMPLES

RELEASE = SAMPLES / "release-0.1.0"
NOW = 1_795_000_000
"""When everything in it happened."""


def release_0_1_0(world):
    """Put the world of 0.1.0 in place; give every session's file with what its agent had said."""
    shutil.rmtree(world.root)
    shutil.copytree(RELEASE / "agents", world.root)
    base = bytes(world.base)
    for path in world.root.rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes().replace(b"{text}", base))
            os.utime(path, (NOW - 7 * 86_400,) * 2)
    _store(world, base)
    originals = RELEASE / "originals"
    return {
        world.root / path.relative_to(originals): path.read_bytes().replace(b"{text}", base)
        for path in originals.rglob("*.jsonl")
    }


def _store(world, base):
    world.state.mkdir(mode=0o700)
    path = world.state / "store.db"
    path.touch(mode=0o600)
    script = (RELEASE / "store.sql").read_text()
    script = script.replace("{base}", base.hex()).replace("{text}", base.decode())
    with closing(sqlite3.connect(path)) as database:
        database.executescript(script)
        [(directory, name, temporary)] = database.execute(
            "SELECT directory, name, temporary FROM journal"
        )
        new = os.stat(os.path.join(directory, name))
        old = os.stat(os.path.join(os.fsdecode(directory), temporary))
        database.execute(
            "UPDATE journal SET device = ?, inode = ?, new_inode = ?",
            (old.st_dev, old.st_ino, new.st_ino),
        )
        database.commit()
