"""The parts of what consumers tell each other that the broker looks into.

    subscription: version 2 bytes, topics, user data; from version 1 on, the partitions that the member reads
    assignment:   version 2 bytes, the partitions that the member is to read, user data

A topic is a length of 2 bytes and a name; user data a length of 4 bytes (-1 for none) and bytes; partitions are a count
of 4 bytes, and for each topic its name, a count of 4 bytes, and 4 bytes for each. All else passes through unread.
"""

from struct import Struct
from struct import error as StructError

CONSUMER = "consumer"
"""The protocol type of groups whose members are consumers; others (Kafka Connect, say) write what they like."""

Place = tuple[str, int]
"""Topic and partition."""

_INT16 = Struct(">h")
_INT32 = Struct(">i")


def subscribed_topics(subscription: bytes) -> frozenset[str] | None:
    """The topics a consumer subscribes to; None if these bytes are not a consumer's subscription."""
    reader = _Reader(subscription)
    try:
        return reader.topics() if reader.int16() >= 0 else None
    except (StructError, UnicodeDecodeError):
        return None


def gives_up(subscription: bytes, assignment: bytes) -> bool:
    """Whether a consumer read something when it joined that it is not assigned any more.

    In a cooperative group it joins again when it has given that up, and only then somebody else gets it.
    """
    said, told = _Reader(subscription), _Reader(assignment)
    try:
        if said.int16() < 1:
            return False
        said.topics()
        said.skip_bytes()
        told.int16()
        return not said.places() <= told.places()
    except (StructError, UnicodeDecodeError):
        return False


class _Reader:
    """Raises `StructError` where the bytes end too early, and before anything is taken from a length that lies."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def int16(self) -> int:
        return self._number(_INT16)

    def topics(self) -> frozenset[str]:
        return frozenset(self._name() for _ in range(self._count()))

    def skip_bytes(self) -> None:
        self._take(max(0, self._number(_INT32)))

    def places(self) -> frozenset[Place]:
        found: set[Place] = set()
        for _ in range(self._count()):
            topic = self._name()
            found.update((topic, self._number(_INT32)) for _ in range(self._count()))
        return frozenset(found)

    def _count(self) -> int:
        count = self._number(_INT32)
        if not 0 <= count <= len(self._data):
            raise StructError(f"a count of {count} in {len(self._data)} bytes")
        return count

    def _name(self) -> str:
        return str(self._take(self.int16()), "utf-8")

    def _number(self, kind: Struct) -> int:
        (number,) = kind.unpack_from(self._data, self._at)
        self._at += kind.size
        return int(number)

    def _take(self, length: int) -> bytes:
        if not 0 <= length <= len(self._data) - self._at:
            raise StructError(f"a length of {length} with {len(self._data) - self._at} bytes left")
        self._at += length
        return self._data[self._at - length : self._at]
