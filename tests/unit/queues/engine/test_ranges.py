"""Neighbours that are received together: leased, acknowledged and persisted as one."""

import pytest

from headrace.config.queue import QueueSettings
from headrace.model.errors import NotInFlight, TooManyInFlight
from headrace.queues.engine.engine import LeaseRange
from tests.unit.queues.engines import SECOND, START_MS, Driven


def ranges(queue: Driven, most: int = 1_000) -> list[tuple[int, int, int]]:
    return [(each.first, each.last, each.attempt) for each in queue.engine.receive_ranges(most, queue.now_ms)]


def kinds(queue: Driven) -> list[bytes]:
    queue.keep()
    return sorted(key[:1] for key in queue.kept if key[:1] in b"ml")


def test_neighbours_are_one_lease_and_one_entry_and_one_acknowledgement() -> None:
    queue = Driven()
    queue.send(900)
    assert queue.engine.receive_ranges(500, queue.now_ms) == [LeaseRange(0, 499, 1, START_MS + 30 * SECOND, START_MS)]
    assert queue.engine.in_flight == 500
    assert kinds(queue) == [b"l"]
    assert not queue.engine._inventory.leases.held, "no message has a record of its own"
    assert queue.engine.acknowledge_range(0, 499, 1, queue.now_ms) == {}
    assert queue.engine.head == 500
    assert queue.engine.in_flight == 0
    assert kinds(queue) == []


def test_the_messages_of_a_range_are_there_again_after_their_deadline() -> None:
    queue = Driven()
    queue.send(100)
    assert ranges(queue) == [(0, 99, 1)]
    assert queue.engine.acknowledge_range(10, 89, 1, queue.now_ms) == {}
    assert queue.engine.next_due_ms == START_MS + 30 * SECOND
    queue.wait(30 * SECOND - 1)
    assert ranges(queue) == []
    queue.wait(1)
    assert [each[2] for each in ranges(queue)] == [2] * 20


def test_a_message_leaves_its_range_when_something_happens_to_it() -> None:
    queue = Driven()
    queue.send(100)
    assert ranges(queue) == [(0, 99, 1)]
    queue.extend(50, 60 * SECOND)
    queue.nack(51, delay_ms=0)
    queue.acknowledge(52)
    assert queue.engine.look(53) == queue.engine.look(54)
    assert kinds(queue) == [b"l", b"m", b"m"]
    failures = queue.engine.acknowledge_range(0, 99, 1, queue.now_ms)
    assert failures == {}, "51 was not received again"
    assert queue.engine.counts().in_flight == queue.engine.counts().available == 0


def test_a_range_is_acknowledged_only_as_far_as_it_was_not_received_again() -> None:
    queue = Driven()
    queue.send(40)
    ranges(queue)
    queue.nack(7, delay_ms=0)
    assert ranges(queue) == [(7, 7, 2)]
    failures = queue.engine.acknowledge_range(0, 39, 1, queue.now_ms)
    assert list(failures) == [7]
    assert isinstance(failures[7], NotInFlight)
    assert queue.engine.acknowledge_range(7, 7, 2, queue.now_ms) == {}


def test_a_restart_knows_the_messages_of_a_range() -> None:
    queue = Driven()
    queue.send(300)
    ranges(queue)
    queue.keep()
    queue.engine.acknowledge_range(0, 99, 1, queue.now_ms)
    queue.extend(150, 60 * SECOND)
    queue.keep()
    queue.restart()
    assert queue.engine.in_flight == 200
    queue.wait(31 * SECOND)
    received = {offset for first, last, _ in ranges(queue) for offset in range(first, last + 1)}
    assert received == set(range(100, 300)) - {150}


def test_ranges_are_bounded_by_the_limit_in_flight() -> None:
    queue = Driven(QueueSettings(type="standard", max_in_flight=60))
    queue.send(100)
    assert ranges(queue) == [(0, 59, 1)]
    with pytest.raises(TooManyInFlight):
        ranges(queue)
    queue.engine.acknowledge_range(0, 59, 1, queue.now_ms)
    assert ranges(queue) == [(60, 99, 1)]


def test_the_highest_priority_is_a_range_before_the_others() -> None:
    queue = Driven()
    queue.send(50)
    queue.send(30, priority=9)
    queue.send(20)
    assert ranges(queue) == [(50, 79, 1), (0, 49, 1), (80, 99, 1)]


def test_what_a_purge_or_the_log_has_deleted_is_not_in_flight() -> None:
    queue = Driven()
    queue.send(200)
    ranges(queue, 100)
    queue.engine.drop_before(50)
    assert queue.engine.in_flight == 50
    queue.engine.purge()
    assert queue.engine.in_flight == 0
    assert kinds(queue) == []
