"""Commands on the store as a whole: backup, restore and purge."""

import os

from building.processes import error_line, json_output, program_for, run
from building.world import entry_text


def test_store_restore_brings_back_a_backup_of_a_lost_store(world, entry_id, cli):
    """After `store restore` of a backup a lost store's values can be restored again."""
    world.close()
    target = world.base / "backup.db"
    backup = json_output(cli("store", "backup", target, "--json"))
    (world.state / "store.db").unlink()
    report = json_output(cli("store", "restore", target, "--yes", "--json"))
    restored = cli("restore", entry_id)

    assert (backup["path"], backup["values_held"]) == (str(target), 1)
    assert backup["size_bytes"] == os.stat(target).st_size
    assert (report["newer"], report["kept_store"], report["values_held"]) == ([], None, 1)
    assert restored.returncode == 0
    assert entry_text(world.directory / "s.jsonl", entry_id) == "x" * 2000


def test_store_restore_and_purge_require_yes_without_a_terminal(world, entry_id, cli):
    """Without a terminal and `--yes` both commands exit 2 and leave the store as it is."""
    world.close()
    target = world.base / "backup.db"
    cli("store", "backup", target)
    before = (world.state / "store.db").read_bytes()
    refused = json_output(cli("store", "restore", target, "--json"))
    for words in (("restore", target), ("purge", "--even-so")):
        result = cli("store", *words)
        assert result.returncode == 2
        assert b"--yes" in result.stderr
    assert (world.state / "store.db").read_bytes() == before
    assert refused["exit_code"] == 2


def test_store_purge_refuses_while_placeholders_remain(world, entry_id, cli):
    """`store purge` exits 1 and lists sessions with placeholders, else deletes the store.

    It lists them before it asks.
    """
    world.close()
    refused = cli("store", "purge")
    report = json_output(cli("store", "purge", "--yes", "--json"))
    cli("restore", "--all")
    purged = cli("store", "purge", "--yes")

    assert refused.returncode == 1
    assert b"main/s: 1 extracted value" in refused.stdout
    assert report["removed"] is False
    assert [blocker["session"] for blocker in report["in_the_way"]] == ["main/s"]
    assert (purged.returncode, world.state.exists()) == (0, False)


def test_store_restore_names_why_a_file_is_no_backup(unprivileged_world):
    """A pipe, a link to nothing and others are refused with one line; nothing is made."""
    call, place = program_for(unprivileged_world), unprivileged_world.base
    os.mkfifo(place / "pipe")
    (place / "link").symlink_to("nowhere")
    shut = place / "shut.db"
    shut.write_bytes(b"")
    shut.chmod(0)
    for path, why in {
        place / "pipe": "not a regular file", place: "not a regular file",
        "/dev/null": "not a regular file", place / "none": "no such file",
        place / "link": "a link to a file that is not there",
        place / "pipe/x": "Not a directory", shut: "this user may not read it",
    }.items():  # fmt: skip
        result = call("store", "restore", path, "--yes", ordinary=True)
        said = f"brainsurgeon: {path}: {why}; nothing was changed. Name another file"

        assert (result.returncode, error_line(result)) == (2, said)
    assert not (unprivileged_world.state / "store.db").exists()


def test_store_backup_names_why_a_place_is_none(unprivileged_world):
    """Only a directory that is missing is to be made; nothing is written."""
    call, place = program_for(unprivileged_world), unprivileged_world.base
    assert unprivileged_world.store.exists
    unprivileged_world.close()
    os.mkfifo(place / "pipe")
    shut = place / "shut"
    shut.mkdir(0)
    for parent, why in {
        place / "none": "no such directory; make it, or name another file",
        place / "pipe": "Not a directory; name another file",
        place / "pipe/x": "Not a directory; name another file",
        shut / "x": "Permission denied; name another file",
    }.items():  # fmt: skip
        result = call("store", "backup", parent / "copy.db", ordinary=True)

        assert (result.returncode, error_line(result)) == (2, f"brainsurgeon: {parent}: {why}")


def test_first_scan_names_a_missing_root_once(own_home):
    """A root that cannot be read is not also said to have no sessions."""
    config = own_home / "config.toml"
    config.write_text(f'[[roots]]\npath = "{own_home}/away"\n')
    result = run("scan", "--config", config)

    assert result.returncode == 1
    assert result.stdout.count(b"/away") == 1


def test_first_scan_without_sessions_says_where_it_looked(own_home):
    """The later ones print nothing, for cron mails what is printed."""
    first = run("scan").stdout.decode()

    assert first.startswith(f"no session was found below {own_home}/.openclaw/agents; ")
    assert run("scan").stdout == b""
