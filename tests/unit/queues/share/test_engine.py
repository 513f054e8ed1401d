import pytest

from headrace.coordinator.machine import InternalRecord
from headrace.model.errors import NotInFlight
from headrace.queues.share.engine import AcquiredRange, ShareEngine

NOW = 1_700_000_000_000
LOCK_MS = 30_000


def shared(records: int = 100, most_in_flight: int = 50) -> ShareEngine:
    engine = ShareEngine(3, most_in_flight, LOCK_MS)
    engine.index_plain(0, records - 1, None, NOW)
    return engine


def again(engine: ShareEngine, records: int = 100) -> ShareEngine:
    """Loaded from all that an engine wanted to be kept, ever."""
    loaded = ShareEngine(3, 50, LOCK_MS)
    kept = {key: value for key, value in engine.take_changes() if value is not None}
    loaded.load([InternalRecord(key, value) for key, value in kept.items()])
    loaded.index_plain(loaded.indexed_to, records - 1, None, NOW)
    loaded.due(NOW)
    return loaded


def test_records_are_acquired_in_order_and_only_in_the_range_that_was_read() -> None:
    engine = shared()
    assert engine.acquire(0, 9, 500, NOW, "a") == [AcquiredRange(0, 9, 1)]
    assert engine.acquire(0, 19, 5, NOW, "b") == [AcquiredRange(10, 14, 1)]
    assert engine.next_available(NOW) == 15
    assert engine.acquire(0, 9, 500, NOW, "a") == []


def test_no_more_are_in_flight_than_may_be() -> None:
    engine = shared(most_in_flight=8)
    assert engine.acquire(0, 99, 500, NOW, "a") == [AcquiredRange(0, 7, 1)]
    assert engine.acquire(0, 99, 500, NOW, "a") == []
    engine.accept(0, 3, "a", NOW)
    assert engine.acquire(0, 99, 500, NOW, "a") == [AcquiredRange(8, 11, 1)]


def test_what_was_accepted_moves_the_head_and_what_was_released_is_delivered_once_more() -> None:
    engine = shared()
    engine.acquire(0, 9, 10, NOW, "a")
    engine.accept(0, 3, "a", NOW)
    engine.release(4, 5, "a", NOW)
    assert engine.head == 4
    assert engine.acquire(0, 12, 10, NOW, "b") == [AcquiredRange(10, 12, 1)]
    engine.archive(10, 91)
    assert engine.acquire(0, 99, 10, NOW, "b") == [AcquiredRange(4, 5, 2), AcquiredRange(92, 99, 1)]


def test_a_record_that_is_always_released_keeps_no_other_from_being_delivered() -> None:
    engine = ShareEngine(1000, 50, LOCK_MS)
    engine.index_plain(0, 20, None, NOW)
    engine.log_end = 40
    delivered = []
    for _ in range(60):
        at = engine.next_available(NOW)
        if at is None and engine.indexed_to < 40:
            engine.index_plain(21, 39, None, NOW)
            continue
        ((first, _, _),) = engine.acquire(0 if at is None else at, 39, 1, NOW, "a")
        delivered.append(first)
        if first in (0, 1):
            engine.release(first, first, "a", NOW)
        else:
            engine.accept(first, first, "a", NOW)
    assert delivered[:40] == [*range(40)]
    assert set(delivered[40:]) == {0, 1}


def test_a_record_whose_lock_ends_stands_before_those_that_come_later() -> None:
    engine = shared(4)
    engine.log_end = 4
    assert engine.acquire(0, 3, 1, NOW, "a") == [AcquiredRange(0, 0, 1)]
    engine.due(NOW + LOCK_MS)
    engine.index_plain(4, 5, None, NOW)
    engine.log_end = 6
    assert engine.acquire(0, 5, 3, NOW + LOCK_MS, "b") == [AcquiredRange(1, 3, 1)]
    assert engine.next_available(NOW + LOCK_MS) == 0
    assert engine.acquire(0, 3, 1, NOW + LOCK_MS, "b") == [AcquiredRange(0, 0, 2)]


def test_released_records_are_available_after_a_restart_on_a_machine_that_started_later() -> None:
    engine = shared(10)
    engine.acquire(0, 9, 10, NOW, "a")
    engine.release(4, 5, "a", NOW)
    engine.acquire(4, 5, 10, NOW, "a")
    engine.release(5, 5, "a", NOW, is_excused=True)
    loaded = ShareEngine(3, 50, LOCK_MS)
    loaded.load([InternalRecord(key, value) for key, value in engine.take_changes() if value is not None])
    just_booted_ms = 1000
    loaded.index_plain(loaded.indexed_to, 9, None, just_booted_ms)
    assert loaded.acquire(0, 9, 10, just_booted_ms, "b") == [
        AcquiredRange(0, 3, 2),
        AcquiredRange(4, 5, 3),
        AcquiredRange(6, 9, 2),
    ]


