"""The requests of group members, for members that are raw connections: a hundred real clients need more than they test.

Classic members speak the last versions without tagged fields (JoinGroup 5, SyncGroup 3, Heartbeat 3, LeaveGroup 3);
members of the consumer protocol speak ConsumerGroupHeartbeat 0; offsets are committed with OffsetCommit 9, the first
that members of both may use, and fetched with OffsetFetch 5.
"""

from struct import Struct
from typing import NamedTuple

from harness.wire import I16, I32, I64, compact, read_uvarint, request, uvarint

MEMBER_ID_REQUIRED, REBALANCE_IN_PROGRESS, LOAD_IN_PROGRESS, NOT_COORDINATOR, NOT_AVAILABLE = 79, 27, 14, 16, 15
NOT_YET = (LOAD_IN_PROGRESS, NOT_COORDINATOR, NOT_AVAILABLE)
"""What a coordinator says that has not loaded the group, or has no internal topic yet."""
_OFFSET_COMMIT, _OFFSET_FETCH, _JOIN, _HEARTBEAT, _LEAVE, _SYNC, _LIST, _CONSUMER_BEAT = 8, 9, 11, 12, 13, 14, 16, 68
_METADATA, _FIND = 3, 10
_COMMITTED = Struct(">iqi")


class Reader:
    """Takes a response apart, from behind its correlation id on."""

    def __init__(self, data: bytes, *, flexible: bool = False) -> None:
        self._data = data
        self._at = 9 if flexible else 8

    def _take(self, kind: Struct) -> int:
        value: int = kind.unpack_from(self._data, self._at)[0]
        self._at += kind.size
        return value

    def i8(self) -> int:
        return int.from_bytes(self.raw(1), "big", signed=True)

    def i16(self) -> int:
        return self._take(I16)

    def i32(self) -> int:
        return self._take(I32)

    def i64(self) -> int:
        return self._take(I64)

    def raw(self, size: int) -> bytes:
        self._at += size
        return self._data[self._at - size : self._at]

    def text(self) -> str:
        return self.raw(max(0, self.i16())).decode()

    def blob(self) -> bytes:
        return self.raw(max(0, self.i32()))

    def length(self) -> int:
        """Of a compact array or text; a null counts as empty."""
        value, self._at = read_uvarint(self._data, self._at)
        return max(0, value - 1)

    def compact(self) -> str:
        return self.raw(self.length()).decode()

    def tags(self) -> None:
        count, self._at = read_uvarint(self._data, self._at)
        for _ in range(count):
            _, self._at = read_uvarint(self._data, self._at)
            size, self._at = read_uvarint(self._data, self._at)
            self._at += size


def _text(value: str) -> bytes:
    data = value.encode()
    return I16.pack(len(data)) + data


def _blob(value: bytes) -> bytes:
    return I32.pack(len(value)) + value


_NULL = I16.pack(-1)
_NO_TEXT = b"\x00"


class Joined(NamedTuple):
    error: int
    generation: int
    leader: str
    member_id: str
    members: list[str]


def join_request(group: str, member_id: str, topic: str, *, session_ms: int, rebalance_ms: int) -> bytes:
    subscription = I16.pack(0) + I32.pack(1) + _text(topic) + I32.pack(-1)
    body = _text(group) + I32.pack(session_ms) + I32.pack(rebalance_ms) + _text(member_id) + _NULL
    body += _text("consumer") + I32.pack(1) + _text("range") + _blob(subscription)
    return request(_JOIN, 5, 1, body, flexible=False)


def join_answer(data: bytes) -> Joined:
    reader = Reader(data)
    reader.i32()
    error, generation, _, leader, member_id = reader.i16(), reader.i32(), reader.text(), reader.text(), reader.text()
    members = []
    for _ in range(reader.i32()):
        members.append(reader.text())
        reader.text()
        reader.blob()
    return Joined(error, generation, leader, member_id, members)


def assignment(topic: str, partitions: list[int]) -> bytes:
    listed = b"".join(map(I32.pack, partitions))
    return I16.pack(0) + I32.pack(1) + _text(topic) + I32.pack(len(partitions)) + listed + I32.pack(-1)


def sync_request(group: str, generation: int, member_id: str, assignments: dict[str, bytes]) -> bytes:
    body = _text(group) + I32.pack(generation) + _text(member_id) + _NULL + I32.pack(len(assignments))
    for member, data in assignments.items():
        body += _text(member) + _blob(data)
    return request(_SYNC, 3, 1, body, flexible=False)


def sync_answer(data: bytes) -> tuple[int, list[int]]:
    """The error code, and the partitions assigned."""
    reader = Reader(data)
    reader.i32()
    error, given = reader.i16(), reader.blob()
    if error or not given:
        return error, []
    inner = Reader(bytes(8) + given)
    inner.i16()
    partitions = []
    for _ in range(inner.i32()):
        inner.text()
        partitions += [inner.i32() for _ in range(inner.i32())]
    return error, partitions


