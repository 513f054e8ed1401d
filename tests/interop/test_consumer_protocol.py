"""Groups of real clients with `group.protocol=consumer` (KIP-848): joining, leaving, crashing, patterns, kills."""

import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from . import raw_client
from .consumer_members import Member
from .group_readers import QUICK, TIMEOUT_S, Reader, commit, described, produce, until
from .subject import Subject

HASTY = {**QUICK, "group_consumer_session_timeout_ms": "4000"}
"""For members that are to be missed soon."""


@pytest.fixture
def reader() -> Iterator[Callable[..., Reader]]:
    with ExitStack() as stack:

        def make(*args: str, **settings: Any) -> Reader:
            one = Reader(*args, **settings)
            stack.callback(one.consumer.close)
            return one

        yield make


def shared_out(topic: str, partitions: int, *readers: Reader) -> Callable[[], bool]:
    """Whether each partition has one reader, and no reader has two more than another."""

    def holds() -> bool:
        held = [one.partitions() for one in readers]
        sizes = [len(some) for some in held]
        whole = {(topic, number) for number in range(partitions)}
        return sum(sizes) == partitions and set().union(*held) == whole and max(sizes) - min(sizes) <= 1

    return holds


def test_members_share_topics_as_they_come_and_go(
    own_broker: Callable[..., Subject], reader: Callable[..., Reader]
) -> None:
    broker = own_broker(**QUICK)
    raw_client.create_topic(broker.bootstrap, "t", 12, {})
    produce(broker.bootstrap, "t", range(120), 12)
    readers = [reader(broker.bootstrap, "g", "t") for _ in range(2)]
    until(shared_out("t", 12, *readers), *readers)
    readers += [reader(broker.bootstrap, "g", "t") for _ in range(3)]
    until(shared_out("t", 12, *readers), *readers)
    # The members have what they were told, and yet have to tell so.
    until(lambda: described(broker.bootstrap, "g").state.name == "STABLE", *readers)
    seen = described(broker.bootstrap, "g")
    assert (seen.state.name, seen.type.name, len(seen.members)) == ("STABLE", "CONSUMER", 5)
    for gone in (readers.pop(), readers.pop()):
        gone.consumer.close()
    until(shared_out("t", 12, *readers), *readers)
    produce(broker.bootstrap, "t", range(120, 240), 12)
    until(lambda: {value for one in readers for value in one.values} >= set(range(120, 240)), *readers)
    for one in readers:
        commit(one.consumer)
        one.consumer.close()
    assert described(broker.bootstrap, "g").state.name == "EMPTY"
    late = reader(broker.bootstrap, "g", "t")
    produce(broker.bootstrap, "t", range(240, 252), 12)
    until(lambda: len(late.values) >= 12, late)
    assert sorted(late.values) == list(range(240, 252))


def test_twenty_members_share_forty_partitions(
    own_broker: Callable[..., Subject], reader: Callable[..., Reader]
) -> None:
    broker = own_broker(**QUICK)
    raw_client.create_topic(broker.bootstrap, "t", 40, {})
    readers = [reader(broker.bootstrap, "g", "t") for _ in range(20)]
    until(shared_out("t", 40, *readers), *readers)
    half = readers[:10]
    for one in readers[10:]:
        one.consumer.close()
    until(shared_out("t", 40, *half), *half)


_CRASHING = """
import sys
from confluent_kafka import Consumer
one = Consumer({"bootstrap.servers": sys.argv[1], "group.id": "g", "group.protocol": "consumer"})
one.subscribe(["t"])
while not one.assignment():
    one.poll(0.1)
print("assigned", flush=True)
while True:
    one.poll(0.1)
"""


