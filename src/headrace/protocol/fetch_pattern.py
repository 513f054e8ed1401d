"""Recognizes Fetch requests that repeat an earlier one: all but the correlation id, the session epoch and the offsets.

A consumer asks for the same partitions again and again. Comparing the bytes of its requests takes a fraction of the
time of decoding them, and what their answers have in common is encoded once.

A pattern has a version from 7 on, the first with sessions, and no tagged fields but in its header. It forgets no
partition, and does not begin or end a session. Other requests, malformed ones and those of replicas among them, have
none: the decoder of requests reads them.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from struct import Struct
from struct import error as StructError
from typing import NamedTuple
from uuid import UUID

from headrace.model.errors import ProtocolError
from headrace.protocol.codec import read_request_header
from headrace.protocol.fast import FETCH_FLEXIBLE_FROM, FETCH_TOPIC_IDS_FROM, TopicKey, around_fetched
from headrace.runtime.varint import VarintTooLong, encode_uvarint, read_uvarint

_FETCH = b"\x00\x01"
_FROM_VERSION = 7
_REPLICAS_UNTIL = 14
"""The last version that names the replica before everything else."""
_LEADER_EPOCHS_FROM = 9
_RACKS_FROM = 11
_CORRELATION_AT, _CLIENT_AT = 4, 8
_MOST_BYTES = 4096
"""Connections remember patterns, and clients choose how many partitions they have."""
_I16, _I32 = Struct(">h"), Struct(">i")
_LIMITS = Struct(">iiibii")
"""Max wait, min bytes, max bytes, isolation level, session id, session epoch."""
_EPOCH_AT = 17
_EARLY = Struct(">iqqi")
_LATER = Struct(">iiqqi")
_FLEXIBLE = Struct(">iiqiqi")
_NUMBERS = Struct(">qqq")
_UUID_SIZE = 16
NO_EPOCH = -1
_NO_SESSION, _NO_REPLICA = 0, -1


class _NoPattern(Exception):
    """The request has something that no pattern has."""


class PatternPartition(NamedTuple):
    topic: TopicKey
    partition: int
    max_bytes: int
    leader_epoch: int
    log_start_offset: int


class FetchLimits(NamedTuple):
    """What a request says of all its partitions."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: int
    session_id: int
    session_epoch: int


class FetchPattern:
    """What requests that repeat each other have in common."""

    __slots__ = (
        "_answer_after",
        "_answer_before",
        "_answer_middle",
        "_common",
        "_fields",
        "_uses_compact_sizes",
        "api_version",
        "client_id",
        "limits",
        "partitions",
        "rack",
        "size",
        "topics",
    )

    def __init__(
        self,
        frame: bytes,
        epoch_at: int,
        offsets_at: Iterable[int],
        partitions: tuple[PatternPartition, ...],
        *,
        client_id: str | None,
        limits: FetchLimits,
        rack: str,
    ) -> None:
        self.api_version = int.from_bytes(frame[2:4], "big")
        self.client_id = client_id
        self.limits = limits
        self.partitions = partitions
        self.topics = tuple(dict.fromkeys(each.topic for each in partitions))
        self.rack = rack
        self.size = len(frame)
        # The fields at odd places differ from request to request, those between them are the same.
        form, at = f">{_CORRELATION_AT}s4s{epoch_at - _CLIENT_AT}si", epoch_at + _I32.size
        for offset_at in offsets_at:
            form += f"{offset_at - at}sq"
            at = offset_at + 8
        self._fields = Struct(f"{form}{len(frame) - at}s")
        self._common = self._fields.unpack(frame)[::2]
        topics = [
            (topic, [each.partition for each in group]) for topic, group in groupby(partitions, lambda each: each.topic)
        ]
        around = around_fetched(
            self.api_version, topics, session_id=limits.session_id, has_aborted=bool(limits.isolation)
        )
        self._answer_before, self._answer_middle, self._answer_after = around
        self._uses_compact_sizes = self.api_version >= FETCH_FLEXIBLE_FROM

    def variables(self, frame: bytes) -> tuple[bytes, int, tuple[int, ...]] | None:
        """Correlation id, session epoch and offsets of a request of this size; None unless it repeats the others."""
        fields = self._fields.unpack(frame)
        if fields[::2] != self._common:
            return None
        return fields[1], fields[3], fields[5::2]

    def heads(
        self, correlation_id: bytes, numbers: Iterable[tuple[int, int, int]], sizes: Iterable[int]
    ) -> list[bytes]:
        """What an answer without errors has before the records of each partition, and at its end, without its length.

        `numbers` are high watermark, last stable offset and log start offset of each partition, `sizes` the bytes of
        its records.
        """
        middle, is_compact, pack = self._answer_middle, self._uses_compact_sizes, _NUMBERS.pack
        heads = [
            before + pack(*each) + middle + (encode_uvarint(size + 1) if is_compact else _I32.pack(size))
            for before, each, size in zip(self._answer_before, numbers, sizes, strict=True)
        ]
        heads[0] = correlation_id + heads[0]
        heads.append(self._answer_after)
        return heads


