"""Sessions that resemble each other, and renames, copies and forks of their files.

Each function on files takes the world and `files`, the paths with their contents before any
extraction. It changes the files and returns the new `files`.
"""

import json
import os
import shutil
import time
from pathlib import Path

from building.world import LONG_AGO, Conversation, dump, fork

OTHER = "22222222-0000-4000-8000-000000000002"
THIRD = "33333333-0000-4000-8000-000000000003"


# --- sessions ------------------------------------------------------------------------------------


def generic_log(secret, **more):
    """Return a log of generic entries; `more` are fields of the entry with the secret."""
    return b"".join(map(dump, (
        {"type": "message", "__id": "msg-1", "role": "user", "content": "go on"},
        {"type": "tool_call", "__id": "msg-2", "name": "exec", "arguments": {"command": "ls"}},
        {"type": "tool_result", "__id": "msg-3", "name": "exec", "output": f"{secret} " * 400,
         **more},
        {"type": "message", "__id": "msg-4", "role": "assistant", "content": "done."},
        {"type": "message", "__id": "msg-5", "role": "user", "content": "go on"},
        {"type": "message", "__id": "msg-6", "role": "assistant", "content": "done."},
        {"type": "message", "__id": "msg-7", "role": "assistant", "content": "done."},
    )))  # fmt: skip


def conversation_with(secret, session="11111111-0000-4000-8000-000000000001"):
    conversation = Conversation(session)
    conversation.turn(f"{secret}: " + "x" * 2000)
    conversation.turn("short")
    return conversation


def with_own_id(secret):
    return conversation_with(secret, f"session-{secret.replace(' ', '-')}").bytes()


def with_same_id(secret):
    """Return an OpenClaw session whose id, header and entry ids are those of every other one."""
    return conversation_with(secret).bytes()


def write_old_session(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.bytes())
    return make_old(path), path.read_bytes()


def make_old(path):
    os.utime(path, (time.time() - LONG_AGO,) * 2)
    return path


def write_anew(path, data):
    """Write a file beside a session and rename it over the session."""
    before = path.stat().st_ino
    write_old_session(path.with_suffix(".writing"), data)[0].rename(path)
    assert path.stat().st_ino != before


def with_new_ids(data):
    """Return an OpenClaw session as an agent writes it again with new ids and times."""
    header, *lines = [json.loads(line) for line in data.splitlines()]
    last = None
    for number, line in enumerate(lines):
        line["id"], line["parentId"] = f"new-{number}", last
        line["timestamp"] = "2026-12-01T00:00:00.000Z"
        last = line["id"]
    return b"".join(map(dump, [header, *lines]))


def check_restored(world, files, **settings):
    """Restore everything; check that each file is as it was, with nothing left over."""
    results = world.restore_all(pristine=True, **settings)
    assert {path: path.read_bytes() for path in files} == files
    assert not any(result.unfinished for result in results), results


def write_three_sessions(world, session):
    """Write two sessions of one agent and one of another, with contents made by `session`."""
    places = ("main/sessions/a.jsonl", "main/sessions/b.jsonl", "other/sessions/c.jsonl")
    return dict(
        write_old_session(world.root / place, session(f"secret {number}"))
        for number, place in enumerate(places)
    )


# --- moved ---------------------------------------------------------------------------------------


def rename(files, old, new):
    new.parent.mkdir(parents=True, exist_ok=True)
    old.rename(new)
    return {
        new / path.relative_to(old) if path.is_relative_to(old) else path: content
        for path, content in files.items()
    }


def exchange_names(files, first, second):
    between = first.with_name("between")
    return rename(rename(rename(files, first, between), second, first), between, second)


def files_renamed(_world, files):
    for path in list(files):
        files = rename(files, path, path.with_name(f"was-{path.name}"))
    return files


def agent_renamed(world, files):
    return rename(files, world.root / "main", world.root / "prime")


