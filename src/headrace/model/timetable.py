"""Timetables of periodic work: the due times of `every 5 minutes`, or of a cron expression in a time zone. Pure.

Due times are milliseconds since the epoch and follow from the rule alone, so every broker computes the same ones:

- `every`: the multiples of the period since the epoch. `every 1 hour` is due on the hour, `every 1 day` at midnight
  UTC.
- `cron`: as Debian's cron does (the library `cronsim`), with five fields, or six with seconds first. When the clocks
  are set forward, a job at a fixed time within the hour that is left out is due right after it; when they are set back,
  such a job is due once. A job whose minute or hour begins with `*` is due as often as time passes.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from itertools import takewhile
from typing import Protocol
from zoneinfo import ZoneInfo

from headrace.model.errors import SettingsError

SHORTEST_MS = 100
_LONGEST_MS = 366 * 24 * 60 * 60 * 1000
_UNITS_MS = {
    "ms": 1, "millisecond": 1, "s": 1000, "second": 1000, "m": 60_000, "minute": 60_000, "h": 3_600_000,
    "hour": 3_600_000, "d": 86_400_000, "day": 86_400_000, "week": 604_800_000
}  # fmt: skip
_PERIOD = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)?\s*([a-z]+)")
_MAX_LENGTH = 200


class Timetable(Protocol):
    """The due times of a rule."""

    def next_after(self, at_ms: int) -> int | None:
        """The first due time after this time; None if there is none within fifty years."""
        ...

    def latest(self, after_ms: int, until_ms: int, most: int) -> list[int]:
        """The last `most` due times after the one and until the other, in order."""
        ...


class Period:
    """The multiples of a number of milliseconds."""

    def __init__(self, period_ms: int) -> None:
        self.period_ms = period_ms

    def next_after(self, at_ms: int) -> int | None:
        return (at_ms // self.period_ms + 1) * self.period_ms

    def latest(self, after_ms: int, until_ms: int, most: int) -> list[int]:
        last = until_ms // self.period_ms
        first = max(after_ms // self.period_ms + 1, last - most + 1)
        return [number * self.period_ms for number in range(first, last + 1)]


class Cron:
    """The times of a cron expression."""

    def __init__(self, expression: str, zone: ZoneInfo) -> None:
        self._expression = expression
        self._zone = zone

    def next_after(self, at_ms: int) -> int | None:
        return next(self._after(at_ms), None)

    def latest(self, after_ms: int, until_ms: int, most: int) -> list[int]:
        # Backwards in growing steps, so that a year of minutes is not walked through for the last of them.
        step_ms = 1000 * most
        while True:
            start_ms = max(after_ms, until_ms - step_ms)
            found = list(takewhile(lambda due_ms: due_ms <= until_ms, self._after(start_ms)))
            if len(found) >= most or start_ms == after_ms:
                return found[-most:]
            step_ms *= 2

    def _after(self, at_ms: int) -> Iterator[int]:
        from cronsim import CronSim

        # It is exact to the second, and in the repeated hour the library begins with its first occurrence.
        for found in CronSim(self._expression, datetime.fromtimestamp(at_ms // 1000, self._zone)):
            due_ms = round(found.timestamp()) * 1000
            if due_ms > at_ms:
                yield due_ms


@lru_cache(1024)
def read_timetable(rule: str, timezone: str = "UTC") -> Timetable:
    """The timetable of a rule: `every` and a period, or `cron` and an expression. `SettingsError` if it is not one."""
    kind, _, rest = rule.strip().partition(" ")
    if len(rule) > _MAX_LENGTH:
        raise SettingsError(f"a schedule has at most {_MAX_LENGTH} characters")
    zone = _zone(timezone)
    if kind == "every":
        return Period(period_ms(rest))
    if kind == "cron":
        return _cron(rest, zone)
    raise SettingsError(f"{rule!r} is not a schedule: use 'every 5 minutes', or 'cron 0 6 * * *'")


def period_ms(text: str) -> int:
    """The milliseconds of a period such as `5 minutes`, `1.5 hours`, `day` or `250 ms`."""
    match = _PERIOD.fullmatch(text.strip().lower())
    unit_ms = None if match is None else _UNITS_MS.get(match[2]) or _UNITS_MS.get(match[2].removesuffix("s"))
    if match is None or unit_ms is None:
        raise SettingsError(f"{text!r} is not a period: use a number and seconds, minutes, hours, days or weeks")
    found = float(match[1] or 1) * unit_ms
    if not SHORTEST_MS <= found <= _LONGEST_MS or found != int(found):
        raise SettingsError(
            f"a period is a whole number of milliseconds, from {SHORTEST_MS} ms to 366 days, not {text}"
        )
    return int(found)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):
        raise SettingsError(f"{name!r} is not a time zone: use a name such as UTC or Europe/Berlin") from None


def _cron(expression: str, zone: ZoneInfo) -> Cron:
    # Programs without cron expressions do not need the library.
    from cronsim import CronSim, CronSimError

    try:
        CronSim(expression, datetime(2000, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        raise SettingsError(
            f"{expression!r} is not a cron expression, {str(error).lower()}: use minute, hour, day of month, month and "
            "day of week, such as 0 6 * * *"
        ) from None
    return Cron(expression, zone)
