"""Log to stderr: text on a terminal, else JSON lines. Write the files of `status --format`.

Events never contain the content of a value. In a journal, each line begins with its priority.
"""

import logging
import os
import secrets
import sys
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from itertools import groupby
from typing import Any, TextIO

import structlog

from brainsurgeon.config import Settings
from brainsurgeon.errors import BrainsurgeonError, UsageError
from brainsurgeon.model.entries import dotted
from brainsurgeon.model.plans import Outcome, Plan
from brainsurgeon.model.reports import DISABLED, RestoreAnswer, RetentionReport, ScanReport
from brainsurgeon.model.text import readable

# By level, as in syslog(3); journald removes them from the lines (sd-daemon(3)).
_PRIORITIES = {"error": "<3>", "warning": "<4>", "info": "<6>", "debug": "<7>"}
_FIRST, _LAST = ("event", "level", "session"), ("module", "timestamp")


def set_up(settings: Settings, warnings: Iterable[str] = ()) -> None:
    terminal = sys.stderr.isatty()
    processors: list[Any] = [structlog.processors.add_log_level]
    if terminal:
        processors += [
            structlog.processors.TimeStamper(fmt="%Y-%m-%d %H:%M:%S", utc=False),
            lambda _logger, _method, event: _ordered(_escaped(event)),
            structlog.dev.ConsoleRenderer(colors=not os.environ.get("NO_COLOR"), sort_keys=False),
        ]
    else:
        processors += [
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            lambda _logger, _method, event: _ordered(event),
            structlog.processors.JSONRenderer(),
        ]
    if _is_journal(sys.stderr):
        processors.append(lambda _logger, method, line: _PRIORITIES[method] + line)
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[settings.log_level.upper()]
        ),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    for warning in warnings:
        structlog.get_logger().warning("setting_ignored", module="daemon", reason=warning)


