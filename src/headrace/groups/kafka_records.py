"""`__consumer_offsets` in Kafka's own format, which Kafka's tools and monitors (Burrow, KMinion …) read. Pure.

A key begins with the type of the record, a value with the version of its layout; both have two bytes.

    state                         Kafka's record (type of the key)                      additional fields
    offset                        OffsetCommit (1), value 3                             nothing
      with an expiry time         value 1, which has no leader epoch                    nothing
      with very long metadata     value 4                                               nothing
    classic group                 GroupMetadata (2), value 3, or 4 for long names       nothing
    consumer group                ConsumerGroupMetadata (3)                             target epoch, assignor
      copy for other readers      ConsumerGroupTargetAssignmentMetadata (6)             is not read back
      member                      ConsumerGroupMemberMetadata (5)                       nothing
      its target                  ConsumerGroupTargetAssignmentMember (7)               nothing
      its current assignment      ConsumerGroupCurrentMemberAssignment (8)              nothing
    share group                   ShareGroupMetadata (11)                               target epoch, topics with state
      copy for other readers      ShareGroupTargetAssignmentMetadata (12)               is not read back
      member                      ShareGroupMemberMetadata (10)                         epochs, assignment
      copy for other readers      ShareGroupCurrentMemberAssignment (14)                is not read back
      its target                  ShareGroupTargetAssignmentMember (13)                 nothing
    streams group                 Headrace's types (240 to 244), with the values of `streams_records.py`

The additional fields are in a tagged field of Headrace, which other readers skip; its values are in
`kafka_group_values.py`. A classic group without a leader is one whose members have to rejoin.

Kafka has no strings of more than 32,767 bytes, in any version. A longer string (metadata of an offset, where
`offset.metadata.max.bytes` allows it) is stored, and Kafka's tools skip that record.

A group has one record, whose type depends on the kind of group. When the kind changes, the record of the old kind gets
a tombstone in the same batch as the record of the new kind; such a tombstone does not delete the group.
"""

from functools import lru_cache
from struct import Struct
from struct import error as StructError
from typing import assert_never

import msgspec

from headrace.coordinator.machine import InternalRecord
from headrace.groups.consumer_records import (
    ConsumerValue,
    CurrentKey,
    CurrentValue,
    MemberKey,
    SubscriptionValue,
    TargetKey,
    TargetValue,
)
from headrace.groups.kafka_group_values import (
    read_consumer,
    read_current,
    read_share,
    read_share_member,
    read_subscription,
    read_target,
    write_consumer,
    write_current,
    write_epoch,
    write_share,
    write_share_current,
    write_share_member,
    write_subscription,
    write_target,
)
from headrace.groups.records import ClassicValue, GroupKey, Key, MemberValue, OffsetKey, OffsetValue, Value, unreadable
from headrace.groups.share_records import ShareMemberValue, ShareTargetValue, ShareValue
from headrace.groups.streams_records import (
    StreamsCurrentValue,
    StreamsGroupValue,
    StreamsMemberValue,
    StreamsTargetValue,
    StreamsValue,
    TopologyKey,
    TopologyValue,
)
from headrace.protocol.fields import (
    INT16,
    INT32,
    INT64,
    MAX_STRING_BYTES,
    NO_TAGS,
    FieldReader,
    compact_array,
    compact_bytes,
    compact_nullable_string,
    compact_string,
    nullable_string,
    sized_bytes,
    string,
)

_OFFSET = 1
_CLASSIC, _CONSUMER, _SHARE = 2, 3, 11
_CONSUMER_TARGET_EPOCH, _SHARE_TARGET_EPOCH, _SHARE_CURRENT = 6, 12, 14
_CONSUMER_MEMBER, _CONSUMER_TARGET, _CONSUMER_CURRENT = 5, 7, 8
_SHARE_MEMBER, _SHARE_TARGET = 10, 13
_STREAMS, _STREAMS_MEMBER, _STREAMS_TARGET, _STREAMS_CURRENT, _STREAMS_TOPOLOGY = range(240, 245)
"""Headrace's types: Kafka's tools skip unknown types."""
_OF_STREAMS_MEMBERS: dict[type[MemberKey] | type[TargetKey] | type[CurrentKey], int] = {
    MemberKey: _STREAMS_MEMBER,
    TargetKey: _STREAMS_TARGET,
    CurrentKey: _STREAMS_CURRENT,
}
_STREAMS_KEYS = {kind: key for key, kind in _OF_STREAMS_MEMBERS.items()}
_OF_SHARE_MEMBERS = frozenset({_SHARE_MEMBER, _SHARE_TARGET})
_COPIES = frozenset({_CONSUMER_TARGET_EPOCH, _SHARE_TARGET_EPOCH, _SHARE_CURRENT})
_SHARE_VALUES = (ShareMemberValue, ShareTargetValue)
_STREAMS_VALUES = (StreamsMemberValue, StreamsTargetValue, StreamsCurrentValue)
_KINDS = {ClassicValue: _CLASSIC, ConsumerValue: _CONSUMER, ShareValue: _SHARE, StreamsValue: _STREAMS}
_KEYS_OF_KIND = {
    _CLASSIC: (_CLASSIC,),
    _CONSUMER: (_CONSUMER, _CONSUMER_TARGET_EPOCH),
    _SHARE: (_SHARE, _SHARE_TARGET_EPOCH),
    _STREAMS: (_STREAMS,),
}

