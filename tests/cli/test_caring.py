"""The commands for the store as a whole: they ask, refuse in one line, and speak JSON."""

import os

from building.processes import json_output, run_parallel
from building.world import entry_text


def test_a_backup_comes_back_by_command(world, session, cli):
    """`store backup`, a lost store, `store restore --yes`, and the value goes back."""
    world.close()
    target = world.base / "kept.db"
    made = json_output(cli("store", "backup", target, "--json"))
    (world.state / "store.db").unlink()
    taken = json_output(cli("store", "restore", target, "--yes", "--json"))
    back = cli("restore", session)

    assert (made["path"], made["values_held"]) == (str(target), 1)
    assert made["size_bytes"] == os.stat(target).st_size
    assert (taken["newer"], taken["kept_store"], taken["values_held"]) == ([], None, 1)
    assert back.returncode == 0
    assert entry_text(world.directory / "s.jsonl", session) == "x" * 2000


def test_where_nobody_can_be_asked_nothing_is_replaced_or_removed(world, session, cli):
    """Without a terminal and without `--yes` both commands exit 2 and touch nothing."""
    world.close()
    target = world.base / "kept.db"
    cli("store", "backup", target)
    before = (world.state / "store.db").read_bytes()
    for done in run_parallel(cli, [("store", "restore", target), ("store", "purge")]).values():
        assert done.returncode == 2
        assert b"--yes" in done.stderr
    assert (world.state / "store.db").read_bytes() == before


def test_a_purge_names_what_it_would_lose(world, session, cli):
    """While placeholders stand `store purge` ends with 1 and names them; afterwards it is done."""
    world.close()
    kept, told = (
        cli("store", "purge", "--yes"),
        json_output(cli("store", "purge", "--yes", "--json")),
    )
    cli("restore", "--all")
    gone = cli("store", "purge", "--yes")

    assert kept.returncode == 1
    assert b"main/s: 1 placeholder" in kept.stdout
    assert (told["removed"], [one["session"] for one in told["in_the_way"]]) == (False, ["main/s"])
    assert (gone.returncode, world.state.exists()) == (0, False)
