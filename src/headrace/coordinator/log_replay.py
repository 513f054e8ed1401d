"""Replay of an internal partition into a machine.

The blocking part (reading, decompressing, parsing) runs in a worker thread, a slice of the log at a time; the replay
runs in the event loop, which owns the machine, and yields regularly.
"""

import asyncio
from concurrent.futures import Executor
from struct import Struct
from typing import Any, NamedTuple

from headrace.coordinator.machine import InternalRecord, Machine
from headrace.records.batch import iter_headers
from headrace.records.reader import iter_records
from headrace.replication.partition import Partition
from headrace.storage.slice import Slice

_SLICE_BYTES = 1024 * 1024
_REPLAYS_PER_TURN = 2_000
_CONTROL_KEY = Struct(">hh")
_COMMIT = 1


class TransactionMarker(NamedTuple):
    """A producer's COMMIT or ABORT marker."""

    producer_id: int
    committed: bool


class ReplayedRecord(NamedTuple):
    entry: InternalRecord
    producer_id: int


Step = TransactionMarker | ReplayedRecord


async def load(partition: Partition, machine: Machine[Any], workers: Executor) -> int:
    """Replay the whole log into an empty machine; returns the number of records.

    Waits until the log is committed to its end, and includes records appended meanwhile (transaction markers): they are
    or will be committed, and would not be replayed later.
    """
    loop = asyncio.get_running_loop()
    offset = partition.log.start_offset
    count = 0
    while offset < (end := partition.log.end_offset):
        await partition.until_committed(end)
        cut = partition.slice(offset, _SLICE_BYTES, committed=False, at_least_one=True)
        if cut is None:
            break
        steps, offset = await loop.run_in_executor(workers, _read, cut, offset)
        for at, step in enumerate(steps, 1):
            if isinstance(step, TransactionMarker):
                machine.replay_end(step.producer_id, committed=step.committed)
            else:
                machine.replay(step.entry, step.producer_id)
            if at % _REPLAYS_PER_TURN == 0:
                await asyncio.sleep(0)
        count += len(steps)
    return count


def _read(cut: Slice, offset: int) -> tuple[list[Step], int]:
    """The steps in a slice from `offset` on, and the end offset of its last complete batch."""
    data = memoryview(cut.read())
    steps: list[Step] = []
    for at, header in iter_headers(data):
        batch = data[at : at + header.size]
        if header.next_offset <= offset:
            continue
        if header.is_control:
            for record in iter_records(batch, header):
                if record.key is not None and len(record.key) >= _CONTROL_KEY.size:
                    _, kind = _CONTROL_KEY.unpack_from(record.key)
                    steps.append(TransactionMarker(header.producer_id, kind == _COMMIT))
        else:
            producer_id = header.producer_id if header.is_transactional else -1
            for record in iter_records(batch, header):
                if record.offset >= offset and record.key is not None:
                    steps.append(ReplayedRecord(InternalRecord(record.key, record.value), producer_id))
        offset = header.next_offset
    return steps, offset
