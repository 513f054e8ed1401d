"""The subscriptions and assignments of consumers of the classic protocol, as far as the broker decodes them.

    subscription  version 2 bytes, [topic], user data; from version 1 on [topic, [partition]] that the member owns, from
                  version 2 on the generation in which it got them, from version 3 on its rack
    assignment    version 2 bytes, [topic, [partition]], user data

Counts and the length of user data are 4 bytes, lengths of strings 2. Fields that a newer version appends are
skipped. A classic group uses only the topics, and whether a member has partitions to revoke; the rest is for groups
with members of both protocols.
"""

from collections.abc import Iterable
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

CONSUMER = "consumer"
"""The protocol type of groups whose members are consumers; others, such as Kafka Connect, have their own formats."""

_SHORT, _INT = Struct(">h"), Struct(">i")
_OWNED_FROM, _GENERATION_FROM, _RACK_FROM = 1, 2, 3
_NO_USER_DATA = -1

TopicPartitions = tuple[str, tuple[int, ...]]


class MemberSubscription(NamedTuple):
    version: int
    topics: frozenset[str]
    owned: tuple[TopicPartitions, ...] = ()
    """The partitions that the member owns while it joins: none for an eager one, which revokes all before."""
    rack_id: str | None = None


def subscribed_topics(subscription: bytes) -> frozenset[str] | None:
    """Return the topics of a consumer's subscription; None if it cannot be decoded."""
    try:
        return _SubscriptionReader(subscription).head()[1]
    except (ValueError, StructError):
        return None


def read_subscription(data: bytes) -> MemberSubscription | None:
    """Decode a consumer's subscription; None if it cannot be decoded."""
    reader = _SubscriptionReader(data)
    try:
        version, topics = reader.head()
        reader.skip_user_data()
        owned = reader.topic_partitions() if version >= _OWNED_FROM else ()
        if version >= _GENERATION_FROM:
            reader.number()
        return MemberSubscription(version, topics, owned, reader.nullable_string() if version >= _RACK_FROM else None)
    except (ValueError, StructError):
        return None


def read_assignment(data: bytes) -> tuple[TopicPartitions, ...] | None:
    """Decode an assignment, which is empty for no bytes; None if it cannot be decoded."""
    if not data:
        return ()
    reader = _SubscriptionReader(data)
    try:
        reader.version()
        return reader.topic_partitions()
    except (ValueError, StructError):
        return None


def gives_up(subscription: bytes, assignment: bytes) -> bool:
    """Whether a consumer owned partitions in its join that are not in its assignment, so that it must revoke them.

    In a cooperative group it rejoins after the revocation, and only then another member gets them.
    """
    subscribed, assigned = read_subscription(subscription), read_assignment(assignment)
    return subscribed is not None and assigned is not None and not _pairs(subscribed.owned) <= _pairs(assigned)


def _pairs(named: Iterable[TopicPartitions]) -> set[tuple[str, int]]:
    return {(topic, partition) for topic, partitions in named for partition in partitions}


def write_assignment(version: int, assigned: Iterable[TopicPartitions]) -> bytes:
    assigned = tuple(assigned)
    parts = [_SHORT.pack(version), _INT.pack(len(assigned))]
    for topic, partitions in assigned:
        name = topic.encode()
        parts += [_SHORT.pack(len(name)), name, _INT.pack(len(partitions))]
        parts += map(_INT.pack, partitions)
    parts.append(_INT.pack(_NO_USER_DATA))
    return b"".join(parts)


class _SubscriptionReader:
    """Decodes fields. Raises `ValueError` or `struct.error` if the bytes are not valid."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def head(self) -> tuple[int, frozenset[str]]:
        return self.version(), frozenset(self.string() for _ in range(self._count()))

    def version(self) -> int:
        version = self._short()
        if version < 0:
            raise ValueError("a negative version")
        return version

    def skip_user_data(self) -> None:
        self._bytes(max(0, self.number()))

    def topic_partitions(self) -> tuple[TopicPartitions, ...]:
        return tuple((self.string(), tuple(self.number() for _ in range(self._count()))) for _ in range(self._count()))

    def string(self) -> str:
        return self._bytes(self._short()).decode()

    def nullable_string(self) -> str | None:
        length = self._short()
        return None if length < 0 else self._bytes(length).decode()

    def number(self) -> int:
        (value,) = _INT.unpack_from(self._data, self._at)
        self._at += _INT.size
        return value  # type: ignore[no-any-return]

    def _short(self) -> int:
        (value,) = _SHORT.unpack_from(self._data, self._at)
        self._at += _SHORT.size
        return value  # type: ignore[no-any-return]

    def _count(self) -> int:
        count = self.number()
        if not 0 <= count <= len(self._data):
            raise ValueError("more than there are bytes")
        return count

    def _bytes(self, length: int) -> bytes:
        end = self._at + length
        if length < 0 or end > len(self._data):
            raise ValueError("more than there are bytes")
        found = self._data[self._at : end]
        self._at = end
        return found
