"""What is stored in `__consumer_offsets`, and its format at feature level 1: keys and values as msgpack arrays.

    key                                  value                  meaning
    ["offset", group, topic, partition]  ["offset-1", …]        how far a group has read a partition
    ["group", group]                     ["classic-1", …]       a classic group: its generation, members, assignments

The records of consumer groups are in `consumer_records.py`, those of share groups in `share_records.py`, those of
streams groups in `streams_records.py`.

The first element says what follows; that of a value ends in the version of its layout. A tombstone (no value) forgets.
A record with a first element that this broker does not know is refused: a newer broker wrote it, and leaving it out
would be to lose somebody's state silently.

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
    """-1 if the client did not say."""
    metadata: str
    commit_ms: int
    """When it was committed, by the wall clock."""
    expire_ms: int = -1
    """When it goes at the latest, for clients old enough to say so; else -1."""


class MemberValue(msgspec.Struct, array_like=True, frozen=True):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    subscription: bytes
    """What the member said under the protocol that was chosen."""
    assignment: bytes


class ClassicValue(msgspec.Struct, array_like=True, frozen=True, tag="classic-1"):
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_since_ms: int
    """Since when the group is as it is (empty, most of all), by the wall clock."""
    members: tuple[MemberValue, ...]
    is_joining: bool = False
    """Whether its members are to join again, since the group was of the other protocol before."""


Key = OffsetKey | GroupKey | ConsumerKey | TopologyKey
Value = OffsetValue | ClassicValue | ConsumerGroupValue | ShareGroupValue | StreamsGroupValue


GroupRecord = tuple[Key, Value | None]
"""What is known under a key from now on; None forgets it. A plain tuple: one is made for each offset of a commit."""

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
