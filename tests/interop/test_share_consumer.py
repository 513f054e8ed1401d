"""Share groups (KIP-932) with librdkafka's share consumer: members compete, and nothing accepted comes back.

Slow, and so in `make interop` and not in `make test`: that client is a preview and has ended its process with a fault
of its own. `test_wire_share_groups.py` says the same things to the broker without it.
"""

import re
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, KafkaError, Message, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from . import raw_client, subject
from .fixtures import running
from .subject import Subject

pytestmark = pytest.mark.slow

ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
PATIENCE_S = 60.0
SETTINGS = {
    "group.share.delivery.count.limit": "2",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "60000",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    """One whose locks may be short, and which gives nothing out more than twice."""
    if not subject.CAN_CONTROL:
        pytest.skip("needs a broker with settings of its own")
    one = subject.make(tmp_path_factory.mktemp("share"), SETTINGS)
    with running(one):
        yield one


@pytest.fixture
def group(broker: Subject) -> str:
    """A group that begins with the first record."""
    name = f"share-{uuid.uuid4().hex[:8]}"
    configure(broker, name, {"share.auto.offset.reset": "earliest"})
    return name


@pytest.fixture
def consumer(broker: Subject, topic: str, group: str) -> Iterator[Callable[..., ShareConsumer]]:
    """Make members of the group, which acknowledge what they are told to."""
    made: list[ShareConsumer] = []

    def make(mode: str = "explicit") -> ShareConsumer:
        one = ShareConsumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": group,
                "share.acknowledgement.mode": mode,
            }
        )
        made.append(one)
        one.subscribe([topic])
        return one

    with ExitStack() as stack:
        stack.callback(lambda: [close(one) for one in made])  # type: ignore[func-returns-value]
        yield make


def close(one: ShareConsumer) -> None:
    """Also one that a test has closed."""
    try:
        one.close()
    except Exception as error:
        print(f"closing a share consumer: {error}")


