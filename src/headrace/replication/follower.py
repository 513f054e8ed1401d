"""What an answer of the leader means for a follower's log. Pure: whoever has the log acts on it.

A follower's log is a prefix of its leader's, or becomes one before anything is appended. The leader compares the epoch
of the follower's last record with its own history and says where the two part (KIP-595); the follower drops what lies
behind, and asks again. Since the leader of an epoch has all that was committed before, nothing committed is dropped.
"""

from collections.abc import Callable
from typing import NamedTuple

from headrace.records.batch import Buffer, iter_headers


class FetchPosition(NamedTuple):
    """What a follower asks for next. The offset tells the leader that everything below is here."""

    leader_epoch: int
    offset: int
    last_fetched_epoch: int
    """Of the last record here; -1 if there is none."""
    log_start_offset: int


class Fetched(NamedTuple):
    """What a leader answered for one partition."""

    high_watermark: int
    log_start_offset: int
    records: Buffer = b""
    """Batches, the last of which may be cut off."""
    diverging: tuple[int, int] | None = None
    """(epoch, end offset): the largest epoch of the leader not above the follower's last one, and where it ends."""
    is_out_of_range: bool = False
    """The leader has nothing at the offset that was asked for."""


def whole_batches(records: Buffer) -> memoryview:
    """Without a last batch that is cut off."""
    view = memoryview(records)
    end = 0
    for at, header in iter_headers(view):
        end = at + header.size
    return view[:end]


def truncation_point(
    diverging: tuple[int, int], end_offset: int, end_of_epoch: Callable[[int], tuple[int, int]]
) -> int:
    """The offset from which on the follower's log is not the leader's.

    `end_of_epoch` gives the follower's own largest epoch not above one, and its end. Where the follower does not know
    the leader's epoch, its own older one ends the common history at the latest; the next answer says more.
    """
    epoch, leader_end = diverging
    own_epoch, own_end = end_of_epoch(epoch)
    if own_epoch < 0:
        return min(leader_end, end_offset)
    if own_epoch != epoch:
        return min(own_end, end_offset)
    return min(leader_end, own_end, end_offset)


def restart_point(part: Fetched, end_offset: int) -> int | None:
    """Where a follower goes on whose offset the leader does not have; None if the leader did not say enough.

    Behind the leader's start: there, with an empty log. Past its end: at what it knows as committed.
    """
    if part.log_start_offset > end_offset:
        return part.log_start_offset
    return part.high_watermark if 0 <= part.high_watermark < end_offset else None


def known_high_watermark(leaders: int, own: int, end_offset: int) -> int:
    """What a follower knows as committed: what the leader says, as far as the follower has it. It never goes back."""
    return max(own, min(leaders, end_offset))
