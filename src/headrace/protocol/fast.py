"""Hand-written encoders of Produce and Fetch responses, which are frequent enough for kio's cost to matter.

Layouts (a name in brackets says from which version on; compact encodings and tag sections from the flexible version):

    Produce, flexible from 9:  [topic name ≤12 | topic id 13  [index, error, base offset, append time, log start (5),
                               record errors (8) [index, message], message (8), tags (0: current leader, 10)]],
                               throttle, tags (0: node endpoints, 10)
    Fetch, flexible from 12:   throttle, error (7), session id (7), [topic name ≤12 | topic id 13  [index, error,
                               high watermark, last stable, log start (5), aborted [producer id, first offset],
                               preferred replica (11), records, tags (0: diverging epoch, 1: current leader)]],
                               tags (0: node endpoints, 16)

A current leader is (id, epoch); its endpoint is in the response once (KIP-951).
"""

from collections.abc import Iterable, Sequence, Sized
from struct import Struct
from typing import Any, NamedTuple
from uuid import UUID

from headrace.runtime.varint import encode_uvarint

PRODUCE_FLEXIBLE_FROM = 9
PRODUCE_TOPIC_IDS_FROM = 13
FETCH_FLEXIBLE_FROM = 12
FETCH_TOPIC_IDS_FROM = 13
PRODUCE_LEADERS_FROM = 10
FETCH_LEADERS_FROM = 12
FETCH_ENDPOINTS_FROM = 16

_I16 = Struct(">h")
_I32 = Struct(">i")
_I64 = Struct(">q")
_PRODUCED = Struct(">ihqqq")
_PRODUCED_V2 = Struct(">ihqq")
_NO_ERRORS = b"\x00\x00\x00\x00\xff\xff"
_NO_ERRORS_FLEXIBLE = b"\x01\x00\x00"
"""No record errors, no message, no tags."""
_FETCHED = Struct(">ihqqq")
_FETCHED_V4 = Struct(">ihqq")
_FETCH_HEAD = Struct(">ihi")
_DIVERGING = Struct(">BBiqB")
"""A tagged field: tag 0, 13 bytes: epoch, end offset, no tags of its own."""
_LEADER = Struct(">BBiiB")
"""A tagged field: its tag, 9 bytes: leader, epoch, no tags of its own."""


class ProducedPartition(NamedTuple):
    partition: int
    error_code: int
    base_offset: int = -1
    append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[tuple[int, str | None]] = ()
    error_message: str | None = None
    current_leader: tuple[int, int] | None = None
    """(broker id, leader epoch) of the current leader; from v10 on."""


class FetchedPartition(NamedTuple):
    partition: int
    error_code: int
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: Sequence[tuple[int, int]] | None = None
    """(producer id, first offset) of aborted transactions in range; None where the reader did not ask."""
    records: Sequence[Sized] = ()
    """The records, in order: only their length matters here."""
    diverging: tuple[int, int] | None = None
    """(epoch, end offset) where the reader's log diverges from the leader's; from v12 on."""
    current_leader: tuple[int, int] | None = None
    """(broker id, leader epoch) of the current leader; from v12 on."""
    preferred_replica: int = -1
    """The preferred read replica; from v11 on."""


