"""Fetch to the letter: how long it waits, how much it returns, and what it says about a wrong place."""

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from . import batches, raw_client
from .subject import Subject

Error = raw_client.Error
LONG_MS = 55_000
"""Longer than anything here takes, and shorter than a connection waits for its answer."""


@contextmanager
def takes(at_least_s: float, at_most_s: float) -> Iterator[None]:
    """The bounds are generous upwards: the machine may be busy, yet a broker that waits for `LONG_MS` misses them."""
    started = time.monotonic()
    yield
    took = time.monotonic() - started
    assert at_least_s <= took <= at_most_s, f"took {took:.3f} s"


@contextmanager
def after(seconds: float, action: Callable[[], Any]) -> Iterator[None]:
    timer = threading.Timer(seconds, action)
    timer.start()
    try:
        yield
    finally:
        timer.join()


def produce(broker: Subject, topic: str, *values: bytes, partition: int = 0) -> None:
    with raw_client.Connection(broker.bootstrap) as connection:
        assert (
            raw_client.produce(connection, topic, batches.batch(values), partition=partition).error_code == Error.none
        )


# How long


def test_an_empty_fetch_waits_its_time_and_no_longer(connection: raw_client.Connection, topic: str) -> None:
    with takes(0.65, 30):
        found = raw_client.fetch(connection, topic, max_wait=700, min_bytes=1)
    assert found.error_code == Error.none
    assert not found.records


def test_a_waiting_fetch_answers_when_data_arrives(
    broker: Subject, connection: raw_client.Connection, topic: str
) -> None:
    with takes(0.4, 30), after(0.4, lambda: produce(broker, topic, b"late")):
        found = raw_client.fetch(connection, topic, max_wait=LONG_MS, min_bytes=1)
    assert batches.values(found.records) == [b"late"]


def test_a_waiting_fetch_waits_for_min_bytes(broker: Subject, connection: raw_client.Connection, topic: str) -> None:
    def twice() -> None:
        produce(broker, topic, b"x" * 1000)
        time.sleep(0.5)
        produce(broker, topic, b"y" * 1000)

    with takes(0.7, 30), after(0.2, twice):
        found = raw_client.fetch(connection, topic, max_wait=LONG_MS, min_bytes=1500)
    assert len(batches.values(found.records)) == 2


def test_too_little_data_comes_when_the_time_is_up(
    broker: Subject, connection: raw_client.Connection, topic: str
) -> None:
    produce(broker, topic, b"little")
    with takes(0.45, 30):
        found = raw_client.fetch(connection, topic, max_wait=500, min_bytes=100_000)
    assert batches.values(found.records) == [b"little"]


@pytest.mark.parametrize("min_bytes", [0, 1, 50])
def test_enough_data_comes_at_once(
    min_bytes: int, broker: Subject, connection: raw_client.Connection, topic: str
) -> None:
    produce(broker, topic, b"there")
    with takes(0, 30):
        found = raw_client.fetch(connection, topic, max_wait=LONG_MS, min_bytes=min_bytes)
    assert batches.values(found.records) == [b"there"]


def test_min_bytes_zero_never_waits(connection: raw_client.Connection, topic: str) -> None:
    with takes(0, 30):
        assert not raw_client.fetch(connection, topic, max_wait=LONG_MS, min_bytes=0).records


def test_an_error_is_told_at_once(connection: raw_client.Connection, topic: str) -> None:
    with takes(0, 30):
        assert (
            raw_client.fetch(connection, topic, 1, max_wait=LONG_MS, min_bytes=1).error_code
            == Error.offset_out_of_range
        )


def test_data_in_any_partition_ends_the_wait(
    broker: Subject, connection: raw_client.Connection, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=3)
    partitions = [{"partition": at, "fetch_offset": 0, "partition_max_bytes": 1 << 20} for at in range(3)]
    body = {
        "max_wait": LONG_MS,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "topics": [{"topic": topic, "partitions": partitions}],
    }
    with takes(0.3, 30), after(0.3, lambda: produce(broker, topic, b"v", partition=2)):
        answer = connection.call(raw_client.FETCH, 12, body)
    found = {one.partition_index: batches.values(one.records) for one in answer.responses[0].partitions}
    assert found == {0: [], 1: [], 2: [b"v"]}


def test_two_hundred_waiting_fetches_cost_the_others_nothing(broker: Subject, topic: str) -> None:
    waiting = [raw_client.Connection(broker.bootstrap) for _ in range(200)]
    try:
        sent = [
            one.send(raw_client.FETCH, 12, raw_client.fetch_body(topic, max_wait=LONG_MS, min_bytes=1))
            for one in waiting
        ]
        with raw_client.Connection(broker.bootstrap) as connection, takes(0, 30):
            for _ in range(20):
                connection.call(raw_client.METADATA, 9, topics=[])
        produce(broker, topic, b"for all")
        for one, pending in zip(waiting, sent, strict=True):
            (part,) = one.receive(pending).responses[0].partitions
            assert batches.values(part.records) == [b"for all"]
    finally:
        for one in waiting:
            one.close()


# How much


@pytest.fixture
def three(broker: Subject, topic: str) -> str:
    """A topic with three batches of four records of 1,000 bytes."""
    for batch in range(3):
        produce(broker, topic, *[b"%d-%d" % (batch, at) + b"x" * 996 for at in range(4)])
    return topic