def configure(broker: Subject, group: str, settings: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(PATIENCE_S)


def send(broker: Subject, topic: str, *values: str) -> None:
    """Each in a batch of its own."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    for value in values:
        producer.produce(topic, value)
        assert producer.flush(PATIENCE_S) == 0


def poll(one: ShareConsumer, count: int) -> list[Message]:
    """At least so many records. In explicit mode they must come at once, as those do that are there when it first
    asks: a member must acknowledge what it has before it polls again."""
    found: list[Message] = []
    end = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < end, f"{len(found)} of {count} records came"
        messages = list(one.poll(0.5))
        assert not [message.error() for message in messages if message.error() is not None]
        found += messages
    return found


def values(messages: list[Message]) -> list[str]:
    found = []
    for message in messages:
        value = message.value()
        assert value is not None
        found.append(value.decode())
    return found


def acknowledge(one: ShareConsumer, messages: list[Message], kind: Any = ACCEPT) -> None:
    for message in messages:
        one.acknowledge(message, kind)


def commit(one: ShareConsumer) -> None:
    results = one.commit_sync(PATIENCE_S)
    assert not [error for error in results.values() if error is not None], results


def test_members_compete_and_each_record_has_one_of_them(
    broker: Subject, topic: str, consumer: Callable[..., ShareConsumer]
) -> None:
    first, second = consumer(), consumer()
    send(broker, topic, "a")
    (got,) = poll(first, 1)
    send(broker, topic, "b", "c")
    others: list[Message] = []
    while len(others) < 2:
        some = poll(second, 1)
        acknowledge(second, some)
        others += some
    commit(second)
    assert values(others) == ["b", "c"]
    first.acknowledge(got)
    commit(first)
    send(broker, topic, "d")
    # Whoever asks gets it, and nothing that was accepted.
    assert values(poll(first, 1)) == ["d"]


def test_many_records_of_many_partitions_come_once(broker: Subject, new_topic: Callable[..., str], group: str) -> None:
    topic = new_topic(partitions=3)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    sent = {str(number) for number in range(3000)}
    for value in sent:
        producer.produce(topic, value)
    assert producer.flush(PATIENCE_S) == 0
    conf = {"bootstrap.servers": broker.bootstrap, "group.id": group}
    with ShareConsumer(conf) as first, ShareConsumer(conf) as second:
        for one in (first, second):
            one.subscribe([topic])
        got: list[str] = []
        end = time.monotonic() + PATIENCE_S
        while len(got) < len(sent):
            assert time.monotonic() < end, f"{len(got)} of {len(sent)} came"
            for one in (first, second):
                got += values(list(one.poll(0.1)))
        commit(first)
        commit(second)
    assert len(got) == len(sent)
    assert set(got) == sent


def test_what_is_released_comes_again_and_what_is_rejected_does_not(
    broker: Subject, topic: str, consumer: Callable[..., ShareConsumer]
) -> None:
    send(broker, topic, "accepted", "released", "rejected")
    one = consumer()
    messages = poll(one, 3)
    assert [message.delivery_count() for message in messages] == [1, 1, 1]
    for message, kind in zip(messages, (ACCEPT, RELEASE, REJECT), strict=True):
        one.acknowledge(message, kind)
    commit(one)
    again = poll(one, 1)
    assert values(again) == ["released"]
    assert again[0].delivery_count() == 2
    # It was given out as often as it may be.
    acknowledge(one, again, RELEASE)
    commit(one)
    send(broker, topic, "next")
    assert values(poll(one, 1)) == ["next"]


def test_a_lock_that_ends_gives_the_record_to_another_member(
    broker: Subject, topic: str, group: str, consumer: Callable[..., ShareConsumer]
) -> None:
    configure(broker, group, {"share.record.lock.duration.ms": "1000"})
    send(broker, topic, "slow")
    slow = consumer()
    (held,) = poll(slow, 1)
    # The next one has time, however slow this machine is.
    configure(broker, group, {"share.record.lock.duration.ms": "60000"})
    quick = consumer()
    (got,) = poll(quick, 1)
    assert got.value() == b"slow"
    assert got.delivery_count() == 2
    slow.acknowledge(held)
    errors = [error for error in slow.commit_sync(PATIENCE_S).values() if error is not None]
    assert [error.args[0].code() for error in errors] == [KafkaError.INVALID_RECORD_STATE]
    quick.acknowledge(got)
    commit(quick)


def test_what_a_member_has_is_for_others_when_it_leaves(
    broker: Subject, topic: str, consumer: Callable[..., ShareConsumer]
) -> None:
    send(broker, topic, "left")
    leaving, staying = consumer(), consumer()
    poll(leaving, 1)
    leaving.close()
    (got,) = poll(staying, 1)
    assert got.value() == b"left"
    staying.acknowledge(got)
    commit(staying)


def test_nothing_accepted_comes_back_after_the_broker_was_killed(
    broker: Subject, topic: str, consumer: Callable[..., ShareConsumer]
) -> None:
    send(broker, topic, *(str(number) for number in range(10)))
    one = consumer()
    for message in poll(one, 10):
        one.acknowledge(message, ACCEPT if message.offset() % 2 else RELEASE)
    commit(one)
    broker.kill()
    broker.start()
    got: dict[int, Message] = {}
    end = time.monotonic() + PATIENCE_S
    while set(got) < {0, 2, 4, 6, 8}:
        assert time.monotonic() < end, got
        for message in one.poll(0.5):
            if message.error() is None:
                got[message.offset()] = message
                one.acknowledge(message)
    assert set(got) == {0, 2, 4, 6, 8}


def test_offsets_are_reset_when_the_group_has_no_members(
    broker: Subject, topic: str, group: str, consumer: Callable[..., ShareConsumer]
) -> None:
    send(broker, topic, "a", "b", "c")
    one = consumer("implicit")
    assert values(poll(one, 3)) == ["a", "b", "c"]
    commit(one)
    with raw_client.Connection(broker.bootstrap) as connection:
        body = {
            "group_id": group,
            "topics": [{"topic_name": topic, "partitions": [{"partition_index": 0, "start_offset": 1}]}],
        }
        assert (
            connection.call(raw_client.ALTER_SHARE_GROUP_OFFSETS, 0, body).error_code
            is raw_client.Error.non_empty_group
        )
        one.close()
        end = time.monotonic() + PATIENCE_S
        while (
            told := connection.call(raw_client.ALTER_SHARE_GROUP_OFFSETS, 0, body)
        ).error_code is not raw_client.Error.none:
            assert time.monotonic() < end, told
            time.sleep(0.05)
        assert told.responses[0].partitions[0].error_code is raw_client.Error.none
    assert values(poll(consumer("implicit"), 2)) == ["b", "c"]


def test_the_code_of_the_page_on_queues(broker: Subject, new_topic: Callable[..., str]) -> None:
    """On a topic that has messages already, as a reader of the page has it."""
    topic, group = new_topic(partitions=3), f"share-{uuid.uuid4().hex[:8]}"
    configure(broker, group, {"share.auto.offset.reset": "earliest"})
    send(broker, topic, *map(str, range(1, 10)))
    page = (Path(__file__).parents[2] / "docs/queues.md").read_text().partition("## Share groups")[2]
    code = re.findall(r"```python\n(.+?)```", page, flags=re.DOTALL)[0]
    for told, real in (("localhost:9092", broker.bootstrap), ('"orders"', repr(topic)), ('"packing"', repr(group))):
        assert told in code
        code = code.replace(told, real)
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S * 2, check=False)
    assert sorted(result.stdout.splitlines()) == [f"b'{number}' 1" for number in range(1, 10)], result.stderr
