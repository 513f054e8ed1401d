from hypothesis import given
from hypothesis import strategies as st

from headrace.client.backoff import Backoff
from headrace.client.errors import Reject
from headrace.client.failures import describe
from headrace.client.message import Message
from headrace.client.outgoing import Outgoing, encode
from headrace.client.retry import MoveToTopic, RetryInPlace, RetryPolicy, StopHandling, Verdict, judge

BACKOFF = Backoff(initial_s=1, factor=2, cap_s=8, attempts=3, jitter=0)
ORDER = Message("orders", 2, 40, b"tea", b"alice", (("h", b"1"),), 1000)


def verdict(policy: RetryPolicy, message: Message, failures: int, error: Exception | None = None) -> Verdict:
    return judge(policy, message, error or ValueError("bad\n tea"), failures, now_ms=10_000, chance=0)


def stored(outgoing: Outgoing, offset: int = 0) -> Message:
    """The copy as it is read from the topic it went to."""
    from datetime import UTC, datetime

    record = encode(outgoing, default_source="/", new_id=lambda: "x", now=datetime.now(UTC))
    return Message(record.topic, 0, offset, record.value, record.key, tuple(record.headers), 99_000)


def test_holding_waits_longer_each_time_and_then_dead_letters() -> None:
    policy = RetryPolicy("billing", BACKOFF, "hold", dead_letter="orders.dlq")
    assert verdict(policy, ORDER, 0) == RetryInPlace(1000)
    assert verdict(policy, ORDER, 1) == RetryInPlace(2000)
    dead = verdict(policy, ORDER, 2)
    assert isinstance(dead, MoveToTopic)
    assert dead.is_dead
    copy = stored(dead.copy)
    assert (copy.topic, copy.payload, copy.key, copy.header("h")) == ("orders.dlq", b"tea", b"alice", "1")
    assert copy.header("headrace-reason") == "ValueError: bad tea"
    assert copy.header("headrace-attempts") == "3"
    assert copy.header("headrace-group") == "billing"
    assert copy.origin == ("orders", 2, 40)
    assert copy.header("headrace-original-timestamp") == "1000"
    assert copy.id == ORDER.id


def test_setting_aside_counts_over_the_rounds_and_keeps_the_origin() -> None:
    policy = RetryPolicy("billing", BACKOFF, "retry-topic", "orders.billing.retry", "orders.dlq")
    message = ORDER
    waits = []
    for offset in range(2):
        moved = verdict(policy, message, 0)
        assert isinstance(moved, MoveToTopic)
        assert not moved.is_dead
        message = stored(moved.copy, offset)
        assert message.topic == "orders.billing.retry"
        assert message.origin == ("orders", 2, 40)
        waits.append(message.not_before_ms - 10_000)
    assert waits == [1000, 2000]
    dead = verdict(policy, message, 0)
    assert isinstance(dead, MoveToTopic)
    assert dead.is_dead
    letter = stored(dead.copy)
    assert letter.failed_attempts == 3
    assert letter.not_before_ms == 0
    assert letter.header("headrace-original-timestamp") == "1000"
    names = [name for name, _ in letter.headers]
    assert len(names) == len(set(names))


def test_rejecting_skips_the_tries() -> None:
    dead = verdict(RetryPolicy("g", Backoff(attempts=None), dead_letter="d"), ORDER, 0, Reject("malformed"))
    assert isinstance(dead, MoveToTopic)
    assert dead.is_dead


def test_without_a_dead_letter_topic_it_gives_up_with_the_place_and_the_reason() -> None:
    given_up = verdict(RetryPolicy("g", BACKOFF), ORDER, 2)
    assert isinstance(given_up, StopHandling)
    assert "orders/2/40" in given_up.reason
    assert "bad tea" in given_up.reason


@given(st.integers(0, 50), st.sampled_from(["hold", "retry-topic"]), st.integers(1, 20))
def test_no_message_is_ever_dropped(failures: int, mode: str, attempts: int) -> None:
    policy = RetryPolicy("g", Backoff(attempts=attempts), mode, "r", "d")  # type: ignore[arg-type]
    found = verdict(policy, ORDER, failures)
    if failures + 1 >= attempts:
        assert isinstance(found, MoveToTopic)
        assert found.is_dead
    else:
        assert isinstance(found, RetryInPlace) if mode == "hold" else isinstance(found, MoveToTopic)


def test_reasons_are_one_line_and_bounded() -> None:
    assert describe(KeyError()) == "KeyError"
    assert len(describe(ValueError("x" * 10_000))) <= 2000
    assert "\n" not in describe(ValueError("a\nb"))
