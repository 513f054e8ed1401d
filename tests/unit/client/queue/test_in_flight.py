from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from headrace.client.queue.in_flight import InFlightMessage, InFlightMessages


def _hand(concurrency: int = 2) -> InFlightMessages[str]:
    return InFlightMessages(concurrency, lease_s=10, now_s=0)


def _started(hand: InFlightMessages[str]) -> InFlightMessage[str]:
    held = hand.start()
    assert held is not None
    return held


def test_receives_no_more_than_it_can_handle_at_first() -> None:
    hand = _hand(concurrency=3)
    assert hand.room(0) == 3
    hand.put([("a", None), ("b", None)], 0)
    assert hand.room(0) == 1


def test_receives_ahead_when_messages_are_quick() -> None:
    hand = _hand(concurrency=1)
    for number in range(1000):
        hand.put([(str(number), None)], 0)
        hand.done(_started(hand))
    assert 50 < hand.room(1) <= 1001


def test_stops_receiving_ahead_when_messages_are_slow() -> None:
    hand = _hand(concurrency=1)
    for number in range(1000):
        hand.put([(str(number), None)], 0)
        hand.done(_started(hand))
    hand.room(1)
    for second in range(2, 20):
        hand.room(second)
    assert hand.room(20) == 1


def test_a_group_is_handled_one_after_the_other() -> None:
    hand = _hand(concurrency=4)
    hand.put([("a1", "a"), ("a2", "a"), ("b1", "b"), ("a3", "a")], 0)
    first, other = _started(hand), _started(hand)
    assert (first.message, other.message) == ("a1", "b1")
    assert hand.start() is None
    hand.done(first)
    assert _started(hand).message == "a2"
    assert hand.start() is None


def test_what_is_behind_a_failure_in_its_group_is_given_back() -> None:
    hand = _hand()
    hand.put([("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b")], 0)
    assert hand.failed(_started(hand)) == ["a2", "a3"]
    assert _started(hand).message == "b1"
    assert len(hand) == 1
    hand.put([("a1 again", "a")], 0)
    assert _started(hand).message == "a1 again"


def test_leases_are_extended_when_half_of_their_time_is_over_also_of_what_waits() -> None:
    hand = _hand(concurrency=1)
    hand.put([("a", None), ("b", None)], 0)
    _started(hand)
    assert hand.to_renew(4.9) == []
    assert {each.message for each in hand.to_renew(5)} == {"a", "b"}
    assert hand.to_renew(9.9) == []
    assert len(hand.to_renew(10)) == 2


def test_what_lost_its_lease_before_it_was_begun_is_not_begun() -> None:
    hand = _hand()
    hand.put([("a1", "a"), ("a2", "a"), ("b", None)], 0)
    for each in hand.to_renew(5):
        if each.message == "a1":
            hand.lost(each)
    assert {_started(hand).message, _started(hand).message} == {"a2", "b"}
    assert len(hand) == 2


def test_on_stopping_everything_that_was_not_begun_is_given_back() -> None:
    hand = _hand()
    hand.put([("a1", "a"), ("a2", "a"), ("b", None), ("c", None)], 0)
    running = _started(hand)
    assert hand.give_up() == ["b", "c", "a2"]
    assert len(hand) == 1
    hand.done(running)
    assert len(hand) == 0
    assert hand.start() is None


@given(st.lists(st.tuples(st.sampled_from("sfxrg"), st.sampled_from(["a", "b", None]))))
def test_groups_never_interleave_and_nothing_is_forgotten(steps: list[tuple[str, str | None]]) -> None:
    running: list[InFlightMessage[int]] = []
    sent: dict[str | None, int] = defaultdict(int)
    begun: dict[str, int] = {}
    gone = put = 0
    numbers: InFlightMessages[int] = InFlightMessages(3, 10, 0)
    for step, group in steps:
        if step in "sg":
            sent[group] += 1
            put += 1
            numbers.put([(sent[group], group)], 0)
        elif step == "r":
            if (held := numbers.start()) is not None:
                if held.group is not None:
                    assert all(each.group != held.group for each in running)
                    assert held.message > begun.get(held.group, 0)
                    begun[held.group] = held.message
                running.append(held)
        elif running:
            held = running.pop()
            if step == "f":
                gone += 1 + len(numbers.failed(held))
            else:
                gone += 1
                numbers.done(held)
        assert len(numbers) == put - gone
        assert numbers.running == len(running)
    assert len(numbers.give_up()) == put - gone - len(running)
    assert numbers.start() is None
