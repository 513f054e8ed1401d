"""Decides where a partition's history parts from that of its new source, and which records are set aside. Pure.

A record that is set aside has the key, value, timestamp and headers that it had, and three headers more, as text:

    headrace.divergent.topic        where it was written: its topic,
    headrace.divergent.partition    partition
    headrace.divergent.offset       and offset
"""

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import replace
from enum import Enum, auto
from typing import NamedTuple, Protocol

from headrace.model.links import Parting
from headrace.records.batch import BatchHeader, Buffer, iter_headers
from headrace.records.reader import Record, iter_records

TOPIC_HEADER = "headrace.divergent.topic"
PARTITION_HEADER = "headrace.divergent.partition"
OFFSET_HEADER = "headrace.divergent.offset"

_RECORD_OVERHEAD_BYTES = 64

EndOfEpoch = tuple[int, int]
"""The largest leader epoch of a log up to the one that was asked for, and its end offset; (-1, -1) if unknown."""


class OwnEpochs(Protocol):
    """The leader epochs of the partition here."""

    def epoch_of(self, offset: int) -> int:
        """The epoch that wrote an offset; -1 if unknown."""
        ...

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EndOfEpoch: ...


def parting_offset(
    epochs: OwnEpochs, *, start: int, end: int, source_start: int, promoted_epoch: int
) -> Generator[int, EndOfEpoch, int]:
    """Yields leader epochs to ask the new source for, is sent its answers, and returns where the histories part.

    Below `promoted_epoch` the new source has only what it copied from here, so the histories are the same up to the end
    of those epochs there, unless records were lost here since: then leader epochs are compared as followers do
    (KIP-320). What the new source has deleted cannot be compared: `start` is returned, so that too much is set aside
    rather than too little.
    """
    epoch, common = yield promoted_epoch - 1
    if epoch < 0 or common <= source_start != 0:
        return start
    at = min(common, end)
    while at > start:
        own = epochs.epoch_of(at - 1)
        epoch, source_end = yield own
        if epoch < 0 or source_end <= source_start != 0:
            return start
        if epoch == own:
            return min(at, source_end)
        _, own_end = epochs.end_offset_for(epoch, end)
        at = max(start, min(own_end, source_end, at - 1))
    return at


class Fate(Enum):
    """What became of the records of a batch."""

    COMMITTED = auto()
    ABORTED = auto()
    UNDECIDED = auto()


class TransactionRange(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """Of its marker."""


class DivergentTransactions:
    """The transactions of a log that did not commit, and those that the parting divides."""

    def __init__(
        self, aborted: Iterable[TransactionRange], opened: Mapping[int, int], divided: Mapping[int, int] | None = None
    ) -> None:
        """`opened` has the first offsets of those without an end, by producer id; `divided` of those that are open at
        the parting."""
        self._aborted: dict[int, list[TransactionRange]] = {}
        for each in aborted:
            self._aborted.setdefault(each.producer_id, []).append(each)
        self._opened = dict(opened)
        self._divided = {
            producer_id: first
            for producer_id, first in (divided or {}).items()
            if self._opened.get(producer_id) != first
            and all(each.first_offset != first for each in self._aborted.get(producer_id, ()))
        }
        """Those of them that were committed here. The new source has the records before the parting without an end, and
        has aborted them: so they are set aside, too."""

    def first_offset(self, parting: int) -> int:
        """Where the records that are set aside begin: at the parting, or with a transaction that it divides."""
        return min([parting, *self._divided.values()])

    def is_lost(self, header: BatchHeader) -> bool:
        """True for a batch before the parting whose records the new source has aborted, though they were committed."""
        first = self._divided.get(header.producer_id)
        return first is not None and header.is_transactional and header.base_offset >= first

    def fate(self, header: BatchHeader) -> Fate:
        if not header.is_transactional:
            return Fate.COMMITTED
        first = self._opened.get(header.producer_id)
        if first is not None and header.base_offset >= first:
            return Fate.UNDECIDED
        aborted = self._aborted.get(header.producer_id, ())
        is_aborted = any(each.first_offset <= header.base_offset < each.last_offset for each in aborted)
        return Fate.ABORTED if is_aborted else Fate.COMMITTED


class DivergentChunk(NamedTuple):
    """Records of a part of the log that are to be set aside."""

    records: list[Record]
    parting: Parting
    """The parting when they are committed."""


def divergent_chunk(
    data: Buffer, topic: str, parting: Parting, transactions: DivergentTransactions, *, counts_only: bool = False
) -> DivergentChunk:
    """The records to set aside of the whole batches in `data`, which begin at or before `parting.next_offset`.

    With `counts_only` no batch is decoded, and there are no records.
    """
    view, found = memoryview(data), list[Record]()
    done, counts = parting.next_offset, dict.fromkeys(Fate, 0)
    for position, header in iter_headers(view):
        if header.base_offset >= parting.end:
            break
        is_wanted = header.next_offset > parting.offset or transactions.is_lost(header)
        if header.next_offset > done and is_wanted and not header.is_control:
            fate = transactions.fate(header)
            if fate is Fate.COMMITTED and not counts_only:
                batch = view[position : position + header.size]
                records = [each for each in iter_records(batch, header) if each.offset >= done]
                found += [_named(each, topic, parting.partition) for each in records]
                counts[fate] += len(records)
            else:
                counts[fate] += min(header.record_count, header.next_offset - done)
        done = max(done, header.next_offset)
    after = replace(
        parting,
        next_offset=done,
        set_aside=parting.set_aside + counts[Fate.COMMITTED],
        aborted=parting.aborted + counts[Fate.ABORTED],
        undecided=parting.undecided + counts[Fate.UNDECIDED],
    )
    return DivergentChunk(found, after)


def _named(record: Record, topic: str, partition: int) -> Record:
    names = ((TOPIC_HEADER, topic), (PARTITION_HEADER, str(partition)), (OFFSET_HEADER, str(record.offset)))
    return record._replace(headers=(*record.headers, *((name, text.encode()) for name, text in names)))


def batches_of(records: Iterable[Record], max_bytes: int) -> Iterator[list[Record]]:
    """The records in groups of about so many bytes at the most, each of one record at least."""
    group: list[Record] = []
    size = 0
    for record in records:
        headers = sum(len(name) + len(value or b"") + 10 for name, value in record.headers)
        more = _RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"") + headers
        if group and size + more > max_bytes:
            yield group
            group, size = [], 0
        group.append(record)
        size += more
    if group:
        yield group