def heartbeat_request(group: str, generation: int, member_id: str) -> bytes:
    return request(_HEARTBEAT, 3, 1, _text(group) + I32.pack(generation) + _text(member_id) + _NULL, flexible=False)


def leave_request(group: str, member_id: str) -> bytes:
    return request(_LEAVE, 3, 1, _text(group) + I32.pack(1) + _text(member_id) + _NULL, flexible=False)


def plain_error(data: bytes) -> int:
    """The error code of an answer that begins with it."""
    reader = Reader(data)
    reader.i32()
    return reader.i16()


class Beat(NamedTuple):
    error: int
    message: str
    member_id: str
    epoch: int
    partitions: list[int] | None
    """None: what it was."""


def beat_request(
    group: str, member_id: str, epoch: int, topics: list[str] | None, owned: tuple[bytes, list[int]] | None
) -> bytes:
    """A heartbeat of the consumer protocol; `topics` and `owned` (topic id and partitions) are None if unchanged."""
    body = compact(group) + compact(member_id) + I32.pack(epoch) + _NO_TEXT + _NO_TEXT
    body += I32.pack(60_000 if epoch == 0 else -1)
    body += b"\x00" if topics is None else uvarint(len(topics) + 1) + b"".join(map(compact, topics))
    body += _NO_TEXT
    if owned is None:
        body += b"\x00"
    else:
        topic_id, partitions = owned
        body += b"\x01" if not partitions else b"\x02" + topic_id + _numbers(partitions) + b"\x00"
    return request(_CONSUMER_BEAT, 0, 1, body + b"\x00")


def _numbers(values: list[int]) -> bytes:
    return uvarint(len(values) + 1) + b"".join(map(I32.pack, values))


def beat_answer(data: bytes) -> Beat:
    reader = Reader(data, flexible=True)
    reader.i32()
    error, message, member_id, epoch, _ = reader.i16(), reader.compact(), reader.compact(), reader.i32(), reader.i32()
    partitions: list[int] | None = None
    if reader.i8() >= 0:
        partitions = []
        for _ in range(reader.length()):
            reader.raw(16)
            partitions += [reader.i32() for _ in range(reader.length())]
            reader.tags()
    return Beat(error, message, member_id, epoch, partitions)


def commit_request(group: str, epoch: int, member_id: str, topic: str, offsets: dict[int, int]) -> bytes:
    body = compact(group) + I32.pack(epoch) + compact(member_id) + _NO_TEXT + b"\x02" + compact(topic)
    body += uvarint(len(offsets) + 1)
    for partition, offset in offsets.items():
        body += _COMMITTED.pack(partition, offset, -1) + b"\x01\x00"
    return request(_OFFSET_COMMIT, 9, 1, body + b"\x00\x00")


def commit_errors(data: bytes) -> set[int]:
    reader = Reader(data, flexible=True)
    reader.i32()
    errors = set()
    for _ in range(reader.length()):
        reader.compact()
        for _ in range(reader.length()):
            reader.i32()
            errors.add(reader.i16())
            reader.tags()
        reader.tags()
    return errors


def fetch_request(group: str, topic: str, partitions: list[int]) -> bytes:
    listed = b"".join(map(I32.pack, partitions))
    body = _text(group) + I32.pack(1) + _text(topic) + I32.pack(len(partitions)) + listed
    return request(_OFFSET_FETCH, 5, 1, body, flexible=False)


def fetch_answer(data: bytes) -> dict[int, int]:
    reader = Reader(data)
    reader.i32()
    offsets = {}
    for _ in range(reader.i32()):
        reader.text()
        for _ in range(reader.i32()):
            partition = reader.i32()
            offsets[partition] = reader.i64()
            reader.i32()
            reader.text()
            reader.i16()
    return offsets


def list_request() -> bytes:
    return request(_LIST, 2, 1, b"", flexible=False)


def list_answer(data: bytes) -> tuple[int, int]:
    """The error code, and the number of groups."""
    reader = Reader(data)
    reader.i32()
    return reader.i16(), reader.i32()


def coordinator_request(group: str) -> bytes:
    return request(_FIND, 2, 1, _text(group) + b"\x00", flexible=False)


def topic_id_request(topic: str) -> bytes:
    body = b"\x02" + bytes(16) + compact(topic) + b"\x00\x00\x00\x00"
    return request(_METADATA, 12, 1, body)


def topic_id(data: bytes) -> bytes:
    """The id of the only topic in a Metadata response."""
    reader = Reader(data, flexible=True)
    reader.i32()
    for _ in range(reader.length()):
        reader.i32()
        reader.compact()
        reader.i32()
        reader.compact()
        reader.tags()
    reader.compact()
    reader.i32()
    if reader.length() != 1 or reader.i16():
        raise RuntimeError("the topic is not there")
    reader.compact()
    return reader.raw(16)