def moved_to_another_agent(world, files):
    """Move all files into the directory of an agent that has a session of its own."""
    place = world.root / "third" / "sessions"
    own, content = write_old_session(place / "own.jsonl", conversation_with("own", THIRD))
    for path in list(files):
        files = rename(files, path, place / path.name)
    return files | {own: content}


def copied_and_removed(world, files):
    """Move an agent's directory as between filesystems: by a copy."""
    restore_from_a_backup(world.root / "main", world.base / "backup")
    return agent_renamed(world, files)


def agents_exchanged(world, files):
    return exchange_names(files, world.root / "main", world.root / "other")


def files_exchanged(_world, files):
    first, second, *_ = files
    return exchange_names(files, first, second)


def rotated(world, files):
    """Rename a log and begin a new one at its path."""
    path, *_ = files
    files = rename(files, path, path.with_name("a.1.jsonl"))
    content = files[path.with_name("a.1.jsonl")].replace(b"secret", b"second")
    return files | dict([write_old_session(world.directory / path.name, content)])


# --- the root ------------------------------------------------------------------------------------


def root_renamed(world, files):
    old, world.root = world.root, world.base / "renamed"
    return rename(files, old, world.root)


def root_renamed_behind_a_link(world, files):
    """Rename the root and leave a link to it; the configuration stays."""
    old, new = world.root, world.base / "renamed"
    files = rename(files, old, new)
    old.symlink_to(new)
    return files


def root_renamed_beside_a_link(world, files):
    files = root_renamed_behind_a_link(world, files)
    world.root = world.base / "renamed"
    return files


# --- inodes --------------------------------------------------------------------------------------


def contents_exchanged(_world, files):
    """Write the contents of two sessions into each other's file."""
    first, second, *_ = files
    first_content, second_content = first.read_bytes(), second.read_bytes()
    write_old_session(first, second_content)
    write_old_session(second, first_content)
    return files | {first: files[second], second: files[first]}


def exchanged_by_links(_world, files):
    """Exchange the names of two sessions of one agent by hard links."""
    first, second, *_ = files
    between = first.with_name("between")
    os.link(first, between)
    second.replace(first)
    between.rename(second)
    return files | {first: files[second], second: files[first]}


def inodes_exchanged(world, files):
    return contents_exchanged(world, files_exchanged(world, files))


def inodes_reused(_world, files):
    """Delete all files and write them again, so that inode numbers go to other sessions."""
    contents = {path: path.read_bytes() for path in files}
    for path in contents:
        path.unlink()
    for path in reversed(contents):
        write_old_session(path, contents[path])
    return files


def files_written_anew(_world, files):
    for path in files:
        write_anew(path, path.read_bytes())
    return files


def root_restored_from_a_backup(world, files):
    restore_from_a_backup(world.root, world.base / "backup")
    return files


def restore_from_a_backup(directory, backup):
    shutil.copytree(directory, backup)
    shutil.rmtree(directory)
    shutil.copytree(backup, directory)


# --- copied --------------------------------------------------------------------------------------


def copied_beside(_world, files):
    for path, content in list(files.items()):
        copy = shutil.copy2(path, path.with_name(f"copy-of-{path.name}"))
        second_copy = shutil.copy2(copy, path.with_name(f"again-{path.name}"))
        files = files | {Path(copy): content, Path(second_copy): content}
    return files


def copied_in_an_agent_renamed(world, files):
    return copied_beside(world, agent_renamed(world, files))


def copied_to_another_agent(world, files):
    place = world.root / "third" / "sessions"
    place.mkdir(parents=True)
    return files | {
        Path(shutil.copy2(path, place / path.name)): content for path, content in files.items()
    }


def copied_and_deleted(world, files):
    """Copy every file to another agent's directory and delete the original."""
    copies = copied_to_another_agent(world, files)
    for path in files:
        path.unlink()
    return {path: content for path, content in copies.items() if path not in files}


def copied_after_an_exchange(world, files):
    first, _, third = files
    files = agents_exchanged(world, files)
    here = world.directory / third.name
    copies = [here.with_name("copy.jsonl"), here.with_name(first.name)]
    return files | {Path(shutil.copy2(here, copy)): files[here] for copy in copies}


