"""Fetch sessions (KIP-227): name the partitions once, then hear only of those that changed."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from . import batches, raw_client
from .subject import Subject

Error = raw_client.Error
FINAL, INITIAL = -1, 0


class Session:
    """A consumer with a fetch session on a topic, by id."""

    def __init__(self, connection: raw_client.Connection, topic: str, partitions: int) -> None:
        self.connection = connection
        self.topic = topic
        self.topic_id = raw_client.wait_topic(connection, topic, partitions)
        self.id = 0
        self.epoch = 0
        self.offsets: dict[int, int] = {}

    def fetch(
        self, *wanted: int, forget: tuple[int, ...] = (), session: tuple[int, int] | None = None, **fields: Any
    ) -> Any:
        for partition in wanted:
            self.offsets.setdefault(partition, 0)
        session_id, epoch = session if session is not None else (self.id, self.epoch)
        partitions = [
            {"partition": at, "fetch_offset": self.offsets[at], "partition_max_bytes": 1 << 20} for at in wanted
        ]
        body = {
            "session_id": session_id,
            "session_epoch": epoch,
            "max_bytes": 1 << 24,
            "topics": [{"topic_id": self.topic_id, "partitions": partitions}] if wanted else [],
            "forgotten_topics_data": [{"topic_id": self.topic_id, "partitions": list(forget)}] if forget else [],
        }
        return self.connection.call(raw_client.FETCH, 15, body | fields)

    def start(self, *wanted: int) -> Any:
        answer = self.fetch(*wanted, session=(0, INITIAL))
        assert answer.error_code == Error.none
        self.id, self.epoch = answer.session_id, 1
        return answer

    def more(self, *wanted: int, forget: tuple[int, ...] = ()) -> dict[int, list[bytes | None]]:
        """An incremental fetch: partitions that it mentions, with their values; positions move past them."""
        answer = self.fetch(*wanted, forget=forget)
        assert (answer.error_code, answer.session_id) == (Error.none, self.id)
        self.epoch += 1
        return told(answer)


def told(answer: Any) -> dict[int, list[bytes | None]]:
    return {one.partition_index: batches.values(one.records) for topic in answer.responses for one in topic.partitions}


def produce(connection: raw_client.Connection, topic: str, value: bytes, partition: int = 0) -> None:
    assert raw_client.produce(connection, topic, batches.batch([value]), partition=partition).error_code == Error.none


@pytest.fixture
def session(connection: raw_client.Connection, new_topic: Callable[..., str]) -> Session:
    return Session(connection, new_topic(partitions=3), 3)


def test_a_full_fetch_starts_a_session_and_tells_everything(session: Session) -> None:
    produce(session.connection, session.topic, b"first", 1)
    answer = session.start(0, 1, 2)
    assert answer.session_id > 0
    assert told(answer) == {0: [], 1: [b"first"], 2: []}


def test_an_incremental_fetch_tells_only_what_changed(session: Session) -> None:
    session.start(0, 1, 2)
    assert session.more() == {}
    produce(session.connection, session.topic, b"new", 2)
    assert session.more() == {2: [b"new"]}
    # Its position was not moved, so the record comes again; moved, it does not.
    assert session.more() == {2: [b"new"]}
    session.offsets[2] = 1
    assert session.more(2) == {}


def test_a_partition_can_be_added(session: Session) -> None:
    session.start(0)
    produce(session.connection, session.topic, b"v", 1)
    assert session.more() == {}
    assert session.more(1) == {1: [b"v"]}


def test_a_partition_can_be_forgotten(session: Session) -> None:
    session.start(0, 1)
    assert session.more(forget=(1,)) == {}
    for partition in (0, 1):
        produce(session.connection, session.topic, b"v", partition)
    assert session.more() == {0: [b"v"]}


def test_an_unknown_session(session: Session) -> None:
    answer = session.fetch(session=(1_234_567_890, 1))
    assert (answer.error_code, answer.session_id) == (Error.fetch_session_id_not_found, 0)
    assert not answer.responses


@pytest.mark.parametrize("epoch", [2, 5])
def test_a_wrong_epoch_is_refused_and_the_session_stays(epoch: int, session: Session) -> None:
    session.start(0)
    answer = session.fetch(session=(session.id, epoch))
    assert answer.error_code == Error.invalid_fetch_session_epoch
    assert session.more() == {}


def test_a_session_can_be_closed(session: Session) -> None:
    session.start(0)
    produce(session.connection, session.topic, b"v")
    answer = session.fetch(0, session=(session.id, FINAL))
    assert (answer.error_code, answer.session_id) == (Error.none, 0)
    assert told(answer) == {0: [b"v"]}
    assert session.fetch(session=(session.id, 1)).error_code == Error.fetch_session_id_not_found


def test_a_session_can_be_replaced(session: Session) -> None:
    session.start(0)
    first = session.id
    answer = session.fetch(0, 1, session=(first, INITIAL))
    assert answer.error_code == Error.none
    assert answer.session_id not in (0, first)
    assert session.fetch(session=(first, 1)).error_code == Error.fetch_session_id_not_found


def test_without_a_session_there_is_none(session: Session) -> None:
    answer = session.fetch(0, session=(0, FINAL))
    assert (answer.error_code, answer.session_id) == (Error.none, 0)
    assert told(answer) == {0: []}


def test_a_session_survives_its_connection(broker: Subject, session: Session) -> None:
    session.start(0)
    produce(session.connection, session.topic, b"v")
    with raw_client.Connection(broker.bootstrap) as other:
        session.connection = other
        assert session.more() == {0: [b"v"]}


def test_an_unknown_topic_id_is_told_in_a_session(session: Session) -> None:
    session.topic_id = uuid.uuid4()
    answer = session.fetch(0, session=(0, INITIAL))
    assert answer.error_code == Error.none
    assert answer.responses[0].partitions[0].error_code == Error.unknown_topic_id


def test_an_incremental_fetch_waits_for_data(broker: Subject, session: Session) -> None:
    session.start(0, 1)
    with raw_client.Connection(broker.bootstrap) as other:
        pending = session.connection.send(
            raw_client.FETCH,
            15,
            session_id=session.id,
            session_epoch=session.epoch,
            max_wait=55_000,
            min_bytes=1,
            max_bytes=1 << 20,
        )
        assert session.connection.is_silent(0.3)
        produce(other, session.topic, b"now", 1)
    assert told(session.connection.receive(pending)) == {1: [b"now"]}


def test_when_all_slots_are_taken_a_fetch_works_without_a_session(own_broker: Callable[..., Subject]) -> None:
    broker = own_broker(max_incremental_fetch_session_cache_slots="16")
    raw_client.create_topic(broker.bootstrap, "slots")
    with raw_client.Connection(broker.bootstrap) as connection:
        produce(connection, "slots", b"v")
        started = []
        for _ in range(60):
            one = Session(connection, "slots", 1)
            assert told(one.start(0)) == {0: [b"v"]}
            started.append(one.id)
        taken = [number for number in started if number]
        assert 0 < len(taken) <= 16
        for number in taken:
            one.fetch(session=(number, FINAL))
        assert one.start(0).session_id > 0
