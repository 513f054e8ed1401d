"""Encryption at rest of one log: batches are encrypted when the leader appends them, and decrypted when they are read.

An encrypted batch is a record batch whose records section is the output of `BatchCipher` and whose `ENCRYPTED`
attribute is set. Its header stays in the clear, and its checksum covers the encrypted bytes: recovery, indexes,
truncation and replication need no key. What leaves the log for a consumer, or is decoded here, is the batch as the
producer sent it, with the length and checksum of the plain records.

Authenticated with the records: topic id, partition, base offset, and everything that the checksum covers. So a batch
cannot be moved to another place, and no timestamp, producer or count of it can be changed unnoticed.
"""

from struct import Struct
from uuid import UUID

from crc32c import crc32c

from headrace.records.batch import (
    CRC_COVERS_FROM,
    ENCRYPTED,
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    Buffer,
    iter_headers,
    read_header,
)
from headrace.security.encryption.batch_cipher import OVERHEAD_BYTES, PREFIX_BYTES, BatchCipher
from headrace.security.encryption.data_keys import UnwrappedKeys

_PLACE = Struct(">16si")
_OFFSET = Struct(">q")
_ATTRIBUTES = Struct(">h")
_UNCOVERED = Struct(">qiibI")
"""The part of a header that the checksum does not cover, and the checksum."""
_COVERED = Struct(">hiqqqhii")
_STAMP = Struct(">qiibIh")
"""The same part, and the attributes."""
_PEEK = Struct(">8xi9xh")
"""Length and attributes."""
_HEAD_BYTES = HEADER_SIZE + PREFIX_BYTES
_PART_BYTES = 32 * 1024
_FEW = 2
"""So many buffers are sent as they are: those of one large batch."""


class LogCipher:
    """Encrypts and decrypts the batches of one partition. Safe in any thread, except `encrypt`: in one at a time."""

    __slots__ = ("_cipher", "_place", "_topic", "encrypts", "keys")

    def __init__(self, keys: UnwrappedKeys, topic: str, topic_id: UUID, partition: int, *, encrypts: bool) -> None:
        """`encrypts`: whether new batches are encrypted. Without, only what is encrypted already is decrypted."""
        self.keys = keys
        self.encrypts = encrypts
        self._topic = topic
        self._place = _PLACE.pack(topic_id.bytes, partition)
        self._cipher = BatchCipher(keys, f"the topic {topic}")

    def for_rewrite(self) -> "LogCipher":
        """The same keys with a salt of its own, to encrypt in another thread than the one that appends."""
        topic_id, partition = _PLACE.unpack(self._place)
        return LogCipher(self.keys, self._topic, UUID(bytes=topic_id), partition, encrypts=self.encrypts)

    def encrypt(self, batch: Buffer, header: BatchHeader, base_offset: int) -> bytes:
        """The encrypted batch for this offset. Raises `DataKeyMissing` or `TopicShredded`."""
        _, length, leader_epoch, magic, _, attributes, delta, base_time, max_time, producer, epoch, sequence, count = (
            header
        )
        covered = _COVERED.pack(
            attributes | ENCRYPTED, delta, base_time, max_time, producer, epoch, sequence, count
        )  # fmt: skip
        prefix, encrypted = self._cipher.encrypt(
            memoryview(batch)[HEADER_SIZE : length + LOG_OVERHEAD],
            self._place + _OFFSET.pack(base_offset) + covered,
        )
        crc = crc32c(encrypted, crc32c(prefix, crc32c(covered)))
        uncovered = _UNCOVERED.pack(base_offset, length + OVERHEAD_BYTES, leader_epoch, magic, crc)
        return b"".join((uncovered, covered, prefix, encrypted))

    def decrypt(self, batch: Buffer, header: BatchHeader) -> tuple[Buffer, BatchHeader]:
        """The batch as the producer sent it; a batch that is not encrypted is returned as it is."""
        if not header.attributes & ENCRYPTED:
            return batch, header
        plain = b"".join(self._decrypted(memoryview(batch)[: header.size]))
        return plain, read_header(plain)

    def decrypt_all(self, data: Buffer) -> Buffer:
        """The whole batches in `data`, decrypted. One that is cut off at the end is left out if any is encrypted."""
        parts, _ = self.decrypt_parts(data)
        return b"".join(parts) if any(header.attributes & ENCRYPTED for _, header in iter_headers(data)) else data

    def decrypt_parts(self, data: Buffer) -> tuple[list[Buffer], int]:
        """The whole batches in `data`, decrypted, in parts of moderate size, and the number of bytes they had.

        `data` is not referred to afterwards.

        A buffer of a megabyte is mapped and unmapped by the C library each time, which costs more than to decrypt it.
        """
        view = memoryview(data)
        limit = len(view)
        parts: list[Buffer] = []
        small: list[Buffer] = []
        at = part_began = 0
        while limit - at >= HEADER_SIZE:
            # Not `read_header`: for small batches that would be a fifth of the time.
            length, attributes = _PEEK.unpack_from(view, at)
            end: int = at + length + LOG_OVERHEAD
            if end > limit or end - at < HEADER_SIZE:
                break
            if attributes & ENCRYPTED:
                small += self._decrypted(view[at:end])
            else:
                small.append(bytes(view[at:end]))
            at = end
            if at - part_began >= _PART_BYTES:
                parts += small if len(small) <= _FEW else (b"".join(small),)
                small, part_began = [], at
        parts += small if len(small) <= _FEW else (b"".join(small),)
        return parts, at

    def _decrypted(self, batch: memoryview) -> tuple[bytes, bytes]:
        """The header of the plain batch, with its own length and checksum, and the records."""
        head = bytes(batch[:_HEAD_BYTES])
        base_offset, length, leader_epoch, magic, _, attributes = _STAMP.unpack_from(head)
        records = self._cipher.decrypt(
            head[HEADER_SIZE:],
            batch[_HEAD_BYTES:],
            self._place + head[: _OFFSET.size] + head[CRC_COVERS_FROM:HEADER_SIZE],
        )
        covered = _ATTRIBUTES.pack(attributes & ~ENCRYPTED) + head[_STAMP.size : HEADER_SIZE]
        crc = crc32c(records, crc32c(covered))
        return _UNCOVERED.pack(base_offset, length - OVERHEAD_BYTES, leader_epoch, magic, crc) + covered, records
