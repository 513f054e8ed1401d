"""Share groups (KIP-932) to the letter: sessions, acquire modes, renewing, transactions, and where groups are."""

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import Producer

from . import raw_client
from .batches import Record, batch, values
from .raw_client import Connection, Error
from .share_members import (
    ACCEPT,
    GAP,
    GROUP_RESOURCE,
    PATIENCE_S,
    RECORD_LIMIT,
    REJECT,
    RELEASE,
    RENEW,
    Member,
    acquired,
    configure,
    part,
    until_acquired,
)
from .subject import Subject


@pytest.fixture
def group(connection: Connection) -> str:
    """A group that begins with the first record."""
    name = f"share-{uuid.uuid4().hex[:8]}"
    raw_client.until_coordinated(connection, name=name)
    configure(connection, name, "share.auto.offset.reset", "earliest")
    return name


@pytest.fixture
def topic_id(connection: Connection, topic: str) -> uuid.UUID:
    return raw_client.wait_topic(connection, topic, 1)


@pytest.fixture
def member(broker: Subject, group: str, topic_id: uuid.UUID) -> Iterator[Callable[[], Member]]:
    with ExitStack() as stack:

        def make() -> Member:
            one = Member(broker.bootstrap, group, topic_id)
            stack.callback(one.close)
            return one

        yield make


def send(connection: Connection, topic: str, *values: str) -> None:
    """One batch."""
    records = batch([Record(value.encode()) for value in values])
    assert raw_client.produce(connection, topic, records).error_code is Error.none


def test_the_broker_says_that_it_has_share_groups(connection: Connection) -> None:
    answer = connection.call(raw_client.API_VERSIONS, 4, client_software_name="wire", client_software_version="1")
    ranges = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    assert [ranges[key] for key in (76, 77, 78, 79, 90, 91, 92)] == [
        (1, 1), (1, 1), (1, 2), (1, 2), (0, 1), (0, 0), (0, 0),
    ]  # fmt: skip
    assert {feature.name: feature.max_version_level for feature in answer.finalized_features}["share.version"] == 2


def test_members_are_told_what_to_read_and_described(
    connection: Connection, topic: str, topic_id: uuid.UUID, group: str, member: Callable[[], Member]
) -> None:
    one = member()
    told = one.beat(0, [topic])
    assert told.error_code is Error.none
    assert [(each.topic_id, each.partitions) for each in told.assignment.topic_partitions] == [(topic_id, (0,))]
    assert one.beat(told.member_epoch).assignment is None
    assert one.beat(told.member_epoch + 7).error_code is Error.fenced_member_epoch
    (described,) = connection.call(raw_client.SHARE_GROUP_DESCRIBE, 1, group_ids=[group]).groups
    assert (described.group_state, described.assignor_name) == ("Stable", "simple")
    assert [each.member_id for each in described.members] == [one.member_id]
    listed = connection.call(raw_client.LIST_GROUPS, 5, types_filter=["share"]).groups
    assert (group, "share", "Stable") in [(each.group_id, each.group_type, each.group_state) for each in listed]
    assert (
        connection.call(raw_client.DELETE_GROUPS, 2, groups_names=[group]).results[0].error_code
        is Error.non_empty_group
    )
    assert one.beat(-1).member_epoch == -1
    assert one.beat(told.member_epoch).error_code is Error.unknown_member_id
    (other,) = connection.call(raw_client.SHARE_GROUP_DESCRIBE, 1, group_ids=["nobody"]).groups
    assert other.error_code is Error.group_id_not_found


