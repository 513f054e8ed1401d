"""Finds records by timestamp. Reads and decompresses batches, which may take long: run it in a worker thread."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from headrace.records.batch import BatchHeader, Buffer
from headrace.records.reader import Record, iter_records
from headrace.storage.encryption import LogCipher
from headrace.storage.files import storage_error
from headrace.storage.segment import Segment
from headrace.storage.state import LogState

_TRIES = 5


class Dated(NamedTuple):
    """A record found by its timestamp."""

    offset: int
    timestamp: int
    leader_epoch: int


def search(log: LogState, find: Callable[[Sequence[Segment]], Dated | None]) -> Dated | None:
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


def _records(segment: Segment, position: int, header: BatchHeader, cipher: LogCipher | None) -> list[Record]:
    batch: Buffer = segment.reader().read(position, header.size)
    if cipher is not None:
        batch, header = cipher.decrypt(batch, header)
    return list(iter_records(batch, header))
