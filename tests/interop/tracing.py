"""OpenTelemetry's SDK with exporters in memory, set for one test."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.waiting import until


@dataclass
class Telemetry:
    exporter: InMemorySpanExporter
    reader: InMemoryMetricReader
    tracer: trace.Tracer

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def named(self, name: str, count: int = 1) -> list[ReadableSpan]:
        """The spans of a name, once there are so many."""

        def look() -> list[ReadableSpan]:
            found = [each for each in self.spans if each.name == name]
            return found if len(found) >= count else []

        found = until(look, lambda: f"{count} spans {name} in {[each.name for each in self.spans]}")
        assert len(found) == count
        return found

    def one(self, name: str) -> ReadableSpan:
        return self.named(name)[0]

    def points(self, name: str) -> list[Any]:
        """The data points of a metric."""
        data = self.reader.get_metrics_data()
        if data is None:
            return []
        return [
            point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


@contextmanager
def collected(monkeypatch: pytest.MonkeyPatch) -> Iterator[Telemetry]:
    """Telemetry of everything that begins in the block."""
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers, meters = TracerProvider(shutdown_on_exit=False), MeterProvider([reader], shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    # The providers of a process can be set once; this is undone at the end of the test.
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", tracers)
    monkeypatch.setattr(metrics._internal, "_METER_PROVIDER", meters)
    try:
        yield Telemetry(exporter, reader, tracers.get_tracer("test"))
    finally:
        tracers.shutdown()
        meters.shutdown()


@pytest.fixture
def telemetry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Telemetry]:
    with collected(monkeypatch) as found:
        yield found


def trace_id(span: ReadableSpan) -> int:
    return int(_context(span).trace_id)


def span_id(span: ReadableSpan) -> int:
    return int(_context(span).span_id)


def _context(span: ReadableSpan) -> trace.SpanContext:
    context = span.get_span_context()
    assert context is not None
    return context


def links(span: ReadableSpan) -> list[int]:
    """The span ids that a span is linked with."""
    return [each.context.span_id for each in span.links]
