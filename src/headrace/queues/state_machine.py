"""The persisted state of queues: entries (key and value) in `__queue_state`, for the leader of each queue. Pure.

A shard of this topic knows only the names of queues, their entries, and who may write them. The broker that leads a
queue's partition *opens* its state and reads all entries, with a term: a number that is new each time. From then on
only writes of that term are accepted. So neither a former leader that does not know its successor yet, nor a delayed
write of the same leader from before it opened the state again, changes anything.

    key                         value            meaning
    ["queue", name]             [epoch, term]    who may write: a queue exists from its first opening on
    ["entry", name, key]        bytes            one entry of a queue

Keys are msgpack arrays. A tombstone (no value) removes an entry, or a queue with all its entries.
"""

from collections.abc import Sequence
from itertools import islice

import msgspec

from headrace.coordinator.machine import EntryMachine, InternalRecord, Outcome
from headrace.model.errors import CorruptBatch, StaleQueueLeader
from headrace.model.queue_state import StateChangesPage, StatePosition
from headrace.queues.state_changes import StateChanges
from headrace.queues.state_entries import StateEntries

PAGE_ENTRIES = 20_000
PAGE_BYTES = 1024 * 1024
"""The most of a queue's state that is read at a time, but at least one entry."""
_WATCHED_MS = 60_000
"""How long the changes of a queue are listed after a link has asked for them."""


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
    __slots__ = ("changes", "entries", "fence")

    def __init__(self, fence: Fence) -> None:
        self.fence = fence
        self.entries = StateEntries()
        self.changes: StateChanges | None = None
        """While a link copies the state."""

    def set(self, key: bytes, value: bytes) -> None:
        self.entries[key] = value
        if self.changes is not None:
            self.changes.set(key)

    def remove(self, key: bytes) -> None:
        if key in self.entries:
            del self.entries[key]
            if self.changes is not None:
                self.changes.remove(key)


class QueueStateMachine(EntryMachine):
    """The state of all queues of one shard."""

    def __init__(self) -> None:
        self._queues: dict[str, _Queue] = {}
        self._watched: dict[str, float] = {}
        """The queues whose changes are listed, and when a link last asked for them; oldest first."""

    @property
    def queues(self) -> Sequence[str]:
        return tuple(self._queues)

    def open(self, queue: str, epoch: int) -> Outcome[InternalRecord, int]:
        """Become the leader of a queue; the term to write with. `StaleQueueLeader` if a later epoch has begun."""
        known = self._queues.get(queue)
        if known is not None and epoch < known.fence.epoch:
            raise StaleQueueLeader(f"{queue} has a leader of epoch {known.fence.epoch}, which is later than {epoch}")
        fence = Fence(epoch, 1 if known is None else known.fence.term + 1)
        return Outcome((InternalRecord(_encode(QueueKey(queue)), _encode(fence)),), fence.term)

    def read(self, queue: str, term: int, at: int) -> StatePage:
        """The entries from 0, or from `StatePage.next_at` of the last page. They do not change meanwhile: the reader is
        the only writer."""
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

    def changes(self, queue: str, position: StatePosition, new_instance: str, now_ms: float) -> StateChangesPage:
        """What changed in a queue's state since a position. Any reader may ask: no writer is fenced. `new_instance`
        names the list of changes if there is none yet."""
        known = self._queues.get(queue)
        self._watch(queue, now_ms, is_known=known is not None)
        if known is None:
            return StateChangesPage(-1, 0, StatePosition(), is_reset=True, is_last=True, entries=[])
        if known.changes is None:
            known.changes = StateChanges(new_instance, known.entries)
        is_reset = not known.changes.is_known(position)
        entries, version, is_last = known.changes.since(0 if is_reset else position.version, known.entries)
        following = StatePosition(known.changes.instance, version)
        return StateChangesPage(known.fence.epoch, known.fence.term, following, is_reset, is_last, entries)

    def _watch(self, queue: str, now_ms: float, *, is_known: bool) -> None:
        self._watched.pop(queue, None)
        if is_known:
            self._watched[queue] = now_ms
        while self._watched and (first := next(iter(self._watched.items())))[1] <= now_ms - _WATCHED_MS:
            del self._watched[first[0]]
            if (forgotten := self._queues.get(first[0])) is not None:
                forgotten.changes = None

    def write(self, queue: str, term: int, entries: Sequence[InternalRecord]) -> Outcome[InternalRecord, None]:
        """Set entries, and remove those without a value. `StaleQueueLeader` unless this is the term of the last
        opening."""
        self._of(queue, term)
        return Outcome([InternalRecord(_encode(EntryKey(queue, key)), value) for key, value in entries], None)

    def forget(self, queue: str) -> Outcome[InternalRecord, None]:
        """Remove a queue that was deleted. Its name is not used again: it contains the topic's id."""
        known = self._queues.get(queue)
        if known is None:
            return Outcome((), None)
        gone = [InternalRecord(_encode(EntryKey(queue, key)), None) for key in known.entries]
        return Outcome([*gone, InternalRecord(_encode(QueueKey(queue)), None)], None)

    def _of(self, queue: str, term: int) -> _Queue:
        known = self._queues.get(queue)
        if known is None or known.fence.term != term:
            raise StaleQueueLeader(f"{queue} was opened by another broker, or was deleted: term {term} is over")
        return known

    # -- replay

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
            queue.remove(key.key)
        else:
            queue.set(key.key, entry.value)

    def replay_end(self, producer_id: int, *, committed: bool) -> None:
        """There are no transactions in this topic."""

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
