"""The answers of purge_control: one function an action, over the same verbs as the commands."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from brainsurgeon import render
from brainsurgeon.errors import BrainsurgeonError, ExpiredError, NotFoundError, UsageError
from brainsurgeon.lookup.entries import is_extracted_from
from brainsurgeon.lookup.scope import Scope, session_for
from brainsurgeon.mcp_server.call import LIMIT, LISTED, TOOL, understood
from brainsurgeon.operations.archive import done
from brainsurgeon.operations.context import context, described
from brainsurgeon.operations.restore import note_answer, restore
from brainsurgeon.operations.search import search
from brainsurgeon.operations.set_extractable import set_extractable, stands_in
from brainsurgeon.operations.show import show, show_turn
from brainsurgeon.render import context as taken_apart
from brainsurgeon.render import printable, sessions, turns, unexpected
from brainsurgeon.rewrite.recover import recover
from brainsurgeon.store import open_store, open_to_read

if TYPE_CHECKING:
    from collections.abc import Callable

    from brainsurgeon.config import Settings
    from brainsurgeon.lookup.sessions import Session
    from brainsurgeon.mcp_server.call import Call
    from brainsurgeon.store import Store

# One sentence for what is unknown, another agent's or expired: it must tell nothing more.
NOT_HERE = "Nothing is extracted under that name here, or its value has expired."


def answer(
    settings: Settings, scope: Scope, arguments: dict[str, Any], clock: Callable[[], float],
    tool: str = TOOL,
) -> tuple[str, bool]:  # fmt: skip
    """Do what a call of a tool asks for; give the text of the answer and whether it is an error."""
    try:
        call = understood(arguments if tool == TOOL else {**arguments, "action": "restore"})
        text = _ACTIONS[call.action](_Asked(settings, scope, call, arguments, clock))
    except BrainsurgeonError as error:
        hidden = type(error) is NotFoundError or isinstance(error, ExpiredError)
        return (NOT_HERE if hidden else _storable(_in_words_of_the_tool(str(error)))), True
    except Exception as error:  # noqa: BLE001  the last door, as of the command line
        return unexpected(error), True
    return text, False


_COMMAND = re.compile(r"`brainsurgeon (context|restore|set-extractable|show)[^`]*`")
_OPTION = re.compile(r"--([a-z]+)")


def _in_words_of_the_tool(said: str) -> str:
    """Say the same with our actions and arguments in the place of commands and options."""
    names = {"context": "get_context", "set-extractable": "set_extractable"}
    said = _COMMAND.sub(lambda command: f"the action `{names.get(command[1], command[1])}`", said)
    return _OPTION.sub(r"`\1`", said)


class _Asked:
    """One call with all that it takes to answer it."""

    def __init__(
        self, settings: Settings, scope: Scope, call: Call, arguments: dict[str, Any],
        clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self.settings, self.scope, self.call, self.clock = settings, scope, call, clock
        self._arguments = arguments

    @property
    def entry(self) -> str:
        """The entry that is named."""
        return self.call.entry or ""

    def session(self, store: Store | None) -> Session:
        """Find the session that is named, or makes this call, or alone holds the entry."""
        return session_for(
            self.settings, store, self.scope, self.call.session, self._arguments, self.clock,
            self._holds(store) if self.call.entry else None,
        )  # fmt: skip

    def _holds(self, store: Store | None) -> Callable[[Session], bool]:
        if self.call.action == "set_extractable":
            return lambda one: store is not None and stands_in(store, one, self.entry)
        return lambda one: is_extracted_from(self.settings, store, one, self.entry)

    def given(self, content: dict[str, Any]) -> dict[str, Any]:
        """Return values as far as they were asked for."""
        limit = self.call.limit or LIMIT
        if self.call.offset is None:
            return render.fitted(content, limit)
        if len(content) != 1:
            names = ", ".join(content)
            raise UsageError(f"offset: goes with one value; name it in keys: {names}")
        return {path: render.page(one, self.call.offset, limit) for path, one in content.items()}


def _get_context(asked: _Asked) -> str:
    now, settings = asked.clock(), asked.settings
    with open_to_read(settings.state_dir) or nullcontext() as store:
        chosen = asked.session(store)
        one = context(settings, store, chosen, now)
        start, most = asked.call.offset or 0, asked.call.limit or LISTED
        newest = one.extracted[::-1][start : start + most]
        listed = [described(settings, store, one, value, now, preview=True) for value in newest]
    whole = taken_apart.context_json(one, listed)
    more = start + most < len(one.extracted)
    return _text({
        **{key: whole[key] for key in ("session", "format", "size_bytes", "state")},
        "extracted_total": len(one.extracted),
        "extracted": listed,
        "archives": whole["archives"][::-1][:most],
        "fullness": whole["fullness"],
        "next_offset": start + most if more else None,
        "would_extract_total": len(one.next),
        "would_extract": whole["would_extract"][:most],
        "would_archive": [turn for turn in whole["turns"] if turn["folds"]][:most],
        "gain_bytes": one.gain,
        "keep_after_restore_seconds": settings.keep_after_restore_seconds,
    })  # fmt: skip


def _show(asked: _Asked) -> str:
    with open_to_read(asked.settings.state_dir) or nullcontext() as store:
        session = asked.session(store)
        named = asked.settings, store, asked.entry, session
        turn = None if asked.call.keys else show_turn(*named, asked.clock())
        if turn is not None:
            whole = b"\n".join(turn.lines).decode("utf-8", "surrogateescape")
            return _text(printable({
                "entry_id": turn.archive.entry_id, "session": turn.session,
                "index": list(turn.index), "content": asked.given({"turn": whole}),
            }))  # fmt: skip
        shown = show(asked.settings, store, asked.entry, session, asked.call.keys or ())
    return _text(sessions.shown_json(replace(shown, content=asked.given(shown.content))))


def _restore(asked: _Asked) -> str:
    with open_store(asked.settings.state_dir) as store:
        recover(store)
        done = restore(
            asked.settings, store, asked.entry, clock=asked.clock, session=asked.session(store),
            keys=asked.call.keys or (), give=asked.given,
        )  # fmt: skip
        # Whoever asks by the tool is in a turn, which may not stand in the file yet.
        done = replace(done, redacts=not asked.settings.keep_purge_control_calls)
        if asked.settings.log_level == "debug":
            from brainsurgeon import log  # noqa: PLC0415  no other level says anything here

            log.set_up(asked.settings)
            log.restored(done)
        text = _text(sessions.restored_json(done, content=True))
        note_answer(store, done)
    return text


def _set_extractable(asked: _Asked) -> str:
    with open_store(asked.settings.state_dir) as store:
        recover(store)
        session, value = asked.session(store), asked.call.value
        assert value is not None  # noqa: S101  a call without one was refused
        done = set_extractable(
            asked.settings, store, asked.entry, value, clock=asked.clock, session=session
        )
    return _text(sessions.set_json(done))


def _done(asked: _Asked) -> str:
    with open_store(asked.settings.state_dir) as store:
        recover(store)
        session = asked.session(store)
        prompt = done(asked.settings, store, session, asked.call.note or "", asked.clock)
    return _text({"noted": True, "session": session.title, "prompt_id": prompt})


def _search(asked: _Asked) -> str:
    with open_to_read(asked.settings.state_dir) or nullcontext() as store:
        session = asked.session(store)
        found = search(asked.settings, store, asked.call.text or "", session)
    return _text(turns.hits_json(found))


_ACTIONS: dict[str, Callable[[_Asked], str]] = {
    "get_context": _get_context,
    "show": _show,
    "restore": _restore,
    "set_extractable": _set_extractable,
    "done": _done,
    "search": _search,
}


def _text(value: dict[str, Any]) -> str:
    """Write JSON as the characters it is about; half of one, which UTF-8 has not, is escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return text if _is_text(text) else json.dumps(value)


def _storable(text: str) -> str:
    return text if _is_text(text) else str(printable(text))


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
