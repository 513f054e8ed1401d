"""Messages and bytes in and out, by topic and in total, counted by the broker that they pass through."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from headrace.monitor.collectors.limits import OmittedSeries
from headrace.monitor.scrape import Collector
from headrace.observe.families import MetricFamily, Sample, counter, label_text
from headrace.observe.traffic import TopicTraffic, TrafficTable

TOPIC_MESSAGES_IN = counter("headrace_topic_messages_in_total", "Records appended by leaders on this broker.", "topic")
TOPIC_BYTES_IN = counter("headrace_topic_bytes_in_total", "Bytes of their batches, as they were sent.", "topic")
TOPIC_MESSAGES_OUT = counter(
    "headrace_topic_messages_out_total",
    "Offsets that consumers were sent (gaps of compaction and markers of transactions count), records that share "
    "groups were, and messages that receivers of a queue were.",
    "topic",
)
TOPIC_BYTES_OUT = counter(
    "headrace_topic_bytes_out_total", "Bytes of batches that consumers were sent; of queues the bodies.", "topic"
)
TOPIC_DROPPED = counter(
    "headrace_topic_messages_dropped_total", "Messages dropped because the backlog was at its bound.", "topic"
)
TOPIC_BYTES_REJECTED = counter("headrace_topic_bytes_rejected_total", "Bytes of batches that were refused.", "topic")
TOPIC_SCHEMA_REFUSALS = counter(
    "headrace_topic_schema_refusals_total", "Records that were refused because they do not fit their schema.", "topic"
)
TOPIC_REPLICATED_IN = counter(
    "headrace_topic_replication_bytes_in_total", "Bytes that followers on this broker have fetched.", "topic"
)
TOPIC_REPLICATED_OUT = counter(
    "headrace_topic_replication_bytes_out_total", "Bytes that leaders on this broker have sent to followers.", "topic"
)
MESSAGES_IN = counter("headrace_messages_in_total", "Records appended by leaders on this broker, in all topics.")
BYTES_IN = counter("headrace_bytes_in_total", "Bytes of their batches, as they were sent.")
MESSAGES_OUT = counter(
    "headrace_messages_out_total", "Offsets, records and messages that clients were sent, in all topics."
)
BYTES_OUT = counter("headrace_bytes_out_total", "Bytes that clients were sent, in all topics.")
BYTES_REJECTED = counter("headrace_bytes_rejected_total", "Bytes of batches that were refused.")
SCHEMA_REFUSALS = counter(
    "headrace_schema_refusals_total", "Records that were refused because they do not fit their schema."
)
REPLICATED_IN = counter("headrace_replication_bytes_in_total", "Bytes that followers on this broker have fetched.")
REPLICATED_OUT = counter(
    "headrace_replication_bytes_out_total", "Bytes that leaders on this broker have sent to followers."
)

_BY_TOPIC = {
    TOPIC_MESSAGES_IN: "messages_in",
    TOPIC_BYTES_IN: "bytes_in",
    TOPIC_MESSAGES_OUT: "messages_out",
    TOPIC_BYTES_OUT: "bytes_out",
    TOPIC_BYTES_REJECTED: "bytes_rejected",
    TOPIC_DROPPED: "messages_dropped",
    TOPIC_SCHEMA_REFUSALS: "schema_refusals",
    TOPIC_REPLICATED_IN: "replicated_in",
    TOPIC_REPLICATED_OUT: "replicated_out",
}
_TOTAL = {
    MESSAGES_IN: "messages_in",
    BYTES_IN: "bytes_in",
    MESSAGES_OUT: "messages_out",
    BYTES_OUT: "bytes_out",
    BYTES_REJECTED: "bytes_rejected",
    SCHEMA_REFUSALS: "schema_refusals",
    REPLICATED_IN: "replicated_in",
    REPLICATED_OUT: "replicated_out",
}
METRICS = (*_TOTAL, *_BY_TOPIC)


def traffic_collector(traffic: TrafficTable, max_topics: Callable[[], int], omitted: OmittedSeries) -> Collector:
    async def collect() -> Iterable[MetricFamily]:
        total = traffic.total()
        shown = omitted.bounded("topics", traffic.topics.items(), len(traffic.topics), max_topics())
        labelled = [(label_text(("topic",), (name,)), found) for name, found in shown]
        return [
            *(metric.single(getattr(total, name)) for metric, name in _TOTAL.items()),
            *(metric.family(_samples(labelled, name)) for metric, name in _BY_TOPIC.items()),
        ]

    return collect


def _samples(labelled: Sequence[tuple[str, TopicTraffic]], name: str) -> Iterator[Sample]:
    return ((labels, getattr(found, name)) for labels, found in labelled)
