"""kio's entities speak of durations and instants as objects: the few conversions that handlers share."""

from datetime import timedelta

NO_THROTTLE = timedelta(0)


def to_ms(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)
