"""The interface of a coordinator's state machine, whose state changes only by applying records. Pure.

An operation reads the state and returns records and an answer; it changes nothing itself. The shard encodes the
records, appends them to its partition, applies them, and gives the answer when they are committed. After a restart or
failover the same records are replayed: live operation and loading share one path, `apply`.

A record is the new value of a key, independent of its format in the log (`formats.py`).
"""

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

A = TypeVar("A")
R = TypeVar("R")


class InternalRecord(NamedTuple):
    """One encoded record of an internal topic: a key, and a value or None for a tombstone."""

    key: bytes
    value: bytes | None


class Outcome(NamedTuple, Generic[R, A]):
    """An operation's outcome: records to write, in this order, and the answer once they are committed."""

    records: Sequence[R]
    answer: A


class Machine(Protocol[R]):
    """The state of one shard."""

    def encode(self, record: R) -> Sequence[InternalRecord]:
        """The log entries of a record, which go into one batch. Called before it is applied, in log order."""
        ...

    def encode_in_transaction(self, record: R) -> Sequence[InternalRecord]:
        """Like `encode`, for a record of a producer's transaction, which may yet be aborted."""
        ...

    def apply(self, record: R, producer_id: int) -> None:
        """Change the state. `producer_id` is -1 unless the record is part of that producer's transaction."""
        ...

    def replay(self, entry: InternalRecord, producer_id: int) -> None:
        """Decode and apply a log entry, while loading."""
        ...

    def replay_end(self, producer_id: int, *, committed: bool) -> None:
        """Apply or drop the records of a producer's transaction that ended on this partition."""
        ...

    def loaded(self, now_ms: float) -> None:
        """Finish loading: deadlines that are not persisted restart at `now_ms`."""
        ...

    def use_kafka_format(self) -> None:
        """Switch to Kafka's format with the next non-transactional record."""
        ...

    @property
    def has_old_records(self) -> bool:
        """True if the log may have values in the format of 0.1."""
        ...

    def old_records(self, limit: int) -> Sequence[R]:
        """Up to `limit` of them, to be rewritten; fewer, or none, while open transactions may still change them."""
        ...


class EntryMachine:
    """A machine whose records are the log entries themselves, in their only format."""

    def encode(self, record: InternalRecord) -> Sequence[InternalRecord]:
        return (record,)

    def encode_in_transaction(self, record: InternalRecord) -> Sequence[InternalRecord]:
        return (record,)

    def apply(self, record: InternalRecord, producer_id: int) -> None:
        self.replay(record, producer_id)

    def replay(self, entry: InternalRecord, producer_id: int) -> None:
        raise NotImplementedError

    def use_kafka_format(self) -> None:
        """Nothing to do: there is only one format."""

    @property
    def has_old_records(self) -> bool:
        return False

    def old_records(self, limit: int) -> Sequence[InternalRecord]:
        return ()


Operation = Callable[[float], Outcome[Any, A]]
"""Called with the monotonic time in ms. Raises a `HeadraceError` to refuse; then nothing is written."""