_INT64_MAX = 2**63 - 1
_NAMES_CACHED = 4096
"""The number of cached encodings of group and topic, since the same ones are committed repeatedly."""
_BARE_OFFSET = Struct(">hqihq")
"""The layout of an offset without metadata, the usual case."""
_encode_streams = msgspec.msgpack.Encoder().encode
_decode_streams = msgspec.msgpack.Decoder(StreamsGroupValue).decode
_pack_int32, _unpack_int32 = INT32.pack, INT32.unpack_from
_pack_bare_offset, _unpack_bare_offset = _BARE_OFFSET.pack, _BARE_OFFSET.unpack


class KafkaGroupFormat:
    def __init__(self) -> None:
        self._kinds: dict[str, int] = {}
        """The record type of each group; derived from its members' records while its own is still in the old format."""

    # -- writing

    def write(self, key: Key, value: Value | None) -> tuple[InternalRecord, ...]:
        if isinstance(key, OffsetKey):
            key_bytes = _offset_key_start(key.group, key.topic) + _pack_int32(key.partition)
            return (InternalRecord(key_bytes, _offset_value(value) if isinstance(value, OffsetValue) else None),)
        if isinstance(key, GroupKey):
            return self._write_group(key.group, value)
        if isinstance(key, TopologyKey):
            return (_of_group(_STREAMS_TOPOLOGY, key.group, _value(value)),)
        if value is None:
            kind = self._kinds.get(key.group)
        else:
            kind = _kind_of_member(value)
            self._kinds.setdefault(key.group, kind)
        if kind == _STREAMS:
            return (_of_member(_OF_STREAMS_MEMBERS[type(key)], key, _value(value)),)
        is_share = kind == _SHARE
        if isinstance(key, MemberKey):
            if not is_share:
                return (_of_member(_CONSUMER_MEMBER, key, _value(value)),)
            current = write_share_current(value) if isinstance(value, ShareMemberValue) else None
            return (_of_member(_SHARE_MEMBER, key, _value(value)), _of_member(_SHARE_CURRENT, key, current))
        if isinstance(key, TargetKey):
            return (_of_member(_SHARE_TARGET if is_share else _CONSUMER_TARGET, key, _value(value)),)
        return (_of_member(_CONSUMER_CURRENT, key, _value(value)),)

    def _write_group(self, group: str, value: Value | None) -> tuple[InternalRecord, ...]:
        if value is None:
            return _group_tombstones(group, self._kinds.pop(group, _CLASSIC))
        kind = _KINDS[type(value)]
        before, self._kinds[group] = self._kinds.get(group, kind), kind
        entries: tuple[InternalRecord, ...] = (_of_group(kind, group, _value(value)),)
        if isinstance(value, ConsumerValue):
            entries += (_of_group(_CONSUMER_TARGET_EPOCH, group, write_epoch(value.target_epoch)),)
        elif isinstance(value, ShareValue):
            entries += (_of_group(_SHARE_TARGET_EPOCH, group, write_epoch(value.target_epoch)),)
        return entries if before == kind else entries + _group_tombstones(group, before)

    # -- reading

    def read(self, entry: InternalRecord) -> tuple[Key, Value | None] | None:
        try:
            if entry.key[1] <= _OFFSET:
                return _read_offset(entry)
            reader = FieldReader(entry.key)
            kind = reader.number(INT16)
            if kind in _COPIES:
                return None
            group = reader.string()
            if kind in _KEYS_OF_KIND:
                return self._read_group(kind, group, entry.value)
            if kind == _STREAMS_TOPOLOGY:
                return TopologyKey(group), _read_streams(entry.value)
            found = _read_of_member(kind, group, reader.string(), entry.value)
            if entry.value is not None:
                self._kinds.setdefault(group, _kind_of_key(kind))
            return found
        except (ValueError, IndexError, StructError, msgspec.MsgspecError) as error:
            raise unreadable(error) from error

    def _read_group(self, kind: int, group: str, data: bytes | None) -> tuple[Key, Value | None] | None:
        if data is None:
            if self._kinds.get(group, kind) != kind:
                return None
            self._kinds.pop(group, None)
            return GroupKey(group), None
        self._kinds[group] = kind
        if kind == _CLASSIC:
            return GroupKey(group), _read_classic(data)
        if kind == _STREAMS:
            return GroupKey(group), _read_streams(data)
        return GroupKey(group), read_consumer(data) if kind == _CONSUMER else read_share(data)


