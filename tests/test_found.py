"""What the long proofs found once, brought back by itself in an instant."""

import errno
import os

import pytest

from brainsurgeon.sessions import replacing


@pytest.mark.parametrize("times", [1, 99])
def test_a_temporary_file_that_cannot_be_removed_stays_named(
    world, conversation, monkeypatch, times
):
    """Where a refused rewrite cannot remove its new file, the journal names it until it is gone."""
    conversation.turn("x" * 3000)
    conversation.turn("y" * 3000)
    path = world.put("one.jsonl", conversation.bytes())
    unlink, failed = os.unlink, []

    def full(name, *arguments, **keywords):
        if ".brainsurgeon-" in str(name) and len(failed) < times:
            failed.append(name)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return unlink(name, *arguments, **keywords)

    with monkeypatch.context() as patch:
        patch.setattr(replacing, "_differs", lambda *_, **__: "the file changed meanwhile")
        patch.setattr(os, "unlink", full)
        report = world.scan(keep_recent=0)
    assert failed
    assert not report.sessions_changed
    assert path.read_bytes() == conversation.bytes()
    named = world.store.connection.execute("SELECT temporary FROM journal").fetchall()
    assert [name for (name,) in named] == world.leftovers()
    world.scan(keep_recent=0)
    assert world.leftovers() == []
    world.restore_all(pristine=True)
    assert path.read_bytes() == conversation.bytes()
