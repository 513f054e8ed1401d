import pytest

from headrace.config.queue import QueueSettings
from headrace.coordinator.machine import InternalRecord
from headrace.model.errors import LeaseTooLong, NotInFlight, TooManyInFlight
from headrace.queues.engine.moved_pages import PageSlot
from tests.unit.queues.engines import SECOND, Driven

DEAD_AFTER_2 = QueueSettings(type="standard", max_receives=2, dead_letter="letters")


def test_a_message_is_with_one_receiver_until_its_deadline_and_then_with_another() -> None:
    queue = Driven()
    queue.send(2)
    assert queue.receive(10) == [0, 1]
    assert queue.receive(10) == []
    queue.wait(30 * SECOND - 1)
    assert queue.receive(10) == []
    queue.wait(1)
    assert [lease.attempt for lease in queue.engine.receive(10, queue.now_ms)] == [2, 2]


def test_what_was_acknowledged_never_comes_back() -> None:
    queue = Driven()
    queue.send(3)
    queue.receive(3)
    queue.acknowledge(1)
    queue.restart()
    queue.wait(31 * SECOND)
    assert queue.receive(10) == [0, 2]


def test_a_late_acknowledgement_is_good_while_nobody_else_has_received_the_message() -> None:
    queue = Driven()
    queue.send(2)
    queue.receive(2)
    queue.wait(60 * SECOND)
    queue.acknowledge(0)
    assert queue.receive(2) == [1]
    with pytest.raises(NotInFlight):
        queue.acknowledge(1, attempt=1)
    queue.acknowledge(1, attempt=2)
    queue.acknowledge(1, attempt=1)


def test_what_is_received_together_is_one_entry_until_something_happens_to_one() -> None:
    def kinds() -> list[bytes]:
        queue.keep()
        return sorted(key[:1] for key in queue.kept if key[:1] in b"ml")

    queue = Driven()
    queue.send(300)
    assert queue.receive(300) == [*range(300)]
    queue.send(2)
    assert kinds() == [b"l", b"l"]
    queue.extend(7, 60 * SECOND)
    queue.nack(8)
    queue.acknowledge(0)
    assert kinds() == [b"l", b"l", b"m", b"m"]
    queue.restart()
    queue.wait(30 * SECOND)
    assert queue.receive(302) == [300, 301, 8, *range(1, 7), *range(9, 300)]
    assert kinds() == [b"l", *[b"m"] * 299]
    for offset in range(1, 300):
        queue.acknowledge(offset, attempt=1 if offset == 7 else 2)
    assert kinds() == [b"l"]
    queue.restart()
    assert queue.engine.in_flight == 2
    queue.acknowledge(300)
    queue.acknowledge(301)
    assert kinds() == []


def test_a_lease_is_extended_from_now_on_and_for_twelve_hours_in_all() -> None:
    queue = Driven()
    queue.send()
    queue.receive()
    queue.wait(20 * SECOND)
    assert queue.extend(0, 60 * SECOND) == queue.now_ms + 60 * SECOND
    queue.wait(59 * SECOND)
    assert queue.receive() == []
    with pytest.raises(LeaseTooLong):
        queue.extend(0, 12 * 3600 * SECOND)
    queue.wait(SECOND)
    assert queue.receive() == [0]


@pytest.mark.parametrize("kind", ["standard", "fifo"])
def test_a_lease_that_is_over_goes_on_unless_the_message_was_received_again(kind: str) -> None:
    queue = Driven(QueueSettings(type=kind, retry_backoff_ms=5 * SECOND))
    queue.send(2)
    assert queue.receive() == [0]
    for _ in range(2):
        queue.wait(32 * SECOND)
        queue.extend(0, 20 * SECOND)
        queue.restart()
        assert queue.counts() == (1, 1, 0)
    queue.wait(60 * SECOND)
    queue.extend(0, 0)
    assert queue.counts() == (2, 0, 0)
    queue.receive(2)
    with pytest.raises(NotInFlight):
        queue.extend(0, 20 * SECOND)
    queue.acknowledge(0, attempt=2)
    with pytest.raises(NotInFlight):
        queue.extend(0, 20 * SECOND, attempt=2)


def test_a_lease_of_no_time_more_is_over_at_once() -> None:
    queue = Driven()
    queue.send()
    queue.receive()
    queue.extend(0, 0)
    assert queue.counts() == (1, 0, 0)


def test_a_message_that_always_fails_keeps_no_other_from_being_received() -> None:
    queue = Driven()
    queue.send(11)
    received = []
    for attempt in range(1, 4):
        (offset,) = queue.receive()
        received.append(offset)
        if offset == 0:
            queue.extend(0, 0, attempt)
        for _ in range(10 if attempt == 1 else 0):
            (good,) = queue.receive()
            received.append(good)
            queue.acknowledge(good)
    assert received == [*range(11), 0, 0]


