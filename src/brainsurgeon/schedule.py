"""Triggers of the scheduler for scans and retention runs."""

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from apscheduler.triggers.combining import OrTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.interval import IntervalTrigger

from brainsurgeon.config import ScheduleSettings
from brainsurgeon.config.values import DAYS, cron_numbers


class _LocalZone(tzinfo):
    """Local time of the C library. APScheduler's own refuses a TZ such as CET-1CEST."""

    def fromutc(self, moment: datetime) -> datetime:
        local = moment.replace(tzinfo=UTC).astimezone()
        is_second = self.utcoffset(local) != local.utcoffset()  # of two equal times in autumn
        return local.replace(tzinfo=self, fold=is_second)

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        return moment.replace(tzinfo=None).astimezone().utcoffset() if moment else None

    def dst(self, _: datetime | None) -> None:
        return None

    tzname = dst


LOCAL = _LocalZone()


def scan_trigger(settings: ScheduleSettings) -> Any:
    if settings.auto_cron:
        return cron_trigger(settings.auto_cron)
    return IntervalTrigger(seconds=settings.scan_interval, timezone=UTC)


def cron_trigger(expression: str) -> Any:
    """Parse five fields as cron does. Raises ValueError if cron would refuse them."""
    # APScheduler counts weekdays from Monday, also in `CronTrigger.from_crontab`. It requires that
    # both the day of the month and the weekday match. Cron requires only one of them, unless one
    # of the two fields begins with a star.
    *numbers, weekdays = cron_numbers(expression)
    minute, hour, day, month = (",".join(map(str, field)) for field in numbers)
    weekday = ",".join(DAYS[number] for number in weekdays)
    fields = {"minute": minute, "hour": hour, "month": month, "timezone": LOCAL}
    _, _, days, _, of_week = expression.split()
    if days.startswith("*") or of_week.startswith("*"):
        return CronTrigger(day=day, day_of_week=weekday, **fields)
    return OrTrigger([CronTrigger(day=day, **fields), CronTrigger(day_of_week=weekday, **fields)])
