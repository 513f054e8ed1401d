"""The consumer group protocol (KIP-848) to the letter: epochs, fencing, revoking before assigning, static members."""

import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from . import raw_client
from .consumer_members import DESCRIBE, REBALANCE_MS, Member, described
from .raw_client import Connection, Error
from .subject import Subject

QUICK = {
    "group_consumer_min_heartbeat_interval_ms": "100",
    "group_consumer_heartbeat_interval_ms": "500",
    "group_consumer_min_session_timeout_ms": "1000",
    "group_consumer_session_timeout_ms": "3000",
}


@pytest.fixture
def group(connection: Connection) -> str:
    """A group of the test's own, whose coordinator is there."""
    return _group(connection)


def _group(connection: Connection) -> str:
    name = f"g-{uuid.uuid4().hex[:8]}"
    raw_client.until_coordinated(connection, name=name)
    return name


@pytest.fixture
def member(connection: Connection, group: str) -> Callable[..., Member]:
    return lambda *args, **kwargs: Member(connection, group, *args, **kwargs)


def test_a_member_gets_everything_and_is_described(
    connection: Connection, group: str, member: Callable[..., Member], new_topic: Callable[..., str]
) -> None:
    topic = new_topic(3)
    one = member()
    told = one.join(topic)
    assert (told.error_code, told.member_epoch, one.numbers()) == (Error.none, 1, [0, 1, 2])
    again = one.beat()
    assert (again.error_code, again.member_epoch, again.assignment) == (Error.none, 1, None)
    seen = described(connection, group)
    assert (seen.error_code, seen.group_state, seen.group_epoch, seen.assignment_epoch) == (Error.none, "Stable", 1, 1)
    assert seen.assignor_name == "uniform"
    (only,) = seen.members
    assert (only.member_id, only.member_epoch, only.subscribed_topic_names) == (one.member_id, 1, (topic,))
    assert [(part.topic_name, part.partitions) for part in only.assignment.topic_partitions] == [(topic, (0, 1, 2))]
    assert only.target_assignment == only.assignment
    listed = connection.call(raw_client.LIST_GROUPS, 5, {"types_filter": ["consumer"]}).groups
    assert (group, "consumer", "Stable", "consumer") in [
        (one.group_id, one.protocol_type, one.group_state, one.group_type) for one in listed
    ]
    assert one.beat(member_epoch=-1).member_epoch == -1
    assert described(connection, group).group_state == "Empty"


def test_a_partition_moves_only_when_its_reader_has_given_it_up(
    member: Callable[..., Member], new_topic: Callable[..., str]
) -> None:
    topic = new_topic(4)
    one, two = member(), member()
    one.join(topic)
    one.owns()
    told = two.join(topic)
    assert told.error_code is Error.none
    assert two.numbers() == []
    before = {key: list(some) for key, some in one.assigned.items()}
    old_epoch = one.epoch
    one.beat()
    assert one.epoch == old_epoch
    assert len(one.numbers()) == 2
    two.beat()
    assert two.numbers() == []
    one.owns(before)
    two.beat()
    assert two.numbers() == []
    one.owns()
    assert one.epoch == old_epoch + 1
    two.beat()
    assert sorted(one.numbers() + two.numbers()) == [0, 1, 2, 3]


def test_members_at_another_epoch_are_fenced(member: Callable[..., Member], new_topic: Callable[..., str]) -> None:
    one = member()
    one.join(new_topic(1))
    assert one.beat(member_epoch=7).error_code is Error.fenced_member_epoch
    assert member().beat(member_epoch=1).error_code is Error.unknown_member_id
    told = one.join(new_topic(1))
    assert (told.error_code, told.member_epoch) == (Error.none, 2)


def test_an_answer_that_was_lost_can_be_asked_for_again(
    member: Callable[..., Member], new_topic: Callable[..., str]
) -> None:
    one = member()
    one.join(new_topic(2))
    other = new_topic(2)
    one.beat(subscribed_topic_names=[other])
    one.owns()
    assert one.epoch == 2
    late: dict[str, Any] = {"member_epoch": 1, "rebalance_timeout": REBALANCE_MS, "subscribed_topic_names": [other]}
    assert one.beat(**late, topic_partitions=None).error_code is Error.fenced_member_epoch
    told = one.beat(**late, topic_partitions=[])
    assert (told.error_code, told.member_epoch) == (Error.none, 2)
    assert told.assignment is not None


