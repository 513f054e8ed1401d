"""Encryption at rest of one log: batches are encrypted when the leader appends them, and decrypted when they are read.

An encrypted batch is a record batch whose records section is the output of `BatchCipher` and whose `ENCRYPTED`
attribute is set. Its header stays in the clear, and its checksum covers the encrypted bytes: recovery, indexes,
truncation and replication need no key. What leaves the log for a consumer, or is decoded here, is the batch as the
producer sent it, with the length and checksum of the plain records.

Authenticated with the records: topic id, partition, base offset, and everything that the checksum covers. So a batch
cannot be moved to another place, and no timestamp, producer or count of it can be changed unnoticed.
"""

from functools import cache
from struct import Struct
from uuid import UUID

from crc32c import crc32c

from headrace.model.errors import EncryptionError
from headrace.records.batch import (
    ENCRYPTED,
    HEADER_SIZE,
    LOG_OVERHEAD,
    STAMP_SIZE,
    BatchHeader,
    Buffer,
    iter_headers,
    read_header,
)
from headrace.security.encryption.batch_cipher import (
    CHANGED,
    KEY_PREFIX_BYTES,
    NONCE_BYTES,
    OVERHEAD_BYTES,
    PREFIX_BYTES,
    BatchCipher,
)
from headrace.security.encryption.data_keys import UnwrappedKeys
from headrace.storage.recent_batches import RecentBatch, RecentBatches, Tail

_PLACE = Struct(">16si")
_OFFSET = Struct(">q")
_ATTRIBUTES = Struct(">h")
_UNCOVERED = Struct(">qiibI")
"""The part of a header that the checksum does not cover, and the checksum."""
_COVERED = Struct(">hiqqqhii")
_SEALED = Struct(f">8si5s4x2s38s{KEY_PREFIX_BYTES}s{NONCE_BYTES}s")
"""An encrypted batch up to its records: base offset, length, leader epoch and format, attributes, the rest of what the
checksum covers, which key, and the nonce. One call reads all of it: a fifth of the time for small batches."""
_PLAIN = Struct(">8si5sI")
"""The same up to the checksum."""
_LENGTH = Struct(">8xi")
_STAMP = Struct(">qii")
_HEAD_BYTES = HEADER_SIZE + PREFIX_BYTES
_PART_BYTES = 32 * 1024
_FEW = 2
"""So many buffers are sent as they are: those of one large batch."""


@cache
def _plain_attributes(stored: bytes) -> bytes:
    """The attributes of an encrypted batch without the bit that says so; empty if it is not set."""
    (attributes,) = _ATTRIBUTES.unpack(stored)
    return _ATTRIBUTES.pack(attributes & ~ENCRYPTED) if attributes & ENCRYPTED else b""


