"""Metrics in OpenTelemetry's format (`MetricsData` of OTLP 1), read from protobuf's wire format. Pure.

Only what is shown is read: names, units, attributes and the values of gauges, sums and histograms. The rest is skipped.
The depth is fixed, lengths are checked before anything is read, and at most `MAX_POINTS` values are read of a push:
others are counted as dropped. `InvalidMetrics` is raised for what is not well formed.
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from headrace.model.errors import InvalidMetrics
from headrace.runtime.protobuf_wire import FIXED64, MalformedMessage, WireField, wire_fields

MAX_POINTS = 2_000
MAX_NAME_CHARS = 256
MAX_ATTRIBUTES = 16
MAX_ATTRIBUTE_CHARS = 128

_DOUBLE, _SIGNED, _UNSIGNED = Struct("<d"), Struct("<q"), Struct("<Q")
_DELTA = 1
_GAUGE, _SUM, _HISTOGRAM = 5, 7, 9
_ATTRIBUTES = {_GAUGE: 7, _SUM: 7, _HISTOGRAM: 9}
"""The number of the field with the attributes, in the points of each kind."""


class MetricPoint(NamedTuple):
    """One value of a metric."""

    name: str
    unit: str
    attributes: tuple[tuple[str, str], ...]
    """Sorted by name."""
    value: float
    """Of a histogram: the mean."""
    is_delta: bool = False
    """Whether it is what was added since the last push."""


class PushedMetrics(NamedTuple):
    points: list[MetricPoint]
    dropped: int


def read_metrics(data: bytes) -> PushedMetrics:
    """The metrics of a push."""
    points: list[MetricPoint] = []
    dropped = 0
    for metric in _nested(memoryview(data), (1, 2, 2)):
        for point in _points(metric):
            if len(points) < MAX_POINTS:
                points.append(point)
            else:
                dropped += 1
    return PushedMetrics(points, dropped)


def _nested(data: memoryview, path: tuple[int, ...]) -> Iterator[memoryview]:
    """The messages at the end of a path of field numbers."""
    for number, _, value in _fields(data):
        if number == path[0] and isinstance(value, memoryview):
            if len(path) == 1:
                yield value
            else:
                yield from _nested(value, path[1:])


def _points(metric: memoryview) -> Iterator[MetricPoint]:
    name = unit = ""
    values: list[tuple[int, memoryview]] = []
    for number, _, value in _fields(metric):
        if isinstance(value, memoryview):
            if number == 1:
                name = _text(value, MAX_NAME_CHARS)
            elif number == 3:
                unit = _text(value, MAX_ATTRIBUTE_CHARS)
            elif number in _ATTRIBUTES:
                values.append((number, value))
    for kind, data in values:
        is_delta, points = False, []
        for number, _, value in _fields(data):
            if number == 1 and isinstance(value, memoryview):
                points.append(value)
            elif number == 2 and kind == _SUM:
                is_delta = value == _DELTA
        for point in points:
            yield _point(kind, name, unit, point, is_delta=is_delta)


def _point(kind: int, name: str, unit: str, data: memoryview, *, is_delta: bool) -> MetricPoint:
    attributes: list[tuple[str, str]] = []
    value, count = 0.0, 0
    for number, wire, field in _fields(data):
        if number == _ATTRIBUTES[kind] and isinstance(field, memoryview):
            if len(attributes) < MAX_ATTRIBUTES:
                attributes.append(_attribute(field))
        elif wire == FIXED64 and isinstance(field, memoryview):
            if kind == _HISTOGRAM:
                if number == 4:
                    (count,) = _UNSIGNED.unpack(field)
                elif number == 5:
                    (value,) = _DOUBLE.unpack(field)
            elif number == 4:
                (value,) = _DOUBLE.unpack(field)
            elif number == 6:
                value = float(_SIGNED.unpack(field)[0])
    if kind == _HISTOGRAM:
        value = value / count if count else 0.0
    return MetricPoint(name, unit, tuple(sorted(attributes)), value, is_delta)


def _attribute(data: memoryview) -> tuple[str, str]:
    name = text = ""
    for number, _, value in _fields(data):
        if isinstance(value, memoryview):
            if number == 1:
                name = _text(value, MAX_ATTRIBUTE_CHARS)
            elif number == 2:
                text = _any_value(value)
    return name, text


def _any_value(data: memoryview) -> str:
    for number, wire, value in _fields(data):
        if number == 1 and isinstance(value, memoryview):
            return _text(value, MAX_ATTRIBUTE_CHARS)
        if number in (2, 3) and isinstance(value, int):
            return str(bool(value)).lower() if number == 2 else str(_as_signed(value))
        if number == 4 and wire == FIXED64 and isinstance(value, memoryview):
            return str(_DOUBLE.unpack(value)[0])
    return ""


def _as_signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _fields(data: memoryview) -> Iterator[WireField]:
    try:
        yield from wire_fields(data)
    except MalformedMessage as error:
        raise InvalidMetrics(str(error)) from None


def _text(data: memoryview, most: int) -> str:
    return bytes(data[: 4 * most]).decode(errors="replace")[:most]
