"""The seam to OpenTelemetry: what is imported where, and the contexts that messages carry."""

import subprocess
import sys

import pytest
from opentelemetry.trace import INVALID_SPAN

from headrace.client import tracer
from headrace.client.trace_context import MAX_LINKS, context_headers, links_of, source_links

PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def traceparent(trace: int, span: int = 1) -> bytes:
    return b"00-%032x-%016x-01" % (trace, span)


def test_nothing_is_imported_where_opentelemetry_is_missing() -> None:
    script = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "opentelemetry":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
import importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "opentelemetry" else real(name, *more)
from headrace import Client
from headrace.aio import Client as AioClient
for made in (Client("localhost:1"), AioClient("localhost:1")):
    assert made._connection.tracing is None
assert not [name for name in sys.modules if name.partition(".")[0] == "opentelemetry"]
print("fine")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "fine\n", done.stderr


def test_it_is_turned_off_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tracer.messaging_tracer("localhost:1", "c") is not None
    monkeypatch.setenv("OTEL_PYTHON_DISABLED_INSTRUMENTATIONS", "flask, headrace")
    assert tracer.messaging_tracer("localhost:1", "c") is None


@pytest.mark.parametrize(
    ("headers", "span_id"),
    [
        ([("traceparent", PARENT)], 0xB7AD6B7169203331),
        ([("sqs.traceparent", b"String\n" + PARENT)], 0xB7AD6B7169203331),
        ([("a", None), ("tracestate", b"v=1"), ("traceparent", PARENT)], 0xB7AD6B7169203331),
        ([("tracestate", b"v=1")], None),
        ([("traceparent", None)], None),
        ([("traceparent", b"")], None),
        ([("traceparent", b"\xff" * 55)], None),
        ([("traceparent", b"00-" + b"0" * 32 + b"-b7ad6b7169203331-01")], None),
        ([("traceparent", PARENT * 1000)], None),
        ([("sqs.traceparent", PARENT)], None),
    ],
)
def test_the_context_of_a_message(headers: list[tuple[str, bytes | None]], span_id: int | None) -> None:
    found = [each.context.span_id for each in links_of([headers])]
    assert found == ([] if span_id is None else [span_id])


def test_links_are_bounded_and_those_of_a_batch_are_of_different_traces() -> None:
    many = [[("traceparent", traceparent(trace, span))] for trace in range(1, 1000) for span in (1, 2)]
    assert len(links_of(many)) == MAX_LINKS
    assert [each.context.trace_id for each in source_links(many, 10)] == list(range(1, 11))


def test_a_span_without_a_context_adds_no_headers() -> None:
    assert context_headers(INVALID_SPAN) == []
