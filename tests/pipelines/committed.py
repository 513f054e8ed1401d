"""What a reader of committed records sees of a topic, up to the end of its log: nothing may be left open in it."""

from collections.abc import Iterator

import pyarrow as pa

from headrace.records.columns import decode, next_offset
from headrace.wire import READ_COMMITTED, Cluster


def read_committed(cluster: Cluster, topic: str, *, headers: bool = False) -> Iterator[pa.RecordBatch]:
    (found,) = cluster.metadata([topic]).values()
    for partition in range(len(found.partitions)):
        end = cluster.list_offsets([(topic, partition)])[topic, partition].offset
        offset = 0
        while offset < end:
            fetched = cluster.fetch(topic, partition, offset, isolation=READ_COMMITTED)
            assert fetched.last_stable_offset == end, f"a transaction is left open in {topic}-{partition}"
            yield from decode(
                fetched.records,
                topic=topic,
                partition=partition,
                first_offset=offset,
                aborted=fetched.aborted,
                headers=headers,
            )
            offset = next_offset(fetched.records, offset)
