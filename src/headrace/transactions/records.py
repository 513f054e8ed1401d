"""The records of `__transaction_state`, and their msgpack format.

A record is the whole state of a transactional id; a tombstone (no value) removes it. At feature level 1 keys and values
are msgpack arrays:

    key                  value                 meaning
    ["txn", id]          ["txn-1", …]          the state of a transactional id

The first element is the type; a value's ends in the version of its layout. A record of an unknown type is refused: a
newer broker wrote it, and skipping it would silently lose a transaction. From level 2 on the same state is written in
Kafka's format, see `kafka_records.py`.
"""

import msgspec

from headrace.coordinator.machine import InternalRecord
from headrace.model.errors import CorruptBatch
from headrace.transactions.states import TransactionState

Place = tuple[str, int]
"""A partition: topic and index, as a plain tuple because it is part of the record format."""


class TransactionKey(msgspec.Struct, array_like=True, frozen=True, tag="txn"):
    transactional_id: str


class TransactionEntry(msgspec.Struct, array_like=True, frozen=True, tag="txn-1", gc=False):
    producer_id: int
    producer_epoch: int
    """The producer's epoch; in PrepareCommit and PrepareAbort that of the markers."""
    state: TransactionState
    timeout_ms: int
    updated_ms: int
    """Wall clock time, like `started_ms`."""
    started_ms: int = -1
    """When the open transaction began; -1 if none is open."""
    partitions: frozenset[Place] = frozenset()
    """The partitions that get markers."""
    last_epoch: int = -1
    """The previous epoch, as long as a retry with it gets the first attempt's response; else -1."""
    previous_producer_id: int = -1
    """The previous producer id, replaced because its epochs were exhausted; else -1."""
    next_producer_id: int = -1
    """The producer id from completion on, because the epochs of this one are exhausted; else -1."""
    bumps_epoch: bool = False
    """True if the client's last transaction ended with a new epoch (transaction version 2)."""
    opened_epoch: int = -1
    """The epoch the open transaction began with, if a newer instance has taken it over (KIP-939); else -1."""


TransactionRecord = tuple[str, TransactionEntry | None]
"""A transactional id and its new state; None removes it."""


_encode = msgspec.msgpack.Encoder().encode
_decode_key = msgspec.msgpack.Decoder(TransactionKey).decode
_decode_value = msgspec.msgpack.Decoder(TransactionEntry).decode


class MsgpackTransactionFormat:
    """The format of Headrace 0.1."""

    def write(self, key: str, value: TransactionEntry | None) -> tuple[InternalRecord, ...]:
        return (InternalRecord(_encode(TransactionKey(key)), None if value is None else _encode(value)),)

    def read(self, entry: InternalRecord) -> tuple[str, TransactionEntry | None]:
        try:
            key = _decode_key(entry.key)
            return key.transactional_id, None if entry.value is None else _decode_value(entry.value)
        except msgspec.MsgspecError as error:
            raise unreadable(error) from error


def unreadable(error: Exception) -> CorruptBatch:
    return CorruptBatch(f"a transaction record is corrupt or from a newer version of Headrace: {error}")