class NodeEndpoint(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


TopicKey = str | UUID
"""A topic's name, or its id in the versions that use topic ids."""


def _string(text: str, *, flexible: bool) -> bytes:
    data = text.encode()
    return (encode_uvarint(len(data) + 1) if flexible else _I16.pack(len(data))) + data


def _nullable_string(text: str | None, *, flexible: bool) -> bytes:
    if text is None:
        return b"\x00" if flexible else b"\xff\xff"
    return _string(text, flexible=flexible)


def _count(count: int, *, flexible: bool) -> bytes:
    return encode_uvarint(count + 1) if flexible else _I32.pack(count)


def _topic_key(topic: TopicKey, *, flexible: bool) -> bytes:
    return topic.bytes if isinstance(topic, UUID) else _string(topic, flexible=flexible)


def _endpoint_tags(endpoints: Sequence[NodeEndpoint]) -> bytes:
    """The tagged fields at the end of a response."""
    if not endpoints:
        return b"\x00"
    nodes = [
        _I32.pack(node.node_id)
        + _string(node.host, flexible=True)
        + _I32.pack(node.port)
        + _nullable_string(node.rack, flexible=True)
        + b"\x00"
        for node in endpoints
    ]
    field = encode_uvarint(len(nodes) + 1) + b"".join(nodes)
    return b"\x01\x00" + encode_uvarint(len(field)) + field


def produce_response(
    version: int,
    head: bytes,
    topics: Iterable[tuple[TopicKey, Sequence[ProducedPartition]]],
    throttle_ms: int = 0,
    endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """Encode a response without the frame length; `head` is the response header."""
    flexible = version >= PRODUCE_FLEXIBLE_FROM
    topics = list(topics)
    out = [head, _count(len(topics), flexible=flexible)]
    for topic, partitions in topics:
        out.append(_topic_key(topic, flexible=flexible))
        out.append(_count(len(partitions), flexible=flexible))
        out.extend(_produced(version, part, flexible=flexible) for part in partitions)
        if flexible:
            out.append(b"\x00")
    if version >= 1:
        out.append(_I32.pack(throttle_ms))
    if flexible:
        out.append(_endpoint_tags(endpoints if version >= PRODUCE_LEADERS_FROM else ()))
    return b"".join(out)


def around_produced(version: int, topic: TopicKey) -> tuple[bytes, bytes]:
    """What a response of a flexible version has before and after the numbers of its only partition, without an error.

    The numbers are `>ihqqq`: partition, 0, base offset, append time, log start offset.
    """
    response = produce_response(version, b"", [(topic, [ProducedPartition(0, 0)])])
    at = 2 + len(_topic_key(topic, flexible=True))
    return response[:at], response[at + _PRODUCED.size :]


def _produced(version: int, part: ProducedPartition, *, flexible: bool) -> bytes:
    if version < 5:
        written = _PRODUCED_V2.pack(*part[:4])
        return written if version >= 2 else written[:14]
    written = _PRODUCED.pack(*part[:5])
    if version < 8:
        return written
    if not part.error_code:
        return written + (_NO_ERRORS_FLEXIBLE if flexible else _NO_ERRORS)
    out = [written, _count(len(part.record_errors), flexible=flexible)]
    for index, message in part.record_errors:
        out.append(_I32.pack(index) + _nullable_string(message, flexible=flexible))
        if flexible:
            out.append(b"\x00")
    out.append(_nullable_string(part.error_message, flexible=flexible))
    if flexible:
        has_leader = part.current_leader is not None and version >= PRODUCE_LEADERS_FROM
        out.append(b"\x01" + _LEADER.pack(0, 9, *(part.current_leader or ()), 0) if has_leader else b"\x00")
    return b"".join(out)


def fetch_response(
    version: int,
    head: bytes,
    topics: Sequence[tuple[TopicKey, Sequence[FetchedPartition]]],
    *,
    error_code: int = 0,
    session_id: int = 0,
    throttle_ms: int = 0,
    endpoints: Sequence[NodeEndpoint] = (),
) -> list[Any]:
    """Encode a response without the frame length, in parts: bytes, and the records as passed in."""
    flexible = version >= FETCH_FLEXIBLE_FROM
    buffers: list[Any] = []
    run = bytearray(head)
    if version >= 7:
        run += _FETCH_HEAD.pack(throttle_ms, error_code, session_id)
    else:
        run += _I32.pack(throttle_ms)
    run += _count(len(topics), flexible=flexible)
    for topic, partitions in topics:
        run += _topic_key(topic, flexible=flexible)
        run += _count(len(partitions), flexible=flexible)
        for part in partitions:
            run += _FETCHED.pack(*part[:5]) if version >= 5 else _FETCHED_V4.pack(*part[:4])
            if part.aborted is None:
                run += b"\x00" if flexible else b"\xff\xff\xff\xff"
            else:
                run += _count(len(part.aborted), flexible=flexible)
                for producer_id, first_offset in part.aborted:
                    run += _I64.pack(producer_id) + _I64.pack(first_offset)
                    if flexible:
                        run += b"\x00"
            if version >= 11:
                run += _I32.pack(part.preferred_replica)
            size = sum(map(len, part.records))
            run += encode_uvarint(size + 1) if flexible else _I32.pack(size)
            if size:
                buffers.append(bytes(run))
                buffers.extend(part.records)
                run.clear()
            if flexible:
                run += _fetched_tags(part)
        if flexible:
            run += b"\x00"
    if flexible:
        run += _endpoint_tags(endpoints if version >= FETCH_ENDPOINTS_FROM else ())
    buffers.append(bytes(run))
    return buffers


def around_fetched(
    version: int, topics: Iterable[tuple[TopicKey, Sequence[int]]], *, session_id: int, has_aborted: bool
) -> tuple[list[bytes], bytes, bytes]:
    """What a response without errors has from version 7 on, after the correlation id and besides its numbers.

    Before the numbers of each partition `>qqq` (high watermark, last stable offset, log start offset), after them, and
    after the last records. What follows the numbers is the same for all, and then come the size and the records.
    """
    flexible = version >= FETCH_FLEXIBLE_FROM
    topics = list(topics)
    before: list[bytes] = []
    run = (b"\x00" if flexible else b"") + _FETCH_HEAD.pack(0, 0, session_id) + _count(len(topics), flexible=flexible)
    for topic, partitions in topics:
        run += _topic_key(topic, flexible=flexible) + _count(len(partitions), flexible=flexible)
        for index in partitions:
            before.append(run + _I32.pack(index) + _I16.pack(0))
            run = b"\x00" if flexible else b""
        if flexible:
            run += b"\x00"
    none, empty = (b"\x00", b"\x01") if flexible else (b"\xff\xff\xff\xff", b"\x00\x00\x00\x00")
    middle = (empty if has_aborted else none) + (_I32.pack(-1) if version >= 11 else b"")
    return before, middle, run + (b"\x00" if flexible else b"")


def _fetched_tags(part: FetchedPartition) -> bytes:
    if part.diverging is None and part.current_leader is None:
        return b"\x00"
    fields = []
    if part.diverging is not None:
        fields.append(_DIVERGING.pack(0, 13, *part.diverging, 0))
    if part.current_leader is not None:
        fields.append(_LEADER.pack(1, 9, *part.current_leader, 0))
    return bytes((len(fields),)) + b"".join(fields)
