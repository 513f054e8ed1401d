"""Where figures are going: the trend of a series, and when a disk is full. Pure."""

from collections.abc import Sequence

RISING, FALLING, STEADY = "rising", "falling", "steady"

TREND_POINTS = 30
"""How many of the last points a trend is made of: five minutes."""
_POINTS_MIN = 3
_CHANGE_MIN = 0.1
"""The share of its mean that a series must change by over its length, to be not steady."""
FORECAST_MIN_S = 60.0
"""A forecast needs samples over this time at least."""


def slope(points: Sequence[tuple[float, float]]) -> float | None:
    """The slope of the line through points (x, y) by least squares; None if they have less than two distinct x."""
    count = len(points)
    if count < 2:
        return None
    mean_x, mean_y = sum(x for x, _ in points) / count, sum(y for _, y in points) / count
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else None


def trend(values: Sequence[float | None]) -> str:
    """rising, falling or steady: the last five minutes of a series, unknown points left out.

    It is not steady if it changes by more than a tenth of its mean over that time, and by at least one.
    """
    points = [(float(at), value) for at, value in enumerate(values[-TREND_POINTS:]) if value is not None]
    if len(points) < _POINTS_MIN:
        return STEADY
    per_point = slope(points) or 0.0
    change = per_point * (points[-1][0] - points[0][0])
    mean = sum(abs(value) for _, value in points) / len(points)
    if abs(change) < max(1.0, _CHANGE_MIN * mean):
        return STEADY
    return RISING if change > 0 else FALLING


def lag_trend(messages: Sequence[float | None], seconds: Sequence[float | None]) -> str:
    """The trend of a group: that of its lag in messages, or in seconds if the messages are steady."""
    found = trend(messages)
    return trend(seconds) if found == STEADY else found


def full_in_s(samples: Sequence[tuple[float, float]]) -> float | None:
    """When the free space of samples (time in s, free bytes) is used up; None if it does not shrink, or it is not known
    yet."""
    if not samples or samples[-1][0] - samples[0][0] < FORECAST_MIN_S:
        return None
    per_s = slope(samples)
    if per_s is None or per_s >= 0:
        return None
    return max(0.0, samples[-1][1] / -per_s)
