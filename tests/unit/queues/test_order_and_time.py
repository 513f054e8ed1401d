from collections import Counter

from tests.unit.queues.engines import SECOND, Driven

from headrace.config.queue import QueueSettings
from headrace.queues.ages import Ages
from headrace.queues.schedule import STEP_MS, Schedule

DAY = 24 * 60 * 60 * SECOND
AGEING = QueueSettings(type="standard", priority_ageing_ms=10 * SECOND)


def test_higher_levels_come_first_and_within_one_the_oldest() -> None:
    queue = Driven()
    for priority in (4, 0, 9, 4, 9):
        queue.send(priority=priority)
    queue.restart()
    assert queue.receive(10) == [2, 4, 0, 3, 1]


def test_a_message_keeps_its_level_when_it_comes_back() -> None:
    queue = Driven()
    queue.send()
    queue.send(priority=7, due_ms=queue.now_ms + SECOND)
    queue.wait(2 * SECOND)
    for _ in range(3):
        assert queue.receive(1) == [1]
        queue.wait(31 * SECOND)
        queue.restart()


def test_without_ageing_a_level_gives_nothing_while_a_higher_one_has_anything() -> None:
    queue = Driven()
    queue.send(priority=0)
    for _ in range(100):
        queue.send(priority=1)
        queue.wait(SECOND)
        (offset,) = queue.receive(1)
        assert offset != 0
        queue.acknowledge(offset)


def test_with_ageing_nothing_starves() -> None:
    queue = Driven(AGEING)
    queue.send(priority=0)
    received = []
    while 0 not in received:
        queue.send(2, priority=9)
        queue.wait(SECOND)
        received += queue.receive(1)
        queue.acknowledge(received[-1])
    # After 90 seconds it counts as much as the most urgent, and it is the oldest.
    assert 89 <= len(received) <= 93


def test_ageing_raises_one_level_at_a_time() -> None:
    queue = Driven(AGEING)
    queue.send(priority=3)
    queue.wait(11 * SECOND)
    queue.send(priority=4)
    queue.send(priority=5)
    assert queue.receive(3) == [2, 0, 1]


def test_ageing_goes_on_after_a_restart() -> None:
    queue = Driven(AGEING)
    queue.send(5000)
    queue.send(priority=3)
    queue.wait(30 * SECOND)
    queue.send(priority=5)
    queue.restart()
    assert queue.receive(1) == [0]


def test_a_delayed_message_is_never_early_and_hardly_late() -> None:
    queue = Driven()
    queue.send(due_ms=queue.now_ms + 3 * DAY + 1)
    queue.restart()
    queue.wait(3 * DAY)
    assert queue.receive() == []
    queue.wait(1 + STEP_MS)
    assert queue.receive() == [0]


def test_the_queues_delay_is_for_messages_that_say_nothing() -> None:
    queue = Driven(QueueSettings(type="standard", delay_ms=5 * SECOND))
    queue.send(2)
    queue.send(due_ms=0)
    assert queue.receive(10) == [2]
    assert queue.counts() == (0, 1, 2)
    queue.wait(5 * SECOND + STEP_MS)
    assert queue.receive(10) == [0, 1]


def test_a_message_goes_when_its_time_to_live_is_over_but_not_from_under_its_receiver() -> None:
    queue = Driven()
    queue.send(2, expires_ms=queue.now_ms + SECOND)
    queue.receive(1, 10 * SECOND)
    queue.wait(SECOND + STEP_MS)
    assert queue.counts() == (0, 1, 0)
    queue.extend(0, 20 * SECOND)
    queue.restart()
    queue.wait(21 * SECOND)
    assert queue.counts() == (0, 0, 0)


def test_what_nobody_deleted_goes_with_retention_wherever_it_is() -> None:
    queue = Driven(QueueSettings(type="standard", retention_ms=60 * SECOND))
    queue.send(3)
    queue.send(due_ms=queue.now_ms + DAY)
    queue.receive(1, 3600 * SECOND)
    queue.wait(30 * SECOND)
    queue.send(1)
    queue.restart()
    queue.wait(29 * SECOND)
    assert queue.counts() == (3, 1, 1)
    queue.wait(2 * SECOND)
    assert queue.counts() == (1, 0, 0)
    assert queue.receive(10) == [4]
    queue.wait(3600 * SECOND)
    queue.keep()
    assert queue.engine.log_start == 5


def test_a_record_with_a_time_to_come_does_not_keep_others_from_going() -> None:
    queue = Driven(QueueSettings(type="standard", retention_ms=60 * SECOND))
    queue.engine.index_plain(0, 0, queue.now_ms + 100 * DAY, queue.now_ms)
    queue.wait(62 * SECOND)
    assert queue.counts() == (0, 0, 0)


def test_messages_that_were_sent_nearly_together_go_together_and_none_too_early() -> None:
    ages = Ages(1000)
    for offset in range(20):
        ages.add(offset, 300 * offset)
    for time in range(0, 7000, 100):
        last = ages.sent_by(time)
        assert last is None or 300 * last <= time
        assert (-1 if last is None else last) >= min(19, (time - 1000) // 300)
    assert all(300 * offset <= ages.sent_ms(offset) < 300 * offset + 1000 for offset in range(20))


def test_a_schedule_gives_each_once_in_time_however_many_come_due_together() -> None:
    schedule = Schedule()
    start = 1_000_000 * STEP_MS
    schedule.due(start)
    for offset in range(50_000):
        schedule.add(offset, start + 10_000_000 + offset % 1000)
    schedule.add_range(50_000, 60_000, start + 500)
    schedule.add_range(60_001, 70_000, start + 10_000_500)
    times: Counter[int] = Counter()
    now = start
    while (soon := schedule.next_ms) is not None:
        now = max(now, soon)
        for offset in schedule.due(now) or ():
            times[offset] += 1
            due = start + (500 if 50_000 <= offset <= 60_000 else 10_000_000)
            assert due <= now
    assert now <= start + 10_001_000 + STEP_MS
    assert times == Counter(range(70_001))
