"""The reader of pushed metrics: what it reads, what it refuses, and its bounds."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.errors import InvalidMetrics
from headrace.monitor.clients.otlp import MAX_ATTRIBUTES, MAX_NAME_CHARS, MAX_POINTS, MetricPoint, read_metrics

from .protobuf import CUMULATIVE, counter, fixed64, gauge, histogram, message, metrics_data, number, text


def test_gauges_sums_and_histograms() -> None:
    data = metrics_data(
        gauge("queue.size", 1.5, "bytes", topic="orders", partition="0"),
        counter("sent", 7),
        counter("total", -7, CUMULATIVE),
        histogram("latency", 4, 10.0, node="1"),
        histogram("idle", 0, 0.0),
    )
    assert read_metrics(data).points == [
        MetricPoint("queue.size", "bytes", (("partition", "0"), ("topic", "orders")), 1.5),
        MetricPoint("sent", "", (), 7.0, is_delta=True),
        MetricPoint("total", "", (), -7.0),
        MetricPoint("latency", "", (("node", "1"),), 2.5),
        MetricPoint("idle", "", (), 0.0),
    ]
    assert read_metrics(data + data).dropped == 0
    assert len(read_metrics(data + data).points) == 10
    assert read_metrics(b"") == ([], 0)


def test_attributes_that_are_no_texts() -> None:
    def pair(value: bytes) -> bytes:
        return message(7, text(1, "a") + message(2, value))

    def value_of(value: bytes) -> str:
        point = message(1, fixed64(4, "<d", 1.0) + pair(value))
        ((_, found),) = read_metrics(metrics_data(text(1, "m") + message(5, point))).points[0].attributes
        return found

    assert value_of(number(2, 1)) == "true"
    assert value_of(number(3, 5)) == "5"
    assert value_of(number(3, (1 << 64) - 5)) == "-5"
    assert value_of(fixed64(4, "<d", 0.5)) == "0.5"
    assert value_of(message(7, b"bytes")) == ""
    assert value_of(b"") == ""


def test_bounds() -> None:
    point = message(1, fixed64(4, "<d", 1.0))
    many = read_metrics(metrics_data(text(1, "m") + message(5, point * (MAX_POINTS + 5))))
    assert (len(many.points), many.dropped) == (MAX_POINTS, 5)
    wide = gauge("n" * 10_000, 1.0, **{f"a{each}": "v" * 10_000 for each in range(50)})
    (found,) = read_metrics(metrics_data(wide)).points
    assert len(found.name) == MAX_NAME_CHARS
    assert len(found.attributes) == MAX_ATTRIBUTES


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a",
        b"\x0a\x05ab",
        b"\x0a\xff\xff\xff\xff\x0f",
        b"\xff" * 11,
        b"\x0b\x0c",  # groups, which are no longer used
        b"\x09\0\0",
        metrics_data(text(1, "m") + message(5, message(1, b"\x21\0"))),
    ],
)
def test_what_is_not_well_formed_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidMetrics):
        read_metrics(data)


def test_nesting_costs_no_depth() -> None:
    data = b""
    for _ in range(2_000):
        data = message(1, data)
    assert read_metrics(data).points == []


@given(st.binary(max_size=200), st.integers(0, 200))
def test_any_bytes_are_read_or_refused(noise: bytes, at: int) -> None:
    good = metrics_data(gauge("queue.size", 1.5, topic="orders"), counter("sent", 7))
    for data in (noise, good[: at % len(good)] + noise, good[: at % len(good)] + noise + good[at % len(good) :]):
        with suppress(InvalidMetrics):
            read_metrics(data)
