"""Spans of a pipeline: one for each run, and one for each micro-batch of each query.

A batch has rows of many traces, so its span is the root of a trace of its own and has links: with the run, and with the
traces of its first messages. These are read again from the topics: at most `MAX_MESSAGES` of each of `MAX_PARTITIONS`
partitions, and at most `MAX_SOURCES` traces are linked.
"""

import logging
from collections.abc import Iterator
from datetime import datetime
from itertools import islice

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode

from headrace.client.message import Header
from headrace.client.otel import QUEUES, SCHEMA, TOPICS, error_type
from headrace.client.trace_context import source_links
from headrace.pipelines.control.progress import BatchProgress
from headrace.pipelines.control.topics import cluster_at, matching
from headrace.pipelines.source.messages import read_messages
from headrace.pipelines.spec.model import Spec
from headrace.version import version
from headrace.wire import Cluster, WireError

MAX_PARTITIONS = 8
MAX_MESSAGES = 16
"""Of each partition."""
MAX_SOURCES = 32

_log = logging.getLogger("headrace.pipelines")


class PipelineSpans:
    """The spans of one run."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._tracer = trace.get_tracer("headrace", version(), schema_url=SCHEMA)
        self._clusters: dict[str, Cluster] = {}
        self._run: Span = self._tracer.start_span(
            f"run {spec.name}", attributes={"messaging.system": QUEUES, "headrace.pipeline.name": spec.name}
        )

    def batch(self, batch: BatchProgress) -> None:
        """Make the span of a batch that has ended."""
        if not batch.did_work:
            return
        topics = sorted({topic for topic, _ in batch.offsets})
        attributes: dict[str, str | int] = {
            "messaging.system": TOPICS,
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.batch.message_count": batch.rows_in,
            "messaging.consumer.group.name": self._spec.group,
            "headrace.pipeline.name": self._spec.name,
            "headrace.pipeline.query": batch.query,
            "headrace.pipeline.batch": batch.batch_id,
            "headrace.pipeline.rows_out": batch.rows_out,
            "headrace.pipeline.failed_rows": batch.bad,
        }
        if len(topics) == 1:
            attributes["messaging.destination.name"] = topics[0]
        began_ns = _nanoseconds(batch.at)
        span = self._tracer.start_span(
            f"process {self._spec.name}/{batch.query}",
            Context(),
            SpanKind.CONSUMER,
            attributes,
            [Link(self._run.get_span_context()), *source_links(self._headers(batch), MAX_SOURCES)],
            start_time=began_ns,
        )
        span.end(began_ns + batch.duration_ms * 1_000_000)

    def end(self, error: BaseException | None) -> None:
        """End the span of the run."""
        if error is not None:
            self._run.set_attribute("error.type", error_type(error))
            self._run.set_status(Status(StatusCode.ERROR, str(error)[:256]))
        self._run.end()
        for cluster in self._clusters.values():
            cluster.close()

    def _headers(self, batch: BatchProgress) -> Iterator[tuple[Header, ...]]:
        """The headers of the first messages of a batch."""
        ranges = ((where, batch.starts.get(where, 0), end) for where, end in sorted(batch.offsets.items()))
        for (topic, partition), start, end in islice((each for each in ranges if each[1] < each[2]), MAX_PARTITIONS):
            try:
                messages = read_messages(self._cluster(topic), topic, partition, start, min(end, start + MAX_MESSAGES))
                for message in messages:
                    yield message.headers
            except WireError as error:
                _log.debug("the traces of %s-%d are not linked: %s", topic, partition, error)

    def _cluster(self, topic: str) -> Cluster:
        spec = self._spec
        streams = [each for each in spec.streams.values() if matching(each, [topic])]
        bootstrap = spec.bootstrap_of(streams[0]) if streams else spec.bootstrap
        if bootstrap not in self._clusters:
            self._clusters[bootstrap] = cluster_at(bootstrap, spec.connection)
        return self._clusters[bootstrap]


def _nanoseconds(at: str) -> int:
    return round(datetime.fromisoformat(at).timestamp() * 1_000_000_000)
