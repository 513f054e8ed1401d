"""Members of both group protocols in one group, to the letter (KIP-848). Holds for Apache Kafka, too."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from headrace.groups.subscription import read_assignment, write_assignment

from . import raw_client
from .classic_members import Member
from .consumer_members import Member as ConsumerMember
from .consumer_members import described
from .quick import broker  # noqa: F401 - a fixture
from .raw_client import Connection, Error
from .subject import Subject

NAME = "cooperative-sticky"


def subscription(topic: str, owned: list[int]) -> bytes:
    name = topic.encode()
    head = b"\0\1\0\0\0\1" + len(name).to_bytes(2) + name + b"\xff\xff\xff\xff"
    return head + write_assignment(0, [(topic, tuple(owned))] if owned else [])[2:-4]


class ClassicMember(Member):
    """A consumer of the classic protocol that keeps what it has while it joins again."""

    def __init__(self, bootstrap: str, group: str, topic: str, instance_id: str | None = None) -> None:
        super().__init__(bootstrap, group, 9, instance_id)
        self.topic = topic

    def rejoin(self, owned: list[int], **fields: Any) -> Any:
        protocols = [{"name": NAME, "metadata": subscription(self.topic, owned)}]
        return self.join(**{"protocols": protocols, "session_timeout": 30_000, "rebalance_timeout": 30_000, **fields})

    def assigned(self, *shares: list[int]) -> list[int]:
        """Sync, as the leader with these shares; the partitions it is told."""
        assignments = [
            {"member_id": one.member_id, "assignment": write_assignment(1, [(self.topic, tuple(share))])}
            for one, share in zip(self.members, shares, strict=False)
        ]
        told = self.sync(assignments=assignments, protocol_name=NAME)
        assert told.error_code is Error.none, told
        read = read_assignment(told.assignment)
        assert read is not None
        return sorted(number for _, numbers in read for number in numbers)


@pytest.fixture
def group(connection: Connection) -> str:
    name = f"g-{uuid.uuid4().hex[:8]}"
    raw_client.until_coordinated(connection, name=name)
    return name


@pytest.fixture
def classic(broker: Subject, group: str) -> Iterator[Callable[..., ClassicMember]]:  # noqa: F811
    with ExitStack() as stack:

        def make(topic: str, instance_id: str | None = None) -> ClassicMember:
            member = ClassicMember(broker.bootstrap, group, topic, instance_id)
            stack.callback(member.connection.close)
            return member

        yield make


def kinds(connection: Connection, group: str) -> list[int]:
    seen = described(connection, group)
    assert seen.error_code is Error.none
    return sorted(member.member_type for member in seen.members)


def test_a_classic_group_becomes_a_consumer_group_and_a_classic_one_again(
    connection: Connection, group: str, classic: Callable[..., ClassicMember], new_topic: Callable[..., str]
) -> None:
    topic = new_topic(4)
    old, new = classic(topic), ConsumerMember(connection, group)
    old.rejoin([])
    assert old.assigned([0, 1, 2, 3]) == [0, 1, 2, 3]
    assert old.commit(topic, 3) is Error.none
    assert new.join(topic).error_code is Error.none
    assert (new.epoch, new.numbers()) == (old.generation + 1, [])
    assert kinds(connection, group) == [0, 1]
    assert old.commit(topic, 4) is Error.none
    # It keeps its share, gives up the rest, and says so; only then may another one have that.
    assert old.heartbeat() is Error.rebalance_in_progress
    told = old.rejoin([0, 1, 2, 3])
    assert (told.error_code, told.generation_id, told.leader, told.members) == (Error.none, new.epoch - 1, "", ())
    assert (told.protocol_type, told.protocol_name) == ("consumer", NAME)
    keeps = old.assigned()
    assert len(keeps) == 2
    assert old.heartbeat() is Error.rebalance_in_progress
    new.owns()
    assert new.numbers() == []
    told = old.rejoin(keeps)
    assert (told.error_code, told.generation_id) == (Error.none, new.epoch)
    assert old.assigned() == keeps
    assert old.heartbeat() is Error.none
    new.owns()
    assert sorted(new.numbers() + keeps) == [0, 1, 2, 3]
    new.owns()
    assert described(connection, group).group_state == "Stable"
    assert old.commit(topic, 5) is Error.none
    assert old.commit(topic, 5, generation_id_or_member_epoch=old.generation - 1) is Error.illegal_generation
    # The last member of the consumer protocol leaves.
    assert new.beat(member_epoch=-1).error_code is Error.none
    assert described(connection, group).error_code is Error.group_id_not_found
    assert old.heartbeat() is Error.rebalance_in_progress
    assert old.commit(topic, 6) is Error.none
    generation = old.generation
    told = old.rejoin(keeps)
    assert (told.error_code, told.generation_id, told.leader) == (Error.none, generation + 1, old.member_id)
    assert old.assigned([0, 1, 2, 3]) == [0, 1, 2, 3]
    assert old.heartbeat() is Error.none
    assert old.commit(topic, 7) is Error.none


def test_a_classic_member_that_gives_up_everything_gets_its_share_at_once(
    connection: Connection, group: str, classic: Callable[..., ClassicMember], new_topic: Callable[..., str]
) -> None:
    topic = new_topic(4)
    new = ConsumerMember(connection, group)
    new.join(topic)
    new.owns()
    old = classic(topic)
    assert old.rejoin([]).error_code is Error.none
    assert old.generation == 2
    assert old.assigned() == []
    # It waits for what another one has, and is called when that is free.
    assert old.heartbeat() is Error.none
    new.beat()
    assert old.heartbeat() is Error.none
    new.owns()
    assert old.heartbeat() is Error.rebalance_in_progress
    old.rejoin([])
    assert sorted(old.assigned() + new.numbers()) == [0, 1, 2, 3]
    third = ConsumerMember(connection, group)
    third.join(topic)
    assert old.heartbeat() is Error.rebalance_in_progress
    assert old.sync(protocol_name=NAME).error_code is Error.rebalance_in_progress
    old.rejoin([])
    assert len(old.assigned()) in (1, 2)
    assert old.leave() is Error.none
    assert old.heartbeat() is Error.unknown_member_id
    assert kinds(connection, group) == [1, 1]


def test_what_does_not_fit_a_mixed_group_is_refused(
    connection: Connection, group: str, classic: Callable[..., ClassicMember], new_topic: Callable[..., str]
) -> None:
    topic = new_topic(2)
    new, old = ConsumerMember(connection, group), classic(topic)
    new.join(topic)
    assert old.rejoin([], protocol_type="connect").error_code is Error.inconsistent_group_protocol
    assert old.rejoin([]).error_code is Error.none
    other = [{"name": "range", "metadata": subscription(topic, [])}]
    assert classic(topic).rejoin([], protocols=other).error_code is Error.inconsistent_group_protocol
    assert classic(topic).rejoin([], session_timeout=1).error_code is Error.invalid_session_timeout
    assert old.sync(protocol_name="range").error_code is Error.inconsistent_group_protocol
    assert old.sync(protocol_type="connect", protocol_name=NAME).error_code is Error.inconsistent_group_protocol
    assert old.heartbeat(generation_id=7) is Error.illegal_generation
    assert old.sync(generation_id=7, protocol_name=NAME).error_code is Error.illegal_generation
    for stranger in ("somebody", new.member_id):
        assert old.heartbeat(member_id=stranger) is Error.unknown_member_id
        assert old.sync(member_id=stranger, protocol_name=NAME).error_code is Error.unknown_member_id
    leaving = {"members": [{"member_id": new.member_id, "group_instance_id": None}]}
    assert old.call(raw_client.LEAVE_GROUP, **leaving).members[0].error_code is Error.unknown_member_id
    assert old.heartbeat() is Error.none


def test_a_group_of_something_else_than_consumers_is_not_converted(
    connection: Connection, group: str, classic: Callable[..., ClassicMember], topic: str
) -> None:
    worker = classic(topic)
    assert worker.rejoin([], protocol_type="connect").error_code is Error.none
    worker.sync(protocol_type="connect", protocol_name=NAME)
    assert ConsumerMember(connection, group).join(topic).error_code is Error.group_id_not_found
    assert worker.heartbeat() is Error.none


def test_static_members_take_their_places_with_the_other_protocol(
    connection: Connection, group: str, classic: Callable[..., ClassicMember], new_topic: Callable[..., str]
) -> None:
    topic = new_topic(4)
    first, second = ConsumerMember(connection, group, instance_id="i1"), ConsumerMember(connection, group)
    first.join(topic)
    first.owns()
    second.join(topic)
    first.beat()
    first.owns()
    second.owns()
    had = first.numbers()
    # Whoever comes with the classic protocol need not wait until the one before has left.
    back = classic(topic, instance_id="i1")
    assert back.rejoin([]).error_code is Error.none
    assert back.assigned() == had
    assert first.beat().error_code is Error.fenced_instance_id
    assert kinds(connection, group) == [0, 1]
    third = ConsumerMember(connection, group, instance_id="i1")
    assert third.join(topic).error_code is Error.none
    assert third.numbers() == had
    assert back.heartbeat() is Error.fenced_instance_id
    assert kinds(connection, group) == [1, 1]


@pytest.mark.parametrize("policy", ["disabled", "upgrade", "downgrade"])
def test_the_policy_says_which_way_a_group_may_go(own_broker: Callable[..., Subject], policy: str) -> None:
    settings = {"group_consumer_migration_policy": policy, "group_initial_rebalance_delay_ms": "0"}
    one = own_broker(**settings)
    raw_client.create_topic(one.bootstrap, "t", 2, {})
    with ExitStack() as cleanup, Connection(one.bootstrap) as connection:
        group = f"g-{policy}"
        raw_client.until_coordinated(connection, name=group)
        old, new = ClassicMember(one.bootstrap, group, "t"), ConsumerMember(connection, group)
        cleanup.enter_context(closing(old.connection))
        old.rejoin([])
        old.assigned([0, 1])
        told = new.join("t")
        if policy == "upgrade":
            assert told.error_code is Error.none
        else:
            assert told.error_code is Error.group_id_not_found
            assert old.heartbeat() is Error.none
            old.leave()
            assert new.join("t").error_code is Error.none
            old.member_id = ""
        assert old.rejoin([]).error_code is Error.none
        assert kinds(connection, group) == [0, 1]
        new.beat(member_epoch=-1)
        is_classic = described(connection, group).error_code is Error.group_id_not_found
        assert is_classic is (policy == "downgrade")
        assert old.heartbeat() is Error.rebalance_in_progress
        assert old.rejoin([]).error_code is Error.none
        assert old.assigned([0, 1]) == [0, 1]
