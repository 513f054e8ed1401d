import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from headrace.client.errors import ClientError, DeliveryFailed, Unreachable
from headrace.client.kafka.batch_producer import BatchProducer
from headrace.client.outgoing import ProducerRecord, RecordsOfBodies

_BOUND_S = 60.0


class _Stored:
    def __init__(self, offset: int) -> None:
        self._offset = offset

    def offset(self) -> int:
        return self._offset


class _Producer:
    """Answers when it is flushed and `may_answer`."""

    def __init__(self) -> None:
        self.lots: list[list[bytes]] = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.flushing = threading.Event()
        self.refused: dict[bytes, KafkaError] = {}
        self.interrupts_at: bytes | None = None
        self._open: list[tuple[bytes, Callable[[Any, Any], None]]] = []
        self._next = 0

    def produce(
        self, topic: str, value: bytes, key: None, partition: int, report: Callable[[Any, Any], None], **_: Any
    ) -> None:
        if value == self.interrupts_at:
            raise KeyboardInterrupt
        if (error := self.refused.get(value)) is not None:
            raise KafkaException(error)
        self._open.append((value, report))

    def flush(self, timeout_s: float) -> int:
        self.flushing.set()
        if self.may_answer.wait(timeout_s) and self._open:
            self.lots.append([value for value, _ in self._open])
            # Not in the order of sending.
            answers = [(report, _Stored(self._next + at)) for at, (_, report) in enumerate(self._open)]
            self._next += len(answers)
            self._open.clear()
            for report, stored in reversed(answers):
                report(None, stored)
        return len(self._open)

    def __len__(self) -> int:
        return len(self._open)


@pytest.fixture
def producer() -> _Producer:
    return _Producer()


class _OfBodies(BatchProducer):
    """Sends records as bodies that have everything else in common."""

    def send(self, records: Sequence[ProducerRecord]) -> list[int]:
        bodies = [each.value for each in records if each.value is not None]
        made = RecordsOfBodies("q", bodies, 0)
        assert list(made) == [each._replace(headers=()) for each in records]
        return super().send(made)


@pytest.fixture(params=[BatchProducer, _OfBodies])
def bulk(producer: _Producer, request: pytest.FixtureRequest) -> BatchProducer:
    made: BatchProducer = request.param(lambda: producer, "localhost:9092")
    return made


def _records(*values: bytes) -> list[ProducerRecord]:
    return [ProducerRecord("q", value, None, [], 0) for value in values]


def test_offsets_are_in_the_order_of_sending(bulk: BatchProducer) -> None:
    assert bulk.send(_records(b"a", b"b", b"c")) == [0, 1, 2]
    assert bulk.send(_records(b"d")) == [3]
    assert bulk.send([]) == []


def test_what_others_bring_meanwhile_goes_out_together(bulk: BatchProducer, producer: _Producer) -> None:
    producer.may_answer.clear()
    sent: dict[bytes, list[int]] = {}

    def send(value: bytes) -> None:
        sent[value] = bulk.send(_records(value))

    threads = [threading.Thread(target=send, args=(value,)) for value in (b"a", b"b", b"c")]
    threads[0].start()
    assert producer.flushing.wait(_BOUND_S)
    for each in threads[1:]:
        each.start()
    while len(bulk._waiting) < 2:
        threads[1].join(0.01)
    producer.may_answer.set()
    for each in threads:
        each.join(_BOUND_S)
    assert [sorted(lot) for lot in producer.lots] == [[b"a"], [b"b", b"c"]]
    assert sent[b"a"] == [0]
    assert sorted(sent[b"b"] + sent[b"c"]) == [1, 2]


def test_a_lot_is_no_larger_than_a_batch(bulk: BatchProducer, producer: _Producer) -> None:
    assert bulk.send(_records(*[b"x"] * 12_000)) == list(range(12_000))
    assert [len(lot) for lot in producer.lots] == [5_000, 5_000, 2_000]
    bulk.send(_records(*[b"x" * 400_000] * 4))
    assert [len(lot) for lot in producer.lots[3:]] == [2, 2]


def test_what_is_refused_is_counted(bulk: BatchProducer, producer: _Producer) -> None:
    producer.refused = {b"big": KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)}
    with pytest.raises(DeliveryFailed, match=r"1 of 2 messages: a message to q was not delivered") as failure:
        bulk.send(_records(b"a", b"big"))
    assert failure.value.count == 1
    assert producer.lots == [[b"a"]]
    producer.refused = {b"late": KafkaError(KafkaError._MSG_TIMED_OUT)}
    with pytest.raises(Unreachable, match="no broker answers at localhost:9092"):
        bulk.send(_records(b"late"))


def test_who_is_interrupted_leaves_nobody_waiting(bulk: BatchProducer, producer: _Producer) -> None:
    producer.may_answer.clear()
    producer.interrupts_at = b"c"
    raised: dict[bytes, BaseException] = {}

    def send(*values: bytes) -> None:
        try:
            bulk.send(_records(*values))
        except BaseException as error:
            raised[values[0]] = error

    first = threading.Thread(target=send, args=(b"a",))
    first.start()
    assert producer.flushing.wait(_BOUND_S)
    others = [threading.Thread(target=send, args=(b"b", b"c", b"d")) for _ in range(2)]
    for each in others:
        each.start()
    while len(bulk._waiting) < 2:
        first.join(0.01)
    producer.may_answer.set()
    for each in (first, *others):
        each.join(_BOUND_S)
        assert not each.is_alive()
    assert set(raised) == {b"b"}


def test_a_closed_one_takes_nothing(bulk: BatchProducer) -> None:
    bulk.send(_records(b"a"))
    bulk.close()
    with pytest.raises(ClientError, match="closed"):
        bulk.send(_records(b"b"))