def fetch_pattern_of(frame: bytes) -> FetchPattern | None:
    """The pattern of a request, if it has one."""
    if len(frame) > _MOST_BYTES or frame[:2] != _FETCH or len(frame) < _CLIENT_AT or frame[2]:
        return None
    try:
        return _Reader(frame).pattern()
    except (_NoPattern, StructError, IndexError, ValueError, VarintTooLong, ProtocolError):
        # The decoder of requests says what is wrong, if anything is.
        return None


class _Reader:
    """Reads one request."""

    def __init__(self, frame: bytes) -> None:
        self._frame = frame
        self._version = frame[3]
        self._is_flexible = self._version >= FETCH_FLEXIBLE_FROM
        self._at = 0
        self._offsets_at: list[int] = []

    def pattern(self) -> FetchPattern:
        frame, version = self._frame, self._version
        _check(version >= _FROM_VERSION)
        header = read_request_header(frame, flexible=self._is_flexible)
        self._at = header.body_at
        if version <= _REPLICAS_UNTIL:
            _check(_I32.unpack_from(frame, self._at)[0] == _NO_REPLICA)
            self._at += _I32.size
        limits = FetchLimits(*_LIMITS.unpack_from(frame, self._at))
        epoch_at = self._at + _EPOCH_AT
        self._at += _LIMITS.size
        _check(min(limits.max_wait_ms, limits.min_bytes, limits.max_bytes) >= 0 and limits.isolation in (0, 1))
        partitions = tuple(self._topics())
        if limits.session_id == _NO_SESSION:
            _check(limits.session_epoch == NO_EPOCH and bool(partitions))
        else:
            _check(limits.session_epoch > 0)
        _check(self._count() == 0)
        rack = self._text() if version >= _RACKS_FROM else ""
        self._no_tags()
        _check(self._at == len(frame))
        return FetchPattern(
            frame, epoch_at, self._offsets_at, partitions, client_id=header.client_id, limits=limits, rack=rack
        )

    def _topics(self) -> Iterator[PatternPartition]:
        for _ in range(self._count()):
            topic: TopicKey
            if self._version >= FETCH_TOPIC_IDS_FROM:
                topic = UUID(bytes=self._frame[self._at : self._at + _UUID_SIZE])
                _check(topic.int != 0)
                self._at += _UUID_SIZE
            else:
                topic = self._text()
            for _ in range(self._count()):
                part = self._partition(topic)
                _check(part.max_bytes >= 0)
                yield part
            self._no_tags()

    def _partition(self, topic: TopicKey) -> PatternPartition:
        frame, at = self._frame, self._at
        epoch = NO_EPOCH
        if self._is_flexible:
            index, epoch, _, last_fetched_epoch, log_start, max_bytes = _FLEXIBLE.unpack_from(frame, at)
            # A consumer that names one gets the offset where its log diverges.
            _check(last_fetched_epoch == NO_EPOCH)
            self._offsets_at.append(at + 8)
            self._at += _FLEXIBLE.size
            self._no_tags()
        elif self._version >= _LEADER_EPOCHS_FROM:
            index, epoch, _, log_start, max_bytes = _LATER.unpack_from(frame, at)
            self._offsets_at.append(at + 8)
            self._at += _LATER.size
        else:
            index, _, log_start, max_bytes = _EARLY.unpack_from(frame, at)
            self._offsets_at.append(at + 4)
            self._at += _EARLY.size
        return PatternPartition(topic, index, max_bytes, epoch, log_start)

    def _count(self) -> int:
        if self._is_flexible:
            count, self._at = read_uvarint(self._frame, self._at)
            count -= 1
        else:
            count = _I32.unpack_from(self._frame, self._at)[0]
            self._at += _I32.size
        _check(0 <= count <= _MOST_BYTES)
        return count

    def _text(self) -> str:
        if self._is_flexible:
            size = self._count()
        else:
            size = _I16.unpack_from(self._frame, self._at)[0]
            self._at += _I16.size
        _check(0 <= size <= len(self._frame) - self._at)
        self._at += size
        return str(self._frame[self._at - size : self._at], "utf-8")

    def _no_tags(self) -> None:
        if self._is_flexible:
            _check(self._frame[self._at] == 0)
            self._at += 1


def _check(is_so: bool) -> None:
    if not is_so:
        raise _NoPattern
