"""The SDK's publishing and reading without groups, against a real broker."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from headrace import Client, ClientError, DeliveryFailed, RoundRobin, Sticky, Unreachable, by_key
from headrace.testing.etcd import free_port

from . import raw_client
from .subject import Subject


@pytest.fixture
def client(broker: Subject) -> Iterator[Client]:
    with Client(broker.bootstrap) as one:
        yield one


def test_publish_waits_and_says_where(client: Client, topic: str) -> None:
    first = client.publish(topic, {"item": "tea"}, key="alice", headers={"h": "1"}, type="order.placed")
    second = client.publish(topic, "plain", timestamp=1700000000123)
    assert (first.topic, first.partition, first.offset, second.offset) == (topic, 0, 0, 1)
    got = list(client.replay(topic))
    assert got[0].json() == {"item": "tea"}
    assert (got[0].key, got[0].type, got[0].header("h")) == (b"alice", "order.placed", "1")
    assert got[0].id.startswith("/headrace#")
    assert (got[1].text, got[1].timestamp_ms) == ("plain", 1700000000123)


def test_many_at_once_keep_their_order(client: Client, topic: str) -> None:
    futures = [client.publish_soon(topic, str(number)) for number in range(3000)]
    client.flush()
    assert [future.result().offset for future in futures] == list(range(3000))
    assert [message.text for message in client.replay(topic)] == [str(number) for number in range(3000)]


def test_what_is_not_stored_is_said(broker: Subject, client: Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic(max_message_bytes="1000")
    with pytest.raises(DeliveryFailed, match="MSG_SIZE_TOO_LARGE") as raised:
        client.publish(topic, b"x" * 5000)
    assert raised.value.code == "MSG_SIZE_TOO_LARGE"
    client.flush()
    with Client(broker.bootstrap, settings={"linger.ms": 10_000}) as patient:
        # One batch, which is stored or refused as a whole.
        patient.publish_soon(topic, b"x" * 5000)
        patient.publish_soon(topic, b"fits")
        with pytest.raises(DeliveryFailed, match="2 messages"):
            patient.flush()
        patient.flush()
    client.publish(topic, b"fits")
    assert [message.payload for message in client.replay(topic)] == [b"fits"]
    with pytest.raises(DeliveryFailed):
        client.publish(topic, b"x", partition=7)


def test_nobody_there() -> None:
    nobody = f"127.0.0.1:{free_port()}"
    with (
        Client(nobody, settings={"message.timeout.ms": 300}) as client,
        pytest.raises(Unreachable, match=f"no broker answers at {nobody}"),
    ):
        client.publish("t", b"x")


def test_partitioners_choose(broker: Subject, new_topic: Callable[..., str]) -> None:
    def spread(partitioner: Callable[[bytes | None, int], int], keys: list[str]) -> list[int]:
        topic = new_topic(partitions=5)
        with Client(broker.bootstrap, partitioner=partitioner) as client:
            return [client.publish(topic, b"", key=key).partition for key in keys]

    keys = [f"key-{number}" for number in range(30)]
    assert spread(by_key, keys) == [by_key(key.encode(), 5) for key in keys]
    assert spread(RoundRobin(), keys) == [number % 5 for number in range(30)]
    assert len(set(spread(Sticky(run=30), keys))) == 1
    assert spread(lambda key, count: len(key or b"") % count, ["a", "bb", "ccc"]) == [1, 2, 3]
    with pytest.raises(ValueError, match="which has 5"):
        spread(lambda key, count: count, ["a"])


def test_every_subscriber_sees_every_message_from_then_on(client: Client, topic: str) -> None:
    client.publish(topic, "before")
    with (
        client.subscribe(topic) as one,
        client.subscribe(topic) as two,
        client.subscribe(topic, start="earliest") as all_,
    ):
        client.publish(topic, "after")
        assert next(one).text == "after"
        assert next(two).text == "after"
        assert [next(all_).text, next(all_).text] == ["before", "after"]
        one.stop()
        assert list(one) == []


def test_a_topic_that_comes_later_is_read_whole(client: Client, broker: Subject, topic: str) -> None:
    later = f"{topic}-later"
    with client.subscribe(later) as stream:
        raw_client.create_topic(broker.bootstrap, later, 2, {})
        client.publish(later, "x", partition=1)
        assert next(stream).text == "x"


def test_replay_and_seek_by_time(client: Client, topic: str) -> None:
    start = datetime(2026, 1, 31, tzinfo=UTC)
    for hour in range(10):
        client.publish(topic, str(hour), timestamp=start + timedelta(hours=hour))

    def hours(since: int, until: int | None = None) -> list[int]:
        end = None if until is None else start + timedelta(hours=until)
        return [int(each.text) for each in client.replay(topic, start + timedelta(hours=since), end)]

    assert hours(3, 6) == [3, 4, 5]
    assert hours(8) == [8, 9]
    assert hours(50) == []
    assert hours(5, 5) == []
    with client.subscribe(topic, start=start + timedelta(hours=8)) as stream:
        assert next(stream).text == "8"
        stream.seek_to_time(start + timedelta(hours=2))
        assert next(stream).text == "2"
        stream.seek(0, 5)
        assert next(stream).text == "5"


def test_importing_headrace_loads_no_client_library() -> None:
    check = "import sys, headrace, headrace.cli.main; assert 'confluent_kafka' not in sys.modules; headrace.Client"
    subprocess.run([sys.executable, "-c", check], check=True, timeout=60)


def test_settings_that_make_no_sense_are_said(broker: Subject) -> None:
    with pytest.raises(ClientError, match=r"no\.such\.setting"):
        Client(broker.bootstrap, settings={"no.such.setting": 1})
