"""Indexing: the messages of the log are added to the inventory, in the order of their offsets, each once. Pure.

A message that is in the log twice, by its de-duplication id or because a transfer was repeated, is acked at once.
Messages up to `known_to` may be acked, or may have been received, before they are indexed: the persisted state was
ahead of the persisted index.
"""

from collections.abc import Callable, Iterable

from headrace.model.features import LATEST_LEVEL
from headrace.model.queued import NORMAL_PRIORITY
from headrace.queues.engine.acked import chunks_of
from headrace.queues.engine.chunk_index import ChunkIndex, DuplicateMessage, LogMessage, OpenChunk
from headrace.queues.engine.dedupe import DedupeIds, digest
from headrace.queues.engine.inventory import Inventory
from headrace.queues.engine.moved_pages import MovedPages
from headrace.queues.engine.stored import CHUNK, CHUNK_BITS, LeaseRecord

_IN_CHUNK = CHUNK - 1


class Indexer:
    def __init__(self, inventory: Inventory, feature_level: Callable[[], int] = lambda: LATEST_LEVEL) -> None:
        """The index is persisted as the feature level of the cluster allows."""
        self._inventory = inventory
        self.chunks = ChunkIndex(0, inventory.chunk_closed, feature_level)
        self.dedupe_ids = DedupeIds()
        self.pages = MovedPages()
        self._received: dict[int, LeaseRecord] = {}
        self._known_to = -1

    @property
    def log_start(self) -> int:
        """Records below are not needed."""
        return min(self._inventory.head, self.chunks.saved_to)

    def index(self, messages: Iterable[LogMessage], now_ms: int) -> list[DuplicateMessage]:
        """Add the next messages of the log; the duplicates among them are acked and returned."""
        inventory = self._inventory
        duplicates = []
        for message in messages:
            if message.offset >= inventory.indexed_to:
                self.skip(inventory.indexed_to, message.offset - 1)
                duplicate = self._admit(message, now_ms)
                if duplicate is not None:
                    duplicates.append(duplicate)
        return duplicates

    def _admit(self, message: LogMessage, now_ms: int) -> DuplicateMessage | None:
        inventory, offset = self._inventory, message.offset
        number = offset & _IN_CHUNK
        sent_ms = min(message.sent_ms, now_ms)
        inventory.indexed_to = offset + 1
        chunk = self.chunks.at(offset)
        chunk.end = offset + 1
        chunk.add_age(number, sent_ms, inventory.send_times.grain)
        inventory.send_times.add(offset, sent_ms)
        group = message.group or b""
        is_acked = offset <= self._known_to and offset in inventory.acked
        duplicate = self._duplicate(message, group, sent_ms)
        if duplicate is not None:
            if not is_acked:
                inventory.acked.add(offset)
            return duplicate
        if message.priority != NORMAL_PRIORITY and not is_acked:
            chunk.add_level(number, message.priority)
            inventory.available.set_level(offset, message.priority)
        if inventory.groups is not None:
            chunk.add_member(number, group)
        if not is_acked:
            due_ms = self._schedule(message, chunk, sent_ms, now_ms)
            held = self._received.pop(offset, None) if self._received else None
            if held is None:
                inventory.add(offset, group, is_delayed=due_ms > now_ms)
            else:
                inventory.unacked += 1
                inventory.place_received(offset, held, group)
        return None

    def _duplicate(self, message: LogMessage, group: bytes, sent_ms: int) -> DuplicateMessage | None:
        offset = message.offset
        if message.dedupe is not None:
            first = self.dedupe_ids.first(self._digest(message.dedupe, group), offset, sent_ms, message.id)
            if first is not None:
                return DuplicateMessage(offset, *first)
        if message.place is not None and not self.pages.is_new(message.place, offset):
            return DuplicateMessage(offset, offset, message.id)
        return None

    def _digest(self, dedupe: bytes, group: bytes) -> bytes:
        return digest(dedupe, group if self._inventory.settings.dedupe_scope == "messageGroup" else None)

    def first_sent(self, message: LogMessage) -> tuple[int, str] | None:
        """Offset and id of the message that one which is to be sent would be a duplicate of; None if there is none."""
        if message.dedupe is None:
            return None
        return self.dedupe_ids.known(self._digest(message.dedupe, message.group or b""), message.sent_ms)

    def _schedule(self, message: LogMessage, chunk: OpenChunk, sent_ms: int, now_ms: int) -> int:
        """Note when the message is due and when it expires; when it is due."""
        inventory, offset = self._inventory, message.offset
        number = offset & _IN_CHUNK
        due_ms = message.due_ms
        if due_ms is None:
            due_ms = sent_ms + inventory.settings.delay_ms
        if due_ms > sent_ms:
            chunk.add_delayed(number, number, due_ms)
            if due_ms > now_ms:
                inventory.delays.add(offset, offset, due_ms)
            else:
                inventory.delayed_retention.add(offset, offset, due_ms)
        if message.expires_ms is not None:
            chunk.add_expiring(number, message.expires_ms)
            inventory.expiries.add(offset, offset, message.expires_ms)
        return due_ms

    def index_plain(self, first: int, last: int, sent_ms: int | None, now_ms: int) -> None:
        """Like `index` for messages first to last that have nothing but their time, at hardly the cost of one."""
        inventory = self._inventory
        self.skip(inventory.indexed_to, first - 1)
        first = max(first, inventory.indexed_to)
        if last < first:
            return
        if inventory.groups is not None or first <= self._known_to:
            middle = last if inventory.groups is not None else min(last, self._known_to)
            time_ms = now_ms if sent_ms is None else sent_ms
            self.index((LogMessage(offset, time_ms) for offset in range(first, middle + 1)), now_ms)
            first = middle + 1
            if last < first:
                return
        due_ms = 0
        if sent_ms is not None:
            sent_ms = min(sent_ms, now_ms)
            inventory.send_times.add(last, sent_ms)
            if inventory.settings.delay_ms:
                due_ms = sent_ms + inventory.settings.delay_ms
        if inventory.policy.persist_index:
            self._index_chunks(first, last, sent_ms, due_ms, now_ms)
        if 0 < due_ms <= now_ms:
            inventory.delayed_retention.add(first, last, due_ms)
        inventory.indexed_to = last + 1
        inventory.unacked += last - first + 1
        if due_ms > now_ms:
            inventory.delayed.add_range(first, last + 1)
        else:
            inventory.available.put_normal(first, last)

    def _index_chunks(self, first: int, last: int, sent_ms: int | None, due_ms: int, now_ms: int) -> None:
        inventory = self._inventory
        for number, start, end in chunks_of(first, last):
            base = number << CHUNK_BITS
            chunk = self.chunks.at(base + start)
            chunk.end = base + end + 1
            if sent_ms is not None:
                chunk.add_age(end, sent_ms, inventory.send_times.grain)
            if due_ms:
                chunk.add_delayed(start, end, due_ms)
            if due_ms > now_ms:
                inventory.delays.add(base + start, base + end, due_ms)

    def skip(self, first: int, last: int) -> None:
        """There are no messages at these offsets, nor between the last indexed one and them."""
        inventory = self._inventory
        if last < inventory.indexed_to:
            return
        if last - inventory.indexed_to > CHUNK and inventory.head == inventory.indexed_to > self._known_to:
            # The queue is empty, and its log begins much later.
            self.restart_at(last + 1)
            return
        first, inventory.indexed_to = inventory.indexed_to, last + 1
        inventory.acked.add_range(first, last)
        if inventory.policy.persist_index:
            for number, _, end in chunks_of(first, last):
                self.chunks.at(number << CHUNK_BITS).end = (number << CHUNK_BITS) + end + 1

    def restart_at(self, head: int) -> None:
        """Forget all messages and go on indexing from here. De-duplication ids and pages are remembered."""
        self._inventory.restart_at(head)
        self.dedupe_ids.save_open()
        self.chunks.restart(head)
        self._received.clear()
        self._known_to = -1

    # -- persisting

    @property
    def is_unsaved(self) -> bool:
        return self.chunks.is_unsaved

    def save_open(self, now_ms: int) -> None:
        """Persist the open chunk with the next changes, and forget de-duplication ids that are out of their window."""
        self.dedupe_ids.forget(now_ms)
        self.dedupe_ids.save_open()
        self.chunks.save_open()

    def expect(self, received: dict[int, LeaseRecord], known_to: int) -> None:
        """Messages that were received before they are indexed, and up to which offset some may be acked."""
        self._received = received
        self._known_to = max(known_to, max(received, default=-1))
