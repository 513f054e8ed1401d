"""Consumer groups of real clients: joining, committing, leaving, crashing, and a broker that is killed meanwhile."""

import time
from collections.abc import Callable
from contextlib import closing

from confluent_kafka import Consumer, Producer, TopicPartition

from .subject import Subject

QUICK = {"group_initial_rebalance_delay_ms": "0", "group_min_session_timeout_ms": "500"}
TIMEOUT_S = 30.0


def produce(bootstrap: str, topic: str, values: range, partitions: int = 4) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(topic, str(value), partition=value % partitions)
    assert producer.flush(TIMEOUT_S) == 0


def consumer(bootstrap: str, group: str, **settings: object) -> Consumer:
    own = {name.replace("_", "."): value for name, value in settings.items()}
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 300,
            **own,
        }
    )


def read(one: Consumer, count: int) -> list[int]:
    """The next `count` values."""
    found: list[int] = []
    end = time.monotonic() + TIMEOUT_S
    while len(found) < count:
        assert time.monotonic() < end, f"{len(found)} of {count} messages came"
        message = one.poll(0.2)
        if message is not None and message.error() is None:
            found.append(int(message.value()))
    return found


def until(holds: Callable[[], bool], *polled: Consumer) -> None:
    """Poll these consumers until something holds."""
    end = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < end
        for one in polled:
            one.poll(0.05)
        if not polled:
            time.sleep(0.05)


def test_a_group_goes_on_where_it_was_after_a_kill(own_broker: Callable[..., Subject]) -> None:
    broker = own_broker(**QUICK)
    produce(broker.bootstrap, "t", range(100))
    with closing(consumer(broker.bootstrap, "g")) as one:
        one.subscribe(["t"])
        assert sorted(read(one, 100)) == list(range(100))
        one.commit(asynchronous=False)
    broker.kill()
    broker.start()
    produce(broker.bootstrap, "t", range(100, 120))
    with closing(consumer(broker.bootstrap, "g")) as one:
        one.subscribe(["t"])
        assert sorted(read(one, 20)) == list(range(100, 120))


def test_commits_carry_metadata_and_need_no_membership(own_broker: Callable[..., Subject]) -> None:
    broker = own_broker(**QUICK)
    produce(broker.bootstrap, "t", range(8))
    with closing(consumer(broker.bootstrap, "loner")) as one:
        one.commit(offsets=[TopicPartition("t", 2, 1, "half way: ½")], asynchronous=False)
    broker.kill()
    broker.start()
    with closing(consumer(broker.bootstrap, "loner")) as one:
        (found,) = one.committed([TopicPartition("t", 2)], timeout=TIMEOUT_S)
        assert (found.offset, found.metadata) == (1, "half way: ½")
        (none,) = one.committed([TopicPartition("t", 3)], timeout=TIMEOUT_S)
        assert none.offset < 0
