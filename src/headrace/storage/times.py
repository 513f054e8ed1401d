"""Finds records by timestamp. Reads and decompresses batches, which may take long: run it in a worker thread."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from headrace.records.batch import DELETE_HORIZON, LOG_APPEND_TIME, BatchHeader, Buffer
from headrace.records.reader import Record, iter_records
from headrace.storage.encryption import LogCipher
from headrace.storage.files import storage_error
from headrace.storage.segment import Segment
from headrace.storage.state import LogState

_TRIES = 5
_HEADERS_MAX = 10_000
"""How many batches without a record to read a search passes: about 0.1 s."""


F = TypeVar("F")


class Dated(NamedTuple):
    """A record found by its timestamp."""

    offset: int
    timestamp: int
    leader_epoch: int


def search(log: LogState, find: Callable[[Sequence[Segment]], F]) -> F:
    """Return the result of `find`; retries it if retention or compaction removed a segment's file meanwhile."""
    tries = 0
    while True:
        if log.is_closed:
            log.refuse()
        try:
            return find(log.segments.all)
        except OSError as error:
            tries += 1
            if not log.is_closed and (not isinstance(error, FileNotFoundError) or tries > _TRIES):
                raise storage_error(error, f"searching {log.directory.name}") from error


def first_from(
    segments: Sequence[Segment], start_offset: int, below: int, timestamp: int, cipher: LogCipher | None = None
) -> Dated | None:
    """The first record from `start_offset` up to `below` that is not older than `timestamp`."""
    for segment in segments:
        if segment.max_timestamp < timestamp or not segment.size:
            continue
        # Batches before the indexed one are older than the entry, whose timestamp is at most the one searched for.
        entry = segment.times.floor(timestamp)
        scan_from = segment.position_from(segment.base_offset + entry.value) if entry else 0
        for position, header in segment.headers(scan_from):
            if header.base_offset >= below:
                return None
            if header.max_timestamp < timestamp or header.last_offset < start_offset:
                continue
            for record in _records(segment, position, header, cipher):
                if record.timestamp >= timestamp and start_offset <= record.offset < below:
                    return Dated(record.offset, record.timestamp, header.leader_epoch)
    return None


def newest(segments: Sequence[Segment], start_offset: int, below: int, cipher: LogCipher | None = None) -> Dated | None:
    """The first record that has the newest timestamp of all between `start_offset` and `below`."""
    best: Dated | None = None
    for segment in sorted(segments, key=lambda segment: -segment.max_timestamp):
        if not segment.size or segment.max_timestamp < 0 or segment.base_offset >= below:
            continue
        if best is not None and segment.max_timestamp <= best.timestamp:
            break
        found = segment.locate(segment.max_timestamp_offset, mends_index=False)
        if found is not None and found[1].base_offset >= start_offset and found[1].last_offset < below:
            candidates = [found]
        else:
            # The segment's newest record lies outside the bounds: search every batch inside them.
            candidates = [
                (position, header)
                for position, header in segment.headers()
                if header.last_offset >= start_offset and header.base_offset < below
            ]
        for position, header in candidates:
            if best is not None and header.max_timestamp <= best.timestamp:
                continue
            for record in _records(segment, position, header, cipher):
                if start_offset <= record.offset < below and (best is None or record.timestamp > best.timestamp):
                    best = Dated(record.offset, record.timestamp, header.leader_epoch)
    return best


class NextRecord(NamedTuple):
    """The first record at or after an offset that consumers are to read."""

    offset: int
    """Its offset, or where the search ended without finding one."""
    timestamp: int | None
    """None if none was found."""
    is_exact: bool = True
    """False if the timestamp is that of its batch, which is at most as late."""


def next_record(
    segments: Sequence[Segment],
    offset: int,
    below: int,
    cipher: LogCipher | None,
    is_aborted: Callable[[BatchHeader], bool],
    *,
    decodes: bool,
) -> NextRecord:
    """The first record from `offset` up to `below` that is neither a marker nor of an aborted transaction.

    Most timestamps are in a batch's header: that of a batch with one record, of the first record, and of all records
    with the broker's time. For others the batch is read, if `decodes`. After `_HEADERS_MAX` batches without a record to
    read the search ends; it goes on from the offset in the answer.
    """
    seen = 0
    first = max(0, bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1)
    for segment in segments[first:]:
        if segment.base_offset >= below:
            break
        found = segment.locate(offset, mends_index=False) if segment.size else None
        for position, header in segment.headers(found[0]) if found is not None else ():
            if header.base_offset >= below:
                return NextRecord(below, None)
            if header.record_count and not header.is_control and not is_aborted(header):
                record = _dated(segment, position, header, offset, cipher, decodes=decodes)
                if record is not None:
                    return record
            offset = max(offset, header.next_offset)
            seen += 1
            if seen == _HEADERS_MAX:
                return NextRecord(offset, None)
    return NextRecord(max(offset, below), None)


def _dated(
    segment: Segment, position: int, header: BatchHeader, offset: int, cipher: LogCipher | None, *, decodes: bool
) -> NextRecord | None:
    """The first record of a batch at or after an offset; None if compaction has removed those."""
    first = max(offset, header.base_offset)
    is_whole = header.record_count == header.last_offset_delta + 1
    has_time = bool(header.attributes & LOG_APPEND_TIME) or header.record_count == 1
    if has_time and (is_whole or offset <= header.base_offset):
        return NextRecord(first, header.max_timestamp)
    # Compaction puts another time there.
    has_first_time = not header.attributes & DELETE_HORIZON
    if is_whole and has_first_time and first == header.base_offset:
        return NextRecord(first, header.base_timestamp)
    if not decodes:
        about = header.base_timestamp if has_first_time else header.max_timestamp
        return NextRecord(first, about, is_exact=False)
    batch: Buffer = segment.reader().read(position, header.size)
    if cipher is not None:
        batch, header = cipher.decrypt(batch, header)
    for record in iter_records(batch, header):
        if record.offset >= offset:
            return NextRecord(record.offset, record.timestamp)
    return None


def _records(segment: Segment, position: int, header: BatchHeader, cipher: LogCipher | None) -> list[Record]:
    batch: Buffer = segment.reader().read(position, header.size)
    if cipher is not None:
        batch, header = cipher.decrypt(batch, header)
    return list(iter_records(batch, header))