def _kind_of_member(value: Value) -> int:
    if isinstance(value, _STREAMS_VALUES):
        return _STREAMS
    return _SHARE if isinstance(value, _SHARE_VALUES) else _CONSUMER


def _kind_of_key(kind: int) -> int:
    if kind in _STREAMS_KEYS:
        return _STREAMS
    return _SHARE if kind in _OF_SHARE_MEMBERS else _CONSUMER


def _read_streams(data: bytes | None) -> StreamsGroupValue | None:
    return None if data is None else _decode_streams(data)


def _value(value: Value | None) -> bytes | None:
    match value:
        case None:
            return None
        case OffsetValue():
            return _offset_value(value)
        case ClassicValue():
            return _write_classic(value)
        case ConsumerValue():
            return write_consumer(value)
        case SubscriptionValue():
            return write_subscription(value)
        case TargetValue() | ShareTargetValue():
            return write_target(value.places)
        case CurrentValue():
            return write_current(value)
        case ShareValue():
            return write_share(value)
        case ShareMemberValue():
            return write_share_member(value)
        case StreamsValue() | TopologyValue() | StreamsMemberValue() | StreamsTargetValue() | StreamsCurrentValue():
            return _encode_streams(value)
        case _:
            assert_never(value)


def _of_group(kind: int, group: str, value: bytes | None) -> InternalRecord:
    return InternalRecord(INT16.pack(kind) + string(group), value)


def _group_tombstones(group: str, kind: int) -> tuple[InternalRecord, ...]:
    return tuple([_of_group(one, group, None) for one in _KEYS_OF_KIND[kind]])


def _of_member(kind: int, key: MemberKey | TargetKey | CurrentKey, value: bytes | None) -> InternalRecord:
    return InternalRecord(INT16.pack(kind) + string(key.group) + string(key.member_id), value)


def _read_of_member(kind: int, group: str, member_id: str, data: bytes | None) -> tuple[Key, Value | None]:
    if kind == _CONSUMER_MEMBER:
        return MemberKey(group, member_id), None if data is None else read_subscription(data)
    if kind == _CONSUMER_TARGET:
        return TargetKey(group, member_id), None if data is None else TargetValue(read_target(data))
    if kind == _CONSUMER_CURRENT:
        return CurrentKey(group, member_id), None if data is None else read_current(data)
    if kind == _SHARE_MEMBER:
        return MemberKey(group, member_id), None if data is None else read_share_member(data)
    if kind == _SHARE_TARGET:
        return TargetKey(group, member_id), None if data is None else ShareTargetValue(read_target(data))
    if kind in _STREAMS_KEYS:
        return _STREAMS_KEYS[kind](group, member_id), _read_streams(data)
    raise ValueError(f"record type {kind} is unknown")


# -- offsets (the hot path)


@lru_cache(maxsize=_NAMES_CACHED)
def _offset_key_start(group: str, topic: str) -> bytes:
    return INT16.pack(_OFFSET) + string(group) + string(topic)


@lru_cache(maxsize=_NAMES_CACHED)
def _read_offset_key_start(data: bytes) -> tuple[str, str]:
    reader = FieldReader(data)
    if (kind := reader.number(INT16)) > _OFFSET:
        raise ValueError(f"type {kind} of an offset is not supported")
    return reader.string(), reader.string()


def _offset_value(value: OffsetValue) -> bytes:
    metadata, expire_ms = value.metadata.encode(), value.expire_ms
    if not metadata and expire_ms < 0:
        return _pack_bare_offset(3, value.offset, value.leader_epoch, 0, value.commit_ms)
    offset, epoch, commit = INT64.pack(value.offset), INT32.pack(value.leader_epoch), INT64.pack(value.commit_ms)
    if len(metadata) > MAX_STRING_BYTES:
        return INT16.pack(4) + offset + epoch + compact_bytes(metadata) + commit + NO_TAGS
    sized = INT16.pack(len(metadata)) + metadata
    if expire_ms < 0:
        return INT16.pack(3) + offset + epoch + sized + commit
    return INT16.pack(1) + offset + sized + commit + INT64.pack(min(expire_ms, _INT64_MAX))


