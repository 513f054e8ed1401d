"""The reading of located slices for a fetch: at once, in turns with other work, or in a worker thread.

- What is in the page cache and not encrypted goes to the socket by `sendfile`, or as a copy if it is small.
- What is encrypted and was appended a moment ago is held in memory as it was sent (`storage/recent_batches.py`).
- What else is encrypted and in the page cache is decrypted in the event loop, in turns of bounded work. A thread
  would compete for the interpreter's lock at each of its many short calls; that cost three times the CPU time.
- What may have to wait for the disk, or is to be checked for damage, is read in a worker thread.
"""

import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from headrace.kafka.batch_checks import BatchLimits, first_damaged
from headrace.kafka.errors import error_code
from headrace.kafka.fetch_sessions import PartitionKey
from headrace.kafka.outbox import FileRange, Part
from headrace.model.errors import EncryptionError, NotAuthentic, StorageFailed, TopicShredded
from headrace.protocol.fast import FetchedPartition
from headrace.replication.partition import Partition
from headrace.runtime.disk import Buffer
from headrace.storage.ordered_file import OrderedFile
from headrace.storage.slice import Slice

log = logging.getLogger(__name__)

TURN_BYTES = 2 * 1024 * 1024
"""How much is decrypted in one turn, about half a millisecond: the bytes, and `BATCH_BYTES` for each batch."""
BATCH_BYTES = 8 * 1024
"""A batch takes as long as so many bytes, however small it is."""
_SEND_FILE_FROM_BYTES = 32 * 1024


class PartitionSlice(NamedTuple):
    """The located slice of one partition, or the error that prevents it."""

    key: PartitionKey
    partition: Partition | None
    part: FetchedPartition
    slice: Slice | None


class Later(Enum):
    """Where a slice is read that cannot be read at once."""

    IN_TURNS = "in turns"
    IN_WORKER = "in a worker thread"


def read_at_once(item: PartitionSlice) -> FetchedPartition | Later:
    """Return the partition with its records, a copy of few bytes or a file range for `sendfile`, without waiting."""
    cut = item.slice
    if cut is None:
        return item.part
    if _is_to_be_checked(item):
        return Later.IN_WORKER
    if cut.cipher is not None and (recent := cut.read_recent()) is not None:
        return item.part._replace(records=tuple(recent)) if recent else item.part
    if cut.cipher is None:
        records = records_in_page_cache(cut)
        return Later.IN_WORKER if records is None else item.part._replace(records=(records,))
    if cut.length >= _SEND_FILE_FROM_BYTES:
        return Later.IN_TURNS if cut.file.is_cached(cut.position, cut.length) else Later.IN_WORKER
    try:
        data = cut.read_cached()
    except EncryptionError as error:
        return _undecipherable(item, error)
    return Later.IN_WORKER if data is None else item.part._replace(records=(data,))


def records_in_page_cache(cut: Slice) -> Part | None:
    """What is sent of a slice that is not encrypted: a file range, or a copy if it is small; None if it is not all in
    the page cache."""
    if cut.length < _SEND_FILE_FROM_BYTES:
        return cut.file.read_cached(cut.position, cut.length)
    if not cut.file.is_cached(cut.position, cut.length):
        return None
    return FileRange(cut.file, cut.position, cut.length)


def read_in_turns(
    found: Sequence[PartitionSlice], parts: Sequence[FetchedPartition]
) -> Generator[None, None, list[FetchedPartition]]:
    """Read the slices that are not in `parts` yet; each turn decrypts at most about `TURN_BYTES`."""
    read: list[FetchedPartition] = []
    turn_bytes = 0
    for item, part in zip(found, parts, strict=True):
        cut = item.slice
        if cut is None or part is not item.part:
            read.append(part)
            continue
        records: list[Buffer] = []
        try:
            for chunk in cut.read_in_turns():
                records += chunk.parts
                turn_bytes += sum(map(len, chunk.parts)) + chunk.batches * BATCH_BYTES
                if turn_bytes >= TURN_BYTES:
                    turn_bytes = 0
                    yield
        except EncryptionError as error:
            read.append(_undecipherable(item, error))
        except OSError as error:
            read.append(_unreadable(item, cut, error))
        else:
            read.append(_with_records(item, records))
    return read


