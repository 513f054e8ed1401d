"""Recognizes Produce requests that repeat an earlier one: all but the correlation id and the records is the same.

A client that sends a batch in each request sends the same bytes around it again and again. Comparing these takes a
fraction of the time of decoding them, and the answers differ in three numbers only.

A pattern has one partition, a flexible version, neither a transactional id nor tagged fields after its client id, and
acks of 1 or all. Other requests, malformed ones among them, have none: `produce_request.py` reads them.
"""

from struct import Struct
from struct import error as StructError
from uuid import UUID

from headrace.model.errors import ProtocolError
from headrace.protocol.codec import read_request_header
from headrace.protocol.fast import PRODUCE_FLEXIBLE_FROM, PRODUCE_TOPIC_IDS_FROM, TopicKey, around_produced
from headrace.runtime.varint import VarintTooLong, read_uvarint

_PRODUCE = b"\x00\x00"
_ACKS = Struct(">hi")
_I32 = Struct(">i")
_CORRELATION_AT = 4
_CLIENT_AT = 8
_UUID_SIZE = 16
_MOST_COMMON_BYTES = 1024
"""Connections remember patterns, and clients choose long names."""
_ONE = 2
"""An array of one entry: compact arrays begin with their count and one."""
_TAIL = b"\x00\x00\x00"
"""No tagged fields of the partition, the topic and the request."""


class ProducePattern:
    """What requests that repeat each other have in common."""

    __slots__ = (
        "_after",
        "_answer",
        "_before",
        "acks",
        "api_version",
        "client_id",
        "common",
        "head",
        "partition",
        "records_at",
        "timeout_ms",
        "topic",
    )

    def __init__(
        self, frame: bytes, records_at: int, *, client_id: str | None, acks: int, timeout_ms: int, topic: TopicKey
    ) -> None:
        self.head = frame[:_CORRELATION_AT]
        """The API and its version."""
        self.api_version = int.from_bytes(frame[2:4], "big")
        self.client_id = client_id
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topic = topic
        self.partition: int = _I32.unpack_from(frame, records_at - _I32.size)[0]
        self.records_at = records_at
        """The position of the records, with their length."""
        self.common = frame[_CLIENT_AT:records_at]
        """The bytes from the client id to the records."""
        before, self._after = around_produced(self.api_version, topic)
        # An empty section of tagged fields ends the header of the response.
        self._before = b"\x00" + before
        self._answer = Struct(f">i4s{len(self._before)}sihqqq{len(self._after)}s")

    def records(self, frame: bytes) -> memoryview | None:
        """The records of a request, which are not looked at; None unless it repeats the others."""
        at = self.records_at
        if len(frame) <= at + len(_TAIL) or frame[_CLIENT_AT:at] != self.common or frame[:_CORRELATION_AT] != self.head:
            return None
        try:
            size, at = read_uvarint(frame, at)
        except (IndexError, VarintTooLong):
            return None
        end = at + size - 1
        if not size or end != len(frame) - len(_TAIL) or frame[end:] != _TAIL:
            return None
        return memoryview(frame)[at:end]

    def answer(self, frame: bytes, base_offset: int, log_start_offset: int) -> bytes:
        """The answer to a request whose records were appended: a whole frame."""
        answer = self._answer
        return answer.pack(
            answer.size - _I32.size,
            frame[_CORRELATION_AT:_CLIENT_AT],
            self._before,
            self.partition,
            0,
            base_offset,
            -1,
            log_start_offset,
            self._after,
        )


def pattern_of(frame: bytes) -> ProducePattern | None:
    """The pattern of a request, if it has one."""
    if frame[:2] != _PRODUCE or len(frame) < _CLIENT_AT or frame[2] or frame[3] < PRODUCE_FLEXIBLE_FROM:
        return None
    try:
        header = read_request_header(frame, flexible=True)
        at = header.body_at
        acks, timeout_ms = _ACKS.unpack_from(frame, at + 1)
        if frame[at] or frame[at + 7] != _ONE or acks not in (-1, 1):
            return None
        at += 8
        topic: TopicKey
        if header.api_version >= PRODUCE_TOPIC_IDS_FROM:
            topic = UUID(bytes=frame[at : at + _UUID_SIZE])
            at += _UUID_SIZE
        else:
            size, at = read_uvarint(frame, at)
            topic = str(frame[at : at + size - 1], "utf-8")
            at += size - 1
        if frame[at] != _ONE:
            return None
        records_at = at + 1 + _I32.size
        if records_at > _MOST_COMMON_BYTES:
            return None
        return ProducePattern(
            frame, records_at, client_id=header.client_id, acks=acks, timeout_ms=timeout_ms, topic=topic
        )
    except (StructError, IndexError, ValueError, VarintTooLong, ProtocolError):
        # The decoder of requests says what is wrong.
        return None