def test_requests_that_make_no_sense_are_refused(member: Callable[..., Member], topic: str) -> None:
    one = member()
    assert one.join(topic, rebalance_timeout=-1).error_code is Error.invalid_request
    assert one.join(topic, topic_partitions=None).error_code is Error.invalid_request
    assert one.join(topic, member_epoch=-3).error_code is Error.invalid_request
    assert one.join(topic, member_epoch=-2).error_code is Error.invalid_request
    assert one.join(topic, instance_id="").error_code is Error.invalid_request
    assert one.join(topic, subscribed_topic_names=None).error_code is Error.invalid_request
    assert member("").join(topic).error_code is Error.invalid_request
    assert one.join(topic, group_id="").error_code in (Error.invalid_request, Error.invalid_group_id)
    assert one.join(topic, server_assignor="best").error_code is Error.unsupported_assignor
    assert one.join(subscribed_topic_regex="[").error_code is Error.invalid_regular_expression
    assert one.join(subscribed_topic_regex="(?=a)").error_code is Error.invalid_regular_expression
    assert one.beat(member_epoch=1).error_code is Error.group_id_not_found
    assert one.join(topic).error_code is Error.none


def test_version_0_gives_ids_to_members_without(
    connection: Connection, group: str, member: Callable[..., Member], topic: str
) -> None:
    one = member("")
    told = one.join(topic, version=0)
    assert told.error_code is Error.none
    assert told.member_id
    assert one.beat(version=0).error_code is Error.none
    (seen,) = connection.call(DESCRIBE, 0, {"group_ids": [group]}).groups
    assert (seen.error_code, len(seen.members)) == (Error.none, 1)


def test_range_is_an_assignor(
    connection: Connection, group: str, member: Callable[..., Member], new_topic: Callable[..., str]
) -> None:
    topic = new_topic(4)
    one, two = member(), member()
    one.join(topic, server_assignor="range")
    one.owns()
    two.join(topic, server_assignor="range")
    one.beat()
    one.owns()
    two.beat()
    assert sorted([one.numbers(), two.numbers()]) == [[0, 1], [2, 3]]
    assert described(connection, group).assignor_name == "range"


def test_topics_that_come_and_grow_are_assigned(
    broker: Subject, connection: Connection, member: Callable[..., Member], new_topic: Callable[..., str]
) -> None:
    topic = new_topic(1)
    later = f"{topic}-later"
    one = member()
    one.join(topic, later)
    assert one.numbers() == [0]
    one.owns()
    grow = {"topics": [{"name": topic, "count": 2, "assignments": None}], "timeout": 10_000}
    assert connection.call(raw_client.CREATE_PARTITIONS, 3, grow).results[0].error_code is Error.none
    raw_client.create_topic(broker.bootstrap, later, 3, {})
    end = time.monotonic() + 60
    while one.numbers() != [0, 0, 1, 1, 2]:
        assert time.monotonic() < end, one.numbers()
        time.sleep(0.05)
        one.owns()


def test_patterns_mean_topics_that_are_there_and_that_come(
    broker: Subject, member: Callable[..., Member], new_topic: Callable[..., str]
) -> None:
    topic = new_topic(2)
    one = member()
    assert one.join(subscribed_topic_names=[], subscribed_topic_regex=f"^{topic}(-.*)?").error_code is Error.none
    end = time.monotonic() + 60
    while one.numbers() != [0, 1]:
        assert time.monotonic() < end
        time.sleep(0.05)
        one.owns()
    raw_client.create_topic(broker.bootstrap, f"{topic}-more", 1, {})
    end = time.monotonic() + 60
    while one.numbers() != [0, 0, 1]:
        assert time.monotonic() < end
        time.sleep(0.05)
        one.owns()


def until_assigned(member: Member, *topics: uuid.UUID) -> None:
    """Do what the member is told to, until it has exactly these topics: patterns may be resolved some time later."""
    end = time.monotonic() + 60
    while set(member.assigned) != set(topics):
        assert time.monotonic() < end, member.assigned
        time.sleep(0.02)
        assert member.owns().error_code is Error.none


