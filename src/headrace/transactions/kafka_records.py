"""`__transaction_state` in Kafka's own format: TransactionLogKey (0) and version 1 of TransactionLogValue. Pure.

A key begins with the record's type, a value with its layout version; both have two bytes. Kafka has fields for
everything but `last_epoch` and `opened_epoch`; these are in a tagged field of ours, as a msgpack array, which other
readers skip.
"""

from itertools import groupby
from struct import Struct
from struct import error as StructError

import msgspec

from headrace.coordinator.machine import InternalRecord
from headrace.protocol.fields import (
    INT16,
    INT32,
    INT64,
    NO_TAGS,
    FieldReader,
    compact_array,
    compact_string,
    string,
    tagged,
)
from headrace.transactions.records import Place, TransactionEntry, unreadable
from headrace.transactions.states import TransactionState

_KEY, _VERSION = 0, 1
_PREVIOUS_ID, _NEXT_ID, _CLIENT_VERSION = 0, 1, 2
"""Kafka's tags."""
_OURS = 10_000
_BUMPS_EPOCH_FROM = 2
"""The first transaction version that gives each transaction an epoch of its own."""
_STATES = (
    TransactionState.EMPTY,
    TransactionState.ONGOING,
    TransactionState.PREPARE_COMMIT,
    TransactionState.PREPARE_ABORT,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
    TransactionState.DEAD,
    TransactionState.PREPARE_EPOCH_FENCE,
)
"""By Kafka's numbers."""
_HEAD = Struct(">hqhib")
_TIMES = Struct(">qq")

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(tuple[int, int]).decode


class KafkaTransactionFormat:
    """Kafka's format, from feature level 2 on."""

    def write(self, key: str, value: TransactionEntry | None) -> tuple[InternalRecord, ...]:
        return (InternalRecord(INT16.pack(_KEY) + string(key), None if value is None else _value(value)),)

    def read(self, entry: InternalRecord) -> tuple[str, TransactionEntry | None]:
        try:
            reader = FieldReader(entry.key)
            if (kind := reader.number(INT16)) != _KEY:
                raise ValueError(f"there is no record of type {kind}")
            return reader.string(), None if entry.value is None else _read_value(entry.value)
        except (ValueError, IndexError, KeyError, StructError, msgspec.MsgspecError) as error:
            raise unreadable(error) from error


def _value(value: TransactionEntry) -> bytes:
    tags = {}
    if value.previous_producer_id >= 0:
        tags[_PREVIOUS_ID] = INT64.pack(value.previous_producer_id)
    if value.next_producer_id >= 0:
        tags[_NEXT_ID] = INT64.pack(value.next_producer_id)
    if value.bumps_epoch:
        tags[_CLIENT_VERSION] = INT16.pack(_BUMPS_EPOCH_FROM)
    if value.last_epoch >= 0 or value.opened_epoch >= 0:
        tags[_OURS] = _pack((value.last_epoch, value.opened_epoch))
    topics = (
        compact_string(topic) + compact_array(INT32.pack(partition) for _, partition in places) + NO_TAGS
        for topic, places in groupby(sorted(value.partitions), key=lambda place: place[0])
    )
    head = (_VERSION, value.producer_id, value.producer_epoch, value.timeout_ms, _STATES.index(value.state))
    # Kafka has null for the partitions of a transaction that is not open.
    partitions = b"\x00" if value.state is TransactionState.EMPTY else compact_array(topics)
    return _HEAD.pack(*head) + partitions + _TIMES.pack(value.updated_ms, value.started_ms) + tagged(tags)


def _read_value(data: bytes) -> TransactionEntry:
    reader = FieldReader(data)
    if (version := reader.number(INT16)) != _VERSION:
        raise ValueError(f"version {version} of a transaction")
    producer_id, epoch, timeout_ms = reader.number(INT64), reader.number(INT16), reader.number(INT32)
    state = _STATES[reader.taken(1)[0]]

    def of_topic() -> list[Place]:
        topic = reader.compact_string()
        places = [(topic, partition) for partition in reader.compact_array(lambda: reader.number(INT32))]
        reader.tags()
        return places

    partitions = frozenset(place for places in reader.compact_array(of_topic) for place in places)
    updated_ms, started_ms, tags = reader.number(INT64), reader.number(INT64), reader.tags()
    last_epoch, opened_epoch = _unpack(tags[_OURS]) if _OURS in tags else (-1, -1)
    return TransactionEntry(
        producer_id,
        epoch,
        state,
        timeout_ms,
        updated_ms,
        started_ms,
        partitions,
        last_epoch,
        int.from_bytes(tags.get(_PREVIOUS_ID, b"\xff"), signed=True),
        int.from_bytes(tags.get(_NEXT_ID, b"\xff"), signed=True),
        int.from_bytes(tags.get(_CLIENT_VERSION, b"\x00"), signed=True) >= _BUMPS_EPOCH_FROM,
        opened_epoch,
    )
