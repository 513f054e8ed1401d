"""Queues with a schedule on a real broker: one message for each due time, over restarts and changes of the rule."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.model.errors import InvalidSettings
from headrace.model.queue_wire import Received
from headrace.model.queued import DUE_TIME
from headrace.queues.api import QueueEdit
from headrace.queues.host.codec import periodic_record
from headrace.queues.host.periodic import MOST_MISSED
from headrace.runtime.clock import SystemClock
from tests.unit.queues.brokers import QueueBroker
from tests.waiting import PATIENCE_S, until

HOUR_MS = 3_600_000


class ShiftedClock(SystemClock):
    """A wall clock that was at half past when it began, and goes some hours forward."""

    def __init__(self) -> None:
        self.shift_ms = HOUR_MS // 2 - super().wall_ms() % HOUR_MS

    def wall_ms(self) -> int:
        return super().wall_ms() + self.shift_ms


@pytest.fixture
def shifted(tmp_path: Path) -> Iterator[QueueBroker]:
    made = QueueBroker(tmp_path / "data", ShiftedClock())
    yield made
    made.close()


def due_of(message: Received) -> int:
    return int(dict(message.headers)[DUE_TIME] or 0)


def received_dues(broker: QueueBroker, name: str, most: int = 1000, *, wait_ms: int = 0) -> list[int]:
    messages = broker.receive(name, most, wait_ms=wait_ms)
    if messages:
        broker.acknowledge(name, *messages)
    return [due_of(each) for each in messages]


def sent_dues(broker: QueueBroker, name: str, count: int) -> list[int]:
    found: list[int] = []

    def is_enough() -> bool:
        found.extend(received_dues(broker, name, wait_ms=1000))
        return len(found) >= count

    until(is_enough, lambda: f"{count} due times, beside {found}")
    return found


def pass_hours(broker: QueueBroker, hours: int) -> None:
    """Let the broker be down for so long, when it has persisted since when the schedules are in force."""
    for each in broker.queues.hosted():
        broker.run(each.counts())
        broker.run(each.host.persisted())
    broker.stop()
    assert isinstance(broker._clock, ShiftedClock)
    broker._clock.shift_ms += hours * HOUR_MS
    broker.start()


def test_each_due_time_has_one_message(own: QueueBroker) -> None:
    name = own.create(type="fifo", schedule="every 100 ms", schedule_missed="all")
    dues = sent_dues(own, name, 3)
    for _ in range(3):
        own.restart()
        dues += sent_dues(own, name, 3)
    assert dues == list(range(dues[0], dues[-1] + 1, 100))
    assert (own.run(own.queues.counts(name)).last_due_at_ms or 0) >= dues[-1]


def test_a_copy_of_a_message_does_not_count(own: QueueBroker) -> None:
    name = own.create(type="fifo", schedule="every 1 day", schedule_missed="all")
    topic_id = own.services.partitions.get(name, 0).topic_id
    day_ms = 24 * HOUR_MS

    def append(due_ms: int) -> None:
        own.append(name, periodic_record(name, topic_id, due_ms, None, SystemClock().wall_ms()))

    for due_ms in (day_ms, day_ms, 2 * day_ms, day_ms, 2 * day_ms):
        append(due_ms)
    own.restart()
    append(2 * day_ms)
    assert received_dues(own, name, wait_ms=2000) == [day_ms, 2 * day_ms]
    own.restart()
    append(2 * day_ms)
    append(3 * day_ms)
    assert received_dues(own, name, wait_ms=2000) == [3 * day_ms]


@pytest.mark.parametrize(("missed", "hours", "expected"), [("skip", 5, 0), ("once", 5, 1), ("all", 5, 5)])
def test_due_times_that_no_broker_saw(shifted: QueueBroker, missed: str, hours: int, expected: int) -> None:
    settings = {"schedule": "cron 0 * * * *", "schedule_timezone": "Europe/Berlin", "schedule_missed": missed}
    name = shifted.create(**settings)
    now_ms = shifted.queues.hosted()[-1].host.now_ms()
    pass_hours(shifted, hours)
    last_ms = (now_ms + hours * HOUR_MS) // HOUR_MS * HOUR_MS
    dues = sent_dues(shifted, name, expected) if expected else received_dues(shifted, name, wait_ms=200)
    assert dues == [last_ms - HOUR_MS * number for number in reversed(range(expected))]
    pass_hours(shifted, 0)
    assert received_dues(shifted, name, wait_ms=100) == []


def test_no_more_than_a_thousand_missed_ones_are_made_up_for(shifted: QueueBroker) -> None:
    name = shifted.create(schedule="every 1 second", schedule_missed="all")
    pass_hours(shifted, 24)

    async def sent() -> int:
        async with asyncio.timeout(PATIENCE_S):
            while (found := (await shifted.queues.counts(name)).available) < MOST_MISSED:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return found

    assert shifted.run(sent()) < MOST_MISSED + 600


@pytest.mark.parametrize("policy", ["block", "refuse"])
def test_missed_ones_that_are_more_than_the_backlog_may_have(shifted: QueueBroker, policy: str) -> None:
    bound = {"max_backlog_messages": "2", "max_backlog_policy": policy}
    name = shifted.create(schedule="every 1 hour", schedule_missed="all", **bound)
    pass_hours(shifted, 5)
    dues = sent_dues(shifted, name, 5)
    assert dues == list(range(dues[0], dues[0] + 5 * HOUR_MS, HOUR_MS))


def test_runs_that_nobody_began_in_time_are_dropped(own: QueueBroker) -> None:
    name = own.create(schedule="every 100 ms", schedule_missed="once")

    def last_due_ms() -> int:
        return own.run(own.queues.counts(name)).last_due_at_ms or 0

    start_ms = last_due_ms()
    until(lambda: last_due_ms() >= start_ms + 500)
    assert len(own.receive(name, 10, wait_ms=1000)) == 1


def test_a_changed_rule_has_no_due_times_in_the_past(shifted: QueueBroker) -> None:
    name = shifted.create(schedule="every 366 days", schedule_missed="all")
    pass_hours(shifted, 48)
    received_dues(shifted, name)
    shifted.run(shifted.queues.alter(name, QueueEdit({"schedule": "every 1 hour"})))
    began_ms = shifted.queues.hosted()[-1].host.now_ms()
    assert received_dues(shifted, name, wait_ms=200) == []
    pass_hours(shifted, 3)
    dues = sent_dues(shifted, name, 3)
    assert len(dues) == 3
    assert dues[0] > began_ms - 1000
    shifted.run(shifted.queues.alter(name, QueueEdit({"schedule": None, "schedule.missed": None})))
    pass_hours(shifted, 3)
    assert received_dues(shifted, name, wait_ms=200) == []


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"schedule": "every fortnight"}, "not a period"),
        ({"schedule": "every 10 ms"}, "from 100 ms"),
        ({"schedule": "cron 61 * * * *"}, "not a cron expression, bad minute"),
        ({"schedule": "cron 0 6 * * *", "schedule_timezone": "Mars/Base"}, "not a time zone"),
        ({"schedule": "daily"}, "not a schedule"),
        ({"schedule_missed": "all"}, "set queue.schedule"),
    ],
)
def test_rules_that_are_refused(broker: QueueBroker, settings: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidSettings, match=words):
        broker.create(**settings)
