"""What a log's transactions must look like, from nothing but its batches: the plain model for the tests beside it."""

from collections.abc import Iterable
from typing import NamedTuple

from headrace.records.batch import BatchHeader
from headrace.records.markers import read_marker
from headrace.storage.log import Log


class Batch(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    kind: str
    """plain, data, commit or abort"""


def batches_of(log: Log) -> list[Batch]:
    return [
        _batch(header, segment.reader().read(position, header.size))
        for segment in log.segments
        for position, header in segment.headers()
    ]


def _batch(header: BatchHeader, data: bytes) -> Batch:
    kind = "data" if header.is_transactional else "plain"
    if header.is_control:
        marker = read_marker(data, header)
        assert marker is not None
        kind = "commit" if marker.committed else "abort"
    return Batch(header.producer_id, header.base_offset, header.last_offset, kind)


def open_and_aborted(batches: Iterable[Batch]) -> tuple[dict[int, int], list[tuple[int, int, int]]]:
    """First offsets of open transactions by producer, and (producer, first offset, marker) of the aborted ones."""
    opened: dict[int, int] = {}
    aborted = []
    for batch in batches:
        if batch.kind == "data":
            opened.setdefault(batch.producer_id, batch.first_offset)
        elif batch.kind != "plain":
            first = opened.pop(batch.producer_id, None)
            if first is not None and batch.kind == "abort":
                aborted.append((batch.producer_id, first, batch.last_offset))
    return opened, aborted


def visible(batches: Iterable[Batch]) -> set[int]:
    """Offsets of the data that a read_committed consumer is to see."""
    waiting: dict[int, list[Batch]] = {}
    seen: list[Batch] = []
    for batch in batches:
        if batch.kind == "plain":
            seen.append(batch)
        elif batch.kind == "data":
            waiting.setdefault(batch.producer_id, []).append(batch)
        else:
            ended = waiting.pop(batch.producer_id, [])
            seen += ended if batch.kind == "commit" else []
    return {offset for batch in seen for offset in range(batch.first_offset, batch.last_offset + 1)}


def consumed(batches: Iterable[Batch], log: Log, below: int, step: int) -> set[int]:
    """Offsets that a consumer keeps which reads `step` offsets at a time up to `below` as Kafka's clients do."""
    kept: set[int] = set()
    batches = [batch for batch in batches if batch.first_offset < below]
    while batches:
        fetched, batches = batches[:step], batches[step:]
        waiting = log.aborted.within(fetched[0].first_offset, fetched[-1].last_offset + 1)
        waiting.sort(key=lambda entry: entry.first_offset)
        dropping: set[int] = set()
        for batch in fetched:
            while waiting and waiting[0].first_offset <= batch.last_offset:
                dropping.add(waiting.pop(0).producer_id)
            if batch.kind == "abort":
                dropping.discard(batch.producer_id)
            elif batch.kind == "plain" or (batch.kind == "data" and batch.producer_id not in dropping):
                kept.update(range(batch.first_offset, batch.last_offset + 1))
    return kept
