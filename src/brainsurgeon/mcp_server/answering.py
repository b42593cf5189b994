"""The answers of purge_control: one method for each action, which calls an operation."""

import json
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec.structs import replace

from brainsurgeon import errors
from brainsurgeon.config import Settings
from brainsurgeon.lookup.entries import contains_entry, entry_named
from brainsurgeon.lookup.opening import open_to_write
from brainsurgeon.lookup.scope import Caller, Scope, other_holder, own_session, session_for
from brainsurgeon.lookup.sessions import Session
from brainsurgeon.mcp_server.call import Call, parse_call
from brainsurgeon.model.entries import is_placeholder
from brainsurgeon.model.reports import BUDGET, LIMIT, LISTED
from brainsurgeon.operations import archive, evidence, restore, sessions, set_extractable, show
from brainsurgeon.render import formatting, turns
from brainsurgeon.render.sessions import restored_json, set_json
from brainsurgeon.rewrite.recover import recover
from brainsurgeon.store import Store, open_to_read

# One text for entries and sessions that are unknown, expired or of another agent, to hide which.
NOT_HERE = "Nothing is extracted under that name here, or its value has expired."
_READING = ("get_context", "show", "search", "evidence")  # the other actions write to the store


def answer(
    settings: Settings, scope: Scope, arguments: dict[str, Any], clock: Callable[[], float],
    meta: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[str, bool]:  # fmt: skip
    """Return the text of the answer to a tool call, and whether it is an error.

    `meta` is what the agent says about the call.
    """
    try:
        call = parse_call(arguments)
        asked = _Asked(settings, Caller(scope, arguments, clock, meta), call)
        reads = call.action in _READING
        with open_to_read(settings.state_dir) if reads else open_to_write(settings) as store:
            if not reads:
                recover(store)
            text: str = getattr(asked, call.action)(store, asked.session(store))
    except errors.BrainsurgeonError as error:
        hidden = type(error) is errors.NotFoundError or isinstance(error, errors.ExpiredError)
        return NOT_HERE if hidden else formatting.in_json(_commands_as_actions(str(error))), True
    except Exception as error:  # noqa: BLE001  as on the command line: no traceback
        return formatting.unexpected(error), True
    return text, False


def _commands_as_actions(message: str) -> str:
    names = {"sessions": "get_context", "pin": "set_extractable"}
    message = re.sub(
        r"`brainsurgeon (sessions|restore|pin|show)[^`]*`",
        lambda command: f"the action `{names.get(command[1], command[1])}`",
        message,
    )
    return message.replace("with --session", "with `session`")  # "--" also begins names of sessions


class _Asked(NamedTuple):
    settings: Settings
    caller: Caller
    call: Call

    @property
    def entry(self) -> str:
        return self.call.entry or ""

    def session(self, store: Store) -> Session:
        """Return the named session, else the calling one, else the only one with the entry.

        If the calling session does not have the entry, return its parent or another session of the
        agent with the entry. Evidence comes only from the calling session and its sub-agents.
        """
        if self.call.action == "evidence":
            return own_session(self.settings, store, self.caller, self.call.session)

        def placed_in(session: Session) -> frozenset[int]:
            return frozenset().union(
                *(store.placements.of_session(record.id) for record in session.records)
            )

        def has_entry(session: Session) -> bool:
            if self.call.action == "set_extractable":
                return contains_entry(store, session, self.entry)
            try:
                named = entry_named(self.settings, store, self.entry, session, to_show=True)
            except errors.NotFoundError:
                return False
            except errors.AmbiguousError:  # several entries of the session match
                return True
            placed, own = placed_in(session), {record.id for record in session.records}
            known = any(value.id in placed or value.session_id in own for value in named.values)
            # Otherwise, only the text of a placeholder was found, perhaps in this very call.
            return known or contains_entry(store, session, self.entry)

        # `done` must not fall back to the only known session: another agent may have made the call.
        any_session = None if self.call.action == "done" else lambda _session: True
        session = session_for(
            self.settings, store, self.caller, self.call.session,
            has_entry if self.call.entry else any_session,
            by_placeholder=is_placeholder(self.entry),
        )  # fmt: skip
        if not self.call.entry or self.call.session:
            return session

        values = store.extractions.of_entry(self.entry)  # perhaps placed in another entry
        placed = placed_in(session)
        if any(one.id in placed for one in values) or contains_entry(store, session, self.entry):
            return session
        return other_holder(
            self.settings, store, self.caller.scope, session,
            lambda other: has_entry(other) and contains_entry(store, other, self.entry),
        )  # fmt: skip

    def within_limit(self, content: dict[str, Any]) -> dict[str, Any]:
        limit = self.call.limit or LIMIT
        if self.call.offset is None:
            return formatting.fitted(content, limit)
        if len(content) != 1:
            names = ", ".join(content)
            raise errors.UsageError(f"offset: needs exactly one value; name it in keys: {names}")
        [(path, value)] = content.items()
        return {path: formatting.page(value, self.call.offset, limit)}

    def get_context(self, store: Store, session: Session) -> str:
        now, settings = self.caller.clock(), self.settings
        content = sessions.context(settings, store, session, now)
        start, most = self.call.offset or 0, self.call.limit or LISTED
        newest = content.extracted[::-1][start : start + most]
        listed = [
            sessions.described(settings, store, content, value, now, preview=True)
            for value in newest
        ]
        whole = turns.context_json(content, listed)
        more = start + most < len(content.extracted)
        return _text({
            **{key: whole[key] for key in ("session", "format", "size_bytes", "state")},
            "extracted_total": len(content.extracted),
            "extracted": listed,
            "archives": whole["archives"][::-1][:most],
            "fullness": whole["fullness"],
            "next_offset": start + most if more else None,
            "would_extract_total": len(content.plan.values),
            "would_extract": whole["would_extract"][:most],
            "would_archive": [turn for turn in whole["turns"] if turn["archivable"]][:most],
            "gain_bytes": content.plan.gain,
            "keep_after_restore_seconds": settings.keep_after_restore,
        })  # fmt: skip

    def show(self, store: Store, session: Session) -> str:
        named = self.settings, store, self.entry, session
        turn = None if self.call.keys else show.show_turn(*named, self.caller.clock())
        if turn is not None:
            whole = b"\n".join(turn.lines).decode("utf-8", "surrogateescape")
            return _text({
                "entry_id": turn.archive.entry_id, "session": turn.session,
                "index": turn.index, "content": self.within_limit({"turn": whole}),
            })  # fmt: skip
        shown = show.show(*named, self.call.keys or ())
        return _text(replace(shown, content=self.within_limit(shown.content)))

    def restore(self, store: Store, session: Session) -> str:
        keys, within_limit = self.call.keys or (), self.within_limit
        done = restore.restore(
            self.settings, store, self.entry, clock=self.caller.clock, session=session,
            how=restore.How(keys, select=within_limit, by_tool=True),
        )  # fmt: skip
        if self.settings.log_level == "debug":
            from brainsurgeon import log  # noqa: PLC0415  at other levels, a restore logs nothing

            log.set_up(self.settings)
            log.restored(done)
        text = _text(restored_json(done, with_content=True))
        restore.note_answer(store, done, text)
        return text

    def set_extractable(self, store: Store, session: Session) -> str:
        return _text(set_json(set_extractable.set_extractable(
            self.settings, store, self.entry, self.call.value, clock=self.caller.clock,
            session=session,
        )))  # fmt: skip

    def done(self, store: Store, session: Session) -> str:
        note, clock = self.call.note or "", self.caller.clock
        prompt = archive.done(self.settings, store, session, note, clock)
        return _text({"noted": True, "session": session.title, "prompt_id": prompt})

    def search(self, store: Store, session: Session) -> str:
        return _text(show.search(self.settings, store, self.call.text or "", session))

    def evidence(self, store: Store, session: Session) -> str:
        call, now = self.call, self.caller.clock()
        return turns.evidence(evidence.evidence(
            self.settings, store, session, now, budget=call.budget or BUDGET, turn=call.turn
        ))  # fmt: skip


def _text(value: Any) -> str:
    """Return JSON; if it contains a lone surrogate, all non-ASCII characters are escaped."""
    value = formatting.in_json(value)
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value)
    return text
