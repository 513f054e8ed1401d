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

from headrace.records.batch import ENCRYPTED, HEADER_SIZE, BatchHeader, Buffer, iter_headers, read_header
from headrace.records.builder import seal
from headrace.security.encryption.batch_cipher import BatchCipher
from headrace.security.encryption.data_keys import UnwrappedKeys

_PLACE = Struct(">16siq")
_COVERED = Struct(">hiqqqhii")


class LogCipher:
    """Encrypts and decrypts the batches of one partition. Safe in any thread, except `encrypt`: in one at a time."""

    __slots__ = ("_cipher", "_partition", "_topic_id", "_where", "encrypts", "keys")

    def __init__(self, keys: UnwrappedKeys, topic: str, topic_id: UUID, partition: int, *, encrypts: bool) -> None:
        """`encrypts`: whether new batches are encrypted. Without, only what is encrypted already is decrypted."""
        self.keys = keys
        self.encrypts = encrypts
        self._where = f"the topic {topic}"
        self._topic_id = topic_id.bytes
        self._partition = partition
        self._cipher = BatchCipher(keys, self._where)

    def for_rewrite(self) -> "LogCipher":
        """The same keys with a salt of its own, to encrypt in another thread than the one that appends."""
        twin = object.__new__(LogCipher)
        twin.keys, twin.encrypts, twin._where = self.keys, self.encrypts, self._where
        twin._topic_id, twin._partition = self._topic_id, self._partition
        twin._cipher = BatchCipher(self.keys, self._where)
        return twin

    def encrypt(self, batch: Buffer, header: BatchHeader, base_offset: int) -> tuple[bytes, BatchHeader]:
        """The encrypted batch for this offset, and its header. Raises `DataKeyMissing` or `TopicShredded`."""
        records = memoryview(batch)[HEADER_SIZE : header.size]
        sealed = self._cipher.encrypt(records, self._associated(header, base_offset))
        encrypted = seal(header._replace(base_offset=base_offset, attributes=header.attributes | ENCRYPTED), sealed)
        return encrypted, read_header(encrypted)

    def decrypt(self, batch: Buffer, header: BatchHeader) -> tuple[Buffer, BatchHeader]:
        """The batch as the producer sent it; a batch that is not encrypted is returned as it is."""
        if not header.attributes & ENCRYPTED:
            return batch, header
        plain = header._replace(attributes=header.attributes & ~ENCRYPTED)
        encrypted = memoryview(batch)[HEADER_SIZE : header.size]
        decrypted = seal(plain, self._cipher.decrypt(encrypted, self._associated(plain, header.base_offset)))
        return decrypted, read_header(decrypted)

    def decrypt_all(self, data: Buffer) -> Buffer:
        """The whole batches in `data`, decrypted. One that is cut off at the end is left out if any is encrypted."""
        view = memoryview(data)
        parts: list[Buffer] = []
        has_encrypted = False
        for position, header in iter_headers(view):
            has_encrypted = has_encrypted or bool(header.attributes & ENCRYPTED)
            parts.append(self.decrypt(view[position : position + header.size], header)[0])
        if not has_encrypted:
            return data
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _associated(self, plain: BatchHeader, base_offset: int) -> bytes:
        """The associated data of a batch with this plain header."""
        _, _, _, _, _, attributes, last_delta, base_time, max_time, producer, epoch, sequence, count = plain
        place = _PLACE.pack(self._topic_id, self._partition, base_offset)
        return place + _COVERED.pack(attributes, last_delta, base_time, max_time, producer, epoch, sequence, count)
