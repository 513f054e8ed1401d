"""Rebuilds the state of producers and transactions by replaying the batches of a log in order."""

import logging
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

from headrace.model.errors import RecordError
from headrace.records.batch import BatchHeader
from headrace.records.markers import Marker, ResetMarker, read_control
from headrace.runtime.disk import Disk
from headrace.storage.aborted import AbortedIndexEntry, AbortedTransactions
from headrace.storage.files import SNAPSHOT, offset_name
from headrace.storage.producers import EndedTransaction, Producers, SnapshotDamaged
from headrace.storage.segment import Segment

_log = logging.getLogger(__name__)


def restore_producers(
    disk: Disk, directory: Path, snapshots: list[int], limit: int, segments: list[Segment], now_ms: int
) -> tuple[Producers, list[int]]:
    """Restore the producers as of offset `limit` from the newest valid snapshot up to there and the batches after it.

    Returns them with the offsets of the remaining snapshots: those past `limit` or damaged are removed.
    """
    left = list(snapshots)
    producers, replay_from = Producers(), 0
    while left:
        offset = left[-1]
        path = directory / offset_name(offset, SNAPSHOT)
        if offset <= limit:
            try:
                producers = Producers.from_snapshot(disk.read_bytes(path), offset)
            except SnapshotDamaged as error:
                _log.warning("producer snapshot %s is damaged (%s): using an older one or the log", path, error)
            except FileNotFoundError:
                pass
            else:
                replay_from = offset
                break
        disk.unlink(path)
        left.pop()
    _replay(producers, replay_from, limit, segments, now_ms)
    return producers, left


def producers_as_of(
    disk: Disk, directory: Path, snapshots: Sequence[int], limit: int, segments: Sequence[Segment], now_ms: int
) -> Producers:
    """Like `restore_producers`, for an offset of the past: nothing is removed."""
    producers, replay_from = Producers(), 0
    for offset in reversed([each for each in snapshots if each <= limit]):
        try:
            producers = Producers.from_snapshot(disk.read_bytes(directory / offset_name(offset, SNAPSHOT)), offset)
        except (SnapshotDamaged, FileNotFoundError):
            continue
        replay_from = offset
        break
    _replay(producers, replay_from, limit, segments, now_ms)
    return producers


def _replay(producers: Producers, replay_from: int, limit: int, segments: Sequence[Segment], now_ms: int) -> None:
    for segment, following in zip_longest(segments, segments[1:]):
        if segment.base_offset >= limit:
            break
        if following is not None and following.base_offset <= replay_from:
            continue
        for position, header in segment.headers(segment.position_from(replay_from)):
            if replay_from <= header.base_offset < limit:
                producers.replay(header, marker_at(segment, position, header), now_ms)


def marker_at(segment: Segment, position: int, header: BatchHeader) -> Marker | ResetMarker | None:
    """Read the marker in the control batch at a position; None for any other batch, or if it cannot be decoded."""
    if not header.is_control:
        return None
    try:
        return read_control(segment.reader().read(position, header.size), header)
    except RecordError as error:
        _log.error("%s has a control batch at offset %d that is invalid: %s", segment.path, header.base_offset, error)
        return None


def note_aborted(aborted: AbortedTransactions, ended: EndedTransaction | None, producers: Producers) -> None:
    """Add a transaction that has just ended to the index, if it was aborted."""
    if ended is not None and not ended.committed:
        still_open = producers.first_open_offset
        stable = ended.last_offset + 1 if still_open is None else still_open
        aborted.add(AbortedIndexEntry(ended.producer_id, ended.first_offset, ended.last_offset, stable))
