"""The records of a range of offsets as Arrow batches, decoded in bulk. Needs no Spark."""

from collections.abc import Generator, Iterator
from contextlib import closing

import pyarrow as pa

from headrace.records.columns import decode, next_offset
from headrace.wire import READ_COMMITTED, READ_UNCOMMITTED, Cluster
from headrace.wire.cluster import FETCH_BYTES


def read_blocks(
    cluster: Cluster,
    topic: str,
    partition: int,
    start: int,
    end: int,
    *,
    committed: bool = True,
    headers: bool = True,
    max_bytes: int = FETCH_BYTES,
) -> Generator[tuple[Iterator[pa.RecordBatch], int], None, None]:
    """For each fetched piece, its records as Arrow batches, and the offset that follows it, at most `end`.

    The batches of a piece must be consumed before the next piece is requested. With `committed`, records of aborted
    transactions are left out. Raises what `Cluster.follow` raises, and `RecordError`.
    """
    isolation = READ_COMMITTED if committed else READ_UNCOMMITTED
    # Arrow batches are copies, so the buffer of a piece can be reused for the next one.
    following = cluster.follow(topic, partition, start, end, max_bytes=max_bytes, isolation=isolation, reuse=True)
    with closing(following) as pieces:
        for piece in pieces:
            blocks = decode(
                piece.records,
                topic=topic,
                partition=partition,
                first_offset=start,
                end_offset=end,
                aborted=piece.aborted if committed else None,
                headers=headers,
            )
            start = min(end, next_offset(piece.records, start))
            yield blocks, start
