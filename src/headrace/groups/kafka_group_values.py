"""The values of consumer groups (KIP-848) and share groups (KIP-932) in Kafka's format. Pure.

All of them are of version 0, which is flexible. Headrace's additional fields are in one tagged field, as a msgpack
array; `kafka_records.py` lists the records that have it.
"""

from typing import Any
from uuid import UUID

import msgspec

from headrace.groups.consumer_records import ClassicMember, ConsumerValue, CurrentValue, StoredPlaces, SubscriptionValue
from headrace.groups.share_records import ShareMemberValue, ShareValue
from headrace.protocol.fields import (
    INT8,
    INT16,
    INT32,
    INT64,
    NO_TAGS,
    FieldReader,
    compact_array,
    compact_bytes,
    compact_nullable_string,
    compact_string,
    tagged,
)

_OURS = 10_000
"""The tag of Headrace's field: far from tags that Kafka may use later."""
_HASH, _CLASSIC_MEMBER = 0, 0
"""Kafka's tags, each in its own struct."""
_NO_HASH = bytes(8)
"""The hash of no topics. Hashes of topics have eight bytes, as in Kafka."""
_VERSION = INT16.pack(0)
_PHASES = ("stable", "unrevoked", "unreleased")
"""Member phases, indexed by Kafka's numbers."""
_STABLE = _PHASES.index("stable")

_pack = msgspec.msgpack.Encoder().encode
_unpack_consumer = msgspec.msgpack.Decoder(tuple[int, str]).decode
_unpack_share = msgspec.msgpack.Decoder(tuple[int, tuple[UUID, ...]]).decode
_unpack_share_member = msgspec.msgpack.Decoder(tuple[int, int, StoredPlaces]).decode


def write_epoch(epoch: int) -> bytes:
    """Encode the epoch of a group's target."""
    return _VERSION + INT32.pack(epoch) + NO_TAGS


def write_consumer(value: ConsumerValue) -> bytes:
    tags = {_OURS: _pack((value.target_epoch, value.assignor))}
    if value.topics_hash:
        tags[_HASH] = value.topics_hash
    return _VERSION + INT32.pack(value.epoch) + tagged(tags)


def read_consumer(data: bytes) -> ConsumerValue:
    reader = _reader(data)
    epoch, tags = reader.number(INT32), _ours(reader.tags())
    target_epoch, assignor = _unpack_consumer(tags[_OURS])
    return ConsumerValue(epoch, target_epoch, assignor, tags.get(_HASH, b""))


def write_share(value: ShareValue) -> bytes:
    """Encode a share group. Unlike in a consumer group, the hash is a regular field, and 0 if there is none."""
    ours = _pack((value.target_epoch, value.begun))
    return _VERSION + INT32.pack(value.epoch) + (value.topics_hash or _NO_HASH) + tagged({_OURS: ours})


def read_share(data: bytes) -> ShareValue:
    reader = _reader(data)
    epoch, topics_hash = reader.number(INT32), reader.taken(INT64.size)
    target_epoch, begun = _unpack_share(_ours(reader.tags())[_OURS])
    return ShareValue(epoch, target_epoch, b"" if topics_hash == _NO_HASH else topics_hash, begun)


def _ours(tags: dict[int, bytes]) -> dict[int, bytes]:
    if _OURS not in tags:
        raise ValueError("the tagged field of Headrace is missing")
    return tags


def write_subscription(value: SubscriptionValue) -> bytes:
    tags = {}
    if value.classic is not None:
        protocols = (compact_string(name) + compact_bytes(said) + NO_TAGS for name, said in value.classic.protocols)
        # A nullable struct begins with a presence byte.
        there = INT8.pack(1) + INT32.pack(value.classic.session_timeout_ms) + compact_array(protocols) + NO_TAGS
        tags[_CLASSIC_MEMBER] = there
    return b"".join(
        [
            _VERSION,
            compact_nullable_string(value.instance_id),
            compact_nullable_string(value.rack_id),
            compact_string(value.client_id),
            compact_string(value.client_host),
            compact_array(map(compact_string, value.topics)),
            compact_nullable_string(value.pattern),
            INT32.pack(value.rebalance_timeout_ms),
            compact_nullable_string(value.assignor),
            tagged(tags),
        ]
    )