def test_what_a_crashed_member_had_is_read_by_others(
    own_broker: Callable[..., Subject], reader: Callable[..., Reader]
) -> None:
    broker = own_broker(**HASTY)
    raw_client.create_topic(broker.bootstrap, "t", 4, {})
    one = reader(broker.bootstrap, "g", "t")
    until(shared_out("t", 4, one), one)
    command = [sys.executable, "-c", _CRASHING, broker.bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as crashing:
        try:
            until(lambda: len(one.partitions()) == 2, one)
            # Polled meanwhile: a member gives up what it had when it is polled.
            output = crashing.stdout
            assert output is not None
            until(lambda: bool(select.select([output], [], [], 0)[0]), one)
            assert output.readline() == "assigned\n"
        finally:
            crashing.kill()
    until(shared_out("t", 4, one), one)


def test_patterns_find_topics_that_come_later(
    own_broker: Callable[..., Subject], reader: Callable[..., Reader]
) -> None:
    broker = own_broker(**QUICK)
    raw_client.create_topic(broker.bootstrap, "eu-1", 1, {})
    raw_client.create_topic(broker.bootstrap, "us-1", 1, {})
    one = reader(broker.bootstrap, "g", "^eu-.*")
    until(lambda: one.partitions() == {("eu-1", 0)}, one)
    raw_client.create_topic(broker.bootstrap, "eu-2", 2, {})
    until(lambda: one.partitions() == {("eu-1", 0), ("eu-2", 0), ("eu-2", 1)}, one)


@pytest.mark.parametrize("unsubscribes", [False, True])
def test_another_pattern_takes_the_place_of_the_one_before(
    own_broker: Callable[..., Subject], reader: Callable[..., Reader], unsubscribes: bool
) -> None:
    broker = own_broker(**QUICK)
    for name, partitions in (("eu-1", 4), ("eu-2", 4), ("us-1", 2)):
        raw_client.create_topic(broker.bootstrap, name, partitions, {})
    eu = {(topic, number) for topic in ("eu-1", "eu-2") for number in range(4)}
    us = {("us-1", number) for number in range(2)}
    one = reader(broker.bootstrap, "g", "^eu-.*")
    seen: list[set[tuple[str, int]]] = []

    def has(wanted: set[tuple[str, int]]) -> bool:
        seen.append(one.partitions())
        return seen[-1] == wanted

    until(lambda: has(eu), one)
    both = us | {place for place in eu if place[0] == "eu-1"}
    for topics, wanted in ((["^us-.*"], us), (["^eu-.*"], eu), (["us-1"], us), (["^eu-1", "us-1"], both)):
        if unsubscribes:
            one.consumer.unsubscribe()
        one.consumer.subscribe(topics)
        until(lambda wanted=wanted: has(wanted), one)  # type: ignore[misc]
    assert eu | us not in seen, "what the new pattern means was given before the old topics were given up"


def test_a_static_member_restarts_without_a_rebalance(
    own_broker: Callable[..., Subject], reader: Callable[..., Reader]
) -> None:
    broker = own_broker(**QUICK)
    raw_client.create_topic(broker.bootstrap, "t", 4, {})
    one = reader(broker.bootstrap, "g", "t", group_instance_id="one")
    two = reader(broker.bootstrap, "g", "t", group_instance_id="two")
    until(shared_out("t", 4, one, two), one, two)
    had, others = one.partitions(), two.partitions()
    one.consumer.close()
    back = reader(broker.bootstrap, "g", "t", group_instance_id="one")

    def is_back() -> bool:
        assert two.partitions() == others
        return back.partitions() == had

    until(is_back, back, two)
    assert two.partitions() == others


def test_readers_go_on_over_kills_of_the_broker(
    own_broker: Callable[..., Subject], reader: Callable[..., Reader]
) -> None:
    broker = own_broker(**QUICK)
    raw_client.create_topic(broker.bootstrap, "t", 6, {})
    readers = [reader(broker.bootstrap, "g", "t") for _ in range(3)]
    until(shared_out("t", 6, *readers), *readers)
    held = [one.partitions() for one in readers]
    for number in range(3):
        values = range(number * 60, number * 60 + 60)
        broker.kill()
        broker.start()
        produce(broker.bootstrap, "t", values, 6)
        until(lambda values=values: {v for one in readers for v in one.values} >= set(values), *readers)  # type: ignore[misc]
        for one in readers:
            commit(one.consumer)
    assert [one.partitions() for one in readers] == held
    assert sorted(value for one in readers for value in one.values) == list(range(180))


def test_a_group_changes_its_protocol_while_it_is_empty(
    own_broker: Callable[..., Subject], reader: Callable[..., Reader]
) -> None:
    broker = own_broker(**QUICK)
    raw_client.create_topic(broker.bootstrap, "t", 2, {})
    for number, protocol in enumerate(("classic", "consumer", "classic", "consumer")):
        values = range(number * 10, number * 10 + 10)
        produce(broker.bootstrap, "t", values, 2)
        one = reader(broker.bootstrap, "g", "t", group_protocol=protocol)
        until(lambda one=one: len(one.values) >= 10, one)  # type: ignore[misc]
        assert sorted(one.values) == list(values)
        commit(one.consumer)
        assert described(broker.bootstrap, "g").type.name.lower() == protocol
        one.consumer.close()


def test_offsets_in_transactions_need_the_epoch_of_the_member(
    own_broker: Callable[..., Subject], reader: Callable[..., Reader]
) -> None:
    broker = own_broker(**QUICK)
    raw_client.create_topic(broker.bootstrap, "t", 2, {})
    raw_client.create_topic(broker.bootstrap, "out", 1, {})
    produce(broker.bootstrap, "t", range(20), 2)
    one = reader(broker.bootstrap, "g", "t")
    until(lambda: len(one.values) == 20, one)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "x"})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for value in one.values:
        producer.produce("out", str(value))
    positions = one.consumer.position(one.consumer.assignment())
    producer.send_offsets_to_transaction(positions, one.consumer.consumer_group_metadata(), TIMEOUT_S)
    producer.commit_transaction(TIMEOUT_S)
    stale = one.consumer.consumer_group_metadata()
    one.consumer.close()
    back = reader(broker.bootstrap, "g", "t")
    produce(broker.bootstrap, "t", range(20, 30), 2)
    until(lambda: len(back.values) == 10, back)
    assert sorted(back.values) == list(range(20, 30))
    producer.begin_transaction()
    with pytest.raises(KafkaException):
        producer.send_offsets_to_transaction(positions, stale, TIMEOUT_S)
    producer.abort_transaction(TIMEOUT_S)


