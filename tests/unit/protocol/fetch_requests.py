"""Fetch requests as bytes, of the versions that consumers send."""

from collections.abc import Sequence
from struct import pack
from typing import NamedTuple
from uuid import UUID

from headrace.runtime.varint import encode_uvarint


class WantedPart(NamedTuple):
    partition: int
    offset: int
    max_bytes: int = 1000
    leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start: int = -1


class FetchBytes(NamedTuple):
    version: int
    topics: Sequence[tuple[str, UUID, Sequence[WantedPart]]]
    correlation_id: int = 7
    client_id: str | None = "consumer"
    replica_id: int = -1
    max_wait_ms: int = 0
    min_bytes: int = 1
    max_bytes: int = 10_000
    isolation: int = 0
    session_id: int = 0
    session_epoch: int = -1
    forgotten: Sequence[tuple[str, UUID, Sequence[int]]] = ()
    rack: str = ""

    def encode(self) -> bytes:
        version, flexible = self.version, self.version >= 12
        client_id = b"" if self.client_id is None else self.client_id.encode()
        client = pack(">h", -1 if self.client_id is None else len(client_id)) + client_id
        out = pack(">hhi", 1, version, self.correlation_id) + client + (b"\x00" if flexible else b"")
        if version <= 14:
            out += pack(">i", self.replica_id)
        out += pack(">iiib", self.max_wait_ms, self.min_bytes, self.max_bytes, self.isolation)
        out += pack(">ii", self.session_id, self.session_epoch)
        out += self._count(len(self.topics))
        for name, topic_id, parts in self.topics:
            out += self._topic(name, topic_id) + self._count(len(parts)) + b"".join(map(self._part, parts))
            out += b"\x00" if flexible else b""
        out += self._count(len(self.forgotten))
        for name, topic_id, indexes in self.forgotten:
            out += self._topic(name, topic_id) + self._count(len(indexes)) + b"".join(pack(">i", i) for i in indexes)
            out += b"\x00" if flexible else b""
        if version >= 11:
            out += self._text(self.rack)
        return out + (b"\x00" if flexible else b"")

    def _count(self, count: int) -> bytes:
        return encode_uvarint(count + 1) if self.version >= 12 else pack(">i", count)

    def _text(self, text: str) -> bytes:
        data = text.encode()
        return (encode_uvarint(len(data) + 1) if self.version >= 12 else pack(">h", len(data))) + data

    def _topic(self, name: str, topic_id: UUID) -> bytes:
        return topic_id.bytes if self.version >= 13 else self._text(name)

    def _part(self, part: WantedPart) -> bytes:
        out = pack(">i", part.partition)
        if self.version >= 9:
            out += pack(">i", part.leader_epoch)
        out += pack(">q", part.offset)
        if self.version >= 12:
            out += pack(">i", part.last_fetched_epoch)
        return out + pack(">qi", part.log_start, part.max_bytes) + (b"\x00" if self.version >= 12 else b"")
