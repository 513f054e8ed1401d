"""Quotas over the wire: who is delayed, by how much, and what clients see of it."""

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.waiting import until

from . import raw_client
from .batches import Record, batch
from .quota_requests import alter, described, quota
from .raw_client import Connection, Error
from .subject import Subject

RATE = 100_000
"""Bytes each second; a client that begins may use that of ten seconds at once."""
SLACK_S = 0.02


@pytest.fixture
def client(broker: Subject, request: pytest.FixtureRequest) -> Iterator[Connection]:
    """A connection with a client id of its own."""
    with Connection(broker.bootstrap, client_id=name_of(request)) as one:
        yield one


@pytest.fixture
def client_id(request: pytest.FixtureRequest) -> str:
    return name_of(request)


def name_of(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


def throttle_s(answer: Any) -> float:
    return float(answer.throttle_time.total_seconds())


def seconds_until_answered(connection: Connection) -> float:
    began = time.monotonic()
    connection.call(raw_client.METADATA, 12, topics=[])
    return time.monotonic() - began


def batch_of(size_bytes: int) -> bytes:
    return batch([Record(b"x" * size_bytes)])


@pytest.mark.parametrize("version", [3, 9, 12])
def test_a_producer_beyond_its_quota_is_answered_and_then_muted(
    broker: Subject, client: Connection, client_id: str, topic: str, version: int
) -> None:
    with (
        quota(broker.bootstrap, {"client-id": client_id}, producer_byte_rate=RATE),
        Connection(broker.bootstrap, client_id="another") as another,
    ):
        body = raw_client.produce_body(topic, batch_of(RATE * 104 // 10))
        began = time.monotonic()
        answer = client.call(raw_client.PRODUCE, version, body)
        assert answer.responses[0].partition_responses[0].error_code == Error.none
        delay_s = throttle_s(answer)
        # 10.4 times the rate in 10 s, and a few bytes around the records.
        assert 0.4 <= delay_s <= 0.41
        assert time.monotonic() - began < delay_s + 5
        assert seconds_until_answered(another) < delay_s
        assert seconds_until_answered(client) >= delay_s - (time.monotonic() - began) - SLACK_S
        assert time.monotonic() - began >= delay_s - SLACK_S
        assert throttle_s(another.call(raw_client.PRODUCE, version, body)) == 0


def test_a_producer_without_answers_is_muted(broker: Subject, client: Connection, client_id: str, topic: str) -> None:
    with quota(broker.bootstrap, {"client-id": client_id}, producer_byte_rate=RATE):
        began = time.monotonic()
        client.send(raw_client.PRODUCE, 9, raw_client.produce_body(topic, batch_of(RATE * 104 // 10), acks=0))
        seconds_until_answered(client)
        assert time.monotonic() - began >= 0.4 - SLACK_S


def test_a_consumer_beyond_its_quota_gets_an_empty_answer(
    broker: Subject, client: Connection, client_id: str, topic: str
) -> None:
    with Connection(broker.bootstrap, client_id="producer") as producer:
        for _ in range(3):
            assert raw_client.produce(producer, topic, batch_of(RATE * 52 // 10)).error_code == Error.none
    with quota(broker.bootstrap, {"client-id": client_id}, consumer_byte_rate=RATE):
        limits: dict[str, Any] = {"partition_max_bytes": 1000}  # one batch at a time
        first = client.call(raw_client.FETCH, 12, raw_client.fetch_body(topic, 0, session_epoch=0, **limits))
        assert first.responses[0].partitions[0].records
        assert throttle_s(first) == 0
        body = raw_client.fetch_body(topic, 1, session_id=first.session_id, session_epoch=1, **limits)
        began = time.monotonic()
        empty = client.call(raw_client.FETCH, 12, body)
        assert (empty.error_code, empty.responses, empty.session_id) == (Error.none, (), first.session_id)
        assert 0.3 < throttle_s(empty) <= 0.41  # two batches are 10.4 times the rate
        body = raw_client.fetch_body(topic, 1, session_id=first.session_id, session_epoch=2, **limits)
        again = client.call(raw_client.FETCH, 12, body)
        assert time.monotonic() - began >= throttle_s(empty) - SLACK_S
        # It may have to wait once more: the window moves by whole seconds.
        assert again.responses or throttle_s(again) > 0


def test_an_empty_answer_to_a_request_for_a_session_begins_none(
    broker: Subject, client: Connection, client_id: str, topic: str
) -> None:
    with Connection(broker.bootstrap, client_id="producer") as producer:
        for _ in range(3):
            raw_client.produce(producer, topic, batch_of(RATE * 9))
    with quota(broker.bootstrap, {"client-id": client_id}, consumer_byte_rate=RATE):
        full = raw_client.fetch_body(topic, 0, session_epoch=0)
        assert client.call(raw_client.FETCH, 12, full).responses
        with Connection(broker.bootstrap, client_id=client_id) as second:
            empty = second.call(raw_client.FETCH, 12, full)
        assert (empty.session_id, empty.responses) == (0, ())
        assert throttle_s(empty) > 0


def test_a_batch_larger_than_the_quota_of_all_windows_can_be_read(
    broker: Subject, client: Connection, client_id: str, topic: str
) -> None:
    with Connection(broker.bootstrap, client_id="producer") as producer:
        raw_client.produce(producer, topic, batch_of(200_000))
    with quota(broker.bootstrap, {"client-id": client_id}, consumer_byte_rate=19_000):
        answer = client.call(raw_client.FETCH, 12, raw_client.fetch_body(topic, 0))
        assert answer.responses[0].partitions[0].records
        assert 0.5 < throttle_s(answer) < 0.6  # 10,000 bytes too many at 19,000 each second


def test_request_time_delays_any_request_for_at_most_a_window(
    broker: Subject, client: Connection, client_id: str
) -> None:
    with quota(broker.bootstrap, {"client-id": client_id}, request_percentage=0.0001):
        delays = [throttle_s(client.call(raw_client.METADATA, 12, topics=[])) for _ in range(2)]
        assert any(0 < delay <= 1.0 for delay in delays)
        assert max(delays) <= 1.0
        # Versions without a field for it are muted all the same.
        client.call(raw_client.METADATA, 0, topics=[])
        # A second from the broker's answer on; on a busy machine some of it has passed when the client reads it.
        assert seconds_until_answered(client) >= 0.3


@pytest.mark.parametrize(("version", "is_strict"), [(7, True), (5, False)])
def test_changes_beyond_the_quota_are_refused_or_delayed_by_version(
    broker: Subject, client_id: str, version: int, is_strict: bool
) -> None:
    names = (f"changes-{version}-{number}" for number in itertools.count())

    def create(partitions: int) -> tuple[Error, float]:
        wanted = {"name": next(names), "num_partitions": partitions, "replication_factor": 1}
        # A connection of its own, since the one before is muted.
        with Connection(broker.bootstrap, client_id=client_id) as client:
            answer = client.call(raw_client.CREATE_TOPICS, version, topics=[wanted], timeout=60_000)
        return answer.topics[0].error_code, throttle_s(answer)

    with quota(broker.bootstrap, {"client-id": client_id}, controller_mutation_rate=0.01):
        # The burst is 0.11: one partition is owed for 89 seconds, and a strict quota only delays the next one.
        error, delay_s = create(1)
        assert error == Error.none
        assert delay_s == 0 if is_strict else 80 < delay_s <= 89
        error, delay_s = create(1)
        assert error == (Error.throttling_quota_exceeded if is_strict else Error.none)
        assert 0 < delay_s <= (89 if is_strict else 189)


def test_an_address_that_connects_too_often_is_refused(broker: Subject) -> None:
    source = "127.0.0.77"
    with quota(broker.bootstrap, {"ip": source}, connection_creation_rate=2):
        for _ in range(20):
            with Connection(broker.bootstrap, source=source) as connection:
                connection.call(raw_client.METADATA, 12, topics=[])
        began = time.monotonic()
        with Connection(broker.bootstrap, source=source) as connection:
            connection.send(raw_client.METADATA, 12, topics=[])
            assert connection.wait_closed(30)
        # Not at once: its client would only try again.
        assert time.monotonic() - began > 0.1
        with Connection(broker.bootstrap) as connection:
            connection.call(raw_client.METADATA, 12, topics=[])


def test_all_levels_are_described_as_they_were_set(broker: Subject, client: Connection, client_id: str) -> None:
    mine: dict[tuple[tuple[str, str | None], ...], dict[str, float]] = {
        (("user", client_id),): {"producer_byte_rate": 1e6},
        (("user", client_id), ("client-id", "app")): {"consumer_byte_rate": 2e6, "request_percentage": 12.5},
        (("user", client_id), ("client-id", None)): {"controller_mutation_rate": 0.5},
        (("user", client_id), ("client-id-prefix", "team-")): {"producer_byte_rate": 3e6},
    }
    try:
        for entity, quotas in mine.items():
            assert alter(client, dict(entity), quotas, validate_only=True).error_code == Error.none
            assert described(client, user=(0, client_id)).get(entity) is None
            assert alter(client, dict(entity), quotas).error_code == Error.none
        assert described(client, user=(0, client_id)) == mine
        assert list(described(client, user=(0, client_id), strict=True)) == [(("user", client_id),)]
        assert list(described(client, user=(0, client_id), client_id=(1, None))) == [
            (("user", client_id), ("client-id", None))
        ]
    finally:
        for entity, quotas in mine.items():
            alter(client, dict(entity), dict.fromkeys(quotas))
    assert described(client, user=(0, client_id)) == {}


def test_quotas_survive_a_crash(own_broker: Any) -> None:
    broker = own_broker()
    entity: dict[str, str | None] = {"user": None, "client-id": "app"}
    with Connection(broker.bootstrap) as connection:
        assert alter(connection, entity, {"producer_byte_rate": RATE}).error_code == Error.none
    raw_client.create_topic(broker.bootstrap, "orders")
    broker.kill()
    broker.start()
    with Connection(broker.bootstrap, client_id="app") as connection:
        until(lambda: described(connection) == {tuple(entity.items()): {"producer_byte_rate": RATE}})
        answer = connection.call(raw_client.PRODUCE, 9, raw_client.produce_body("orders", batch_of(RATE * 102 // 10)))
        assert 0.2 <= throttle_s(answer) <= 0.21