def test_only_who_acquired_a_record_may_say_anything_of_it_and_all_of_a_range_or_nothing() -> None:
    engine = shared()
    engine.acquire(0, 9, 5, NOW, "a")
    engine.acquire(0, 9, 5, NOW, "b")
    for act in (engine.accept, engine.release, engine.renew):
        with pytest.raises(NotInFlight):
            act(3, 6, "a", NOW)
    assert engine.acquired_by("a", NOW) == [AcquiredRange(0, 4, 1)]


def test_a_lock_ends_unless_it_is_renewed() -> None:
    engine = shared(4)
    engine.acquire(0, 3, 4, NOW, "a")
    engine.renew(2, 3, "a", NOW + LOCK_MS - 1)
    assert engine.acquire(0, 3, 4, NOW + LOCK_MS, "b") == [AcquiredRange(0, 1, 2)]
    assert engine.acquired_by("a", NOW + LOCK_MS) == [AcquiredRange(2, 3, 1)]


def test_a_record_that_was_delivered_as_often_as_it_may_be_is_archived() -> None:
    engine = shared(2)
    for attempt in (1, 2, 3):
        assert engine.acquire(0, 1, 2, NOW, "a") == [AcquiredRange(0, 1, attempt)]
        engine.release(0, 0, "a", NOW)
        engine.release(1, 1, "a", NOW, is_excused=attempt == 3)
    assert engine.acquire(0, 1, 2, NOW, "a") == [AcquiredRange(1, 1, 4)]
    assert engine.head == 1
    engine.release(1, 1, "a", NOW)
    assert engine.head == 2


def test_deliveries_and_what_is_done_survive_and_locks_do_not() -> None:
    engine = shared(10)
    engine.acquire(0, 9, 10, NOW, "a")
    engine.accept(0, 2, "a", NOW)
    engine.release(4, 5, "a", NOW)
    engine.acquire(4, 4, 1, NOW, "a")
    loaded = again(engine, 10)
    assert loaded.head == 3
    assert loaded.acquire(0, 9, 50, NOW, "b") == [
        AcquiredRange(3, 3, 2),
        AcquiredRange(4, 4, 3),
        AcquiredRange(5, 9, 2),
    ]


def test_a_delivery_that_a_restart_ended_counts_but_not_towards_the_limit() -> None:
    engine = shared(1)
    for restarts in range(4):
        assert engine.acquire(0, 0, 1, NOW, "a") == [AcquiredRange(0, 0, restarts + 1)]
        engine = again(engine, 1)
    for attempt in (5, 6, 7):
        assert engine.acquire(0, 0, 1, NOW, "a") == [AcquiredRange(0, 0, attempt)]
        engine.release(0, 0, "a", NOW)
    assert engine.head == 1


def test_a_group_may_start_anew_anywhere() -> None:
    engine = shared()
    engine.acquire(0, 50, 50, NOW, "a")
    engine.accept(0, 30, "a", NOW)
    engine.take_changes()
    engine.start_at(7)
    assert (engine.head, engine.indexed_to) == (7, 7)
    engine.index_plain(7, 99, None, NOW)
    assert engine.acquire(0, 99, 3, NOW, "b") == [AcquiredRange(7, 9, 1)]
    loaded = again(engine)
    assert loaded.next_available(NOW) == 7


def test_records_that_turn_out_to_be_none_are_done() -> None:
    engine = shared()
    engine.acquire(0, 1, 2, NOW, "a")
    engine.archive(1, 3)
    assert engine.acquire(0, 5, 9, NOW, "b") == [AcquiredRange(4, 5, 1)]
    engine.accept(0, 0, "a", NOW)
    assert engine.head == 4


def test_a_thousand_million_records_cost_nothing_to_speak_of() -> None:
    engine = ShareEngine(3, 2000, LOCK_MS)
    engine.start_at(5_000_000_000)
    engine.index_plain(5_000_000_000, 5_999_999_999, None, NOW)
    assert engine.acquire(5_500_000_000, 5_999_999_999, 500, NOW, "a") == [
        AcquiredRange(5_500_000_000, 5_500_000_499, 1)
    ]
    engine.accept(5_500_000_000, 5_500_000_499, "a", NOW)
    assert sum(len(value or b"") for _, value in engine.take_changes()) < 2000
