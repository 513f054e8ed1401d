"""The records in `__consumer_offsets`, and their format at feature level 1: keys and values as msgpack arrays.

    key                                  value                  meaning
    ["offset", group, topic, partition]  ["offset-1", …]        the committed offset of a group in a partition
    ["group", group]                     ["classic-1", …]       a classic group: its generation, members, assignments

The records of consumer groups are in `consumer_records.py`, those of share groups in `share_records.py`, those of
streams groups in `streams_records.py`.

The first element is the type; that of a value ends in the version of its layout. A tombstone (no value) deletes the
key. A record of an unknown type is refused: a newer broker wrote it, and skipping it would silently lose state.

From level 2 on the same keys and values are written in Kafka's format, see `kafka_records.py`.
"""

import msgspec

from headrace.coordinator.machine import InternalRecord
from headrace.groups.consumer_records import ConsumerGroupValue, ConsumerKey
from headrace.groups.share_records import ShareGroupValue
from headrace.groups.streams_records import StreamsGroupValue, TopologyKey
from headrace.model.errors import CorruptBatch


class OffsetKey(msgspec.Struct, array_like=True, frozen=True, tag="offset"):
    group: str
    topic: str
    partition: int


class GroupKey(msgspec.Struct, array_like=True, frozen=True, tag="group"):
    group: str


class OffsetValue(msgspec.Struct, array_like=True, frozen=True, tag="offset-1", gc=False):
    offset: int
    leader_epoch: int
    """-1 if the client did not send it."""
    metadata: str
    commit_ms: int
    """When it was committed, by the wall clock."""
    expire_ms: int = -1
    """When it expires, if set by a client of an old version; otherwise -1."""


class MemberValue(msgspec.Struct, array_like=True, frozen=True):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    subscription: bytes
    """The member's metadata for the elected protocol."""
    assignment: bytes


class ClassicValue(msgspec.Struct, array_like=True, frozen=True, tag="classic-1"):
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_since_ms: int
    """When the group entered its state (most importantly Empty), by the wall clock."""
    members: tuple[MemberValue, ...]
    is_joining: bool = False
    """Whether its members have to rejoin, since the group was downgraded from the consumer protocol."""


Key = OffsetKey | GroupKey | ConsumerKey | TopologyKey
Value = OffsetValue | ClassicValue | ConsumerGroupValue | ShareGroupValue | StreamsGroupValue


GroupRecord = tuple[Key, Value | None]
"""A key with its new value; None is a tombstone. A plain tuple, since each offset of a commit makes one."""

_encode = msgspec.msgpack.Encoder().encode
_decode_key = msgspec.msgpack.Decoder(Key).decode
_decode_value = msgspec.msgpack.Decoder(Value).decode


class MsgpackGroupFormat:
    """The format of Headrace 0.1."""

    def write(self, key: Key, value: Value | None) -> tuple[InternalRecord, ...]:
        return (InternalRecord(_encode(key), None if value is None else _encode(value)),)

    def read(self, entry: InternalRecord) -> tuple[Key, Value | None]:
        try:
            return _decode_key(entry.key), None if entry.value is None else _decode_value(entry.value)
        except msgspec.MsgspecError as error:
            raise unreadable(error) from error


def unreadable(error: Exception) -> CorruptBatch:
    return CorruptBatch(f"a record of the group coordinator is damaged or of a newer version of Headrace: {error}")
