"""The text of metrics, read back by the parsers of Prometheus' own client library."""

import math
from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_prometheus

from headrace.observe.exposition import SLICE_S, TextFormat, negotiated, rendered
from headrace.observe.families import Metric, MetricFamily, Sample, counter, gauge, histogram, info
from headrace.observe.histogram import Histogram

SENT = counter("x_sent_bytes_total", "Bytes\nsent, with a \\ in the help.", "topic")
FREE = gauge("x_free_bytes", "Free bytes.")
TIME = histogram("x_request_seconds", "Time of a request.", "api")
BUILD = info("x_build_info", "The version.", "version")


def no_failure(metric: Metric, error: Exception) -> None:
    raise AssertionError(metric) from error


def text_of(families: list[MetricFamily], text_format: TextFormat) -> str:
    return b"".join(rendered(families, text_format, lambda: 0.0, no_failure)).decode()


def samples_of(text: str, text_format: TextFormat) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    parse = parse_openmetrics if text_format is TextFormat.OPENMETRICS else parse_prometheus
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parse(text)
        for sample in family.samples
    }


@pytest.mark.parametrize("text_format", TextFormat)
def test_every_kind_is_read_back(text_format: TextFormat) -> None:
    times = Histogram((0.5, 1.0))
    for value in (0.25, 0.75, 3.0):
        times.observe(value)
    families = [
        SENT.family([(SENT.label_text('a"b\\c\nd'), 7), (SENT.label_text("plain"), 2**60)]),
        FREE.single(1.5),
        TIME.family([(TIME.label_text("Produce"), times)]),
        BUILD.family([(BUILD.label_text("1.0"), 1)]),
    ]
    text = text_of(families, text_format)
    found = samples_of(text, text_format)
    assert found["x_sent_bytes_total", (("topic", 'a"b\\c\nd'),)] == 7
    assert found["x_sent_bytes_total", (("topic", "plain"),)] == 2**60
    assert found["x_free_bytes", ()] == 1.5
    assert found["x_request_seconds_bucket", (("api", "Produce"), ("le", "0.5"))] == 1
    assert found["x_request_seconds_bucket", (("api", "Produce"), ("le", "+Inf"))] == 3
    assert found["x_request_seconds_count", (("api", "Produce"),)] == 3
    assert found["x_request_seconds_sum", (("api", "Produce"),)] == 4.0
    assert found["x_build_info", (("version", "1.0"),)] == 1
    assert text.endswith("# EOF\n") is (text_format is TextFormat.OPENMETRICS)


@pytest.mark.parametrize("text_format", TextFormat)
def test_numbers_that_are_not_finite(text_format: TextFormat) -> None:
    (found,) = samples_of(text_of([FREE.single(math.nan)], text_format), text_format).values()
    assert math.isnan(found)
    assert list(samples_of(text_of([FREE.single(-math.inf)], text_format), text_format).values()) == [-math.inf]
    assert list(samples_of(text_of([FREE.single(True)], text_format), text_format).values()) == [1.0]


@given(st.text(max_size=30))
def test_any_label_is_read_back(value: str) -> None:
    text = text_of([SENT.family([(SENT.label_text(value), 1)])], TextFormat.PROMETHEUS)
    ((_, labels),) = samples_of(text, TextFormat.PROMETHEUS)
    assert labels == (("topic", value),)


def test_slices_end_when_their_time_is_used_up() -> None:
    ticks = count()
    clock = lambda: next(ticks) * SLICE_S * 0.6  # noqa: E731
    families = [SENT.family([(SENT.label_text(number), number) for number in range(1000)])]
    slices = list(rendered(families, TextFormat.PROMETHEUS, clock, no_failure))
    assert len(slices) > 5
    assert len(samples_of(b"".join(slices).decode(), TextFormat.PROMETHEUS)) == 1000


def test_a_metric_that_fails_leaves_the_others() -> None:
    def failing() -> Iterator[Sample]:
        yield SENT.label_text("first"), 1
        raise ValueError("planted")

    failed: list[tuple[Metric, Exception]] = []
    families = [SENT.family(failing()), FREE.single(3)]
    text = b"".join(rendered(families, TextFormat.OPENMETRICS, lambda: 0.0, lambda *each: failed.append(each)))
    assert len(samples_of(text.decode(), TextFormat.OPENMETRICS)) == 2
    assert [(metric, str(error)) for metric, error in failed] == [(SENT, "planted")]


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", TextFormat.PROMETHEUS),
        ("*/*", TextFormat.PROMETHEUS),
        ("application/openmetrics-text", TextFormat.OPENMETRICS),
        ("application/openmetrics-text; version=1.0.0; charset=utf-8", TextFormat.OPENMETRICS),
        ("application/openmetrics-text; version=7.0.0", TextFormat.PROMETHEUS),
        ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.9", TextFormat.PROMETHEUS),
        (
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
                "application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
            ),
            TextFormat.OPENMETRICS,
        ),
        ("application/openmetrics-text;q=much", TextFormat.PROMETHEUS),
        (";;,,=;q", TextFormat.PROMETHEUS),
    ],
)
def test_the_accept_header(accept: str, expected: TextFormat) -> None:
    assert negotiated(accept) is expected
