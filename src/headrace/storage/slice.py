"""A slice of a log: the bytes of consecutive batches on disk, located but not read."""

from collections.abc import Iterator
from threading import local
from typing import NamedTuple

from headrace.model.errors import EncryptionError
from headrace.records.batch import HEADER_SIZE, read_header
from headrace.runtime.disk import Buffer, DiskFile
from headrace.storage.encryption import LogCipher

_CHUNK_BYTES = 256 * 1024
_of_thread = local()


def _buffer() -> memoryview:
    """A buffer of this thread: the page faults of a new one cost more than to decrypt what is read into it."""
    found: memoryview | None = getattr(_of_thread, "buffer", None)
    if found is None:
        found = _of_thread.buffer = memoryview(bytearray(_CHUNK_BYTES))
    return found


class Slice(NamedTuple):
    """Bytes on disk that start with a whole batch; the last batch may be cut off."""

    file: DiskFile
    position: int
    length: int
    first_batch_offset: int
    is_closed: bool
    """Whether the segment is closed, so that nothing is appended to it any more."""
    cipher: LogCipher | None = None
    """Decrypts the batches; None if the log has never been encrypted, or the bytes are for another replica."""
    end_offset: int = -1
    """The offset after the last batch; -1 if it is not known, because the last batch may be cut off."""

    def read(self) -> Buffer:
        """Read the batches, decrypted. Blocking. Raises `OSError` and `EncryptionError`."""
        return self.decrypted(self.file.read(self.position, self.length))

    def read_cached(self) -> Buffer | None:
        """Like `read`, without waiting for the disk; None if not all bytes are in the page cache."""
        data = self.file.read_cached(self.position, self.length)
        return None if data is None else self.decrypted(data)

    def read_recent(self) -> list[Buffer] | None:
        """All batches as far as they are held in memory, decrypted; None if any is not.

        Only of the active segment: compaction changes closed ones.
        """
        if self.cipher is None or self.is_closed:
            return None
        parts, _, is_whole = self.cipher.recent(self.first_batch_offset, self.length)
        return parts if is_whole else None

    def read_parts(self) -> list[Buffer]:
        """Like `read`, in parts of moderate size if they have to be decrypted."""
        return [part for parts in self.read_in_turns() for part in parts]

    def read_in_turns(self) -> Iterator[list[Buffer]]:
        """Like `read_parts`, some parts at a time: an encrypted slice is read and decrypted by chunks.

        They end before a batch that cannot be decrypted: a consumer gets what is before it, and the error next.
        """
        cipher = self.cipher
        if cipher is None:
            yield [self.file.read(self.position, self.length)]
            return
        position, end = self.position, self.position + self.length
        if not self.is_closed:
            parts, length, _ = cipher.recent(self.first_batch_offset, self.length)
            if parts:
                yield parts
            position += length
        while end - position >= HEADER_SIZE:
            # Fetched in each turn: between two of them another reader of this thread may use it.
            room = _buffer()[: min(_CHUNK_BYTES, end - position)]
            data: Buffer = room[: self.file.read_into(position, room)]
            if len(data) < HEADER_SIZE:
                return
            size = read_header(data).size
            if len(data) < size <= end - position:
                data = self.file.read(position, size)
            try:
                parts, length = cipher.decrypt_parts(data)
            except EncryptionError:
                if position > self.position:
                    return
                raise
            if not length:
                return
            yield parts
            position += length

    def decrypted(self, data: Buffer) -> Buffer:
        """The batches in `data`, which was read from this slice."""
        return data if self.cipher is None else self.cipher.decrypt_all(data)