def test_messages_whose_leases_end_come_behind_those_that_wait_and_before_those_sent_later() -> None:
    queue = Driven()
    queue.send(6)
    assert queue.receive(3, SECOND) == [0, 1, 2]
    queue.wait(2 * SECOND)
    queue.send(1)
    assert queue.receive(7, SECOND) == [3, 4, 5, 0, 1, 2, 6]
    queue.wait(2 * SECOND)
    queue.restart()
    queue.send(1)
    assert queue.receive(8) == [0, 1, 2, 3, 4, 5, 6, 7]


def test_a_message_that_comes_back_stays_in_its_level() -> None:
    queue = Driven()
    queue.send(2, priority=9)
    queue.send(2)
    assert queue.receive(1) == [0]
    queue.nack(0, delay_ms=0)
    assert queue.receive(10) == [1, 0, 2, 3]


def test_with_ageing_a_message_counts_from_when_it_came_back() -> None:
    queue = Driven(QueueSettings(type="standard", priority_ageing_ms=10 * SECOND))
    queue.send()
    queue.wait(60 * SECOND)
    assert queue.receive() == [0]
    queue.send(priority=5)
    queue.nack(0, delay_ms=0)
    assert queue.receive(2) == [1, 0]


def test_a_receive_that_never_reached_its_receiver_does_not_count_towards_the_limit() -> None:
    queue = Driven(QueueSettings(type="standard", max_receives=1, dead_letter="letters"))
    queue.send()
    for attempt in range(1, 4):
        assert queue.receive() == [0]
        queue.engine.undo_receive(0, attempt, queue.now_ms)
        queue.restart()
    assert queue.receive() == [0]
    queue.wait(31 * SECOND)
    assert queue.engine.has_dead


def test_a_receive_may_leave_the_message_where_it_is() -> None:
    queue = Driven()
    queue.send()
    assert queue.receive(visibility_ms=0) == [0]
    assert [lease.attempt for lease in queue.engine.receive(1, queue.now_ms, 0)] == [2]


def test_leases_and_attempts_survive_a_restart() -> None:
    queue = Driven()
    queue.send(5)
    queue.receive(2)
    queue.restart()
    assert queue.receive(10) == [2, 3, 4]
    queue.acknowledge(0)
    queue.wait(30 * SECOND)
    assert [lease.attempt for lease in queue.engine.receive(1, queue.now_ms)] == [2]


def test_failures_are_retried_later_and_later_up_to_the_most() -> None:
    settings = QueueSettings(
        type="standard", retry_backoff_ms=1000, retry_backoff_factor=3, retry_backoff_max_ms=20_000
    )
    queue = Driven(settings)
    queue.send()
    delays = []
    for attempt in range(1, 6):
        assert queue.receive() == [0]
        delays.append(queue.nack(0, attempt) - queue.now_ms)
        queue.wait(delays[-1] - 1)
        assert queue.receive() == []
        queue.wait(1)
    assert delays == [1000, 3000, 9000, 20_000, 20_000]


def test_jitter_adds_or_takes_off_its_share() -> None:
    queue = Driven(QueueSettings(type="standard", retry_backoff_ms=1000, retry_jitter=0.2))
    queue.send(2)
    queue.receive(2)
    queue.jitter = 0.0
    assert queue.nack(0) == queue.now_ms + 800
    queue.jitter = 1.0
    assert queue.nack(1) == queue.now_ms + 1200


def test_a_message_whose_lease_ran_out_is_hidden_for_the_backoff_from_its_end_on() -> None:
    queue = Driven(QueueSettings(type="standard", retry_backoff_ms=10 * SECOND))
    queue.send()
    for hidden_ms in (10 * SECOND, 20 * SECOND):
        assert queue.receive(1, 30 * SECOND) == [0]
        queue.wait(31 * SECOND)
        queue.restart()
        assert queue.counts() == (0, 0, 1)
        queue.wait(hidden_ms - 2 * SECOND)
        assert queue.receive() == []
        queue.wait(SECOND)
        assert queue.counts() == (1, 0, 0)
    assert queue.receive(1, 30 * SECOND) == [0]
    queue.wait(35 * SECOND)
    queue.acknowledge(0, attempt=3)
    assert queue.counts() == (0, 0, 0)


def test_a_lease_that_ran_out_for_the_last_time_ends_without_a_backoff() -> None:
    settings = QueueSettings(type="standard", retry_backoff_ms=10 * SECOND, max_receives=1, dead_letter="d")
    queue = Driven(settings)
    queue.send()
    queue.receive(1, 30 * SECOND)
    queue.wait(30 * SECOND)
    assert queue.engine.has_dead


def test_a_message_that_was_given_back_is_hidden_for_as_long_as_asked() -> None:
    queue = Driven()
    queue.send(2)
    queue.receive(2)
    queue.nack(0, delay_ms=0)
    queue.nack(1, delay_ms=5000)
    assert queue.counts() == (1, 0, 1)
    assert queue.receive(2) == [0]
    queue.restart()
    queue.wait(4999)
    assert queue.receive(2) == []
    queue.wait(1)
    assert queue.receive(2) == [1]


