"""Topics whose backlog has a bound, as Kafka's clients see them, on a real broker."""

import threading
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from headrace import BacklogFull, Client
from headrace.testing.process import BrokerProcess
from tests.waiting import until

pytestmark = pytest.mark.xdist_group("backlog-topics")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("backlog") / "data") as process:
        yield process


class BoundedTopic:
    """A topic of one partition with a bound, and a group that reads it."""

    def __init__(self, broker: BrokerProcess, **settings: object) -> None:
        self.name = f"bounded-{uuid.uuid4().hex[:8]}"
        self._admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        config = {f"max.backlog.{name}": str(value) for name, value in settings.items()}
        self._admin.create_topics([NewTopic(self.name, 1, 1, config=config)])[self.name].result(60)
        self._place = TopicPartition(self.name, 0)
        self.producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "acks": "all"})
        self._consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": f"{self.name}-readers", "enable.auto.commit": False}
        )

    def send(self, value: bytes = b"x") -> KafkaError | None:
        errors: list[KafkaError | None] = []
        self.producer.produce(self.name, value, on_delivery=lambda error, _: errors.append(error))
        assert self.producer.flush(60) == 0
        return errors[0]

    def commit(self, offset: int) -> None:
        self._consumer.commit(offsets=[TopicPartition(self.name, 0, offset)], asynchronous=False)

    def offsets(self) -> tuple[int, int]:
        low, high = self._consumer.get_watermark_offsets(self._place, timeout=60)
        return low, high

    def alter(self, name: str, value: str) -> None:
        entry = ConfigEntry(f"max.backlog.{name}", value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, self.name, incremental_configs=[entry])
        self._admin.incremental_alter_configs([resource])[resource].result(60)

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture
def bounded(broker: BrokerProcess, request: pytest.FixtureRequest) -> Iterator[BoundedTopic]:
    topic = BoundedTopic(broker, **request.param)
    yield topic
    topic.close()


@pytest.mark.parametrize("bounded", [{"messages": 5, "policy": "refuse"}], indirect=True)
def test_producers_are_refused_until_the_slowest_group_reads_on(broker: BrokerProcess, bounded: BoundedTopic) -> None:
    assert [bounded.send() for _ in range(5)] == [None] * 5
    refused = bounded.send()
    assert refused is not None
    assert refused.code() == KafkaError.POLICY_VIOLATION
    with Client(broker.bootstrap) as client, pytest.raises(BacklogFull, match="at its bound"):
        client.publish(bounded.name, "x")
    bounded.commit(2)
    until(lambda: bounded.send() is None)
    assert bounded.send() is None
    assert bounded.send() is not None
    assert bounded.offsets() == (0, 7)
    bounded.alter("messages", "8")
    assert [bounded.send() is None for _ in range(4)] == [True, True, True, False]


@pytest.mark.parametrize("bounded", [{"messages": 100, "policy": "refuse", "groups": "audit"}], indirect=True)
def test_however_many_produce_the_bound_holds(broker: BrokerProcess, bounded: BoundedTopic) -> None:
    """Only named groups count; this one has not read anything."""

    def produce() -> None:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 1})
        for _ in range(40):
            producer.produce(bounded.name, b"x")
        producer.flush(60)

    bounded.commit(1)
    threads = [threading.Thread(target=produce) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    until(lambda: bounded.send() is not None)
    assert bounded.offsets() == (0, 100)


@pytest.mark.parametrize("bounded", [{"messages": 3}], indirect=True)
def test_producers_wait_for_the_group(bounded: BoundedTopic) -> None:
    delivered: list[KafkaError | None] = []
    for _ in range(6):
        bounded.producer.produce(bounded.name, b"x", on_delivery=lambda error, _: delivered.append(error))
        bounded.producer.poll(0.05)
    until(lambda: bounded.producer.poll(0.05) is not None and bounded.offsets() == (0, 3))
    bounded.commit(3)
    assert bounded.producer.flush(60) == 0
    assert delivered == [None] * 6
    assert bounded.offsets() == (0, 6)


@pytest.mark.parametrize("bounded", [{"messages": 4, "policy": "drop-oldest"}], indirect=True)
def test_the_oldest_records_are_dropped(bounded: BoundedTopic) -> None:
    assert bounded.send() is None
    until(lambda: [bounded.send() for _ in range(6)] == [None] * 6 and bounded.offsets()[0] > 0)
    low, high = bounded.offsets()
    assert high - low == 4
    bounded.commit(high)
    until(lambda: bounded.send() is None and bounded.offsets() != (high - 3, high + 1))


@pytest.mark.parametrize("bounded", [{"bytes": 10_000, "policy": "drop-oldest"}], indirect=True)
def test_bytes_are_dropped_by_batches(bounded: BoundedTopic) -> None:
    until(lambda: bounded.send(b"x" * 1900) is None and bounded.offsets()[0] > 0)
    low, high = bounded.offsets()
    assert high - low == 5
    refused = bounded.send(b"x" * 20_000)
    assert refused is not None
    assert refused.code() == KafkaError.POLICY_VIOLATION


@pytest.mark.parametrize("bounded", [{"age.ms": 300, "policy": "drop-oldest"}], indirect=True)
def test_what_is_too_old_is_dropped(bounded: BoundedTopic) -> None:
    bounded.send()
    until(lambda: bounded.offsets() == (1, 1))
