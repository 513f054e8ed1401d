"""Queues and share groups in the partitions that this broker leads."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from headrace.monitor.collectors.limits import OmittedSeries
from headrace.monitor.monitor import Monitor
from headrace.monitor.scrape import Collector
from headrace.monitor.snapshots import QueueStat, SharePartitionStat
from headrace.observe.families import Metric, MetricFamily, Sample, counter, gauge
from headrace.observe.queue_counts import QueueCounts
from headrace.queues.service import QueueService

VISIBLE = gauge("headrace_queue_visible_messages", "Messages that can be received now.", "queue")
IN_FLIGHT = gauge("headrace_queue_in_flight_messages", "Messages that were received and are not deleted.", "queue")
DELAYED = gauge("headrace_queue_delayed_messages", "Messages that are not available yet.", "queue")
OLDEST = gauge(
    "headrace_queue_oldest_message_age_seconds",
    "Age of the oldest message that is not deleted; 0 without one.",
    "queue",
)
SENT = counter(
    "headrace_queue_messages_sent_total",
    "Messages sent through any protocol, those moved from other queues included, duplicates of a FIFO queue not.",
    "queue",
)
RECEIVED = counter("headrace_queue_messages_received_total", "Messages received.", "queue")
REDELIVERED = counter("headrace_queue_messages_redelivered_total", "Of these, those received before.", "queue")
EMPTY = counter("headrace_queue_empty_receives_total", "Receives that ended without a message.", "queue")
DELETED = counter(
    "headrace_queue_messages_deleted_total", "Messages deleted, which is how they are acknowledged.", "queue"
)
RETURNED = counter("headrace_queue_messages_returned_total", "Messages returned (nack).", "queue")
DEAD_LETTERED = counter(
    "headrace_queue_messages_dead_lettered_total", "Messages moved to the dead-letter queue.", "queue"
)
DROPPED = counter(
    "headrace_queue_messages_dropped_total", "Messages dropped because the backlog was at its bound.", "queue"
)
DEAD_LETTERS = gauge(
    "headrace_queue_dead_letters", "Messages in a queue that is the dead-letter queue of others.", "queue"
)
QUEUES = gauge("headrace_queues", "Queues that this broker leads.")

_SHARE = ("group", "topic", "partition")
SHARE_LAG = gauge("headrace_share_group_lag_messages", "Records that a share group has not acknowledged.", *_SHARE)
SHARE_LAG_SECONDS = gauge("headrace_share_group_lag_seconds", "How long ago the first of them was written.", *_SHARE)
SHARE_IN_FLIGHT = gauge("headrace_share_group_in_flight_messages", "Records that members have acquired.", *_SHARE)
SHARE_ACQUIRED = counter(
    "headrace_share_group_acquired_total", "Records delivered to members; repeated ones count.", *_SHARE
)

METRICS = (
    QUEUES, VISIBLE, IN_FLIGHT, DELAYED, OLDEST, SENT, RECEIVED, REDELIVERED, EMPTY, DELETED, RETURNED, DEAD_LETTERED,
    DROPPED, DEAD_LETTERS, SHARE_LAG, SHARE_LAG_SECONDS, SHARE_IN_FLIGHT, SHARE_ACQUIRED,
)  # fmt: skip

_COUNTED = {
    SENT: "sent",
    RECEIVED: "received",
    REDELIVERED: "redelivered",
    EMPTY: "empty_receives",
    DELETED: "deleted",
    RETURNED: "returned",
    DEAD_LETTERED: "dead_lettered",
    DROPPED: "dropped",
}


def queue_collector(
    monitor: Monitor, queues: QueueService, most: Callable[[], int], omitted: OmittedSeries
) -> Collector:
    async def collect() -> Iterable[MetricFamily]:
        stats = await monitor.led_queues()
        shown = omitted.bounded("queues", stats, len(stats), most())
        names = {each.queue for each in shown}
        counts = [
            (VISIBLE.label_text(name), queue.host.messages)
            for queue in queues.hosted()
            if (name := str(queue.host.partition.topic)) in names
        ]
        shares = await monitor.led_shares()
        acquired = {
            (share.group_id, str(share.partition.topic), int(share.partition.index)): share.acquired_count
            for share in queues.shares.opened()
        }
        return (
            QUEUES.single(len(stats)),
            *_gauges(shown),
            *(metric.family(_counted(counts, name)) for metric, name in _COUNTED.items()),
            *_shares(shares, acquired),
        )

    return collect


def _gauges(shown: Sequence[QueueStat]) -> Iterator[MetricFamily]:
    def family(metric: Metric, value: Callable[[QueueStat], float | None]) -> MetricFamily:
        found = ((metric.label_text(each.queue), value(each)) for each in shown)
        return metric.family((labels, number) for labels, number in found if number is not None)

    yield family(VISIBLE, lambda each: each.visible)
    yield family(IN_FLIGHT, lambda each: each.in_flight)
    yield family(DELAYED, lambda each: each.delayed)
    yield family(OLDEST, lambda each: None if each.visible is None else each.oldest_age_s or 0.0)
    targets = {each.dead_letter_queue for each in shown if each.dead_letter_queue}
    yield DEAD_LETTERS.family(
        (DEAD_LETTERS.label_text(each.queue), each.visible + (each.in_flight or 0) + (each.delayed or 0))
        for each in shown
        if each.queue in targets and each.visible is not None
    )


def _counted(counts: Sequence[tuple[str, QueueCounts]], name: str) -> Iterator[Sample]:
    return ((labels, getattr(found, name)) for labels, found in counts)


def _shares(shares: Sequence[SharePartitionStat], acquired: dict[tuple[str, str, int], int]) -> Iterator[MetricFamily]:
    labelled = [(SHARE_LAG.label_text(each.group, each.topic, each.partition), each) for each in shares]
    yield SHARE_LAG.family((labels, each.lag_messages) for labels, each in labelled)
    yield SHARE_LAG_SECONDS.family(
        (labels, each.lag_seconds) for labels, each in labelled if each.lag_seconds is not None
    )
    yield SHARE_IN_FLIGHT.family((labels, each.in_flight) for labels, each in labelled)
    yield SHARE_ACQUIRED.family((SHARE_LAG.label_text(*key), count) for key, count in acquired.items())
