"""An engine whose backlog has a bound: which messages are dropped, and that they never come back."""

import pytest

from headrace.config.queue import QueueSettings
from tests.unit.queues.engines import SECOND, Driven

DROPS = QueueSettings(type="standard", max_backlog_messages=3, max_backlog_policy="drop-oldest")


def _bounded(driven: Driven, most: int = 3) -> list[int]:
    """What is left after the oldest were dropped."""
    driven.engine.drop_beyond(most, driven.now_ms)
    return list(driven.engine.live(0))


def test_the_oldest_messages_are_dropped() -> None:
    driven = Driven(DROPS)
    driven.send(5)
    assert _bounded(driven) == [2, 3, 4]
    assert driven.engine.dropped == 2
    assert driven.counts() == (3, 0, 0)
    assert driven.receive(10) == [2, 3, 4]


def test_messages_in_flight_are_not_dropped_and_those_that_come_back_are() -> None:
    driven = Driven(DROPS)
    driven.send(3)
    assert driven.receive(2) == [0, 1]
    driven.send(2)
    assert _bounded(driven) == [0, 1, 4]
    driven.nack(0, delay_ms=SECOND)
    driven.send(1)
    assert _bounded(driven) == [1, 4, 5], "one that waits for its retry is not in flight"
    driven.wait(60 * SECOND)
    driven.send(1)
    assert _bounded(driven) == [4, 5, 6], "nor is one whose lease has ended"


def test_delayed_messages_are_dropped_when_they_were_due() -> None:
    driven = Driven(DROPS)
    driven.send(2, due_ms=driven.now_ms + SECOND)
    driven.send(3)
    assert _bounded(driven) == [0, 1, 4]
    driven.wait(2 * SECOND)
    driven.send(1)
    assert _bounded(driven) == [1, 4, 5]


def test_only_messages_that_cannot_be_dropped_exceed_the_bound() -> None:
    driven = Driven(DROPS)
    driven.send(5)
    driven.receive(5)
    driven.send(1)
    assert _bounded(driven) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("kept", [0, 1, None])
def test_a_dropped_message_never_comes_back(kept: int | None) -> None:
    """Whatever of the drop was persisted before a crash, it is decided again from the log."""
    driven = Driven(DROPS)
    driven.send(3)
    driven.keep()
    driven.send(4)
    assert _bounded(driven) == [4, 5, 6]
    driven.acknowledge(driven.receive(1)[0])
    driven.restart(kept)
    assert set(_bounded(driven)) <= {4, 5, 6}


def test_a_fifo_group_goes_on_without_its_dropped_messages() -> None:
    driven = Driven(QueueSettings(type="fifo"))
    driven.send(3, group=b"a")
    driven.send(1, group=b"b")
    assert _bounded(driven, 2) == [2, 3]
    assert sorted(driven.receive(10)) == [2, 3]


def test_what_is_too_old_is_dropped_by_itself() -> None:
    driven = Driven(QueueSettings(type="standard", max_backlog_age_ms=10 * SECOND, max_backlog_policy="drop-oldest"))
    driven.send(2)
    driven.wait(5 * SECOND)
    driven.send(1)
    driven.wait(6 * SECOND)
    assert list(driven.engine.live(0)) == [2]
    assert driven.engine.dropped == 2


def test_the_age_of_a_backlog_is_that_of_its_oldest_message_without_a_delay() -> None:
    driven = Driven()
    assert driven.engine.oldest_ms() is None
    driven.send(1, due_ms=driven.now_ms + 1000 * SECOND)
    assert driven.engine.oldest_ms() is None
    sent_ms = driven.now_ms
    driven.send(1)
    driven.wait(60 * SECOND)
    driven.send(1)
    assert driven.engine.oldest_ms() == sent_ms
    driven.acknowledge(driven.receive(1)[0])
    assert driven.engine.oldest_ms() == sent_ms + 60 * SECOND


@pytest.mark.parametrize("is_altered", [False, True])
def test_the_age_of_the_oldest_message_is_as_precise_as_its_bound_needs(is_altered: bool) -> None:
    """Also while many are sent one after the other, which share a mark where retention alone counts."""
    bounded = QueueSettings(type="standard", max_backlog_age_ms=SECOND, max_backlog_policy="refuse")
    driven = Driven(QueueSettings(type="standard") if is_altered else bounded)
    sent_ms = driven.now_ms
    driven.send(1)
    driven.engine.configure(bounded, driven.now_ms)
    for _ in range(20):
        driven.wait(SECOND // 10)
        driven.send(1)
    assert driven.engine.oldest_ms() in range(sent_ms, sent_ms + SECOND // 4)
