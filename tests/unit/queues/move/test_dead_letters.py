"""Dead letters on a real broker, and moving them."""

import pytest

from headrace.model import queued
from headrace.model.errors import UnknownMove, UnknownQueue
from headrace.model.queue_wire import Filter
from headrace.model.queued import read_origin
from headrace.queues.api import QueueEdit, ReceiveOptions
from tests.unit.queues.brokers import QueueBroker
from tests.waiting import until_async


def test_a_message_that_fails_too_often_goes_to_the_dead_letter_queue_and_back(broker: QueueBroker) -> None:
    dead = broker.create()
    name = broker.create(max_receives="2", dead_letter=dead)
    broker.send(name, "poison", priority=6, headers=(("h", b"1"),))
    for reason in ("first", "last"):
        (message,) = broker.receive(name, wait_ms=20_000)
        assert broker.run(broker.queues.nack(name, [(message.receipt, 0, reason)])) == [None]
    (letter,) = broker.receive(dead, wait_ms=20_000)
    assert (letter.id, letter.body, letter.priority, letter.attempt) == ("id-poison", b"poison", 6, 1)
    assert ("h", b"1") in letter.headers
    assert (queued.ATTEMPT, b"2") in letter.headers
    assert letter.origin is not None
    origin = read_origin(letter.origin)
    assert (origin["queue"], origin["reason"], origin["attempts"]) == (name, "last", 2)
    assert letter.sent_at_ms == message.sent_at_ms
    assert broker.run(broker.queues.extend(dead, [(letter.receipt, 0)])) == [None]
    assert len(broker.run(broker.queues.peek(dead, Filter(reason_contains="las")))) == 1
    assert broker.run(broker.queues.peek(dead, Filter(reason_contains="other"))) == []
    broker.run(broker.queues.start_move(dead, None, Filter()))
    (back,) = broker.receive(name, wait_ms=20_000)
    assert (back.id, back.body, back.attempt) == ("id-poison", b"poison", 1)
    broker.acknowledge(name, back)
    assert broker.run(broker.queues.counts(dead)).available == 0


def test_a_message_that_is_never_deleted_goes_to_the_dead_letter_queue(broker: QueueBroker) -> None:
    dead = broker.create()
    name = broker.create(max_receives="1", dead_letter=dead)
    broker.send(name, "a")
    broker.receive(name, visibility_ms=50)
    (letter,) = broker.receive(dead, wait_ms=20_000)
    assert letter.origin is not None
    assert read_origin(letter.origin)["reason"] == "received once without being deleted"


def test_dead_letters_wait_for_their_queue(broker: QueueBroker) -> None:
    name = broker.create(max_receives="1", dead_letter="not-there-yet")
    broker.send(name, "a")
    broker.receive(name, visibility_ms=1)

    async def run() -> None:
        led = broker.queues._queues[broker.services.metadata.image.topics[name].topic_id].hosted  # type: ignore[index]
        await until_async(lambda: led.host.engine.has_dead)
        await broker.queues.create("not-there-yet", QueueEdit())
        (letter,) = await broker.queues.receive("not-there-yet", ReceiveOptions(1, 20_000))
        assert letter.body == b"a"

    broker.run(run())


def test_moves_take_what_a_filter_means(broker: QueueBroker) -> None:
    source, destination = broker.create(), broker.create()
    broker.send(source, *(f"{kind}{number}" for number in range(150) for kind in "ab"))
    broker.receive(source, 1)
    broker.run(broker.queues.start_move(source, destination, Filter(body_contains=b"a")))
    move = broker.ended_move(source)
    # The first one is in flight.
    assert (move.status, move.moved) == ("COMPLETED", 149)
    assert broker.run(broker.queues.counts(destination)).available == 149
    assert broker.run(broker.queues.counts(source)).available == 150
    broker.run(broker.queues.start_move(source, destination, Filter(limit=20)))
    assert broker.ended_move(source).moved == 20
    assert len(broker.run(broker.queues.moves(source))) == 2


def test_a_move_is_paced_and_can_be_cancelled(broker: QueueBroker) -> None:
    source, destination = broker.create(), broker.create()
    broker.send(source, *map(str, range(100)))
    move = broker.run(broker.queues.start_move(source, destination, Filter(), per_second=1))
    assert (move.status, move.to_move, move.per_second) == ("RUNNING", 100, 1)
    assert broker.run(broker.queues.cancel_move(move.id)).status == "CANCELLING"
    ended = broker.ended_move(source)
    assert ended.status == "CANCELLED"
    assert ended.moved < 100
    counts = broker.run(broker.queues.counts(source)).available, broker.run(broker.queues.counts(destination)).available
    assert counts == (100 - ended.moved, ended.moved)
    for unknown in ("x", "0" * 32 + "-1", f"{move.id}0"):
        with pytest.raises(UnknownMove):
            broker.run(broker.queues.cancel_move(unknown))


def test_a_move_to_a_queue_that_is_gone_fails(broker: QueueBroker) -> None:
    source, destination = broker.create(), broker.create()
    with pytest.raises(UnknownQueue):
        broker.run(broker.queues.start_move(source, "nowhere", Filter()))
    broker.send(source, "a")

    async def run() -> None:
        await broker.queues.delete(destination)
        led = broker.queues._queues[broker.services.metadata.image.topics[source].topic_id]  # type: ignore[index]
        await led.move_tasks.start(destination, Filter(), None)

    broker.run(run())
    move = broker.ended_move(source)
    assert move.status == "FAILED"
    assert move.failure is not None
    assert destination in move.failure
    assert broker.bodies(source) == ["a"]


def _received_one_by_one(broker: QueueBroker, queue: str, count: int) -> list[str]:
    bodies = []
    for _ in range(count):
        (message,) = broker.receive(queue, 1, wait_ms=20_000)
        bodies.append(message.body.decode())
        broker.acknowledge(queue, message)
    return bodies


def test_messages_move_to_a_queue_with_room_for_fewer_than_a_page(broker: QueueBroker) -> None:
    bound = {"max_backlog_messages": "3", "max_backlog_policy": "refuse"}
    dead, destination = broker.create(**bound), broker.create(**bound)
    name = broker.create(max_receives="1", dead_letter=dead)
    bodies = [f"{number}" for number in range(10)]
    broker.send(name, *bodies)
    assert len(broker.receive(name, visibility_ms=1)) == 10
    assert _received_one_by_one(broker, dead, 10) == bodies
    source = broker.create()
    broker.send(source, *bodies)
    broker.run(broker.queues.start_move(source, destination, Filter()))
    assert _received_one_by_one(broker, destination, 10) == bodies
    assert broker.ended_move(source).moved == 10


def test_a_move_to_a_full_queue_can_be_cancelled(broker: QueueBroker) -> None:
    source, destination = broker.create(), broker.create(max_backlog_messages="1", max_backlog_policy="refuse")
    broker.send(destination, "full")
    broker.send(source, "a", "b")
    move = broker.run(broker.queues.start_move(source, destination, Filter()))
    broker.run(broker.queues.cancel_move(move.id))
    assert broker.ended_move(source).status == "CANCELLED"
    assert sorted(broker.bodies(source)) == ["a", "b"]
