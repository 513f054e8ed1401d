"""A slice of a log: the bytes of consecutive batches on disk, located but not read."""

from collections.abc import Callable, Iterator
from threading import local
from typing import NamedTuple

from headrace.model.errors import EncryptionError
from headrace.records.batch import HEADER_SIZE, read_header
from headrace.runtime.disk import Buffer, DiskFile
from headrace.storage.encryption import LogCipher
from headrace.storage.ordered_file import OrderedFile

_CHUNK_BYTES = 256 * 1024
PIECE_BYTES = 128 * 1024
"""How much is read at a time of what is not in the page cache, where logs are synced often: a sync may have to wait for
one piece."""
NEXT_HEADER_BYTES = 4096
"""What is read of the batch after a slice, so that the event loop does not wait for the disk to locate it."""
_of_thread = local()


def _buffer() -> memoryview:
    """A buffer of this thread: the page faults of a new one cost more than to decrypt what is read into it."""
    found: memoryview | None = getattr(_of_thread, "buffer", None)
    if found is None:
        found = _of_thread.buffer = memoryview(bytearray(_CHUNK_BYTES))
    return found


class DecryptedChunk(NamedTuple):
    """What one step of reading an encrypted slice has read."""

    parts: list[Buffer]
    batches: int = 0
    """How many were decrypted: each takes its time, however small it is."""


class Slice(NamedTuple):
    """Whole batches on disk."""

    file: DiskFile
    position: int
    length: int
    first_batch_offset: int
    is_closed: bool
    """Whether the segment is closed, so that nothing is appended to it any more."""
    cipher: LogCipher | None = None
    """Decrypts the batches; None if the log has never been encrypted, or the bytes are for another replica."""
    end_offset: int = -1
    """The offset after the last batch; -1 if it is not known without reading more of the file."""
    takes_bytes: int = 0
    """What it takes of its limit: all of it where the next batch does not fit. At least its length."""

    def bring_in(self, give_way: Callable[[], int], ordered: OrderedFile | None = None) -> None:
        """Read into the page cache what it lacks, and the next header. Blocking. Raises `OSError`.

        Calls `give_way` before each piece, which returns how large that may be. Pieces of more than `PIECE_BYTES` are
        read through `ordered`, for those who read on.
        """
        position, end = self.position, self.position + self.length + NEXT_HEADER_BYTES
        while position < end:
            size = min(PIECE_BYTES, end - position)
            if not self.file.is_cached(position, size):
                most = give_way()
                if most <= PIECE_BYTES:
                    got = self.file.read_into(position, _buffer()[:size])
                else:
                    size = min(most, end - position)
                    got = (self.file if ordered is None else ordered).bring_in(position, size)
                if got < size:
                    return
            position += size

    def read(self) -> Buffer:
        """Read the batches, decrypted. Blocking. Raises `OSError` and `EncryptionError`."""
        data = self.file.read(self.position, self.length)
        self.read_ahead()
        return self.decrypted(data)

    def read_ahead(self) -> None:
        """Start to read as much again of what follows, for those who read on. Raises `OSError`."""
        self.file.read_ahead(self.position + self.length, self.length)

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
        return [part for chunk in self.read_in_turns() for part in chunk.parts]

    def read_in_turns(self) -> Iterator[DecryptedChunk]:
        """Like `read_parts`, some parts at a time: an encrypted slice is read and decrypted by chunks.

        They end before a batch that cannot be decrypted: a consumer gets what is before it, and the error next.
        """
        cipher = self.cipher
        if cipher is None:
            yield DecryptedChunk([self.file.read(self.position, self.length)])
            return
        position, end = self.position, self.position + self.length
        if not self.is_closed:
            parts, length, _ = cipher.recent(self.first_batch_offset, self.length)
            if parts:
                yield DecryptedChunk(parts)
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
                parts, length, batches = cipher.decrypt_parts(data)
            except EncryptionError:
                if position > self.position:
                    return
                raise
            if not length:
                return
            yield DecryptedChunk(parts, batches)
            position += length

    def decrypted(self, data: Buffer) -> Buffer:
        """The batches in `data`, which was read from this slice."""
        return data if self.cipher is None else self.cipher.decrypt_all(data)
