"""A hand-written decoder of Fetch responses: records are views of the frame, not copies.

The layout is in `fast.py`, which writes it. Every length and count is checked against the bytes that are left before it
is used. Versions 7 to 17; from 13 on topics are named by id.
"""

from struct import Struct
from struct import error as StructError
from typing import NamedTuple
from uuid import UUID

from headrace.model.errors import ProtocolError
from headrace.protocol.bounds import MAX_ELEMENTS
from headrace.protocol.fast import FETCH_FLEXIBLE_FROM, FETCH_TOPIC_IDS_FROM
from headrace.runtime.varint import VarintTooLong, read_uvarint

_I16 = Struct(">h")
_I32 = Struct(">i")
_HEAD = Struct(">ihi")
_PARTITION = Struct(">ihqqq")
_ABORTED = Struct(">qq")
_EPOCH_END = Struct(">iq")
_DIVERGING_TAG = 0
_UUID_BYTES = 16
_OLDEST, _NEWEST = 7, 17


class AbortedRange(NamedTuple):
    """An aborted transaction: `read_committed` skips its records from `first_offset` up to its marker."""

    producer_id: int
    first_offset: int


class FetchedRecords(NamedTuple):
    topic: str
    """Empty where topics are named by id."""
    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[AbortedRange, ...]
    records: memoryview
    """Record batches, the last of which may be cut off. Valid while a reference to it exists."""
    topic_id: UUID | None = None
    diverging: tuple[int, int] | None = None
    """(epoch, end offset) where the reader's log diverges from the leader's; from v12 on."""


class FetchAnswer(NamedTuple):
    error_code: int
    """The error of the whole response: an error of the fetch session."""
    session_id: int
    parts: list[FetchedRecords]


def read_fetch_response(version: int, frame: bytes | memoryview, body_at: int) -> FetchAnswer:
    """Decode a Fetch response; `ProtocolError` if it is malformed."""
    if not _OLDEST <= version <= _NEWEST:
        raise ValueError(f"versions {_OLDEST} to {_NEWEST} are read here, not {version}")
    try:
        return _ResponseReader(frame, body_at, flexible=version >= FETCH_FLEXIBLE_FROM, version=version).read()
    except (StructError, IndexError, UnicodeDecodeError, VarintTooLong) as error:
        raise ProtocolError(f"the answer to Fetch v{version}: {error}") from error


class _ResponseReader:
    def __init__(self, frame: bytes | memoryview, at: int, *, flexible: bool, version: int) -> None:
        self._view = memoryview(frame)
        self._at = at
        self._flexible = flexible
        self._has_replica = version >= 11
        self._has_ids = version >= FETCH_TOPIC_IDS_FROM
        self._elements_left = MAX_ELEMENTS

    def read(self) -> FetchAnswer:
        _, error_code, session_id = self._unpack(_HEAD)
        found: list[FetchedRecords] = []
        for _ in range(self._count()):
            topic, topic_id = "", None
            if self._has_ids:
                topic_id = UUID(bytes=bytes(self._bytes(_UUID_BYTES)))
            else:
                topic = str(self._bytes(self._size(_I16)), "utf-8")
            for _ in range(self._count()):
                found.append(self._partition(topic, topic_id))
            self._skip_tags()
        self._skip_tags()
        return FetchAnswer(error_code, session_id, found)

    def _partition(self, topic: str, topic_id: UUID | None) -> FetchedRecords:
        index, error_code, high_watermark, last_stable, log_start = self._unpack(_PARTITION)
        aborted = []
        for _ in range(self._count()):
            aborted.append(AbortedRange(*self._unpack(_ABORTED)))
            self._skip_tags()
        if self._has_replica:
            self._at += _I32.size
        size = self._size(_I32)
        records = self._bytes(max(size, 0))
        return FetchedRecords(
            topic,
            index,
            error_code,
            high_watermark,
            last_stable,
            log_start,
            tuple(aborted),
            records,
            topic_id,
            self._diverging(),
        )

    def _diverging(self) -> tuple[int, int] | None:
        """Read the tagged fields of a partition, of which only the diverging epoch is used."""
        diverging: tuple[int, int] | None = None
        for _ in range(self._number() if self._flexible else 0):
            tag, value = self._number(), self._bytes(self._number())
            if tag == _DIVERGING_TAG:
                epoch, end_offset = _EPOCH_END.unpack_from(value)
                diverging = epoch, end_offset
        return diverging

    def _unpack(self, struct: Struct) -> tuple[int, ...]:
        values = struct.unpack_from(self._view, self._at)
        self._at += struct.size
        return values

    def _size(self, plain: Struct) -> int:
        """A length or a count: -1 for null."""
        if self._flexible:
            return self._number() - 1
        (size,) = self._unpack(plain)
        return size

    def _count(self) -> int:
        count = max(self._size(_I32), 0)
        self._elements_left -= count
        if count > len(self._view) - self._at or self._elements_left < 0:
            raise ProtocolError(f"Fetch: {count} entries do not fit {len(self._view) - self._at} bytes")
        return count

    def _bytes(self, size: int) -> memoryview:
        at = self._at
        if not 0 <= size <= len(self._view) - at:
            raise ProtocolError(f"Fetch: {size} bytes do not fit the {len(self._view) - at} that are left")
        self._at = at + size
        return self._view[at : at + size]

    def _skip_tags(self) -> None:
        if not self._flexible:
            return
        for _ in range(self._number()):
            self._number()
            self._bytes(self._number())

    def _number(self) -> int:
        value, self._at = read_uvarint(self._view, self._at)
        return value
