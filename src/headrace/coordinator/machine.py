"""What a coordinator is: a state machine that changes only by replaying records. Pure.

An operation looks at the state and returns records and an answer; it changes nothing itself. The runtime appends the
records to the shard's partition, replays them, and gives the answer when they are committed. Live operation, restart
and failover are then one path: `replay`.
"""

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

A = TypeVar("A")


class Entry(NamedTuple):
    """One record of an internal topic: a key, and a value or None for a tombstone."""

    key: bytes
    value: bytes | None


class Outcome(NamedTuple, Generic[A]):
    """What an operation wants: records to be written, in this order, and the answer once they are committed."""

    entries: Sequence[Entry]
    answer: A


class Machine(Protocol):
    """The state of one shard."""

    def replay(self, entry: Entry, producer_id: int) -> None:
        """Apply one record. `producer_id` is -1 unless it was written inside that producer's transaction."""
        ...

    def replay_end(self, producer_id: int, *, committed: bool) -> None:
        """A producer's transaction on this partition ended: what it wrote counts from now on, or never did."""
        ...

    def loaded(self, now_ms: float) -> None:
        """Everything there is has been replayed: deadlines that do not survive a restart start anew from `now_ms`."""
        ...


Operation = Callable[[float], Outcome[A]]
"""Called with the monotonic time in ms. Raises a domain error to refuse; nothing is written then."""
