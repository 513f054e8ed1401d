"""The committed messages of a range of offsets, one by one, as the SDK's `Message`. Needs neither Spark nor Arrow."""

from collections.abc import Iterator
from contextlib import closing

from headrace.client.message import Message
from headrace.records.fetched import next_offset, read_records
from headrace.wire import READ_COMMITTED, Cluster


def read_messages(cluster: Cluster, topic: str, partition: int, start: int, end: int) -> Iterator[Message]:
    """The committed messages of a partition from `start` up to, not including, `end`."""
    if start >= end:
        return
    with closing(cluster.follow(topic, partition, start, end, isolation=READ_COMMITTED)) as pieces:
        for piece in pieces:
            for record in read_records(piece.records, first_offset=start, end_offset=end, aborted=piece.aborted):
                yield Message(
                    topic=topic,
                    partition=partition,
                    offset=record.offset,
                    payload=record.value,
                    key=record.key,
                    headers=record.headers,
                    timestamp_ms=record.timestamp,
                )
            start = next_offset(piece.records, start)
