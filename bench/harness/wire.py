"""The few Kafka frames the load generator sends, encoded once, and the responses it has to look into.

Versions are Produce 10 (what librdkafka sends) and Fetch 12 (the newest that names topics instead of using ids). Sizes
are the same for every request of a run: a block of requests can be sent from any byte on, and responses be counted by
their length, which is what makes the load generator cheap.
"""

import socket
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18
PRODUCE_VERSION, FETCH_VERSION = 10, 12
CLIENT_ID = b"bench"

I16, I32, I64 = Struct(">h"), Struct(">i"), Struct(">q")
_BATCH_TAIL = Struct(">hiqqqhii")
_BATCH_HEAD = Struct(">qiibI")
_BATCH_PEEK = Struct(">qi11xi")
_PARTITION_ANSWER = Struct(">ihqqq")


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    return uvarint(value << 1 if value >= 0 else ((-value) << 1) - 1)


def read_uvarint(buffer: bytes | bytearray | memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = buffer[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def plain_value(size: int) -> bytes:
    return (b"The quick brown fox jumps over the lazy dog. " * (size // 45 + 1))[:size]


def framed_value(schema_id: int, size: int) -> bytes:
    """A value of about this size: the id of a schema, and a string or bytes in Avro."""
    body = plain_value(max(0, size - 7))
    return b"\x00" + schema_id.to_bytes(4) + varint(len(body)) + body


def varied_sizes(size: int, spread: int) -> list[int]:
    """Sizes around this one, as messages of an application have them."""
    return [size - spread + number * 37 % (2 * spread + 1) for number in range(97)] if spread else [size]


def record_batch(message_bytes: int, count: int, now_ms: int, values: Sequence[bytes] = ()) -> bytes:
    """An uncompressed batch of `count` records without keys, with these values in turn, or of `message_bytes` each."""
    tails = [b"\x01" + varint(len(value)) + value + b"\x00" for value in values or [plain_value(message_bytes)]]
    records = bytearray()
    for delta in range(count):
        record = b"\x00\x00" + varint(delta) + tails[delta % len(tails)]
        records += varint(len(record)) + record
    covered = _BATCH_TAIL.pack(0, count - 1, now_ms, now_ms, -1, -1, -1, count) + records
    return _BATCH_HEAD.pack(0, len(covered) + 9, -1, 2, crc32c(covered)) + covered


def request(key: int, version: int, correlation_id: int, body: bytes, *, flexible: bool = True) -> bytes:
    head = Struct(">hhih").pack(key, version, correlation_id, len(CLIENT_ID)) + CLIENT_ID
    if flexible:
        head += b"\x00"
    return I32.pack(len(head) + len(body)) + head + body


def compact(text: str) -> bytes:
    data = text.encode()
    return uvarint(len(data) + 1) + data


def api_versions_request() -> bytes:
    return request(API_VERSIONS, 0, 1, b"", flexible=False)


def produce_request(topic: str, partition: int, batch: bytes, *, acks: int, correlation_id: int) -> bytes:
    body = b"\x00" + I16.pack(acks) + I32.pack(30_000)
    body += b"\x02" + compact(topic) + b"\x02" + I32.pack(partition) + uvarint(len(batch) + 1) + batch
    return request(PRODUCE, PRODUCE_VERSION, correlation_id, body + b"\x00\x00\x00")


def produce_error_at(topic: str) -> int:
    """Where the two bytes of the partition's error code are in a Produce response, its length included."""
    return 4 + 4 + 1 + 1 + len(compact(topic)) + 1 + 4


class FetchRequest:
    """One Fetch of several partitions, encoded once; the offsets are written into it for each use."""

    def __init__(self, topic: str, partitions: list[int], *, partition_max_bytes: int, max_wait_ms: int) -> None:
        body = bytearray(I32.pack(-1) + I32.pack(max_wait_ms) + I32.pack(1) + I32.pack(52_428_800) + b"\x00")
        body += I32.pack(0) + I32.pack(-1) + b"\x02" + compact(topic) + uvarint(len(partitions) + 1)
        at: dict[int, int] = {}
        for partition in partitions:
            body += I32.pack(partition) + I32.pack(-1)
            at[partition] = len(body)
            body += I64.pack(0) + I32.pack(-1) + I64.pack(-1) + I32.pack(partition_max_bytes) + b"\x00"
        body += b"\x00\x01\x01\x00"
        frame = request(FETCH, FETCH_VERSION, 7, bytes(body))
        self.frame = bytearray(frame)
        lead = len(frame) - len(body)
        self._at = {partition: lead + offset_at for partition, offset_at in at.items()}

    def seek(self, partition: int, offset: int) -> None:
        I64.pack_into(self.frame, self._at[partition], offset)


class FetchedPartition(NamedTuple):
    partition: int
    error: int
    high_watermark: int
    log_start: int
    records_at: int
    records_bytes: int


def fetch_answer(frame: memoryview) -> Iterator[FetchedPartition]:
    """The partitions of a Fetch response without its length prefix."""
    error = I16.unpack_from(frame, 9)[0]
    if error:
        raise RuntimeError(f"the server answered a fetch with error {error}")
    topics, at = read_uvarint(frame, 15)
    for _ in range(topics - 1):
        name, at = read_uvarint(frame, at)
        partitions, at = read_uvarint(frame, at + name - 1)
        for _ in range(partitions - 1):
            partition, error, high_watermark, _, log_start = _PARTITION_ANSWER.unpack_from(frame, at)
            aborted, at = read_uvarint(frame, at + _PARTITION_ANSWER.size)
            if aborted > 1:
                raise RuntimeError("the server reports aborted transactions, and the benchmark makes none")
            size, at = read_uvarint(frame, at + 4)
            size = max(size - 1, 0)
            yield FetchedPartition(partition, error, high_watermark, log_start, at, size)
            at = _skip_tags(frame, at + size)
        at = _skip_tags(frame, at)


def _skip_tags(frame: memoryview, at: int) -> int:
    count, at = read_uvarint(frame, at)
    for _ in range(count):
        _, at = read_uvarint(frame, at)
        size, at = read_uvarint(frame, at)
        at += size
    return at


def walk_batches(frame: memoryview, at: int, size: int) -> tuple[int, int, int]:
    """Next offset, messages and bytes of the whole batches in a record set; the next offset is -1 if there is none."""
    end = at + size
    next_offset, messages, start = -1, 0, at
    while at + 61 <= end:
        base, length, last_delta = _BATCH_PEEK.unpack_from(frame, at)
        if at + 12 + length > end:
            break
        messages += last_delta + 1
        next_offset = base + last_delta + 1
        at += 12 + length
    return next_offset, messages, at - start


def connect(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), timeout=30)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def receive_frame(sock: socket.socket) -> bytes:
    """One whole frame, its length prefix included, from a blocking socket."""
    data = bytearray()
    need = 4
    while len(data) < need:
        part = sock.recv(need - len(data))
        if not part:
            raise ConnectionError("the server closed the connection")
        data += part
        if len(data) == 4:
            need = 4 + int.from_bytes(data, "big")
    return bytes(data)
