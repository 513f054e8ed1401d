"""Records of groups in Kafka's format are read back as they were written, and damage is refused in words."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.coordinator.machine import InternalRecord
from headrace.groups.consumer_records import (
    ClassicMember,
    ConsumerValue,
    CurrentKey,
    CurrentValue,
    MemberKey,
    SubscriptionValue,
    TargetKey,
    TargetValue,
)
from headrace.groups.kafka_records import KafkaGroupFormat
from headrace.groups.records import (
    ClassicValue,
    GroupKey,
    Key,
    MemberValue,
    MsgpackGroupFormat,
    OffsetKey,
    OffsetValue,
    Value,
)
from headrace.groups.share_records import ShareMemberValue, ShareTargetValue, ShareValue
from headrace.model.errors import CorruptBatch

names = st.text(max_size=8) | st.just("n" * 40_000) | st.just("ü" * 9_000)
maybe = st.none() | names
ids = st.text(min_size=1, max_size=8)
int32, int64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
times, epochs = st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1)
hashes = st.just(b"") | st.binary(min_size=8, max_size=8).filter(any)
places = st.lists(
    st.tuples(st.uuids(), st.lists(epochs, max_size=3).map(tuple)), max_size=3, unique_by=lambda place: place[0]
).map(tuple)
members = st.builds(
    MemberValue, names, maybe, names, names, epochs, epochs, st.binary(max_size=40), st.binary(max_size=40)
)


def classic(
    kind: str, generation: int, protocol: str | None, leader: str | None, at_ms: int, found: list[MemberValue]
) -> ClassicValue:
    """A group with members has a leader, or its members are to join."""
    is_joining = bool(found) and leader is None
    return ClassicValue(kind, generation, protocol, leader, at_ms, tuple(found), is_joining)


group_keys = st.builds(GroupKey, ids)
records = st.one_of(
    st.tuples(st.builds(OffsetKey, ids, ids, int32), st.builds(OffsetValue, int64, int32, names, times)),
    # Clients that are old enough to say when an offset expires know no leader epochs.
    st.tuples(
        st.builds(OffsetKey, ids, ids, int32),
        st.builds(OffsetValue, int64, st.just(-1), st.text(max_size=9), times, times),
    ),
    st.tuples(group_keys, st.builds(classic, names, int32, maybe, maybe, int64, st.lists(members, max_size=2))),
    st.tuples(group_keys, st.builds(ConsumerValue, epochs, epochs, names, hashes)),
    st.tuples(group_keys, st.builds(ShareValue, epochs, epochs, hashes, st.lists(st.uuids(), max_size=3).map(tuple))),
    st.tuples(
        st.builds(MemberKey, ids, ids),
        st.builds(
            SubscriptionValue,
            maybe,
            maybe,
            names,
            names,
            int32,
            st.lists(names, max_size=3).map(tuple),
            maybe,
            maybe,
            st.none()
            | st.builds(
                ClassicMember, epochs, st.lists(st.tuples(names, st.binary(max_size=20)), max_size=2).map(tuple)
            ),
        ),
    ),
    st.tuples(st.builds(TargetKey, ids, ids), st.builds(TargetValue, places)),
    st.tuples(
        st.builds(CurrentKey, ids, ids),
        st.builds(CurrentValue, int32, int32, st.sampled_from(["stable", "unrevoked", "unreleased"]), places, places),
    ),
    st.tuples(
        st.builds(MemberKey, ids, ids),
        st.builds(ShareMemberValue, int32, int32, maybe, names, names, st.lists(names, max_size=3).map(tuple), places),
    ),
    st.tuples(st.builds(TargetKey, ids, ids), st.builds(ShareTargetValue, places)),
)


@given(records)
def test_records_are_read_back(record: tuple[Key, Value]) -> None:
    key, value = record
    written = KafkaGroupFormat().write(key, value)
    reading = KafkaGroupFormat()
    found = [read for entry in written if (read := reading.read(entry)) is not None]
    assert found == [(key, value)]
    assert all(entry.key[0] == 0 for entry in written)
    (old,) = MsgpackGroupFormat().write(key, value)
    assert old.key[0] >> 4 == 9, "the formats are told apart by the first byte"


@given(records)
def test_tombstones_forget_every_record_of_a_key(record: tuple[Key, Value]) -> None:
    key, value = record
    form = KafkaGroupFormat()
    if not isinstance(key, OffsetKey | GroupKey):
        is_share = isinstance(value, ShareMemberValue | ShareTargetValue)
        form.write(GroupKey(key.group), ShareValue() if is_share else ConsumerValue())
    written = form.write(key, value)
    gone = form.write(key, None)
    assert [entry.key for entry in gone] == [entry.key for entry in written]
    assert all(entry.value is None for entry in gone)


@given(records, st.data())
def test_damage_is_refused(record: tuple[Key, Value], data: st.DataObject) -> None:
    entry = KafkaGroupFormat().write(*record)[0]
    assert entry.value is not None
    short = entry.value[: data.draw(st.integers(0, len(entry.value) - 1))]
    with pytest.raises(CorruptBatch):
        KafkaGroupFormat().read(entry._replace(value=short))
    with pytest.raises(CorruptBatch):
        KafkaGroupFormat().read(entry._replace(value=b"\x00\x63" + entry.value[2:]))


@pytest.mark.parametrize("key", [b"", b"\x00", b"\x00\x01\x00", b"\x00\x63\x00\x01a\x00\x01b", b"\x00\x05\x00\x01a"])
def test_a_key_that_nobody_knows_is_refused(key: bytes) -> None:
    with pytest.raises(CorruptBatch):
        KafkaGroupFormat().read(InternalRecord(key, b"\x00\x00"))


def test_bytes_are_kafkas() -> None:
    """As written by Kafka 4.1, put down by hand after its schemas."""
    form = KafkaGroupFormat()
    assert form.write(OffsetKey("g", "topic", 7), OffsetValue(258, 3, "m", 1_000)) == (
        (
            b"\x00\x01\x00\x01g\x00\x05topic\x00\x00\x00\x07",
            b"\x00\x03\x00\x00\x00\x00\x00\x00\x01\x02\x00\x00\x00\x03\x00\x01m" + (1_000).to_bytes(8),
        ),
    )
    member = MemberValue("id", None, "c", "/h", 10, 20, b"sub", b"as")
    assert form.write(GroupKey("g"), ClassicValue("consumer", 4, "range", "id", 1_000, (member,))) == (
        (
            b"\x00\x02\x00\x01g",
            b"\x00\x03\x00\x08consumer\x00\x00\x00\x04\x00\x05range\x00\x02id"
            + (1_000).to_bytes(8)
            + b"\x00\x00\x00\x01\x00\x02id\xff\xff\x00\x01c\x00\x02/h"
            b"\x00\x00\x00\x14\x00\x00\x00\x0a\x00\x00\x00\x03sub\x00\x00\x00\x02as",
        ),
    )
    topic = UUID(int=5)
    assert form.write(CurrentKey("g", "m"), CurrentValue(9, 8, "unrevoked", ((topic, (1,)),), ())) == (
        (
            b"\x00\x08\x00\x01g\x00\x01m",
            b"\x00\x00\x00\x00\x00\x09\x00\x00\x00\x08\x01\x02" + topic.bytes + b"\x02\x00\x00\x00\x01\x00\x01\x00",
        ),
    )
