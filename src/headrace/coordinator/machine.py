"""What a coordinator is: a state machine that changes only by what is recorded. Pure.

An operation looks at the state and returns records and an answer; it changes nothing itself. The runtime encodes the
records, appends them to the shard's partition, applies them, and gives the answer when they are committed. A restart or
a failover reads the same records back: live operation and loading are then one path, `apply`.

A record says what is known under a key from now on, whatever the format in which the log has it (`formats.py`).
"""

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

A = TypeVar("A")
R = TypeVar("R")


class InternalRecord(NamedTuple):
    """One record of an internal topic as the log has it: a key, and a value or None for a tombstone."""

    key: bytes
    value: bytes | None


class Outcome(NamedTuple, Generic[R, A]):
    """What an operation wants: records to be written, in this order, and the answer once they are committed."""

    records: Sequence[R]
    answer: A


class Machine(Protocol[R]):
    """The state of one shard."""

    def encode(self, record: R) -> Sequence[InternalRecord]:
        """What the log has of a record, all of it in one batch. Called before it is applied, in the order of the
        log."""
        ...

    def encode_in_transaction(self, record: R) -> Sequence[InternalRecord]:
        """Likewise for a record of a producer's transaction, which may yet be aborted."""
        ...

    def apply(self, record: R, producer_id: int) -> None:
        """Change the state. `producer_id` is -1 unless it was written inside that producer's transaction."""
        ...

    def replay(self, entry: InternalRecord, producer_id: int) -> None:
        """Apply what the log has, while loading."""
        ...

    def replay_end(self, producer_id: int, *, committed: bool) -> None:
        """A producer's transaction on this partition ended: what it wrote counts from now on, or never did."""
        ...

    def loaded(self, now_ms: float) -> None:
        """Everything there is has been replayed: deadlines that do not survive a restart start anew from `now_ms`."""
        ...

    def use_kafka_format(self) -> None:
        """Write Kafka's format from the next record on that is not part of a transaction."""
        ...

    @property
    def has_old_records(self) -> bool:
        """Whether the log may have values in the format of 0.1."""
        ...

    def old_records(self, limit: int) -> Sequence[R]:
        """Up to so many of them, to be written again; fewer, or none, while transactions may still change them."""
        ...


class EntryMachine:
    """A machine whose records are the entries of the log themselves, in the one format that they have."""

    def encode(self, record: InternalRecord) -> Sequence[InternalRecord]:
        return (record,)

    def encode_in_transaction(self, record: InternalRecord) -> Sequence[InternalRecord]:
        return (record,)

    def apply(self, record: InternalRecord, producer_id: int) -> None:
        self.replay(record, producer_id)

    def replay(self, entry: InternalRecord, producer_id: int) -> None:
        raise NotImplementedError

    def use_kafka_format(self) -> None:
        """There is no other format than this one."""

    @property
    def has_old_records(self) -> bool:
        return False

    def old_records(self, limit: int) -> Sequence[InternalRecord]:
        return ()


Operation = Callable[[float], Outcome[Any, A]]
"""Called with the monotonic time in ms. Raises a domain error to refuse; nothing is written then."""
