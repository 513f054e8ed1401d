"""What the broker reads of the bytes that consumers exchange, and that no bytes are too strange for it."""

from hypothesis import example, given
from hypothesis import strategies as st

from headrace.groups.subscription import gives_up, subscribed_topics

TOPICS = b"\x00\x00\x00\x02\x00\x01a\x00\x02bc"
NO_DATA, DATA = b"\xff\xff\xff\xff", b"\x00\x00\x00\x03xyz"
NOTHING = b"\x00\x00\x00\x00"
A0, A01 = (
    b"\x00\x00\x00\x01\x00\x01a" + numbers for numbers in (b"\0\0\0\x01\0\0\0\0", b"\0\0\0\x02\0\0\0\0\0\0\0\x01")
)
B0 = b"\x00\x00\x00\x01\x00\x02bc\0\0\0\x01\0\0\0\0"


def test_topics() -> None:
    assert subscribed_topics(b"\x00\x00" + TOPICS + NO_DATA) == {"a", "bc"}
    assert subscribed_topics(b"\x00\x03" + TOPICS + DATA + A0 + b"more") == {"a", "bc"}
    assert subscribed_topics(b"\x00\x00" + NOTHING) == set()
    assert subscribed_topics(b"\xff\xff" + TOPICS) is None
    assert subscribed_topics(b"\x00\x00" + TOPICS[:-1]) is None
    assert subscribed_topics(b"\x00\x00\x7f\xff\xff\xff\x00\x01a") is None


def test_what_was_read_and_is_not_assigned_any_more_is_given_up() -> None:
    for data in (NO_DATA, DATA):
        both, one, none = (b"\x00\x01" + TOPICS + data + owned for owned in (A01, A0, NOTHING))
        told_one, told_other, told_nothing = (b"\x00\x00" + places + NO_DATA for places in (A0, B0, NOTHING))
        assert gives_up(both, told_one)
        assert gives_up(one, told_other)
        assert gives_up(one, told_nothing)
        assert not gives_up(one, told_one)
        assert not gives_up(none, told_one)
        assert not gives_up(none, told_nothing)
    assert not gives_up(b"\x00\x00" + TOPICS + NO_DATA + A01, b"\x00\x00" + A0), "version 0 says nothing of it"


@given(st.binary(max_size=60), st.binary(max_size=60))
@example(b"\x00\x01" + TOPICS + NO_DATA + A01, b"")
@example(b"\x00\x01" + TOPICS + b"\x7f\xff\xff\xff", b"\x00\x00" + A0)
@example(b"\x00\x01" + TOPICS + NO_DATA + b"\x00\x00\x00\x01\xff\xff", b"\x00\x00" + A0)
def test_any_bytes_are_harmless(subscription: bytes, assignment: bytes) -> None:
    subscribed_topics(subscription)
    gives_up(subscription, assignment)
    gives_up(b"\x00\x01" + TOPICS + subscription, b"\x00\x00" + assignment)
