"""When things run: the interval or cron of scans, the cron of retention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from apscheduler.triggers.combining import OrTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.interval import IntervalTrigger

from brainsurgeon.config.values import cron_numbers

if TYPE_CHECKING:
    from brainsurgeon.config import Settings

_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


def scan_trigger(settings: Settings) -> Any:
    """Return when scans run: by cron where that is set, else by interval."""
    if settings.auto_cron:
        return cron_trigger(settings.auto_cron)
    return IntervalTrigger(seconds=settings.scan_interval_seconds)


def cron_trigger(expression: str) -> Any:
    """Read five fields as cron does; raise ValueError where cron would refuse them.

    APScheduler counts weekdays from Monday (also in `CronTrigger.from_crontab`) and wants both
    the day of the month and the weekday to fit, where cron is content with either unless one of
    the two fields begins with a star.
    """
    *numbers, weekdays = cron_numbers(expression)
    minute, hour, day, month = (",".join(map(str, field)) for field in numbers)
    weekday = ",".join(_DAYS[number] for number in weekdays)
    fields = {"minute": minute, "hour": hour, "month": month}
    _, _, days, _, of_week = expression.split()
    if days.startswith("*") or of_week.startswith("*"):
        return CronTrigger(day=day, day_of_week=weekday, **fields)
    return OrTrigger([
        CronTrigger(day=day, **fields), CronTrigger(day_of_week=weekday, **fields),
    ])  # fmt: skip
