"""Schedule: cron expressions fire as in Vixie cron, checked against an independent matcher."""

import itertools
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import settings as effort
from hypothesis import strategies as st

from brainsurgeon import config
from brainsurgeon.schedule import LOCAL, cron_trigger, scan_trigger

# Half an hour beside every UTC hour, and without summer time.
ZONE = ZoneInfo("Asia/Kolkata")
SATURDAY = datetime(2026, 11, 21, 12, 34, 56, tzinfo=ZONE)
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
MONTHS = (
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
)  # fmt: skip
BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
NAMES = ((), (), (), MONTHS, DAYS)


@contextmanager
def local_zone(name):
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TZ", name)
        time.tzset()
        yield
    time.tzset()


@pytest.fixture(scope="module", autouse=True)
def in_zone():
    """Set the local time zone, since cron expressions mean local time."""
    with local_zone(ZONE.key):
        yield


def fires(expression, count, after=SATURDAY):
    trigger = cron_trigger(expression)
    moments, previous = [], None
    while len(moments) < count:
        previous = trigger.get_next_fire_time(previous, after)
        moments.append(previous)
        after = previous
    return moments


def weekdays(expression):
    return {DAYS[moment.isoweekday() % 7] for moment in fires(expression, 14)}


class Cron:
    """Vixie cron's reading of the five fields, by brute force."""

    def __init__(self, expression):
        words = expression.lower().split()
        self.sets = [self.numbers(*field) for field in zip(words, BOUNDS, NAMES, strict=True)]
        self.stars = words[2][0] == "*", words[4][0] == "*"

    @staticmethod
    def numbers(word, bounds, names):
        numbers = set()
        for item in word.split(","):
            span, _, step = item.partition("/")
            low, high = bounds
            if span != "*":
                ends = [
                    names.index(end) + bounds[0] if end in names else int(end)
                    for end in span.split("-")
                ]
                low, high = ends[0], ends[-1]
            numbers.update(range(low, high + 1, int(step or 1)))
        return numbers

    def matches_day(self, day):
        _, _, of_month, months, of_week = self.sets
        weekday = day.isoweekday() % 7
        fit = (day.day in of_month, weekday in of_week or (weekday == 0 and 7 in of_week))
        return day.month in months and (all(fit) if any(self.stars) else any(fit))

    def fires(self, count, after):
        midnight = after.replace(hour=0, minute=0, second=0, microsecond=0)
        moments = []
        for ahead in itertools.count():
            day = midnight + timedelta(days=ahead)
            if not self.matches_day(day):
                continue
            for hour, minute in itertools.product(sorted(self.sets[1]), sorted(self.sets[0])):
                moment = day.replace(hour=hour, minute=minute)
                if moment >= after:
                    moments.append(moment)
                    if len(moments) == count:
                        return moments
        raise AssertionError


@st.composite
def items(draw, low, high, names):
    """Draw one item of a field: a star, number or span, with or without a step, or a name."""

    def number_or_name(number):
        name = names[number - low] if number - low < len(names) else str(number)
        return draw(st.sampled_from([name, name.title(), str(number)]))

    kind = draw(st.sampled_from(["star", "number", "span"]))
    if kind == "number":
        return number_or_name(draw(st.integers(low, high)))
    step = draw(st.one_of(st.just(""), st.integers(1, high).map("/{}".format)))
    if kind == "star":
        return "*" + step
    first = draw(st.integers(low, high))
    return f"{number_or_name(first)}-{number_or_name(draw(st.integers(first, high)))}{step}"


def field(low, high, names=()):
    return st.one_of(
        st.just("*"), st.lists(items(low, high, names), min_size=1, max_size=3).map(",".join)
    )


# No day beyond the 28th: what never fires cannot be waited for.
EXPRESSIONS = st.tuples(
    field(0, 59), field(0, 23), field(1, 28), field(1, 12, MONTHS), field(0, 7, DAYS)
).map(" ".join)


# --- weekdays ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "days"),
    [
        ("0", "sun"),
        ("7", "sun"),
        ("1", "mon"),
        ("6", "sat"),
        ("1-5", "mon tue wed thu fri"),
        ("5-7", "fri sat sun"),
        ("6-0", "sat sun"),
        ("0-7", "sun mon tue wed thu fri sat"),
        ("sun-sat", "sun mon tue wed thu fri sat"),
        ("sat-sun", "sat sun"),
        ("mon-fri", "mon tue wed thu fri"),
        ("SUN", "sun"),
        ("Mon-Wed", "mon tue wed"),
        ("*/2", "sun tue thu sat"),
        ("1-5/2", "mon wed fri"),
        ("0,7", "sun"),
        ("mon,3,fri", "mon wed fri"),
        ("1-2,4-5", "mon tue thu fri"),
        ("*", "sun mon tue wed thu fri sat"),
    ],
)  # fmt: skip
def test_cron_weekdays_count_from_sunday(field, days):
    """Sunday is 0 and 7, Monday 1, in numbers, names, spans, steps and lists."""
    assert weekdays(f"0 12 * * {field}") == set(days.split())


