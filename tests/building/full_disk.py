"""A store that cannot grow, as on a full disk."""


def fill_store_disk(store):
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages}")


def empty_store_disk(store):
    store._connection.execute("PRAGMA max_page_count = 1000000")
