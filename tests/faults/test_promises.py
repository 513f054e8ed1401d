"""The checker of the copies is checked: a loss or a repetition that was planted is found, and only where it is one."""

from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from tests.faults.copying import PARTITIONS, TARGET, create_topics, read_numbers
from tests.faults.promises import Delivery, Outcome, check, compare
from tests.interop.subject import Subject

ALL: tuple[Delivery, ...] = ("at-most-once", "at-least-once", "exactly-once")
LOST = [0, 1, 3, 4]
REPEATED = [0, 1, 2, 3, 4, 2, 2]
STRANGE = [0, 1, 2, 3, 4, 5]


def broken_by(found: list[int], most_lost: int = 1) -> set[Delivery]:
    """Whose promises a copy of five numbers breaks."""
    broken: set[Delivery] = set()
    for delivery in ALL:
        try:
            check(delivery, compare(5, found), most_lost=most_lost)
        except AssertionError:
            broken.add(delivery)
    return broken


def test_what_is_counted() -> None:
    assert compare(5, [4, 3, 2, 1, 0]) == Outcome(5, lost=0, repeated=0, strange=0)
    assert compare(5, LOST) == Outcome(5, lost=1, repeated=0, strange=0)
    assert compare(5, REPEATED) == Outcome(5, lost=0, repeated=2, strange=0)
    assert compare(5, STRANGE) == Outcome(5, lost=0, repeated=0, strange=1)
    assert compare(5, [1, 1, 7, -1]) == Outcome(5, lost=4, repeated=1, strange=2)


def test_each_promise_is_broken_by_what_it_rules_out_alone() -> None:
    assert broken_by([0, 1, 2, 3, 4]) == set()
    assert broken_by(LOST) == {"at-least-once", "exactly-once"}
    assert broken_by(LOST, most_lost=0) == set(ALL)
    assert broken_by(REPEATED) == {"at-most-once", "exactly-once"}
    assert broken_by(STRANGE) == set(ALL)


def test_one_of_each_is_found_in_a_topic(own_broker: Callable[..., Subject]) -> None:
    """Among 20,000 in a real topic, read as the copies are."""
    count, broker = 20_000, own_broker()
    create_topics(broker)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20})
    for number in [*range(777), *range(778, count), 778]:
        producer.produce(TARGET, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(60) == 0
    outcome = compare(count, read_numbers(broker, "read_committed"))
    assert outcome == Outcome(count, lost=1, repeated=1, strange=0)
    for delivery, what in zip(ALL, ("again", "missing", "again"), strict=True):
        with pytest.raises(AssertionError, match=f"1 of 20000 (are|were copied) {what}"):
            check(delivery, outcome, most_lost=1)
