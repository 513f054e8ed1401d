"""Spans of pipelines: runs, and batches that are linked with the traces of their messages."""

import pytest
from opentelemetry.trace import SpanKind, StatusCode
from tests.interop.tracing import Telemetry, collected, links, span_id, trace_id

from headrace.pipelines.errors import PipelineFailed

from .running import Pipelines, Write, as_json

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def pipelines(spark, tmp_path, cluster) -> Pipelines:
    return Pipelines(spark, tmp_path, cluster)


@pytest.fixture
def telemetry(monkeypatch):
    with collected(monkeypatch) as found:
        yield found


def traceparent(trace: int) -> bytes:
    return b"00-%032x-%016x-01" % (trace, trace)


def test_a_batch_is_linked_with_its_run_and_a_bounded_number_of_traces(
    pipelines: Pipelines, telemetry: Telemetry, new_topic, write: Write
):
    topic, out = new_topic(2, prefix="orders"), new_topic(1, prefix="out")
    for trace in range(1, 41):
        headers = [("traceparent", traceparent(trace))]
        write(topic, (b"k", as_json(id=str(trace))), partition=trace % 2, headers=headers)
    write(topic, (b"k", as_json(id="x")), (b"k", b"no JSON"), partition=0)
    text = f"""
        [source]
        topic = "{topic}"
        schema = "id STRING"
        [sink]
        topic = "{out}"
        """
    pipelines.run("linked", text)

    run = telemetry.one("run linked")
    (batch,) = [each for each in telemetry.spans if each.name == "process linked/sink"]
    attributes = dict(batch.attributes or {})
    assert batch.kind is SpanKind.CONSUMER
    assert trace_id(batch) != trace_id(run)
    assert links(batch)[0] == span_id(run)
    # The first 16 of each of two partitions.
    assert sorted(links(batch)[1:]) == list(range(1, 33))
    assert attributes["messaging.batch.message_count"] == 42
    assert attributes["messaging.destination.name"] == topic
    assert attributes["headrace.pipeline.rows_out"] == 41
    assert attributes["headrace.pipeline.failed_rows"] == 1
    assert batch.start_time is not None
    assert batch.end_time is not None
    assert batch.end_time > batch.start_time


def test_a_run_that_fails_says_so(pipelines: Pipelines, telemetry: Telemetry, new_topic, write: Write):
    topic, out = new_topic(1, prefix="orders"), new_topic(1, prefix="out")
    write(topic, (b"k", as_json(id="1")))
    text = f"""
        [source]
        topic = "{topic}"
        schema = "id STRING"
        [transform]
        sql = "SELECT raise_error('on purpose') AS id FROM source"
        [sink]
        topic = "{out}"
        [errors]
        on_error = "fail"
        """
    with pytest.raises(PipelineFailed):
        pipelines.run("failing", text)
    run = telemetry.one("run failing")
    assert run.status.status_code is StatusCode.ERROR
    assert str((run.attributes or {})["error.type"]).endswith("PipelineFailed")