def moved_and_replaced_by_a_copy(world, files):
    first, second, *_ = files
    files = rename(files, first, first.with_name("moved.jsonl"))
    return files | {Path(shutil.copy2(second, first)): files[second]}


# Moves and copies of sessions of any format.
MOVES = [
    files_renamed, agent_renamed, moved_to_another_agent, copied_and_removed, agents_exchanged,
    files_exchanged, rotated, root_renamed, root_renamed_behind_a_link, root_renamed_beside_a_link,
    contents_exchanged, exchanged_by_links, inodes_exchanged, inodes_reused, files_written_anew,
    root_restored_from_a_backup, copied_beside, copied_in_an_agent_renamed, copied_to_another_agent,
    copied_and_deleted, copied_after_an_exchange, moved_and_replaced_by_a_copy,
]  # fmt: skip

# Those by which a file gets into the directory of another agent, or beside its renamed agent.
BETWEEN_AGENTS = [
    moved_to_another_agent, agents_exchanged, copied_in_an_agent_renamed, copied_to_another_agent,
    copied_and_deleted, copied_after_an_exchange,
]  # fmt: skip


# --- forked --------------------------------------------------------------------------------------


def add_fork(files, path, name=OTHER, **more):
    child = make_old(fork(path, name, **more))
    header = child.read_bytes().splitlines(keepends=True)[0]
    return child, files | {child: header + files[path].split(b"\n", 1)[1]}


def fork_beside(_world, files):
    return add_fork(files, next(iter(files)))[1]


def fork_of_a_fork(_world, files):
    child, files = add_fork(files, next(iter(files)))
    _, files = add_fork(files, child, THIRD)
    return delete(files, child)


def fork_of_an_agent_renamed(world, files):
    files = agent_renamed(world, files)
    return add_fork(files, world.root / "prime" / "sessions" / "a.jsonl")[1]


def fork_renamed_with_its_agent(world, files):
    return agent_renamed(world, fork_beside(world, files))


def fork_alone_in_an_agent_renamed(world, files):
    parent, *_ = files
    return agent_renamed(world, delete(fork_beside(world, files), parent))


def fork_in_another_agent(world, files):
    parent, *_ = files
    child, files = add_fork(files, parent)
    return delete(rename(files, child, world.root / "other" / "sessions" / child.name), parent)


def fork_of_an_old_name(_world, files):
    """Rename a session and fork it with the old path as the parent."""
    parent, *_ = files
    new = parent.with_name("renamed.jsonl")
    return add_fork(rename(files, parent, new), new, parent=str(parent))[1]


def fork_between_two_names(_world, files):
    """Rename a session, fork it and rename it again, so that the fork names a temporary path."""
    parent, *_ = files
    between = parent.with_name("between.jsonl")
    _, files = add_fork(rename(files, parent, between), between)
    return rename(files, between, parent.with_name("last.jsonl"))


def fork_and_another_parent(_world, files):
    """Fork and rename a session; another one takes the path that the fork names."""
    parent, *_ = files
    _, files = add_fork(files, parent)
    content = files[parent].replace(b"secret", b"another")
    files = rename(files, parent, parent.with_name("moved.jsonl"))
    return files | dict([write_old_session(parent, content)])


def entries_under_another_header(_world, files):
    """Replace a session by one with another header and the same entries."""
    path, *_ = files
    child, files = add_fork(files, path, THIRD)
    return delete(rename(files, child, path.with_name("another.jsonl")), path)


def delete(files, path):
    path.unlink()
    return {other: content for other, content in files.items() if other != path}


# Forks by agents that write a header of their own.
FORKS = [
    fork_beside, fork_of_a_fork, fork_of_an_agent_renamed, fork_renamed_with_its_agent,
    fork_alone_in_an_agent_renamed, fork_in_another_agent, fork_of_an_old_name,
    fork_between_two_names, fork_and_another_parent, entries_under_another_header,
]  # fmt: skip
