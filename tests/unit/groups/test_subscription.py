"""What the broker reads of the bytes that consumers exchange, and that no bytes are too strange for it."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.groups.subscription import (
    MemberSubscription,
    gives_up,
    read_assignment,
    read_subscription,
    subscribed_topics,
    write_assignment,
)

TOPICS = b"\x00\x00\x00\x02\x00\x01a\x00\x02bc"
NO_DATA, DATA = b"\xff\xff\xff\xff", b"\x00\x00\x00\x03xyz"
NOTHING = b"\x00\x00\x00\x00"
A0, A01 = (
    b"\x00\x00\x00\x01\x00\x01a" + numbers for numbers in (b"\0\0\0\x01\0\0\0\0", b"\0\0\0\x02\0\0\0\0\0\0\0\x01")
)
BOTH = b"\0\0\0\2\0\1a\0\1b"
OWNED = b"\0\0\0\1\0\1a\0\0\0\2\0\0\0\0\0\0\0\3"
GENERATION = b"\0\0\0\7"
RACK, NO_RACK = b"\0\1r", b"\xff\xff"
NAMES = frozenset("ab")
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


@pytest.mark.parametrize(
    ("data", "means"),
    [
        (b"\0\0" + BOTH + DATA, MemberSubscription(0, NAMES)),
        (b"\0\1" + BOTH + NO_DATA + OWNED, MemberSubscription(1, NAMES, (("a", (0, 3)),))),
        (b"\0\2" + BOTH + DATA + OWNED + GENERATION, MemberSubscription(2, NAMES, (("a", (0, 3)),))),
        (b"\0\3" + BOTH + DATA + OWNED + GENERATION + NO_RACK, MemberSubscription(3, NAMES, (("a", (0, 3)),))),
        (b"\0\3" + BOTH + DATA + OWNED + GENERATION + RACK, MemberSubscription(3, NAMES, (("a", (0, 3)),), "r")),
        (
            b"\0\4" + BOTH + DATA + OWNED + GENERATION + RACK + b"?",
            MemberSubscription(4, NAMES, (("a", (0, 3)),), "r"),
        ),
    ],
)
def test_a_subscription_is_read_in_every_version_and_never_in_part(data: bytes, means: MemberSubscription) -> None:
    assert read_subscription(data) == means
    assert subscribed_topics(data) == NAMES
    if means.version < 4:
        assert all(read_subscription(data[:length]) is None for length in range(len(data)))


@pytest.mark.parametrize(
    "data", [b"\xff\xff" + BOTH, b"\0\0\x7f\xff\xff\xff", b"\0\0\xff\xff\xff\xff", b"\0\0\0\0\0\1\0\1\xff"]
)
def test_other_bytes_are_no_subscription(data: bytes) -> None:
    assert read_subscription(data) is None
    assert subscribed_topics(data) is None


def test_an_assignment_is_read_as_it_was_written() -> None:
    assigned = (("a", (0, 3)), ("ü", ()))
    for version in (0, 3):
        written = write_assignment(version, assigned)
        assert read_assignment(written) == assigned
        # What clients that write them leave behind is passed over.
        assert read_assignment(written[:-4]) == assigned
        assert read_assignment(written[:10]) is None
    assert read_assignment(b"") == ()
