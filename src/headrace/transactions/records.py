"""What is stored in `__transaction_state`, and nowhere else.

A record says everything that is known of a transactional id. A tombstone (no value) forgets it. At feature level 1 keys
and values are msgpack arrays:

    key                  value                 meaning
    ["txn", id]          ["txn-1", …]          everything known of a transactional id

The first element says what follows; that of a value ends in the version of its layout. A record with a first element
that this broker does not know is refused: a newer broker wrote it, and leaving it out would be to lose somebody's
transaction silently. From level 2 on the same is written in Kafka's format, see `kafka_records.py`.
"""

import msgspec

from headrace.coordinator.machine import InternalRecord
from headrace.model.errors import CorruptBatch
from headrace.transactions.states import TransactionState

Place = tuple[str, int]
"""A partition: topic and index."""


class TransactionKey(msgspec.Struct, array_like=True, frozen=True, tag="txn"):
    transactional_id: str


class TransactionEntry(msgspec.Struct, array_like=True, frozen=True, tag="txn-1", gc=False):
    producer_id: int
    producer_epoch: int
    """Of the producer; of the markers while they are being written."""
    state: TransactionState
    timeout_ms: int
    updated_ms: int
    """By the wall clock, as is the next one."""
    started_ms: int = -1
    """When the transaction began, -1 outside of one."""
    partitions: frozenset[Place] = frozenset()
    """Where markers are to be written."""
    last_epoch: int = -1
    """The epoch before this one, for as long as a retry that names it gets the answer of the first try."""
    previous_producer_id: int = -1
    """The producer id before its epochs ran out."""
    next_producer_id: int = -1
    """The producer id to go on with when the transaction is complete, because epochs have run out."""
    bumps_epoch: bool = False
    """Whether the client's last transaction ended with a new epoch (transaction version 2)."""
    opened_epoch: int = -1
    """The epoch that the open transaction was begun with, once a newer instance has taken it over as it is."""


TransactionRecord = tuple[str, TransactionEntry | None]
"""What a transactional id is from now on; None forgets it."""


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
    return CorruptBatch(f"a record of a transaction is damaged or of a newer version of Headrace: {error}")