def _read_offset(entry: InternalRecord) -> tuple[OffsetKey, OffsetValue | None]:
    data, value = entry
    group, topic = _read_offset_key_start(data[:-4])
    (partition,) = _unpack_int32(data, len(data) - 4)
    return OffsetKey(group, topic, partition), None if value is None else _read_offset_value(value)


def _read_offset_value(data: bytes) -> OffsetValue:
    if len(data) == _BARE_OFFSET.size:
        version, offset, leader_epoch, length, commit_ms = _unpack_bare_offset(data)
        if version == 3 and not length:
            return OffsetValue(offset, leader_epoch, "", commit_ms)
    reader = FieldReader(data)
    version, offset = reader.number(INT16), reader.number(INT64)
    if version == 1:
        return OffsetValue(offset, -1, reader.string(), reader.number(INT64), reader.number(INT64))
    if version not in (3, 4):
        raise ValueError(f"version {version} of an offset is not supported")
    leader_epoch = reader.number(INT32)
    metadata = reader.string() if version == 3 else reader.compact_string()
    commit_ms = reader.number(INT64)
    if version == 4:
        reader.tags()
    return OffsetValue(offset, leader_epoch, metadata, commit_ms)


# -- classic groups


def _write_classic(value: ClassicValue) -> bytes:
    """Encode a classic group in version 3, which all readers support, or 4 if a name is too long for 3."""
    leader = None if value.is_joining else value.leader
    start = value.protocol_type, value.protocol or "", leader or ""
    names = [*start, *(name for one in value.members for name in _names(one))]
    if max(map(len, names)) * 3 > MAX_STRING_BYTES:
        return _write_long_classic(value, leader)
    return b"".join(
        [
            INT16.pack(3),
            string(value.protocol_type),
            INT32.pack(value.generation),
            nullable_string(value.protocol),
            nullable_string(leader),
            INT64.pack(value.state_since_ms),
            INT32.pack(len(value.members)),
            *(
                string(one.member_id)
                + nullable_string(one.instance_id)
                + string(one.client_id)
                + string(one.client_host)
                + INT32.pack(one.rebalance_timeout_ms)
                + INT32.pack(one.session_timeout_ms)
                + sized_bytes(one.subscription)
                + sized_bytes(one.assignment)
                for one in value.members
            ),
        ]
    )


def _names(member: MemberValue) -> tuple[str, ...]:
    return member.member_id, member.instance_id or "", member.client_id, member.client_host


def _write_long_classic(value: ClassicValue, leader: str | None) -> bytes:
    members = (
        compact_string(one.member_id)
        + compact_nullable_string(one.instance_id)
        + compact_string(one.client_id)
        + compact_string(one.client_host)
        + INT32.pack(one.rebalance_timeout_ms)
        + INT32.pack(one.session_timeout_ms)
        + compact_bytes(one.subscription)
        + compact_bytes(one.assignment)
        + NO_TAGS
        for one in value.members
    )
    return b"".join(
        [
            INT16.pack(4),
            compact_string(value.protocol_type),
            INT32.pack(value.generation),
            compact_nullable_string(value.protocol),
            compact_nullable_string(leader),
            INT64.pack(value.state_since_ms),
            compact_array(members),
            NO_TAGS,
        ]
    )


def _read_classic(data: bytes) -> ClassicValue:
    reader = FieldReader(data)
    version = reader.number(INT16)
    if version not in (3, 4):
        raise ValueError(f"version {version} of a classic group is not supported")
    is_long = version == 4
    text = reader.compact_string if is_long else reader.string
    nullable = reader.compact_nullable_string if is_long else reader.nullable_string
    blob = reader.compact_bytes if is_long else reader.sized_bytes

    def member() -> MemberValue:
        member_id, instance_id, client_id, client_host = text(), nullable(), text(), text()
        rebalance_ms, session_ms = reader.number(INT32), reader.number(INT32)
        found = MemberValue(
            member_id, instance_id, client_id, client_host, session_ms, rebalance_ms, blob(), blob()
        )  # fmt: skip
        if is_long:
            reader.tags()
        return found

    protocol_type, generation = text(), reader.number(INT32)
    protocol, leader, since_ms = nullable(), nullable(), reader.number(INT64)
    members = reader.compact_array(member) if is_long else reader.array(member)
    if is_long:
        reader.tags()
    is_joining = bool(members) and leader is None
    return ClassicValue(protocol_type, generation, protocol, leader, since_ms, members, is_joining)