def _with_records(item: PartitionSlice, records: Sequence[Buffer]) -> FetchedPartition:
    return item.part._replace(records=tuple(records)) if any(records) else item.part


class Damaged(NamedTuple):
    """A corrupt batch in a slice that was read."""

    offset: int


def _is_to_be_checked(item: PartitionSlice) -> bool:
    """Whether to check a slice for bit rot before it is sent: in closed segments of replicated partitions.

    Those have been on disk for long, and another replica has the data. Newer batches are in the page cache as they were
    written, after a check of their checksum.
    """
    partition = item.partition
    return item.slice is not None and item.slice.is_closed and partition is not None and partition.is_replicated


def limits_of(item: PartitionSlice) -> BatchLimits | None:
    """Return the limits to check a slice against; None if it is sent unchecked."""
    if item.partition is None or not _is_to_be_checked(item):
        return None
    return BatchLimits(item.partition.log.end_offset, item.partition.leader_epoch)


def read_blocking(
    found: Sequence[PartitionSlice],
    limits: Sequence[BatchLimits | None],
    give_way: Callable[[], int] | None,
    files: Sequence[OrderedFile | None],
) -> list[FetchedPartition | Damaged]:
    """Read for a fetch, in a worker thread.

    With `give_way` by pieces, calling it before each, through the `files` of those that are read in order; what is sent
    as it is on disk is left in the page cache then. Without it at once, and what follows the slices is read ahead.
    """
    read = [
        item.part if item.slice is None else _read_one(item, item.slice, limit, give_way, file)
        for item, limit, file in zip(found, limits, files, strict=True)
    ]
    if give_way is None:
        for item in found:
            if item.slice is not None:
                with suppress(OSError):
                    item.slice.read_ahead()
    return read


def _read_one(
    item: PartitionSlice,
    cut: Slice,
    limits: BatchLimits | None,
    give_way: Callable[[], int] | None,
    ordered: OrderedFile | None,
) -> FetchedPartition | Damaged:
    try:
        if give_way is not None:
            cut.bring_in(give_way, ordered)
            is_sent_as_file = limits is None and cut.cipher is None and cut.length >= _SEND_FILE_FROM_BYTES
            if is_sent_as_file and cut.file.is_cached(cut.position, cut.length):
                return item.part._replace(records=(FileRange(cut.file, cut.position, cut.length),))
        if limits is None:
            return _with_records(item, cut.read_parts())
        data: Buffer = cut.file.read(cut.position, cut.length)
    except EncryptionError as error:
        return _undecipherable(item, error)
    except OSError as error:
        return _unreadable(item, cut, error)
    damaged = first_damaged(data, cut.first_batch_offset, limits)
    if damaged is not None:
        return Damaged(damaged)
    try:
        data = cut.decrypted(data)
    except EncryptionError as error:
        return _undecipherable(item, error)
    return item.part._replace(records=(data,)) if data else item.part


def _unreadable(item: PartitionSlice, cut: Slice, error: OSError) -> FetchedPartition:
    problem = StorageFailed(f"cannot read {cut.file.path.name}: {error.strerror}")
    return FetchedPartition(item.key.partition, error_code(problem).value)


def _undecipherable(item: PartitionSlice, error: EncryptionError) -> FetchedPartition:
    if isinstance(error, (NotAuthentic, TopicShredded)):
        offset = item.slice.first_batch_offset if item.slice is not None else 0
        _log_once(f"{item.partition} cannot be fetched from offset {offset} on: {error}")
    return FetchedPartition(item.key.partition, error_code(error).value)


@lru_cache(64)
def _log_once(problem: str) -> None:
    """Log a problem once, and not each time that a consumer retries."""
    log.error("%s", problem)
