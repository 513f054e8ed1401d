"""Writes OpenTelemetry's metrics in protobuf's wire format."""

from collections.abc import Mapping
from struct import pack

from headrace.runtime.varint import encode_uvarint

DELTA, CUMULATIVE = 1, 2


def message(number: int, data: bytes) -> bytes:
    return encode_uvarint(number << 3 | 2) + encode_uvarint(len(data)) + data


def text(number: int, value: str) -> bytes:
    return message(number, value.encode())


def number(field: int, value: int) -> bytes:
    return encode_uvarint(field << 3) + encode_uvarint(value)


def fixed64(field: int, form: str, value: float) -> bytes:
    return encode_uvarint(field << 3 | 1) + pack(form, value)


def attributes(field: int, values: Mapping[str, str]) -> bytes:
    pairs = (text(1, name) + message(2, text(1, value)) for name, value in values.items())
    return b"".join(message(field, pair) for pair in pairs)


def gauge(name: str, value: float, unit: str = "", **given: str) -> bytes:
    point = fixed64(3, "<Q", 1) + fixed64(4, "<d", value) + attributes(7, given)
    return text(1, name) + text(2, "what it is") + text(3, unit) + message(5, message(1, point))


def counter(name: str, value: int, temporality: int = DELTA, **given: str) -> bytes:
    point = fixed64(6, "<q", value) + attributes(7, given)
    return text(1, name) + message(7, message(1, point) + number(2, temporality) + number(3, 1))


def histogram(name: str, count: int, total: float, **given: str) -> bytes:
    point = fixed64(4, "<Q", count) + fixed64(5, "<d", total) + message(6, pack("<Q", count)) + attributes(9, given)
    return text(1, name) + message(9, message(1, point) + number(2, DELTA))


def metrics_data(*metrics: bytes) -> bytes:
    """A push with these metrics, of one resource and one scope."""
    scope = message(1, text(1, "scope")) + b"".join(message(2, each) for each in metrics)
    return message(1, message(1, attributes(1, {"service": "shop"})) + message(2, scope) + text(3, "schema"))
