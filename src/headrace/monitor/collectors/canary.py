"""Metrics of the canary; none unless it has been enabled."""

from collections.abc import Callable, Iterable

from headrace.monitor.canary import Canary
from headrace.monitor.scrape import Collector
from headrace.observe.end_to_end import EndToEnd
from headrace.observe.families import Metric, MetricFamily, counter, histogram
from headrace.observe.histogram import Histogram

_P = "path"
_VALUES: tuple[tuple[Metric, Callable[[EndToEnd], int | Histogram]], ...] = (
    (
        counter("headrace_canary_messages_produced_total", "Messages that the canary has sent, by path.", _P),
        lambda each: each.sent,
    ),
    (
        counter("headrace_canary_messages_received_total", "Messages of the canary that came back in time.", _P),
        lambda each: each.received,
    ),
    (
        counter("headrace_canary_messages_lost_total", "Messages of the canary that did not come back in time.", _P),
        lambda each: each.lost,
    ),
    (
        histogram("headrace_canary_produce_latency_seconds", "From sending until the message is committed.", _P),
        lambda each: each.ack_s,
    ),
    (
        histogram("headrace_canary_roundtrip_latency_seconds", "From sending until the message is read.", _P),
        lambda each: each.roundtrip_s,
    ),
)
METRICS = tuple(metric for metric, _ in _VALUES)


def canary_collector(canary: Canary) -> Collector:
    async def collect() -> Iterable[MetricFamily]:
        used = {name: each for name, each in canary.paths.items() if each.sent}
        return [
            metric.family([(metric.label_text(name), value(each)) for name, each in used.items()])
            for metric, value in _VALUES
        ]

    return collect