def test_a_fetch_in_the_middle_of_a_batch_returns_the_whole_batch(
    connection: raw_client.Connection, three: str
) -> None:
    found = batches.parse(raw_client.fetch(connection, three, 6).records)
    assert [one.base_offset for one in found] == [4, 8]


@pytest.mark.parametrize("limit", ["partition_max_bytes", "max_bytes"])
def test_the_first_batch_comes_whole_even_if_it_is_too_large(
    limit: str, connection: raw_client.Connection, three: str
) -> None:
    for size in (1, 100, 3999):
        found = batches.parse(raw_client.fetch(connection, three, 0, **{limit: size}).records)
        assert [one.base_offset for one in found] == [0]


def test_partition_max_bytes_limits_what_comes(connection: raw_client.Connection, three: str) -> None:
    whole = raw_client.fetch(connection, three).records
    size = batches.parse(whole)[0].size_bytes
    found = raw_client.fetch(connection, three, partition_max_bytes=2 * size + 10).records
    assert len(found) <= 2 * size + 10
    assert [one.base_offset for one in batches.parse(found)] == [0, 4]


def test_max_bytes_is_shared_by_the_partitions(
    broker: Subject, connection: raw_client.Connection, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=2)
    for partition in (0, 1):
        produce(broker, topic, b"x" * 5000, partition=partition)
    partitions = [{"partition": at, "fetch_offset": 0, "partition_max_bytes": 1 << 20} for at in range(2)]
    body = {"min_bytes": 1, "max_bytes": 100, "topics": [{"topic": topic, "partitions": partitions}]}
    answer = connection.call(raw_client.FETCH, 12, body)
    sizes = [len(one.records or b"") for one in answer.responses[0].partitions]
    assert sizes[0] > 5000
    assert sizes[1] == 0


def test_partition_max_bytes_zero_returns_the_first_batch_only_if_it_is_the_first_of_all(
    broker: Subject, connection: raw_client.Connection, three: str
) -> None:
    found = raw_client.fetch(connection, three, partition_max_bytes=0)
    assert found.error_code == Error.none


@pytest.mark.parametrize("isolation_level", [0, 1])
def test_both_isolation_levels_read_plain_records(
    isolation_level: int, connection: raw_client.Connection, three: str
) -> None:
    found = raw_client.fetch(connection, three, isolation_level=isolation_level)
    assert len(batches.values(found.records)) == 12
    assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (12, 12, 0)
    assert not found.aborted_transactions


# Where


@pytest.mark.parametrize("offset", [-1, 13, 2**62])
def test_an_offset_outside_of_the_log(offset: int, connection: raw_client.Connection, three: str) -> None:
    found = raw_client.fetch(connection, three, offset)
    assert found.error_code == Error.offset_out_of_range
    assert not found.records


def test_the_end_of_the_log_is_a_fine_place(connection: raw_client.Connection, three: str) -> None:
    found = raw_client.fetch(connection, three, 12)
    assert (found.error_code, found.high_watermark) == (Error.none, 12)
    assert not found.records


def test_unknown_topics_and_partitions(connection: raw_client.Connection, three: str) -> None:
    assert raw_client.fetch(connection, "there-is-no-such-topic").error_code == Error.unknown_topic_or_partition
    assert raw_client.fetch(connection, three, partition=7).error_code == Error.unknown_topic_or_partition
    assert raw_client.fetch(connection, uuid.uuid4()).error_code == Error.unknown_topic_id
    topic_id = raw_client.wait_topic(connection, three, 1)
    assert len(batches.values(raw_client.fetch(connection, topic_id).records)) == 12


def test_a_bad_partition_does_not_spoil_the_others(connection: raw_client.Connection, three: str) -> None:
    good, bad = ({"partition": at, "fetch_offset": 0, "partition_max_bytes": 1 << 20} for at in (0, 5))
    body = {"max_bytes": 1 << 20, "topics": [{"topic": three, "partitions": [bad, good]}]}
    found = {one.partition_index: one for one in connection.call(raw_client.FETCH, 12, body).responses[0].partitions}
    assert found[5].error_code == Error.unknown_topic_or_partition
    assert len(batches.values(found[0].records)) == 12


def test_leader_epochs_are_compared(connection: raw_client.Connection, three: str) -> None:
    def fetch_at(epoch: int) -> Error:
        one = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20, "current_leader_epoch": epoch}
        answer = connection.call(
            raw_client.FETCH, 12, max_bytes=1 << 20, topics=[{"topic": three, "partitions": [one]}]
        )
        code: Error = answer.responses[0].partitions[0].error_code
        return code

    (topic,) = connection.call(raw_client.METADATA, 9, topics=[{"name": three}]).topics
    epoch = topic.partitions[0].leader_epoch
    assert epoch >= 0
    assert fetch_at(epoch) == Error.none
    assert fetch_at(epoch + 1) == Error.unknown_leader_epoch
    if epoch > 0:
        assert fetch_at(epoch - 1) == Error.fenced_leader_epoch


def test_an_old_fetch_gets_zstd_as_it_is(connection: raw_client.Connection, topic: str) -> None:
    assert raw_client.produce(connection, topic, batches.batch([b"v"], codec=batches.ZSTD)).error_code == Error.none
    for version in (4, 9, 10):
        assert batches.values(raw_client.fetch(connection, topic, version=version).records) == [b"v"]
