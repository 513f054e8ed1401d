"""What survives of a queue: entries (key and value) in `__queue_state`, kept for whoever leads the queue. Pure.

A shard of this topic knows nothing of queues but their names, their entries and who may write them. The broker that
leads a queue's partition *opens* its state and gets everything there is, with a term: a number that is new each time.
From then on only writes of that term are taken. So neither a former leader that has not heard of its successor yet, nor
a write of the same leader that was on its way when it gave up and read anew, changes anything any more.

    key                         value            meaning
    ["queue", name]             [epoch, term]    who may write: a queue exists from its first opening on
    ["entry", name, key]        bytes            one entry of a queue

Keys are msgpack arrays. A tombstone (no value) forgets an entry, or a queue with everything that it has.
"""

from collections.abc import Sequence
from itertools import islice

import msgspec

from headrace.coordinator.machine import EntryMachine, InternalRecord, Outcome
from headrace.model.errors import CorruptBatch, StaleQueueLeader

PAGE_ENTRIES = 20_000
PAGE_BYTES = 1024 * 1024
"""At most so much of a queue's state is given at a time, but always one entry."""


class QueueKey(msgspec.Struct, array_like=True, frozen=True, tag="queue"):
    queue: str


class EntryKey(msgspec.Struct, array_like=True, frozen=True, tag="entry"):
    queue: str
    key: bytes


class Fence(msgspec.Struct, array_like=True, frozen=True):
    epoch: int
    """The leader epoch of the queue's partition."""
    term: int
    """One more with each opening."""


class StatePage(msgspec.Struct, array_like=True, frozen=True):
    """A part of a queue's state, and where the next one begins; None if this is the last."""

    term: int
    entries: list[tuple[bytes, bytes]]
    next_at: int | None


_encode = msgspec.msgpack.Encoder().encode
_decode_key = msgspec.msgpack.Decoder(QueueKey | EntryKey).decode
_decode_fence = msgspec.msgpack.Decoder(Fence).decode


class _Queue:
    __slots__ = ("entries", "fence")

    def __init__(self, fence: Fence) -> None:
        self.fence = fence
        self.entries: dict[bytes, bytes] = {}


class QueueStateMachine(EntryMachine):
    """The state of all queues of one shard."""

    def __init__(self) -> None:
        self._queues: dict[str, _Queue] = {}

    @property
    def queues(self) -> Sequence[str]:
        return tuple(self._queues)

    def open(self, queue: str, epoch: int) -> Outcome[InternalRecord, int]:
        """Lead a queue from now on; the term to write with. `StaleQueueLeader` if a later epoch has begun."""
        known = self._queues.get(queue)
        if known is not None and epoch < known.fence.epoch:
            raise StaleQueueLeader(f"{queue} has a leader of epoch {known.fence.epoch}, which is later than {epoch}")
        fence = Fence(epoch, 1 if known is None else known.fence.term + 1)
        return Outcome((InternalRecord(_encode(QueueKey(queue)), _encode(fence)),), fence.term)

    def read(self, queue: str, term: int, at: int) -> StatePage:
        """The entries from a place on, which `Page.next_at` of the last one gave, or 0. They do not change meanwhile:
        whoever reads is the only one who may write."""
        entries = self._of(queue, term).entries
        page: list[tuple[bytes, bytes]] = []
        size_bytes = 0
        for key, value in islice(entries.items(), at, at + PAGE_ENTRIES):
            size_bytes += len(key) + len(value)
            if page and size_bytes > PAGE_BYTES:
                break
            page.append((key, value))
        end = at + len(page)
        return StatePage(term, page, end if end < len(entries) else None)

    def write(self, queue: str, term: int, entries: Sequence[InternalRecord]) -> Outcome[InternalRecord, None]:
        """Set entries, and remove those without a value. `StaleQueueLeader` unless this is the term of the last
        opening."""
        self._of(queue, term)
        return Outcome([InternalRecord(_encode(EntryKey(queue, key)), value) for key, value in entries], None)

    def forget(self, queue: str) -> Outcome[InternalRecord, None]:
        """A queue is no more. Its name is not used again: it has the topic's id in it."""
        known = self._queues.get(queue)
        if known is None:
            return Outcome((), None)
        gone = [InternalRecord(_encode(EntryKey(queue, key)), None) for key in known.entries]
        return Outcome([*gone, InternalRecord(_encode(QueueKey(queue)), None)], None)

    def _of(self, queue: str, term: int) -> _Queue:
        known = self._queues.get(queue)
        if known is None or known.fence.term != term:
            raise StaleQueueLeader(f"{queue} was opened by somebody else, or is no more: term {term} is over")
        return known

    # -- as any coordinator

    def replay(self, entry: InternalRecord, producer_id: int) -> None:
        key = _read_key(entry.key)
        if isinstance(key, QueueKey):
            if entry.value is None:
                self._queues.pop(key.queue, None)
                return
            fence = _read_fence(entry.value)
            known = self._queues.get(key.queue)
            if known is None:
                self._queues[key.queue] = _Queue(fence)
            else:
                known.fence = fence
            return
        # Compaction may leave entries before the record that opens the queue, since that is written again and again.
        queue = self._queues.get(key.queue)
        if queue is None:
            if entry.value is None:
                return
            queue = self._queues[key.queue] = _Queue(Fence(-1, 0))
        if entry.value is None:
            queue.entries.pop(key.key, None)
        else:
            queue.entries[key.key] = entry.value

    def replay_end(self, producer_id: int, *, committed: bool) -> None:
        """Nobody writes to this topic in a transaction."""

    def loaded(self, now_ms: float) -> None:
        """Nothing here has a deadline."""


def _read_key(data: bytes) -> QueueKey | EntryKey:
    try:
        key: QueueKey | EntryKey = _decode_key(data)
        return key
    except msgspec.MsgspecError as error:
        raise CorruptBatch(
            f"a record of __queue_state is damaged or of a newer version of Headrace: {error}"
        ) from error


def _read_fence(data: bytes) -> Fence:
    try:
        return _decode_fence(data)
    except msgspec.MsgspecError as error:
        raise CorruptBatch(
            f"a record of __queue_state is damaged or of a newer version of Headrace: {error}"
        ) from error