def test_another_pattern_takes_the_place_of_the_one_before(
    connection: Connection, member: Callable[..., Member], new_topic: Callable[..., str]
) -> None:
    old, new = new_topic(8), new_topic(2)
    old_id, new_id = raw_client.wait_topic(connection, old, 8), raw_client.wait_topic(connection, new, 2)
    one = member()
    assert one.join(subscribed_topic_regex=f"^{old}.*").error_code is Error.none
    until_assigned(one, old_id)
    # What it has goes first; null means that its names, of which there are none, are as before.
    assert one.beat(subscribed_topic_regex=f"^{new}.*").error_code is Error.none
    assert new_id not in one.assigned
    until_assigned(one, new_id)
    # A subscription is what its names and its pattern mean together, until the one or the other is taken back.
    assert one.beat(subscribed_topic_names=[old]).error_code is Error.none
    until_assigned(one, old_id, new_id)
    assert one.beat(subscribed_topic_regex="").error_code is Error.none
    until_assigned(one, old_id)
    assert one.beat(subscribed_topic_names=[], subscribed_topic_regex=f"^{new}.*").error_code is Error.none
    until_assigned(one, new_id)


def test_another_pattern_counts_while_the_change_before_is_under_way(
    connection: Connection, member: Callable[..., Member], new_topic: Callable[..., str]
) -> None:
    first, second, third = new_topic(4), new_topic(4), new_topic(2)
    ids = [raw_client.wait_topic(connection, topic, count) for topic, count in ((first, 4), (second, 4), (third, 2))]
    one, other = member(), member()
    # Before it has said that it owns what it was told of.
    assert one.join(subscribed_topic_regex=f"^{first}.*").error_code is Error.none
    assert one.beat(subscribed_topic_regex=f"^({first}|{second}).*", topic_partitions=[]).error_code is Error.none
    until_assigned(one, ids[0], ids[1])
    # While it gives up what another member shall have.
    assert other.join(subscribed_topic_regex=f"^({first}|{second}).*").error_code is Error.none
    one.beat()
    assert one.beat(subscribed_topic_regex=f"^{third}.*").error_code is Error.none
    until_assigned(one, ids[2])
    assert one.numbers() == [0, 1]
    until_assigned(other, ids[0], ids[1])


def test_a_static_member_that_comes_back_has_what_it_had(
    connection: Connection, group: str, member: Callable[..., Member], new_topic: Callable[..., str]
) -> None:
    topic = new_topic(4)
    one, two = member(instance_id="i1"), member(instance_id="i2")
    one.join(topic)
    one.owns()
    two.join(topic)
    one.beat()
    one.owns()
    two.beat()
    two.owns()
    mine, epoch = one.numbers(), described(connection, group).group_epoch
    assert member(instance_id="i1").join(topic).error_code is Error.unreleased_instance_id
    assert one.beat(member_epoch=-2).member_epoch == -2
    two.beat()
    back = member(instance_id="i1")
    assert back.join(topic).error_code is Error.none
    assert back.numbers() == mine
    assert described(connection, group).group_epoch == epoch
    old = one.beat(member_epoch=2)
    assert old.error_code is Error.fenced_instance_id
    assert back.beat(member_epoch=-1).error_code is Error.none
    two.beat()
    two.owns()
    assert two.numbers() == [0, 1, 2, 3]


def _commit(connection: Connection, group: str, topic: str, member_id: str, epoch: int) -> Error:
    body = {
        "group_id": group,
        "member_id": member_id,
        "generation_id_or_member_epoch": epoch,
        "group_instance_id": None,
        "topics": [{"name": topic, "partitions": [{"partition_index": 0, "committed_offset": 5}]}],
    }
    code = connection.call(raw_client.OFFSET_COMMIT, 9, body).topics[0].partitions[0].error_code
    assert isinstance(code, Error)
    return code


def _fetch(connection: Connection, group: str, topic: str, member_id: str | None, epoch: int) -> Any:
    asked = {
        "group_id": group,
        "member_id": member_id,
        "member_epoch": epoch,
        "topics": [{"name": topic, "partition_indexes": [0]}],
    }
    return connection.call(raw_client.OFFSET_FETCH, 9, {"groups": [asked], "require_stable": False}).groups[0]


