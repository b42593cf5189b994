"""Sessions that name nothing by which they could be told apart, or lie where others lay."""

import shutil

from building.world import dump


def generic_log(secret):
    """Give a log of generic entries, which names no session and has no times."""
    return b"".join(map(dump, (
        {"type": "message", "__id": "msg-1", "role": "user", "content": "go on"},
        {"type": "tool_call", "__id": "msg-2", "name": "exec", "arguments": {"command": "ls"}},
        {"type": "tool_result", "__id": "msg-3", "name": "exec", "output": f"{secret} " * 400},
        {"type": "message", "__id": "msg-4", "role": "assistant", "content": "done."},
        {"type": "message", "__id": "msg-5", "role": "user", "content": "go on"},
        {"type": "message", "__id": "msg-6", "role": "assistant", "content": "done."},
        {"type": "message", "__id": "msg-7", "role": "assistant", "content": "done."},
    )))  # fmt: skip


def back_from_a_backup(world, one, two):
    """Give both files new inodes; the first gets the one that the second session once had."""
    anew = [shutil.copy2(path, path.with_suffix(".anew")) for path in (one, two)]
    for copy in anew:
        copy.rename(copy.with_suffix(".jsonl"))
    status = one.stat()
    other = next(each for each in world.store.sessions.all() if each.path == str(two))
    world.store.sessions.stands_as(other.id, (status.st_dev, status.st_ino))
