"""Decides what a leader's response means for a follower's log. Pure: `copier.py` applies it to the log.

A follower's log is a prefix of its leader's, or becomes one before anything is appended. The leader compares the epoch
of the follower's last record with its own history and returns where they diverge (KIP-595); the follower truncates from
there, and fetches again. Since the leader of an epoch has everything committed before, nothing committed is dropped.
"""

from collections.abc import Callable
from typing import NamedTuple

from headrace.records.batch import Buffer, iter_headers


class FetchPosition(NamedTuple):
    """The position of a follower's next fetch. The offset acknowledges everything below it."""

    leader_epoch: int
    offset: int
    last_fetched_epoch: int
    """Of the follower's last record; -1 if there is none."""
    log_start_offset: int


class Fetched(NamedTuple):
    """A leader's response for one partition."""

    high_watermark: int
    log_start_offset: int
    records: Buffer = b""
    """Batches, the last of which may be cut off."""
    diverging: tuple[int, int] | None = None
    """(epoch, end offset): the largest epoch of the leader not above the follower's last one, and where it ends."""
    is_out_of_range: bool = False
    """The leader does not have the requested offset."""
    undecided: int = 0
    """Messages of the leader past `high_watermark`, where that is the last stable offset: they wait for the end of a
    transaction."""
    asked_ms: float = 0.0
    """The wall-clock time at which the request was sent: the response is not older than that."""


def whole_batches(records: Buffer) -> memoryview:
    """The records without an incomplete last batch."""
    view = memoryview(records)
    end = 0
    for at, header in iter_headers(view):
        end = at + header.size
    return view[:end]


def truncation_point(
    diverging: tuple[int, int], end_offset: int, end_of_epoch: Callable[[int], tuple[int, int]]
) -> int:
    """The offset from which the follower's log diverges from the leader's.

    `end_of_epoch` returns the follower's own largest epoch not above a given one, and its end. If the follower does not
    know the leader's epoch, the common history ends with its own older one at the latest; the next response narrows it.
    """
    epoch, leader_end = diverging
    own_epoch, own_end = end_of_epoch(epoch)
    if own_epoch < 0:
        return min(leader_end, end_offset)
    if own_epoch != epoch:
        return min(own_end, end_offset)
    return min(leader_end, own_end, end_offset)


def restart_point(part: Fetched, end_offset: int) -> int | None:
    """Where a follower continues whose offset the leader does not have; None if the response does not say.

    Before the leader's start: there, with an empty log. Past its end: at the high watermark.
    """
    if part.log_start_offset > end_offset:
        return part.log_start_offset
    return part.high_watermark if 0 <= part.high_watermark < end_offset else None


def known_high_watermark(leaders: int, own: int, end_offset: int) -> int:
    """A follower's high watermark: the leader's, at most the follower's own end offset. It never goes back."""
    return max(own, min(leaders, end_offset))
