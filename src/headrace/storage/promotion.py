"""Promotes the log of a mirror partition: what comes after is written by producers of this cluster.

Everything below the promotion came from another cluster. Its transactions whose markers were not copied are aborted,
since the rest of them never comes. Then a reset marker makes all producers unknown: those of this cluster may have the
same ids. Both are written in a leader epoch above every mirrored one, so the start of that epoch is the *promotion
offset*, and a replica that has mirrored more than the promoted leader truncates there (invariant 94).
"""

from headrace.model.invariants import invariant
from headrace.records.markers import Marker
from headrace.storage.log import Log

_HEADERS_READ = 64


def promotion_offset(log: Log, first_epoch: int) -> int | None:
    """Where the first of the local epochs starts, that is those from `first_epoch` on; None before the promotion.

    A log whose start was moved past it returns its start.
    """
    return next((start for epoch, start in log.epochs.entries() if epoch >= first_epoch), None)


def promote(log: Log, first_epoch: int, leader_epoch: int) -> int:
    """Abort open transactions and append the reset marker, unless it is there; returns how many were aborted.

    `first_epoch` is the lowest epoch that this cluster writes in. Raises as `Log.append` does, with some of it written:
    call it again before anything else is appended.
    """
    if is_promoted(log, first_epoch):
        return 0
    invariant(leader_epoch >= first_epoch, 94, "a mirror is promoted in an epoch above every mirrored one")
    opened = log.producers.open_transactions()
    for producer_id, entry in opened:
        marker = Marker(committed=False, coordinator_epoch=entry.coordinator_epoch)
        log.append_marker(producer_id, entry.epoch, marker, leader_epoch)
    log.append_reset(leader_epoch)
    return len(opened)


def is_promoted(log: Log, first_epoch: int) -> bool:
    """True if the reset marker was appended: only abort markers come before it in the local epochs."""
    offset = promotion_offset(log, first_epoch)
    if offset is None:
        return False
    if log.start_offset == log.end_offset:
        # What was written in that epoch was removed: only a promoted log loses records from its local part.
        return True
    while offset < log.end_offset:
        headers = log.batches_from(offset, _HEADERS_READ)
        if not headers or not all(header.is_control and header.is_transactional for header in headers):
            return True
        offset = headers[-1].next_offset
    return False