# --- day of the month and weekday ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        ("13 * fri", ["11-27", "12-04", "12-11", "12-13", "12-18"]),
        ("13 * *", ["12-13", "01-13", "02-13"]),
        ("* * fri", ["11-27", "12-04", "12-11"]),
        ("*/2 * fri", ["11-27", "12-11", "12-25", "01-01", "01-15"]),
        ("1-7 * */2", ["12-01", "12-03", "12-05", "12-06", "01-02"]),
        ("1,15 12 1", ["12-01", "12-07", "12-14", "12-15", "12-21"]),
    ],
)
def test_cron_matches_either_day_unless_one_is_a_star(days, expected):
    """Day of month or weekday must match; both must match if either field begins with a star."""
    assert [f"{m:%m-%d}" for m in fires(f"0 12 {days}", len(expected))] == expected


# --- against the matcher -------------------------------------------------------------------------


@effort(max_examples=300, deadline=None)
@given(
    EXPRESSIONS,
    st.datetimes(datetime(2024, 1, 1), datetime(2031, 1, 1), timezones=st.just(ZONE)),  # noqa: DTZ001
)
@example("0 */6 * * *", SATURDAY)
@example("*/2 * * * *", SATURDAY)
@example("59 23 28 2 *", SATURDAY)
@example("0 0 * * 5-7/2", SATURDAY)
@example("0 0 1 1 */7", SATURDAY)
@example("*/60 */24 * * *", SATURDAY)
@example("0 0 1 jan-may/2,Dec *", SATURDAY)
@example("0 12 13 * fri", datetime(2026, 11, 1, tzinfo=ZONE))
def test_cron_fires_as_the_independent_matcher(expression, now):
    """The next five moments equal those of a matcher that tries every minute of every day."""
    now = now.replace(microsecond=0)

    assert fires(expression, 5, now) == Cron(expression).fires(5, now)


def test_the_matcher_gives_hand_written_moments():
    """The matcher gives moments that were written down by hand."""
    assert [f"{m:%m-%d %H:%M}" for m in Cron("*/20 8-9 * * 7").fires(7, SATURDAY)] == [
        "11-22 08:00", "11-22 08:20", "11-22 08:40", "11-22 09:00", "11-22 09:20", "11-22 09:40",
        "11-29 08:00",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "bad",
    [
        "0 0 30 2 *", "0 0 31 4,6 */2",
        "60 * * * *", "* 24 * * *", "* * 0 * *", "* * 32 * *", "* * * 13 *", "* * * 0 *",
        "* * * * 8", "* * * * 5-3", "* * * * fri-mon", "* * * * monday", "* * * * */0",
        "* * * * 1/x", "* * * * 1-", "* * * * -5", "* * * * 1/", "* * * * ", "* * * * ,",
        "* * * * *-5", "*/0 * * * *", "5- * * * *", "a * * * *", "1-2-3 * * * *",
        "* * * foo *", "* * * *", "* * * * * *", "", "* * * jan- *", "* * * 1jan *",
        "* * last * *", "* * 1st * *", "1,,2 * * * *",
    ],
)  # fmt: skip
def test_an_invalid_cron_expression_raises_value_error(bad):
    """A field out of bounds or not well-formed raises ValueError."""
    with pytest.raises(ValueError, match="cron"):
        cron_trigger(bad)


# --- time zones ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Europe/Berlin", "Africa/Casablanca", "Australia/Lord_Howe"])
def test_cron_reads_local_times_as_the_time_zone_database(name):
    """For every half hour of a year, time and offset are those of the zone."""
    zone, begin = ZoneInfo(name), datetime(2026, 1, 1, tzinfo=UTC)
    with local_zone(name):
        for halves in range(365 * 48):
            moment = begin + timedelta(minutes=30 * halves)
            ours, theirs = moment.astimezone(LOCAL), moment.astimezone(zone)

            assert ours.replace(tzinfo=zone) == theirs
            assert (ours.fold, ours.utcoffset()) == (theirs.fold, theirs.utcoffset())


@pytest.mark.parametrize(
    ("name", "hour"),
    [("UTC0", 4), ("CET-1CEST,M3.5.0,M10.5.0/3", 2), (":Asia/Kolkata", 22), ("Bogus/Zone", 4)],
)
def test_cron_follows_every_time_zone_of_the_c_library(name, hour):
    """TZ may have any form that the C library knows. It takes UTC for an unknown name."""
    with local_zone(name):
        fire = cron_trigger("15 4 * * *").get_next_fire_time(None, datetime(2026, 7, 1, tzinfo=UTC))

        assert fire.astimezone(UTC).hour == hour


# --- scans ---------------------------------------------------------------------------------------


def test_scans_follow_the_interval_without_auto_cron():
    """Without `auto_cron`, a scan is due `scan_interval` seconds after the last one."""
    trigger = scan_trigger(config.Settings(scan_interval=45))

    assert trigger.get_next_fire_time(SATURDAY, SATURDAY) == SATURDAY + timedelta(seconds=45)


def test_auto_cron_replaces_the_scan_interval():
    """With `auto_cron`, scans run when the expression fires in local time."""
    trigger = scan_trigger(config.Settings(auto_cron="15 4 * * *", scan_interval=45))

    assert trigger.get_next_fire_time(None, SATURDAY) == datetime(2026, 11, 22, 4, 15, tzinfo=ZONE)
    assert trigger.get_next_fire_time(None, SATURDAY.astimezone(UTC)) == datetime(
        2026, 11, 21, 22, 45, tzinfo=UTC
    )
