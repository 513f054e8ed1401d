"""Converts between milliseconds and the `timedelta` and `datetime` of kio's entities."""

from datetime import UTC, datetime, timedelta

NO_THROTTLE = timedelta(0)


def to_ms(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)


def from_ms(ms: int) -> timedelta:
    return timedelta(milliseconds=ms)


def wall_time(ms: int) -> datetime:
    """Milliseconds since the epoch, which may be -1 for none, as a `datetime`."""
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms)