def read_subscription(data: bytes) -> SubscriptionValue:
    reader = _reader(data)
    fields: dict[str, Any] = {
        "instance_id": reader.compact_nullable_string(),
        "rack_id": reader.compact_nullable_string(),
        "client_id": reader.compact_string(),
        "client_host": reader.compact_string(),
        "topics": reader.compact_array(reader.compact_string),
        "pattern": reader.compact_nullable_string(),
        "rebalance_timeout_ms": reader.number(INT32),
        "assignor": reader.compact_nullable_string(),
    }
    classic = reader.tags().get(_CLASSIC_MEMBER)
    return SubscriptionValue(**fields, classic=None if classic is None else _read_classic_member(classic))


def _read_classic_member(data: bytes) -> ClassicMember | None:
    reader = FieldReader(data)
    if reader.number(INT8) < 0:
        return None

    def protocol() -> tuple[str, bytes]:
        named = reader.compact_string(), reader.compact_bytes()
        reader.tags()
        return named

    return ClassicMember(reader.number(INT32), reader.compact_array(protocol))


def write_target(places: StoredPlaces) -> bytes:
    return _VERSION + _places(places) + NO_TAGS


def read_target(data: bytes) -> StoredPlaces:
    reader = _reader(data)
    places = _read_places(reader)
    reader.tags()
    return places


def write_current(value: CurrentValue) -> bytes:
    head = INT32.pack(value.epoch) + INT32.pack(value.previous_epoch) + INT8.pack(_PHASES.index(value.phase))
    return _VERSION + head + _places(value.assigned) + _places(value.revoking) + NO_TAGS


def read_current(data: bytes) -> CurrentValue:
    reader = _reader(data)
    epoch, previous_epoch, phase = reader.number(INT32), reader.number(INT32), reader.number(INT8)
    value = CurrentValue(epoch, previous_epoch, _PHASES[phase], _read_places(reader), _read_places(reader))
    reader.tags()
    return value


def write_share_member(value: ShareMemberValue) -> bytes:
    ours = _pack((value.epoch, value.previous_epoch, value.assigned))
    return b"".join(
        [
            _VERSION,
            compact_nullable_string(value.rack_id),
            compact_string(value.client_id),
            compact_string(value.client_host),
            compact_array(map(compact_string, value.topics)),
            tagged({_OURS: ours}),
        ]
    )


def write_share_current(value: ShareMemberValue) -> bytes:
    head = INT32.pack(value.epoch) + INT32.pack(value.previous_epoch) + INT8.pack(_STABLE)
    return _VERSION + head + _places(value.assigned) + NO_TAGS


def read_share_member(data: bytes) -> ShareMemberValue:
    reader = _reader(data)
    rack_id, client_id, client_host = (
        reader.compact_nullable_string(),
        reader.compact_string(),
        reader.compact_string(),
    )
    topics = reader.compact_array(reader.compact_string)
    epoch, previous_epoch, assigned = _unpack_share_member(_ours(reader.tags())[_OURS])
    return ShareMemberValue(epoch, previous_epoch, rack_id, client_id, client_host, topics, assigned)


def _reader(data: bytes) -> FieldReader:
    reader = FieldReader(data)
    version = reader.number(INT16)
    if version != 0:
        raise ValueError(f"version {version} of a group record is not supported")
    return reader


def _places(places: StoredPlaces) -> bytes:
    return compact_array(
        topic_id.bytes + compact_array(map(INT32.pack, partitions)) + NO_TAGS for topic_id, partitions in places
    )


def _read_places(reader: FieldReader) -> StoredPlaces:
    def of_topic() -> tuple[UUID, tuple[int, ...]]:
        found = reader.uuid(), reader.compact_array(lambda: reader.number(INT32))
        reader.tags()
        return found

    return reader.compact_array(of_topic)
