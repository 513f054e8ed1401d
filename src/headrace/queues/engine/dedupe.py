"""De-duplication ids of the last five minutes. Pure.

A message whose id another message had, sent less than five minutes before, is a duplicate of that one. An id is stored
as a digest of 16 bytes, which takes about 240 bytes of memory for each message with an id within the five minutes; at
most `MOST` are remembered.
"""

from collections.abc import Iterable
from hashlib import blake2b
from struct import Struct

from headrace.coordinator.machine import InternalRecord
from headrace.queues.engine.stored import CHUNK, CHUNK_BITS, IDS, IdsValue, entry, tombstone

WINDOW_MS = 5 * 60 * 1000
MOST = 2_000_000
_GRACE_MS = 60_000
"""Ids are remembered for this much longer: a message is known here a little after it was sent."""

_PLACE = Struct("<QQ")


def digest(dedupe: bytes, group: bytes | None) -> bytes:
    """The digest of an id in the whole queue, or in a group."""
    scope = b"" if group is None else len(group).to_bytes(4, "little") + group
    return blake2b(scope + dedupe, digest_size=16).digest()


class DedupeIds:
    def __init__(self) -> None:
        self._first: dict[bytes, bytes] = {}
        """By digest: offset, time and id of the message, in the order of the offsets."""
        self._chunk = -1
        self._open: list[tuple[int, int, bytes, str]] = []
        """The ids of the last chunk, including those that are saved, if there are others."""
        self._is_open_wanted = False
        self._whole: list[tuple[int, list[tuple[int, int, bytes, str]]]] = []
        self._newest_ms: dict[int, int] = {}
        """The newest send time of each stored chunk."""
        self._passed: list[int] = []
        self._is_open_saved = True

    def first(self, digest: bytes, offset: int, sent_ms: int, message_id: str) -> tuple[int, str] | None:
        """Offset and id of the message that this one is a duplicate of; None if it is the first, from now on."""
        known = self.known(digest, sent_ms)
        if known is not None and known[0] < offset:
            return known
        self._remember(digest, offset, sent_ms, message_id)
        chunk = offset >> CHUNK_BITS
        if chunk != self._chunk:
            if not self._is_open_saved:
                self._whole.append((self._chunk, self._open))
            self._chunk, self._open = chunk, []
        self._is_open_saved = False
        self._open.append((offset & CHUNK - 1, sent_ms, digest, message_id))
        return None

    def known(self, digest: bytes, sent_ms: int) -> tuple[int, str] | None:
        """Offset and id of the message that one with this digest would be a duplicate of; None if there is none."""
        known = self._first.get(digest)
        if known is None:
            return None
        first_offset, first_ms = _PLACE.unpack_from(known)
        return (first_offset, known[_PLACE.size :].decode()) if sent_ms - first_ms < WINDOW_MS else None

    def _remember(self, digest: bytes, offset: int, sent_ms: int, message_id: str) -> None:
        self._first.pop(digest, None)
        self._first[digest] = _PLACE.pack(offset, max(0, sent_ms)) + message_id.encode()
        if len(self._first) > MOST:
            del self._first[next(iter(self._first))]

    def forget(self, now_ms: int) -> None:
        """Forget ids that are out of the window. Not to be called before the log is indexed to its end."""
        gone = []
        for known, place in self._first.items():
            if _PLACE.unpack_from(place)[1] + WINDOW_MS + _GRACE_MS > now_ms:
                break
            gone.append(known)
        for known in gone:
            del self._first[known]
        if gone:
            for chunk in [
                number for number, newest_ms in self._newest_ms.items() if newest_ms + WINDOW_MS + _GRACE_MS <= now_ms
            ]:
                if chunk != self._chunk:
                    del self._newest_ms[chunk]
                    self._passed.append(chunk)

    def clear(self) -> None:
        """Forget all ids, as a purge does."""
        self._first.clear()
        self._whole.clear()
        self._chunk, self._open, self._is_open_saved = -1, [], True
        self._passed += self._newest_ms
        self._newest_ms.clear()

    def save_open(self) -> None:
        """Persist the ids of the last chunk, which is incomplete, with the next changes."""
        self._is_open_wanted = True

    # -- persisting

    def load(self, chunks: Iterable[tuple[int, IdsValue]], end: int) -> None:
        """Load the ids of messages below `end`: those from there on are indexed again."""
        for chunk, value in sorted(chunks, key=lambda pair: pair[0]):
            self._newest_ms[chunk] = max((item[1] for item in value.ids), default=0)
            base = chunk << CHUNK_BITS
            ids = [item for item in value.ids if base + item[0] < end]
            for number, sent_ms, known, message_id in ids:
                self._remember(known, base + number, sent_ms, message_id)
            if ids:
                self._chunk, self._open = chunk, ids

    def take(self, open_chunk: int) -> list[InternalRecord]:
        """The ids of complete chunks, and of the open one if `save_open` was called."""
        chunks, self._whole = self._whole, []
        if not self._is_open_saved and (self._is_open_wanted or self._chunk < open_chunk):
            chunks.append((self._chunk, self._open))
            self._is_open_saved = True
        self._is_open_wanted = False
        for chunk, ids in chunks:
            self._newest_ms[chunk] = max(item[1] for item in ids)
        return [entry(IDS, chunk, IdsValue(ids)) for chunk, ids in chunks]

    def take_passed(self) -> list[InternalRecord]:
        passed, self._passed = self._passed, []
        return [tombstone(IDS, chunk) for chunk in passed if chunk not in self._newest_ms]
