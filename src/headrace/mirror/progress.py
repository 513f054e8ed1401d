"""How far a mirror partition is behind its source partition. Pure."""

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(slots=True)
class MirrorProgress:
    """The figures of one mirror partition, on the broker that leads it. Its fetcher updates them."""

    source_end: int | None = None
    """The source's last stable offset at the last fetch: the end of what may be copied. None before the first one."""
    caught_up_ms: float | None = None
    """The wall-clock time at which the last fetch was sent after which nothing more was to copy; None before the first
    one. Everything that the source had committed then is here."""
    contact_ms: float | None = None
    """The wall-clock time at which the last fetch was sent whose answer named the partition, or had nothing new of it.
    `source_end` and `undecided` are those of the source at this time or later."""
    bytes_copied: int = 0
    """Since this broker leads the partition."""
    lost_messages: int = 0
    """Offsets that the source had deleted before they were copied."""
    error: str = ""
    """Why nothing is copied at the moment; empty while it is."""
    is_faulted: bool = False
    """Nothing is copied until someone intervenes: `error` says what to do."""
    undecided: int = 0
    """Messages of the source past `source_end` at the last fetch: those of open transactions, and what follows them."""
    since_ms: float | None = None
    """The wall-clock time since which it is copied by this broker."""
    looked_ms: float | None = None
    """The wall-clock time of the last look at these figures."""
    is_inherited: bool = False
    """The source was heard by an earlier leader, and not by this broker since it leads the partition."""

    checked_epoch: int = -1
    """The highest leader epoch of the source in which a fetch was answered without a difference: the log here is the
    beginning of the source's in that epoch."""


class StateProgress(NamedTuple):
    """How far the state of the mirror of a queue is, on the broker that leads it."""

    copied_ms: float | None = None
    """The wall-clock time at which the source was asked for the state that is stored; None before the first one."""
    error: str = ""
    """Why it is not copied now; empty while it is."""
    end: int | None = None
    """The state is stored of messages below this offset; of those that were copied since, nothing is stored yet."""