class LogCipher:
    """Encrypts and decrypts the batches of one partition. Safe in any thread, except `encrypt`: in one at a time."""

    __slots__ = ("_cipher", "_is_read", "_place", "_recent", "_tail", "_topic", "encrypts", "keys")

    def __init__(
        self,
        keys: UnwrappedKeys,
        topic: str,
        topic_id: UUID,
        partition: int,
        *,
        encrypts: bool,
        recent: RecentBatches | None = None,
    ) -> None:
        """`encrypts`: whether new batches are encrypted. Without, only what is encrypted already is decrypted.
        `recent`: where the newest batches are held for consumers; without, each reader decrypts them."""
        self._recent = recent
        self._tail: Tail = {}
        self._is_read = False
        """Whether the end of the log has been read: until then nothing is held."""
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
        parts, _, _ = self.decrypt_parts(memoryview(batch)[: header.size])
        plain = b"".join(parts)
        return plain, read_header(plain)

    def decrypt_all(self, data: Buffer) -> Buffer:
        """The whole batches in `data`, decrypted. One that is cut off at the end is left out if any is encrypted."""
        parts, _, _ = self.decrypt_parts(data)
        return b"".join(parts) if any(header.attributes & ENCRYPTED for _, header in iter_headers(data)) else data

    def decrypt_parts(self, data: Buffer) -> tuple[list[Buffer], int, int]:
        """The whole batches in `data`, decrypted, in parts of moderate size, the number of bytes they had, and how many
        batches they are.

        They end before one that cannot be decrypted; if that is the first, its error is raised. `data` is not referred
        to afterwards.

        A buffer of a megabyte is mapped and unmapped by the C library each time, which costs more than to decrypt it.
        """
        parts: list[Buffer] = []
        small: list[Buffer] = []
        view = memoryview(data)
        limit, at, part_began, batches = len(view), 0, 0, 0
        place, cipher, known = self._place, self._cipher, self._cipher.known
        try:
            while limit - at >= _HEAD_BYTES:
                offset, length, stamp, attributes, covered, prefix, nonce = _SEALED.unpack_from(view, at)
                end: int = at + length + LOG_OVERHEAD
                if end > limit or end - at < HEADER_SIZE:
                    break
                plain = _plain_attributes(attributes)
                if plain:
                    key = known.get(prefix) or cipher.derive(prefix)
                    associated = place + offset + attributes + covered
                    records = key.decrypt(nonce, view[at + _HEAD_BYTES : end], associated)
                    covered = plain + covered
                    crc = crc32c(records, crc32c(covered))
                    small.append(_PLAIN.pack(offset, length - OVERHEAD_BYTES, stamp, crc) + covered)
                    small.append(records)
                else:
                    small.append(bytes(view[at:end]))
                at = end
                batches += 1
                if at - part_began >= _PART_BYTES:
                    _close_part(parts, small)
                    part_began = at
            if HEADER_SIZE <= limit - at < _HEAD_BYTES:
                # Too small to be encrypted: a batch without records, or one that is cut off.
                end = at + _LENGTH.unpack_from(view, at)[0] + LOG_OVERHEAD
                if at + HEADER_SIZE <= end <= limit:
                    small.append(bytes(view[at:end]))
                    at = end
        except CHANGED:
            if not at:
                raise cipher.not_authentic() from None
        except EncryptionError:
            if not at:
                raise
        _close_part(parts, small)
        return parts, at, batches

    # The newest batches

    def remember(self, batch: Buffer, base_offset: int, next_offset: int, leader_epoch: int, size: int) -> None:
        """Hold a batch that was appended, which takes `size` bytes on disk, if the end of the log is being read."""
        if self._is_read and self._recent is not None:
            stamped = _STAMP.pack(base_offset, len(batch) - LOG_OVERHEAD, leader_epoch)
            plain = b"".join((stamped, memoryview(batch)[STAMP_SIZE:]))
            self._recent.add(self._tail, base_offset, RecentBatch(plain, size, next_offset))

    def recent(self, offset: int, length: int) -> tuple[list[Buffer], int, bool]:
        """The held batches from one on that are whole within `length` bytes on disk, in parts of moderate size; how
        many bytes they are there; and whether no other batch is whole within them."""
        self._is_read = True
        get = self._tail.get
        parts: list[Buffer] = []
        small: list[Buffer] = []
        taken, part_began, is_whole = 0, 0, True
        while taken < length:
            found = get(offset)
            if found is None:
                is_whole = False
                break
            batch, size, offset = found
            if taken + size > length:
                break
            small.append(batch)
            taken += size
            if taken - part_began >= _PART_BYTES:
                _close_part(parts, small)
                part_began = taken
        _close_part(parts, small)
        return parts, taken, is_whole

    def forget_recent(self) -> None:
        """The log is being truncated: other batches will have these offsets. In any thread."""
        self._tail = {}

    def drop_recent(self) -> None:
        """The keys have changed. In the event loop."""
        tail, self._tail = self._tail, {}
        if self._recent is not None:
            self._recent.drop(tail)


def _close_part(parts: list[Buffer], small: list[Buffer]) -> None:
    """Move the buffers to the parts: joined, but for those of one large batch."""
    parts += small if len(small) <= _FEW else (b"".join(small),)
    small.clear()
