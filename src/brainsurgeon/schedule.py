"""Triggers of the scheduler for scans and retention runs."""

from typing import Any

from apscheduler.triggers.combining import OrTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.interval import IntervalTrigger

from brainsurgeon.config import ScheduleSettings
from brainsurgeon.config.values import DAYS, cron_numbers


def scan_trigger(settings: ScheduleSettings) -> Any:
    if settings.auto_cron:
        return cron_trigger(settings.auto_cron)
    return IntervalTrigger(seconds=settings.scan_interval)


def cron_trigger(expression: str) -> Any:
    """Parse five fields as cron does. Raises ValueError if cron would refuse them."""
    # APScheduler counts weekdays from Monday, also in `CronTrigger.from_crontab`. It requires that
    # both the day of the month and the weekday match. Cron requires only one of them, unless one
    # of the two fields begins with a star.
    *numbers, weekdays = cron_numbers(expression)
    minute, hour, day, month = (",".join(map(str, field)) for field in numbers)
    weekday = ",".join(DAYS[number] for number in weekdays)
    fields = {"minute": minute, "hour": hour, "month": month}
    _, _, days, _, of_week = expression.split()
    if days.startswith("*") or of_week.startswith("*"):
        return CronTrigger(day=day, day_of_week=weekday, **fields)
    return OrTrigger([CronTrigger(day=day, **fields), CronTrigger(day_of_week=weekday, **fields)])