def test_a_session_has_epochs_and_ends_by_releasing(
    connection: Connection, topic: str, member: Callable[[], Member]
) -> None:
    send(connection, topic, "a", "b", "c")
    one, other = member(), member()
    assert one.fetch(epoch=5).error_code is Error.share_session_not_found
    assert one.acknowledge((0, 0, ACCEPT), epoch=0).error_code is Error.invalid_share_session_epoch
    assert one.fetch((0, 0, ACCEPT)).error_code is Error.invalid_request
    answer = until_acquired(one)
    assert acquired(answer) == [(0, 2, 1)]
    assert values(part(answer).records) == [b"a", b"b", b"c"]
    assert one.fetch(epoch=one.epoch + 1).error_code is Error.invalid_share_session_epoch
    # What somebody else has cannot be acknowledged, and nothing of the same partition is done with it.
    assert acquired(other.fetch()) == []
    assert part(other.acknowledge((0, 0, ACCEPT))).error_code is Error.invalid_record_state
    for wrong in (
        [(0, 0, ACCEPT), (2, 7, ACCEPT)],
        [(2, 1, ACCEPT)],
        [(1, 1, ACCEPT), (0, 0, ACCEPT)],
        [(0, 0, 5)],
        [(0, 0, RENEW)],
    ):
        assert part(one.acknowledge(*wrong)).error_code is Error.invalid_request
    # What is below the group's start is passed over, whoever had it.
    for each in (one, one, other):
        assert part(each.acknowledge((0, 0, ACCEPT))).error_code is Error.none
    assert one.acknowledge(epoch=-1).error_code is Error.none
    assert one.acknowledge(epoch=-1).error_code is Error.share_session_not_found
    assert acquired(until_acquired(other)) == [(1, 2, 2)]


def test_a_connection_that_is_lost_releases_what_its_member_has(
    connection: Connection, topic: str, member: Callable[[], Member]
) -> None:
    send(connection, topic, "a")
    one, other = member(), member()
    assert acquired(until_acquired(one)) == [(0, 0, 1)]
    pending = other.send_fetch(max_wait=30_000)
    one.connection.reset()
    assert acquired(other.fetched(pending)) == [(0, 0, 2)]


@pytest.mark.parametrize("ending", ["session", "connection"])
def test_nothing_stays_locked_for_a_member_that_goes_while_it_fetches(
    connection: Connection, topic: str, member: Callable[[], Member], ending: str
) -> None:
    send(connection, topic, "a")
    until_acquired(first := member())
    first.acknowledge(epoch=-1)
    for turn in range(20):
        last = 0
        one = member()
        pending = one.send_fetch()
        time.sleep(turn / 4000)
        if ending == "connection":
            one.connection.reset()
        else:
            end = one.connection.send(raw_client.SHARE_ACKNOWLEDGE, 2, one.body([], -1))
            told = acquired(one.connection.receive(pending))
            assert one.connection.receive(end).error_code is Error.none
            last = max((count for _, _, count in told), default=0)
        other = member()
        began = time.monotonic()
        ((_, _, count),) = acquired(until_acquired(other))
        assert time.monotonic() - began < 20, "it was locked"
        assert count > last
        other.acknowledge((turn, turn, ACCEPT), epoch=-1)
        send(connection, topic, "next")


def test_only_failed_deliveries_count_towards_the_limit(
    connection: Connection, topic: str, member: Callable[[], Member]
) -> None:
    send(connection, topic, "a", "b")
    for count in range(1, 8):
        one = member()
        assert acquired(until_acquired(one)) == [(0, 1, count)], "a member that ends its session has not failed"
        one.acknowledge(epoch=-1)
    for count in range(8, 13):
        one = member()
        assert acquired(until_acquired(one)) == [(0, 1, count)], "five deliveries may fail"
        one.connection.reset()
    waiting = member()
    waiting.fetch(max_wait=500)
    send(connection, topic, "c")
    assert acquired(until_acquired(waiting)) == [(2, 2, 1)]