def _is_journal(stream: TextIO) -> bool:
    """Check whether a stream is the one that systemd connected to the journal (systemd.exec(5))."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def _ordered(event: dict[str, Any]) -> dict[str, Any]:
    """Move the event and its session to the front; the figures keep the order of the call."""
    middle = [key for key in event if key not in _FIRST + _LAST]
    return {key: event[key] for key in (*_FIRST, *middle, *_LAST) if key in event}


def _escaped(value: Any) -> Any:
    """Escape control characters. JSON escapes them anyway."""
    if isinstance(value, str):
        return readable(value)
    if isinstance(value, dict):
        return {_escaped(key): _escaped(item) for key, item in value.items()}
    return [_escaped(item) for item in value] if isinstance(value, list) else value


def scan_finished(report: ScanReport, reported: set[str] | None = None) -> None:
    log = structlog.get_logger()
    for rewrite in report.recovered:
        log.info("rewrite_recovered", module="scan", path=rewrite.path, what=rewrite.what)
    problems = {problem.path: problem.reason for problem in report.unreadable}
    if not report.enabled:
        problems["enabled"] = DISABLED
    reported = set() if reported is None else reported
    texts = {f"{name}: {why}" for name, why in problems.items()}
    for name, why in problems.items():
        emit = log.debug if f"{name}: {why}" in reported else log.warning
        if name == "enabled":
            emit("scan_disabled", module="scan", reason=why)
        else:
            emit("root_unreadable", module="scan", path=name, reason=why)
    if report.files_deferred:
        texts.add(f"{report.files_deferred} deferred")
    untouched = report.files_unchanged + report.files_deferred == report.files_seen
    unchanged = untouched and texts <= reported
    reported.clear()
    reported.update(texts)
    emit = log.debug if unchanged else log.info
    emit(
        "scan_finished", module="scan", files_seen=report.files_seen,
        files_unchanged=report.files_unchanged, files_deferred=report.files_deferred,
        files_failed=report.files_failed, sessions_changed=report.sessions_changed,
        values_extracted=report.values_extracted, values_restored=report.values_restored,
        bytes_before=report.bytes_before, bytes_after=report.bytes_after,
        duration_seconds=report.duration_seconds, dry_run=report.dry_run,
    )  # fmt: skip


def alive(looked_at: int, sessions: int) -> None:
    structlog.get_logger().info(
        "scan_continues", module="scan", looked_at=looked_at, sessions=sessions
    )


def session(outcome: Outcome, *, dry_run: bool = False) -> None:
    log = structlog.get_logger()
    facts = {"module": "scan", "session": outcome.session, "reason": outcome.reason}
    if outcome.outcome == "failed":
        log.error("session_failed", **facts)
    elif outcome.outcome != "changed":
        log.debug("session_left", **facts, outcome=outcome.outcome)
    elif not dry_run:
        log.info("session_changed", **facts, bytes_before=outcome.bytes_before,
                 bytes_after=outcome.bytes_after)  # fmt: skip
        if outcome.plan is not None:
            for warning in outcome.plan.warnings:
                log.warning("session_warning", **facts | {"reason": warning})
            _entries(outcome.session, outcome.plan)


def _entries(session: str, plan: Plan) -> None:
    log = structlog.get_logger()
    for entry_id, removals in groupby(plan.extracted, key=lambda removal: removal.entry_id):
        sizes = {dotted(removal.path): removal.end - removal.start for removal in removals}
        log.debug("extraction", module="extraction", entry_id=entry_id, session=session,
                  keys_extracted=list(sizes), sizes_bytes=sizes)  # fmt: skip
    restored: dict[str, dict[str, int]] = defaultdict(dict)
    for edit in plan.restorations:
        restored[edit.entry_id][dotted(edit.path)] = edit.size
    redacted = any(removal.how == "redact" for removal in plan.removals)
    for entry_id, sizes in restored.items():
        log.debug("restoration", module="extraction", entry_id=entry_id, session=session,
                  keys_restored=list(sizes), sizes_bytes=sizes, redacted=redacted)  # fmt: skip


def retention_finished(report: RetentionReport) -> None:
    log = structlog.get_logger()
    for root, why in report.held_back.items():
        log.warning("retention_held_back", module="retention", root=root, reason=why)
    if report.values_damaged:
        log.error(
            "values_damaged", module="retention", values=report.values_damaged,
            advice="`brainsurgeon doctor` says what to do",
        )  # fmt: skip
    log.info(
        "retention_finished", module="retention", values_held=report.values_held,
        values_deleted=report.values_deleted, bytes_deleted=report.bytes_deleted,
    )  # fmt: skip


def reason(error: Exception) -> str:
    """Return the text of an error if it cannot contain content of a session, else its type."""
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return str(error) if isinstance(error, BrainsurgeonError) else type(error).__name__


def restored(answer: RestoreAnswer) -> None:
    structlog.get_logger().debug(
        "restoration", module="extraction", entry_id=answer.entry_id, session=answer.session,
        keys_restored=list(answer.sizes), sizes_bytes=answer.sizes, pending=answer.pending,
        redacted=answer.redaction is not None,
    )  # fmt: skip


PRIVATE = 0o600
READABLE = 0o644  # for metrics: another user collects them, and they contain no names


# How pages and metrics of this program begin.
_MARKS = (b"<!DOCTYPE html><!-- brainsurgeon status -->", b"# HELP brainsurgeon_")


def write_whole(path: str, text: str, mode: int, *, force: bool = False) -> None:
    """Write a file without a sync: it can be written again. Raises UsageError.

    Without `force`, an existing file is only replaced if this function wrote it.
    """
    if os.path.exists(path) and not os.path.isfile(path):  # else root could replace /dev/null
        raise UsageError(f"{path} is not a regular file; name another file")
    if os.path.lexists(path) and not (force or _is_ours(path)):
        raise UsageError(f"{path} was not written by brainsurgeon and is kept; --force replaces it")
    temporary = f"{path}.{secrets.token_hex(6)}.new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(temporary, flags, mode)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                os.fchmod(descriptor, mode)  # the umask may have restricted it
                file.write(text)
            os.rename(temporary, path)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}; name another file") from None


def _is_ours(path: str) -> bool:
    with suppress(OSError), open(path, "rb") as file:
        return file.readline(100).startswith(_MARKS)
    return False