def test_only_members_at_their_epoch_commit_and_fetch(
    connection: Connection, group: str, member: Callable[..., Member], topic: str
) -> None:
    one = member()
    one.join(topic)
    assert _commit(connection, group, topic, one.member_id, 1) is Error.none
    assert _commit(connection, group, topic, one.member_id, 0) is Error.stale_member_epoch
    assert _commit(connection, group, topic, one.member_id, 2) is Error.stale_member_epoch
    assert _commit(connection, group, topic, "somebody", 1) is Error.unknown_member_id
    assert _commit(connection, group, topic, "", -1) is Error.unknown_member_id
    assert _fetch(connection, group, topic, one.member_id, 1).topics[0].partitions[0].committed_offset == 5
    assert _fetch(connection, group, topic, None, -1).topics[0].partitions[0].committed_offset == 5
    assert _fetch(connection, group, topic, one.member_id, 3).error_code is Error.stale_member_epoch
    assert _fetch(connection, group, topic, "somebody", 1).error_code is Error.unknown_member_id


def test_a_group_with_members_stays_and_one_without_can_be_deleted(
    connection: Connection, group: str, member: Callable[..., Member], topic: str
) -> None:
    one = member()
    one.join(topic)
    delete = {"groups_names": [group]}
    assert connection.call(raw_client.DELETE_GROUPS, 2, delete).results[0].error_code is Error.non_empty_group
    one.beat(member_epoch=-1)
    assert connection.call(raw_client.DELETE_GROUPS, 2, delete).results[0].error_code is Error.none
    assert described(connection, group).error_code is Error.group_id_not_found


def test_classic_members_are_kept_out_of_a_group_with_members_and_let_into_an_empty_one(
    connection: Connection, group: str, member: Callable[..., Member], topic: str
) -> None:
    one = member()
    one.join(topic)
    _commit(connection, group, topic, one.member_id, 1)
    join = {
        "group_id": group,
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "member_id": "",
        "protocol_type": "connect",
        "protocols": [{"name": "p", "metadata": b""}],
    }
    assert connection.call(raw_client.JOIN_GROUP, 5, join).error_code is Error.inconsistent_group_protocol
    one.beat(member_epoch=-1)
    assert connection.call(raw_client.JOIN_GROUP, 5, join).error_code is Error.member_id_required
    assert _fetch(connection, group, topic, None, -1).topics[0].partitions[0].committed_offset == 5
    assert one.join(topic).error_code is Error.none
    assert _fetch(connection, group, topic, None, -1).topics[0].partitions[0].committed_offset == 5


def test_a_silent_member_is_removed(own_broker: Callable[..., Subject]) -> None:
    broker = own_broker(**QUICK)
    raw_client.create_topic(broker.bootstrap, "t", 2, {})
    with Connection(broker.bootstrap) as connection:
        group = _group(connection)
        one, two = Member(connection, group), Member(connection, group, instance_id="static")
        one.join("t")
        two.join("t")
        end = time.monotonic() + 60
        while two.numbers() != [0, 1]:
            assert time.monotonic() < end
            time.sleep(0.1)
            two.owns()
        assert one.beat().error_code is Error.unknown_member_id


def test_a_member_that_does_not_give_up_what_it_must_is_removed(own_broker: Callable[..., Subject]) -> None:
    broker = own_broker(**QUICK)
    raw_client.create_topic(broker.bootstrap, "t", 2, {})
    with Connection(broker.bootstrap) as connection:
        group = _group(connection)
        one, two = Member(connection, group), Member(connection, group)
        one.join("t", rebalance_timeout=1000)
        two.join("t")
        end = time.monotonic() + 60
        while one.beat().error_code is Error.none:
            assert time.monotonic() < end
            time.sleep(0.1)
            two.owns()
        two.owns()
        assert two.numbers() == [0, 1]


def test_members_go_on_at_their_epochs_after_a_kill(own_broker: Callable[..., Subject]) -> None:
    broker = own_broker()
    raw_client.create_topic(broker.bootstrap, "t", 4, {})
    with Connection(broker.bootstrap) as connection:
        group = _group(connection)
        one, two = Member(connection, group), Member(connection, group, instance_id="static")
        one.join("t")
        one.owns()
        two.join("t")
        one.beat()
    broker.kill()
    broker.start()
    with Connection(broker.bootstrap) as connection:
        one.connection = two.connection = connection
        end = time.monotonic() + 60
        while one.beat().error_code in (Error.coordinator_load_in_progress, Error.not_coordinator):
            assert time.monotonic() < end
            time.sleep(0.05)
        assert one.epoch == 1
        assert two.beat().error_code is Error.none
        assert two.numbers() == []
        one.owns()
        two.beat()
        assert sorted(one.numbers() + two.numbers()) == [0, 1, 2, 3]
        assert (one.epoch, two.epoch) == (2, 2)
