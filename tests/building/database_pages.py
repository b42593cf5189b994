"""Damage to pages of a database."""

import sqlite3
from contextlib import closing

from brainsurgeon.store.database import PAGE


def leaf_pages(path, name):
    """Return the numbers of the leaf pages of a table or an index, in key order."""
    with closing(sqlite3.connect(path)) as database:
        pending = list(
            database.execute(
                "SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)
            ).fetchone()
        )
    with open(path, "rb") as file:
        data = file.read()
    leaves = []
    while pending:
        number = pending.pop(0)
        page = data[(number - 1) * PAGE : number * PAGE]
        if page[0] in {0x0A, 0x0D}:  # leaves of an index (or a table without row ids), of a table
            leaves.append(number)
            continue
        cells = int.from_bytes(page[3:5], "big")
        places = [int.from_bytes(page[12 + 2 * i : 14 + 2 * i], "big") for i in range(cells)]
        children = [*(page[place : place + 4] for place in places), page[8:12]]
        pending[:0] = [int.from_bytes(child, "big") for child in children]
    return leaves


def damage_pages(path, *pages):
    with open(path, "r+b") as file:
        for page in pages:
            file.seek((page - 1) * PAGE)
            file.write(b"\xa5" * PAGE)
