"""Stalled groups, waiting messages, dead letters and counted events, over time."""

from headrace.monitor.health.activity import EventWindow, GroupLag, MeanWindow, QueueBook, QueueLook, StallBook
from headrace.monitor.health.facts import GroupFact, QueueFact


def lag(messages: int, stalled_s: float, members: int = 1) -> GroupLag:
    return GroupLag("g", members, messages, None, stalled_s)


def look(book: StallBook, group: GroupLag, now_s: float) -> GroupFact | None:
    found = book.look(group, now_s)
    book.finish()
    return found


def test_growth_counts_from_the_time_at_which_the_group_stopped_to_move():
    book = StallBook()
    assert look(book, lag(10, 0.0), 100.0) is None
    assert look(book, lag(25, 5.0), 105.0) == GroupFact("g", 1, 25, 15, 5.0)
    # It has moved a second ago, and is still behind.
    assert look(book, lag(30, 1.0), 120.0) is None
    assert look(book, lag(31, 11.4), 130.5) == GroupFact("g", 1, 31, 1, 11.5)


def test_a_group_that_has_caught_up_is_forgotten():
    book = StallBook()
    look(book, lag(10, 50.0), 100.0)
    assert look(book, lag(0, 0.0), 105.0) is None
    assert look(book, lag(7, 0.0), 110.0) is None
    assert look(book, lag(8, 5.0), 115.0) == GroupFact("g", 1, 8, 1, 5.0)
    book.finish()
    assert look(book, lag(9, 10.0), 120.0) is None, "it was not there at the last look"


def counts(available: int, *, stored: int = 0, received: float | None = None, is_dead: bool = False) -> QueueLook:
    return QueueLook("q", available, stored or available, 400.0, received, is_dead)


def test_a_queue_waits_from_the_first_look_at_waiting_messages():
    book = QueueBook()
    assert book.update([counts(0)], 0.0) == []
    assert book.update([counts(3)], 5.0) == [QueueFact("q", 3, 400.0, 0.0)]
    assert book.update([counts(4)], 65.0) == [QueueFact("q", 4, 400.0, 60.0)]
    assert book.update([counts(4, received=2.0)], 70.0) == [QueueFact("q", 4, 400.0, 2.0)]
    assert book.update([counts(0)], 75.0) == []


def test_dead_letters_count_for_a_while_and_need_no_consumer():
    book = QueueBook()
    assert book.update([counts(5, is_dead=True)], 0.0) == [], "those that were there before"
    assert book.update([counts(7, is_dead=True)], 5.0) == [QueueFact("q", 0, 400.0, 5.0, 2)]
    # Reading some is no arrival.
    assert [fact.dead_lettered for fact in book.update([counts(1, is_dead=True)], 10.0)] == [2]
    assert [fact.dead_lettered for fact in book.update([counts(2, is_dead=True)], 15.0)] == [3]
    assert [fact.dead_lettered for fact in book.update([counts(2, is_dead=True)], 306.0)] == [1]
    assert book.update([counts(2, is_dead=True)], 316.0) == []


def test_events_of_the_last_minute_are_counted():
    window = EventWindow()
    for second in range(100):
        window.add(float(second), 10)
    assert 600 <= window.count(99.0) <= 650
    assert window.count(130.0) < 400
    assert window.count(200.0) == 0


def test_the_mean_is_that_of_the_last_minute():
    window = MeanWindow()
    assert window.mean(0.0, 10, 100.0) is None
    assert window.mean(30.0, 20, 101.0) == 0.1
    assert window.mean(60.0, 20, 101.0) == 0.1
    assert window.mean(89.0, 22, 103.0) == 0.25
    assert window.mean(95.0, 22, 103.0) == 1.0, "only what was measured since the sample at 30 s"
    assert window.mean(200.0, 22, 103.0) is None
