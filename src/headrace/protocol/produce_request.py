"""A hand-written decoder of Produce requests: records are views of the frame, not copies.

    flexible from 9:  transactional id (3), acks, timeout, [topic name ≤12 | topic id 13  [partition, records, tags],
                      tags], tags

Every length and count is checked against the bytes that are left before it is used, and there are at most
`MAX_ELEMENTS` topics and partitions: entries of a few bytes would be small on the wire and large in memory. A view is
valid until the frame is released; a caller that needs records for longer copies them.
"""

from struct import Struct
from struct import error as StructError
from typing import NamedTuple
from uuid import UUID

from headrace.model.errors import ProtocolError
from headrace.protocol.bounds import MAX_ELEMENTS
from headrace.protocol.codec import RequestHeader
from headrace.protocol.fast import PRODUCE_FLEXIBLE_FROM, PRODUCE_TOPIC_IDS_FROM, TopicKey
from headrace.runtime.varint import VarintTooLong, read_uvarint

_I16 = Struct(">h")
_I32 = Struct(">i")
_ACKS = Struct(">hi")
_PARTITION = Struct(">ii")
_UUID_SIZE = 16


class PartitionData(NamedTuple):
    partition: int
    records: memoryview | None


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[tuple[TopicKey, list[PartitionData]]]


def read_produce_request(frame: bytes | memoryview, header: RequestHeader) -> ProduceRequest:
    """Decode the request in `frame`; `ProtocolError` if it is malformed.

    Before version 3 the records are message sets, which callers only refuse.
    """
    try:
        return _RequestReader(frame, header.body_at).read(header.api_version)
    except (StructError, IndexError, UnicodeDecodeError, VarintTooLong) as error:
        raise ProtocolError(f"Produce v{header.api_version}: {error}") from error


class _RequestReader:
    __slots__ = ("_at", "_elements_left", "_end", "_view")

    def __init__(self, frame: bytes | memoryview, at: int) -> None:
        self._view = memoryview(frame)
        self._at = at
        self._elements_left = MAX_ELEMENTS
        self._end = len(frame)

    def read(self, version: int) -> ProduceRequest:
        if version >= PRODUCE_FLEXIBLE_FROM:
            request = self._read_flexible(by_id=version >= PRODUCE_TOPIC_IDS_FROM)
        else:
            request = self._read_plain(version)
        if self._at != self._end:
            raise ProtocolError(f"Produce v{version}: {self._end - self._at} bytes left over")
        return request

    def _read_plain(self, version: int) -> ProduceRequest:
        view = self._view
        transactional_id = self._plain_string() if version >= 3 else None
        acks, timeout_ms = _ACKS.unpack_from(view, self._at)
        self._at += _ACKS.size
        topics: list[tuple[TopicKey, list[PartitionData]]] = []
        for _ in range(self._checked_count(self._i32())):
            name = self._plain_string()
            if name is None:
                raise ProtocolError("Produce: a topic has no name")
            partitions: list[PartitionData] = []
            for _ in range(self._checked_count(self._i32())):
                index, size = _PARTITION.unpack_from(view, self._at)
                self._at += _PARTITION.size
                partitions.append(PartitionData(index, None if size == -1 else self._bytes(size)))
            topics.append((name, partitions))
        return ProduceRequest(transactional_id, acks, timeout_ms, topics)

    def _read_flexible(self, *, by_id: bool) -> ProduceRequest:
        view = self._view
        transactional_id = self._compact_string()
        acks, timeout_ms = _ACKS.unpack_from(view, self._at)
        self._at += _ACKS.size
        topics: list[tuple[TopicKey, list[PartitionData]]] = []
        for _ in range(self._checked_count(self._uvarint() - 1)):
            topic: TopicKey | None = UUID(bytes=bytes(self._bytes(_UUID_SIZE))) if by_id else self._compact_string()
            if topic is None:
                raise ProtocolError("Produce: a topic has no name")
            partitions: list[PartitionData] = []
            for _ in range(self._checked_count(self._uvarint() - 1)):
                index = self._i32()
                size = self._uvarint() - 1
                partitions.append(PartitionData(index, None if size == -1 else self._bytes(size)))
                self._skip_tags()
            topics.append((topic, partitions))
            self._skip_tags()
        self._skip_tags()
        return ProduceRequest(transactional_id, acks, timeout_ms, topics)

    def _i32(self) -> int:
        (value,) = _I32.unpack_from(self._view, self._at)
        self._at += 4
        return int(value)

    def _uvarint(self) -> int:
        # Nearly all have one byte, and a Produce has a dozen of them: those are decoded inline.
        byte = self._view[self._at]
        if byte < 0x80:
            self._at += 1
            return byte
        value, self._at = read_uvarint(self._view, self._at)
        return value

    def _checked_count(self, count: int) -> int:
        """Check an array's count: a null array counts as empty, and an entry has at least one byte."""
        self._elements_left -= count
        if count > self._end - self._at or count < -1 or self._elements_left < 0:
            raise ProtocolError(f"Produce: {count} entries do not fit {self._end - self._at} bytes")
        return count

    def _bytes(self, size: int) -> memoryview:
        at = self._at
        if size < 0 or size > self._end - at:
            raise ProtocolError(f"Produce: {size} bytes do not fit the {self._end - at} that are left")
        self._at = at + size
        return self._view[at : at + size]

    def _plain_string(self) -> str | None:
        (size,) = _I16.unpack_from(self._view, self._at)
        self._at += 2
        return None if size == -1 else str(self._bytes(size), "utf-8")

    def _compact_string(self) -> str | None:
        size = self._uvarint() - 1
        return None if size == -1 else str(self._bytes(size), "utf-8")

    def _skip_tags(self) -> None:
        for _ in range(self._checked_count(self._uvarint())):
            self._uvarint()
            self._bytes(self._uvarint())