def test_a_fetch_waits_until_there_is_something(
    connection: Connection, topic: str, member: Callable[[], Member]
) -> None:
    one = member()
    one.fetch(max_wait=1000)
    pending = one.send_fetch(max_wait=60_000)
    assert one.connection.is_silent(0.2)
    began = time.monotonic()
    send(connection, topic, "a")
    assert acquired(one.fetched(pending)) == [(0, 0, 1)]
    assert time.monotonic() - began < 30
    # A request of the same session ends the wait of the one before it.
    pending = one.send_fetch((0, 0, RELEASE), max_wait=0)
    assert acquired(one.fetched(pending)) == [(0, 0, 2)]
    waiting = one.send_fetch(max_wait=60_000)
    one.epoch += 1
    behind = one.send_fetch((0, 0, ACCEPT), max_wait=0)
    assert one.connection.receive(waiting).responses == ()
    assert part(one.fetched(behind)).acknowledge_error_code == 0


def test_a_fetch_gets_no_more_records_than_it_asks_for(
    connection: Connection, topic: str, member: Callable[[], Member]
) -> None:
    send(connection, topic, *"abcdef")
    strict, loose = member(), member()
    answer = until_acquired(strict, max_records=2, share_acquire_mode=RECORD_LIMIT)
    assert acquired(answer) == [(0, 1, 1)]
    assert len(values(part(answer).records)) == 6, "batches are sent as they are"
    assert acquired(loose.fetch(max_records=3)) == [(2, 4, 1)]
    # Gaps and rejected ones are done as accepted ones are.
    done = strict.acknowledge((0, 0, GAP), (1, 1, REJECT))
    assert part(done).error_code is Error.none
    send(connection, topic, *"ghi")
    answer = loose.fetch((2, 3, ACCEPT), (4, 4, RELEASE), version=1, max_records=3)
    assert part(answer).acknowledge_error_code == 0
    assert acquired(answer) == [(5, 5, 1), (6, 7, 1)], "as many as it asks for, of two batches"
    assert acquired(strict.fetch(max_records=3)) == [(8, 8, 1)], "what came back is behind what waits"
    assert acquired(strict.fetch((8, 8, ACCEPT), max_records=3)) == [(4, 4, 2)]


def test_a_record_that_is_always_released_keeps_no_other_from_being_delivered(
    connection: Connection, topic: str, group: str, member: Callable[[], Member]
) -> None:
    assert configure(connection, group, "share.delivery.count.limit", "10") is Error.none
    send(connection, topic, "poison", *(f"good {number}" for number in range(10)))
    one = member()
    (span,) = acquired(until_acquired(one, max_records=1))
    delivered = [span]
    for _ in range(12):
        offset = delivered[-1][0]
        acknowledged = (offset, offset, RELEASE if offset == 0 else ACCEPT)
        (span,) = acquired(one.fetch(acknowledged, version=1, max_records=1))
        delivered.append(span)
    assert delivered == [(0, 0, 1), *((offset, offset, 1) for offset in range(1, 11)), (0, 0, 2), (0, 0, 3)]


@pytest.mark.parametrize("limit", ["max_bytes", "max_records"])
def test_a_fetch_of_nothing_acquires_nothing(
    connection: Connection, topic: str, member: Callable[[], Member], limit: str
) -> None:
    send(connection, topic, *"abc")
    one, other = member(), member()
    for _ in range(2):
        assert acquired(one.fetch(**{limit: 0, "max_wait": 50})) == []
    assert acquired(until_acquired(other)) == [(0, 2, 1)]


