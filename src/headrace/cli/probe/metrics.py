"""The figures of a probe for Prometheus, with names like those of KMinion's end-to-end monitoring."""

from collections.abc import Callable, Iterable

from headrace.cli.probe.paths import ProbePath
from headrace.observe.end_to_end import EndToEnd
from headrace.observe.families import Metric, MetricFamily, counter, gauge, histogram
from headrace.observe.histogram import Histogram

PRODUCED = counter("headrace_end_to_end_messages_produced_total", "Messages sent.", "path")
RECEIVED = counter("headrace_end_to_end_messages_received_total", "Messages received in time.", "path")
LOST = counter("headrace_end_to_end_messages_lost_total", "Messages not received in time.", "path")
IN_FLIGHT = gauge("headrace_end_to_end_messages_in_flight", "Messages sent and not received yet.", "path")
ACK = histogram("headrace_end_to_end_produce_latency_seconds", "From sending to the acknowledgement.", "path")
ROUNDTRIP = histogram("headrace_end_to_end_roundtrip_latency_seconds", "From sending to receiving.", "path")


def families(paths: Iterable[ProbePath]) -> list[MetricFamily]:
    found: dict[str, EndToEnd] = {}
    for path in paths:
        with path.lock:
            found[path.name] = path.figures()

    def of(metric: Metric, value: Callable[[EndToEnd], int | Histogram]) -> MetricFamily:
        return metric.family([(metric.label_text(name), value(each)) for name, each in found.items()])

    return [
        of(PRODUCED, lambda each: each.sent),
        of(RECEIVED, lambda each: each.received),
        of(LOST, lambda each: each.lost),
        of(IN_FLIGHT, lambda each: each.pending),
        of(ACK, lambda each: each.ack_s),
        of(ROUNDTRIP, lambda each: each.roundtrip_s),
    ]
