"""Acknowledgements of share groups: checked, and applied to the engine. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import groupby
from typing import NamedTuple

from headrace.model.errors import InvalidRecordState, ProtocolError
from headrace.queues.share.engine import AcquiredRange, ShareEngine


class AckType(IntEnum):
    """The numbers of the protocol."""

    GAP = 0
    """The record does not exist: it was compacted away."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class AckBatch(NamedTuple):
    first: int
    last: int
    types: Sequence[int]
    """One for all, or one for each."""

    def runs(self, start: int) -> Iterator[tuple[int, int, int]]:
        """Ranges of records with the same type, from `start` on: first, last and type."""
        first = max(self.first, start)
        if len(self.types) == 1:
            if first <= self.last:
                yield first, self.last, self.types[0]
            return
        for kind, run in groupby(range(first, self.last + 1), lambda offset: self.types[offset - self.first]):
            offsets = tuple(run)
            yield offsets[0], offsets[-1], kind


def acknowledge(engine: ShareEngine, batches: Iterable[AckBatch], member: str, now_ms: int, lock_ms: int) -> bool:
    """Apply all acknowledgements or none: `InvalidRecordState` unless the member has acquired all records,
    `ProtocolError` if some were never delivered. Records below the head are acked already, and skipped. Returns whether
    there is anything to persist."""
    wanted = [run for batch in batches for run in batch.runs(engine.head)]
    if any(last >= engine.indexed_to for _, last, _ in wanted):
        raise ProtocolError(f"records from {engine.indexed_to} on were not delivered yet")
    owned = engine.acquired_by(member, now_ms)
    for first, last, _ in wanted:
        if not _covers(owned, first, last):
            raise InvalidRecordState(f"not all of the records {first} to {last} belong to the member {member}")
    for first, last, kind in wanted:
        if kind == AckType.RENEW:
            engine.renew(first, last, member, now_ms, lock_ms)
        elif kind == AckType.RELEASE:
            engine.release(first, last, member, now_ms)
        elif kind == AckType.REJECT:
            engine.reject(first, last, member, now_ms)
        else:
            engine.accept(first, last, member, now_ms)
    return any(kind != AckType.RENEW for _, _, kind in wanted)


def _covers(owned: Sequence[AcquiredRange], first: int, last: int) -> bool:
    """Whether these ranges, which are by offset, cover a range."""
    for span in owned:
        if span.first <= first <= span.last:
            if last <= span.last:
                return True
            first = span.last + 1
    return False