def test_a_group_has_limits_of_its_own(
    connection: Connection, topic: str, group: str, member: Callable[[], Member]
) -> None:
    assert configure(connection, group, "share.delivery.count.limit", "3") is Error.none
    for wrong in ("1", "11"):
        assert configure(connection, group, "share.delivery.count.limit", wrong) is Error.invalid_config
    assert configure(connection, group, "share.partition.max.record.locks", "100") is Error.none
    for wrong in ("99", "4001"):
        assert configure(connection, group, "share.partition.max.record.locks", wrong) is Error.invalid_config
    records = batch([Record(b"x") for _ in range(150)])
    assert raw_client.produce(connection, topic, records).error_code is Error.none
    one = member()
    assert acquired(until_acquired(one)) == [(0, 99, 1)], "as many as may be locked"
    assert acquired(one.fetch((0, 99, RELEASE))) == [(0, 49, 2), (100, 149, 1)]
    # In force at once, also for a group that is being served: what was delivered twice is done.
    assert configure(connection, group, "share.delivery.count.limit", "2") is Error.none
    assert acquired(one.fetch((0, 49, RELEASE), (100, 149, ACCEPT))) == [(50, 99, 2)]
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": group, "configuration_keys": None}
    (described,) = connection.call(raw_client.DESCRIBE_CONFIGS, 4, resources=[resource]).results
    told = {each.name: each.value for each in described.configs}
    assert (told["share.delivery.count.limit"], told["share.partition.max.record.locks"]) == ("2", "100")


