"""What differs in a partition that mirrors one of another cluster (invariants 92 to 95).

Its leader appends the source's batches unchanged, with their offsets and epochs; followers replicate them from it as
ever. The leader epoch here is never below an epoch in the log, since consumers that have seen that epoch would ignore
the metadata of this cluster as outdated: it is raised before a batch of a higher epoch is appended.

When the topic is promoted, the leader aborts what is open, appends the reset marker and accepts producers.
"""

import logging

from headrace.model.errors import MirrorIsReadOnly, MirrorNotReady, PolicyViolation
from headrace.model.invariants import invariant
from headrace.model.links import Mirror, MirrorState
from headrace.records.batch import iter_headers
from headrace.replication.copier import append_batches
from headrace.replication.readable import ReadableReplica
from headrace.storage.log import Log
from headrace.storage.promotion import is_promoted, promote

_log = logging.getLogger(__name__)

MAX_PRODUCERS = 10_000
"""Of a mirror partition: with more, those without an open transaction are forgotten."""
MAX_OPEN_TRANSACTIONS = 100_000
_AT_ONCE_MS = -1


def read_only(topic: str, mirror: Mirror) -> MirrorIsReadOnly:
    """The error for producers of a mirror topic."""
    return MirrorIsReadOnly(
        f"{topic} is a mirror topic of the link {mirror.link} and read-only: write to {mirror.source_topic} in the "
        f"source cluster, or make it writable here with headrace link promote {topic} (failover, if the source is lost)"
    )


def finish_promotion(replica: ReadableReplica, mirror: Mirror) -> bool:
    """Complete the log of a promoted partition as its leader; False if it was complete.

    Raises `MirrorIsReadOnly` while the leader epoch is not that of local writes yet, or an error of the log.
    """
    if is_promoted(replica.log, mirror.promoted_epoch):
        return False
    if replica.leader_epoch < mirror.promoted_epoch:
        raise MirrorIsReadOnly(f"{replica} is being promoted: try again")
    mirrored_end = replica.log.end_offset
    aborted = promote(replica.log, mirror.promoted_epoch, replica.leader_epoch)
    _log.info("%s is promoted: everything below offset %d is from the link %s; %d transactions without their end were "
              "aborted", replica, mirrored_end, mirror.link, aborted)  # fmt: skip
    return True


def highest_epoch(batches: memoryview) -> int:
    """The highest leader epoch of the batches, in whatever order another cluster sent them; -1 without batches."""
    return max((header.leader_epoch for _, header in iter_headers(batches)), default=-1)


def append_mirrored(replica: ReadableReplica, batches: memoryview) -> None:
    """Append whole batches of the source. Those before the end of the log are skipped."""
    log = replica.log
    invariant(highest_epoch(batches) <= replica.leader_epoch, 92, "no mirrored epoch is above the leader epoch")
    if len(log.producers) > MAX_OPEN_TRANSACTIONS:
        raise PolicyViolation(
            f"the source has {len(log.producers):,} open transactions in {replica}, and {MAX_OPEN_TRANSACTIONS:,} is "
            "the most"
        )
    append_batches(log, batches, log.append_mirrored)
    forget_idle_producers(log)


def forget_idle_producers(log: Log) -> None:
    """Bound the producers of a mirror: the source decides how many there are. Those without an open transaction are
    not needed, since only the source checks their sequences, and the promotion forgets them all."""
    if len(log.producers) > MAX_PRODUCERS:
        log.expire_producers(_AT_ONCE_MS)


def is_set_aside(mirror: Mirror | None, index: int, log: Log, offset: int) -> bool:
    """True if a reversed partition may be truncated to `offset`: what it would lose was set aside, and none of it came
    from the new source."""
    parting = None if mirror is None or mirror.state is not MirrorState.MIRRORING else mirror.parting(index)
    return (
        mirror is not None
        and parting is not None
        and parting.is_complete
        and offset >= parting.offset
        and log.end_offset <= parting.end
        and log.epochs.latest < mirror.source_promoted_epoch
    )


def is_follower_set_aside(mirror: Mirror | None, index: int, log: Log, offset: int) -> bool:
    """True if a follower may drop committed records down to `offset` with its leader: the partition was reversed, and
    they were set aside. False if it was not reversed.

    Raises `MirrorNotReady` while this broker does not know yet what its leader knows. A follower that was down may
    have records past the end that was set aside: they were never committed.
    """
    if mirror is None or not mirror.reversed_ms:
        return False
    parting = mirror.parting(index)
    if mirror.state is MirrorState.REVERSING and (parting is None or not parting.is_complete):
        raise MirrorNotReady(
            f"partition {index} of the mirror of {mirror.source_topic} is not known to be set aside yet"
        )
    return (
        parting is not None
        and parting.is_complete
        and parting.offset <= offset
        and log.high_watermark <= parting.end
        and log.epochs.epoch_of(log.high_watermark - 1) < mirror.source_promoted_epoch
    )


def starts_again(mirror: Mirror | None, index: int, log: Log, start: int) -> bool:
    """True if a replica of a reversed queue drops everything, and is copied again from `start` on, where the log that
    it copies starts: what was deleted here since the last copy is still in the queue of its new home.

    What it drops was set aside, or is copied again; none of it came from the new source. Raises `MirrorNotReady` while
    this broker does not know yet what its leader knows.
    """
    if mirror is None or not mirror.reversed_ms or not mirror.queue or not 0 <= start < log.start_offset:
        return False
    if log.epochs.latest >= mirror.source_promoted_epoch:
        return False
    parting = mirror.parting(index)
    if mirror.state is MirrorState.REVERSING and (parting is None or not parting.is_complete):
        raise MirrorNotReady(f"{mirror.source_topic} is not known to be set aside yet, in partition {index}")
    return parting is not None and parting.is_complete and log.high_watermark <= parting.end


def has_source_history(mirror: Mirror, index: int, log: Log) -> bool:
    """True if the log is the source's up to its end. That of a reversed topic is not, until what its new source never
    had is truncated."""
    parting = mirror.parting(index)
    if mirror.source_promoted_epoch < 0:
        return True
    is_cut = parting is not None and log.end_offset <= parting.offset
    return is_cut or log.epochs.latest >= mirror.source_promoted_epoch


def check_set_aside(mirror: Mirror | None, index: int, log: Log, offset: int) -> None:
    invariant(is_set_aside(mirror, index, log, offset), 95, "only what was set aside is dropped")


def restart_mirror(log: Log, offset: int) -> None:
    """Continue at the offset where the source's log starts: it has removed everything that is here."""
    invariant(log.end_offset <= offset, 92, "a mirror only skips what its source has removed")
    # First: closed segments are renamed, and deleted by a worker later.
    follow_start(log, offset)
    log.truncate_fully_and_start_at(offset)


def follow_start(log: Log, offset: int) -> None:
    """Remove what the source has removed."""
    target = min(offset, log.high_watermark)
    if target > log.start_offset:
        log.raise_start(target)