def test_after_its_last_attempt_a_message_is_dead_with_the_reason_and_never_seen_again() -> None:
    queue = Driven(DEAD_AFTER_2)
    queue.send(1)
    queue.receive(1)
    queue.wait(30 * SECOND)
    queue.send(1)
    assert queue.receive(1) == [0]
    assert not queue.engine.has_dead
    queue.nack(0, 2, reason="no such address")
    queue.restart()
    queue.engine.due(queue.now_ms)
    assert [(dead.offset, dead.attempt, dead.reason) for dead in queue.engine.dead()] == [(0, 2, "no such address")]
    assert queue.receive(10) == [1]
    queue.engine.moved(0)
    queue.restart()
    assert not queue.engine.has_dead
    assert queue.counts() == (0, 1, 0)


def test_without_a_dead_letter_queue_messages_stay() -> None:
    queue = Driven(QueueSettings(type="standard", max_receives=1))
    queue.send()
    for _ in range(5):
        assert queue.receive() == [0]
        queue.wait(30 * SECOND)
    assert not queue.engine.has_dead


def test_a_lower_limit_counts_for_messages_that_were_received_before() -> None:
    queue = Driven()
    queue.send(2)
    for _ in range(3):
        queue.receive(1)
        queue.wait(30 * SECOND)
    queue.engine.configure(DEAD_AFTER_2, queue.now_ms)
    assert [dead.offset for dead in queue.engine.dead()] == [0]
    assert queue.receive(2) == [1]


def test_no_more_are_in_flight_than_may_be() -> None:
    queue = Driven(QueueSettings(type="standard", max_in_flight=3))
    queue.send(5)
    assert queue.receive(10) == [0, 1, 2]
    with pytest.raises(TooManyInFlight):
        queue.receive(1)
    queue.acknowledge(1)
    assert queue.receive(10) == [3]


def test_everything_that_was_sent_before_a_purge_is_gone() -> None:
    queue = Driven()
    queue.send(5000)
    queue.send(2, priority=9, due_ms=queue.now_ms + 50_000)
    queue.receive(10)
    queue.keep()
    queue.engine.purge()
    queue.send(1)
    for _ in range(2):
        assert queue.counts() == (1, 0, 0)
        queue.restart()
        assert len(queue.kept) <= 3
    queue.wait(60 * SECOND)
    assert queue.receive(10) == [5002]
    with pytest.raises(NotInFlight):
        queue.extend(0, 10)


def test_a_message_that_was_discarded_is_gone_wherever_it_was() -> None:
    queue = Driven()
    queue.send(2)
    queue.send(due_ms=queue.now_ms + 1000)
    queue.receive(1)
    leases = [(offset, 0) for offset in (0, 1, 2, 2, 3)]
    assert queue.engine.acknowledge(leases, queue.now_ms, any_attempt=True) == [None] * 5
    queue.wait(60 * SECOND)
    assert queue.receive(10) == []
    assert queue.counts() == (0, 0, 0)


def test_looking_at_messages_changes_nothing() -> None:
    queue = Driven(DEAD_AFTER_2)
    queue.send(4)
    queue.send(due_ms=queue.now_ms + 1000)
    queue.receive(3)
    queue.acknowledge(0)
    queue.nack(1, delay_ms=500)
    found = {offset: queue.engine.look(offset) for offset in queue.engine.live(0)}
    assert {offset: look and (look.state, look.attempt) for offset, look in found.items()} == {
        1: ("delayed", 1),
        2: ("in flight", 1),
        3: ("available", 0),
        4: ("delayed", 0),
    }
    assert queue.engine.look(0) is None
    assert queue.engine.look(5) is None


def test_offsets_that_are_no_messages_are_passed_over() -> None:
    queue = Driven()
    queue.engine.index_plain(10, 20, queue.now_ms, queue.now_ms)
    queue.engine.skip(21, 30)
    queue.engine.index_plain(31, 31, queue.now_ms, queue.now_ms)
    assert queue.counts() == (12, 0, 0)
    assert queue.receive(20) == [*range(10, 21), 31]


def test_a_purge_that_is_cut_short_does_not_bring_back_a_copy_of_a_page() -> None:
    queue = Driven()
    queue.send(place=PageSlot(stream=1, page=1, at=0))
    queue.wait(61 * SECOND)
    queue.keep()
    assert [copy.offset for copy in queue.send(place=PageSlot(stream=1, page=1, at=0))] == [1]
    queue.send(place=PageSlot(stream=1, page=2, at=0))
    queue.engine.purge()
    queue.keep(1)
    queue.engine = queue._new()
    queue.engine.load([InternalRecord(key, value) for key, value in queue.kept.items()])
    copies = queue.engine.index(queue.log[queue.engine.indexed_to :], queue.now_ms)
    assert [copy.offset for copy in copies] == [1]