def test_a_record_is_kept_for_longer_by_renewing_it(
    connection: Connection, topic: str, group: str, member: Callable[[], Member]
) -> None:
    send(connection, topic, "a", "b")
    one = member()
    until_acquired(one)
    assert part(one.acknowledge((0, 1, RENEW), version=1)).error_code is Error.invalid_request
    renewed = one.acknowledge((0, 0, RENEW), (1, 1, ACCEPT), is_renew_ack=True)
    assert part(renewed).error_code is Error.none
    assert renewed.acquisition_lock_timeout.total_seconds() == 30
    assert one.fetch((0, 0, RENEW), is_renew_ack=True).error_code is Error.invalid_request
    nothing = {"max_wait": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
    answer = one.fetch((0, 0, RENEW), is_renew_ack=True, **nothing)
    assert part(answer).acknowledge_error_code == 0
    assert configure(connection, group, "share.renew.acknowledge.enable", "false") is Error.none
    assert part(one.acknowledge((0, 0, RENEW), is_renew_ack=True)).error_code is Error.invalid_request


def test_aborted_transactions_are_only_for_those_who_want_them(
    broker: Subject, connection: Connection, topic: str, group: str, member: Callable[[], Member]
) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"x-{uuid.uuid4().hex}"})
    producer.init_transactions(PATIENCE_S)
    for value, end in (("aborted", producer.abort_transaction), ("committed", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value)
        assert producer.flush(PATIENCE_S) == 0
        end(PATIENCE_S)
    assert configure(connection, group, "share.isolation.level", "read_committed") is Error.none
    one = member()
    answer = until_acquired(one)
    assert [(first, last) for first, last, _ in acquired(answer)] == [(2, 2)]
    assert values(part(answer).records) == [b"committed"]


def test_offsets_are_set_before_the_first_member_comes(
    connection: Connection, topic: str, group: str, member: Callable[[], Member]
) -> None:
    send(connection, topic, *"abcd")
    partition = {"partition_index": 0, "start_offset": 2}
    missing = {"group_id": group, "topics": [{"topic_name": f"not-{topic}", "partitions": [partition]}]}
    told = connection.call(raw_client.ALTER_SHARE_GROUP_OFFSETS, 0, missing)
    assert told.responses[0].partitions[0].error_code is Error.unknown_topic_or_partition
    (described,) = connection.call(raw_client.SHARE_GROUP_DESCRIBE, 1, group_ids=[group]).groups
    assert described.error_code is Error.group_id_not_found
    body = {"group_id": group, "topics": [{"topic_name": topic, "partitions": [partition]}]}
    told = connection.call(raw_client.ALTER_SHARE_GROUP_OFFSETS, 0, body)
    assert (told.error_code, told.responses[0].partitions[0].error_code) == (Error.none, Error.none)
    (described,) = connection.call(raw_client.SHARE_GROUP_DESCRIBE, 1, group_ids=[group]).groups
    assert (described.error_code, described.group_state) == (Error.none, "Empty")
    asked = {"group_id": group, "topics": None}
    (where,) = connection.call(raw_client.DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=[asked]).groups
    assert [(each.topic_name, each.partitions[0].start_offset) for each in where.topics] == [(topic, 2)]
    one = member()
    assert one.beat(0, [topic]).error_code is Error.none
    assert acquired(until_acquired(one)) == [(2, 3, 1)]


def test_offsets_of_a_share_group_are_not_set_in_a_group_of_another_kind(connection: Connection, topic: str) -> None:
    group = f"consumers-{uuid.uuid4().hex[:8]}"
    raw_client.until_coordinated(connection, name=group)
    offsets = [{"partition_index": 0, "committed_offset": 0, "committed_metadata": None}]
    committed = {"group_id": group, "topics": [{"name": topic, "partitions": offsets}]}
    answer = connection.call(raw_client.OFFSET_COMMIT, 8, committed)
    assert answer.topics[0].partitions[0].error_code is Error.none
    body = {"group_id": group, "topics": [{"topic_name": topic, "partitions": [{"partition_index": 0}]}]}
    assert connection.call(raw_client.ALTER_SHARE_GROUP_OFFSETS, 0, body).error_code is Error.group_id_not_found
    nameless = connection.call(raw_client.ALTER_SHARE_GROUP_OFFSETS, 0, body | {"group_id": ""})
    assert nameless.error_code is Error.invalid_group_id


def test_where_a_group_is_can_be_seen_set_and_forgotten(
    connection: Connection, topic: str, group: str, member: Callable[[], Member]
) -> None:
    send(connection, topic, *"abcd")
    one = member()
    epoch = one.beat(0, [topic]).member_epoch
    until_acquired(one)
    assert part(one.acknowledge((0, 0, ACCEPT), (1, 1, RELEASE), (2, 2, ACCEPT))).error_code is Error.none

    def position() -> tuple[int, int]:
        asked = {"group_id": group, "topics": None}
        (told,) = connection.call(raw_client.DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=[asked]).groups
        assert told.error_code is Error.none
        (found,) = told.topics[0].partitions
        return found.start_offset, found.lag

    assert position() == (1, 2)
    reset: dict[str, Any] = {
        "group_id": group,
        "topics": [{"topic_name": topic, "partitions": [{"partition_index": 0}]}],
    }
    assert connection.call(raw_client.ALTER_SHARE_GROUP_OFFSETS, 0, reset).error_code is Error.non_empty_group
    forget = {"group_id": group, "topics": [{"topic_name": topic}]}
    assert connection.call(raw_client.DELETE_SHARE_GROUP_OFFSETS, 0, forget).error_code is Error.non_empty_group
    one.beat(-1)
    assert one.beat(epoch).error_code is Error.unknown_member_id
    one.acknowledge(epoch=-1)
    for offset, code in ((3, Error.none), (5, Error.offset_out_of_range)):
        reset["topics"][0]["partitions"][0]["start_offset"] = offset
        (told,) = connection.call(raw_client.ALTER_SHARE_GROUP_OFFSETS, 0, reset).responses
        assert told.partitions[0].error_code is code
    assert position() == (3, 1)
    other = member()
    assert acquired(until_acquired(other)) == [(3, 3, 1)]
    (told,) = connection.call(raw_client.DELETE_SHARE_GROUP_OFFSETS, 0, forget).responses
    assert told.error_code is Error.none
    asked = {"group_id": group, "topics": [{"topic_name": topic, "partitions": [0]}]}
    (nowhere,) = connection.call(raw_client.DESCRIBE_SHARE_GROUP_OFFSETS, 0, groups=[asked]).groups
    assert nowhere.topics[0].partitions[0].start_offset == -1
    (told,) = connection.call(raw_client.DELETE_SHARE_GROUP_OFFSETS, 0, forget).responses
    assert told.error_code is Error.unknown_topic_or_partition
    assert connection.call(raw_client.DELETE_GROUPS, 2, groups_names=[group]).results[0].error_code is Error.none
    (gone,) = connection.call(raw_client.DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=[asked]).groups
    assert gone.error_code is Error.group_id_not_found