def test_a_group_has_a_session_timeout_of_its_own(own_broker: Callable[..., Subject]) -> None:
    broker = own_broker(**QUICK)
    raw_client.create_topic(broker.bootstrap, "t", 2, {})
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    own = {"consumer.session.timeout.ms": "1500", "consumer.heartbeat.interval.ms": "300"}
    changes = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in own.items()]
    resource = ConfigResource(ResourceType.GROUP, "hasty", incremental_configs=changes)
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(TIMEOUT_S)
    (found,) = admin.describe_configs([ConfigResource(ResourceType.GROUP, "hasty")]).values()
    assert own.items() <= {name: entry.value for name, entry in found.result(TIMEOUT_S).items()}.items()
    with raw_client.Connection(broker.bootstrap) as connection:
        members = {}
        for group in ("hasty", "patient"):
            raw_client.until_coordinated(connection, name=group)
            members[group] = Member(connection, group)
            told = members[group].join("t")
            assert told.heartbeat_interval.total_seconds() == (0.3 if group == "hasty" else 0.2)
        end = time.monotonic() + TIMEOUT_S
        while members["hasty"].group in {one.group_id for one in listed(connection) if one.group_state != "Empty"}:
            assert time.monotonic() < end
            time.sleep(0.1)
        assert members["hasty"].beat().error_code is raw_client.Error.unknown_member_id
        assert members["patient"].beat().error_code is raw_client.Error.none


def listed(connection: raw_client.Connection) -> Any:
    return connection.call(raw_client.LIST_GROUPS, 5, {"types_filter": ["consumer"]}).groups
