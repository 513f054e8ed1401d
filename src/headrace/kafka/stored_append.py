"""Appends to topics whose prefix has a quota of stored bytes."""

from headrace.kafka.backlog_waits import refuse_if_new
from headrace.kafka.dispatch import Context
from headrace.quotas.stored_bytes import StoredRoom
from headrace.records.batch import BatchHeader, Buffer
from headrace.replication.partition import Partition
from headrace.storage.appender import AppendResult


def append_within(
    ctx: Context, partition: Partition, room: StoredRoom, batch: Buffer, header: BatchHeader
) -> AppendResult:
    """Append a batch for which there is room; the producer is delayed if little is left. `StorageQuotaExceeded`."""
    size_bytes = len(batch)
    if (refusal := room.refusal(size_bytes)) is not None:
        refuse_if_new(partition, header, refusal)
    result = partition.append(batch, header)
    if not result.duplicate:
        room.add(size_bytes)
        if ctx.metered is not None:
            ctx.metered.delayed(*room.delay(size_bytes, ctx.services.clock.monotonic_ms()))
    return result
