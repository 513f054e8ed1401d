"""Messages by offset: from a cache if they were sent or read recently, else from the log.

Messages are received in about the order of their sending, so the log is read ahead. The cache is bounded by bytes, for
all queues of a broker together. Messages that were just sent are cached only while there is room: they must not evict
older ones, which are received sooner.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from uuid import UUID

from headrace.config.queue import QueueSettings
from headrace.model.errors import OffsetOutOfRange
from headrace.queues.host.codec import DecodedMessage
from headrace.queues.host.decode import DecodedSlice, read_messages
from headrace.replication.partition import Partition
from headrace.storage.slice import Slice

CACHE_BYTES = 64 * 1024 * 1024
_AHEAD_BYTES = 64 * 1024
_INDEXED_BYTES = 160 * 1024
"""Most of what is read for the index is plain, and is not decoded."""


class MessageCache:
    """A cache of messages of all queues of a broker."""

    def __init__(self, limit_bytes: int = CACHE_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._used_bytes = 0
        # By the integer of the topic's id: the hash of a UUID is computed each time.
        self._messages: OrderedDict[tuple[int, int], tuple[DecodedMessage, int]] = OrderedDict()
        self._counts: Counter[int] = Counter()
        """How many messages of each topic there are."""

    def get(self, topic_id: UUID, offset: int) -> DecodedMessage | None:
        found = self._messages.get((topic_id.int, offset))
        return None if found is None else found[0]

    def get_all(self, topic_id: UUID, offsets: Iterable[int]) -> dict[int, DecodedMessage] | None:
        """The messages at these offsets, if all of them are cached."""
        topic, get = topic_id.int, self._messages.get
        messages: dict[int, DecodedMessage] = {}
        for offset in offsets:
            found = get((topic, offset))
            if found is None:
                return None
            messages[offset] = found[0]
        return messages

    def offer(self, topic_id: UUID, messages: Iterable[DecodedMessage]) -> None:
        """Cache the messages that fit without evicting others."""
        most_bytes = self._limit_bytes // 2
        for message in messages:
            size_bytes = message.size_bytes
            if self._used_bytes + size_bytes <= most_bytes:
                self._put(topic_id.int, message, size_bytes)

    def put(self, topic_id: UUID, messages: Iterable[DecodedMessage]) -> None:
        for message in messages:
            self._put(topic_id.int, message, message.size_bytes)
        while self._used_bytes > self._limit_bytes and self._messages:
            (topic, _), (_, size_bytes) = self._messages.popitem(last=False)
            self._removed(topic, size_bytes)

    def drop(self, topic_id: UUID, offsets: Iterable[int]) -> None:
        """The messages are not needed any more."""
        topic, pop = topic_id.int, self._messages.pop
        for offset in offsets:
            found = pop((topic, offset), None)
            if found is not None:
                self._removed(topic, found[1])

    def _removed(self, topic: int, size_bytes: int) -> None:
        self._used_bytes -= size_bytes
        self._counts[topic] -= 1
        if not self._counts[topic]:
            del self._counts[topic]

    def drop_range(self, topic_id: UUID, first: int, last: int) -> None:
        """Like `drop`, for nothing if no message of the topic is cached."""
        if topic_id.int in self._counts:
            self.drop(topic_id, range(first, last + 1))

    def drop_topic(self, topic_id: UUID) -> None:
        """The messages of a topic must not be served any more."""
        self.drop(topic_id, [offset for topic, offset in self._messages if topic == topic_id.int])

    def _put(self, topic: int, message: DecodedMessage, size_bytes: int) -> None:
        key = (topic, message.offset)
        before = self._messages.pop(key, None)
        if before is not None:
            self._removed(topic, before[1])
        self._messages[key] = message, size_bytes
        self._used_bytes += size_bytes
        self._counts[topic] += 1


class MessageReader:
    def __init__(self, partition: Partition, cache: MessageCache, workers: Executor) -> None:
        self._partition = partition
        self._cache = cache
        self._workers = workers
        self._cipher = partition.log.cipher

    def drop(self, offsets: Iterable[int]) -> None:
        """The messages are not needed any more."""
        self._cache.drop(self._partition.topic_id, offsets)

    def drop_range(self, first: int, last: int) -> None:
        self._cache.drop_range(self._partition.topic_id, first, last)

    def holds(self, offset: int) -> bool:
        """Whether a message is cached."""
        self._check_cipher()
        return self._cache.get(self._partition.topic_id, offset) is not None

    def cached(self, offsets: Iterable[int]) -> dict[int, DecodedMessage] | None:
        """The messages at these offsets, if all of them are cached."""
        self._check_cipher()
        return self._cache.get_all(self._partition.topic_id, offsets)

    def _check_cipher(self) -> None:
        if self._partition.log.cipher is not self._cipher:
            # The data keys have changed, and may have been destroyed: what is cached must not outlive them.
            self._cipher = self._partition.log.cipher
            self._cache.drop_topic(self._partition.topic_id)

    async def read(self, offsets: Sequence[int], settings: QueueSettings) -> dict[int, DecodedMessage]:
        """The messages at these offsets, except those that the log does not have any more."""
        topic_id = self._partition.topic_id
        self._check_cipher()
        found: dict[int, DecodedMessage] = {}
        missing: list[int] = []
        get = self._cache.get
        for offset in offsets:
            message = get(topic_id, offset)
            if message is None:
                missing.append(offset)
            else:
                found[offset] = message
        for offset in sorted(missing):
            if offset not in found:
                piece = await self._read_from(offset, settings)
                self._cache.put(topic_id, piece)
                found.update((message.offset, message) for message in piece if message.offset in missing)
        return found

    async def _read_from(self, offset: int, settings: QueueSettings) -> Sequence[DecodedMessage]:
        partition = self._partition
        try:
            cut = partition.slice(offset, _AHEAD_BYTES, committed=True, at_least_one=True)
        except OffsetOutOfRange:
            return ()
        if cut is None:
            return ()
        return (await read_slice(partition, cut, offset, settings, self._workers)).messages


def read_cached(
    partition: Partition, cut: Slice, offset: int, settings: QueueSettings, *, is_for_index: bool = False
) -> DecodedSlice | None:
    """Decode a slice, if it is small and in the page cache."""
    most_bytes = _INDEXED_BYTES if is_for_index else _AHEAD_BYTES
    data = cut.read_cached() if cut.length <= most_bytes else None
    if data is None:
        return None
    below = partition.last_stable_offset
    aborted = partition.aborted_within(offset, below)
    return read_messages(data, offset, below, aborted, partition.topic_id, settings, is_for_index=is_for_index)


async def read_slice(
    partition: Partition,
    cut: Slice,
    offset: int,
    settings: QueueSettings,
    workers: Executor,
    *,
    is_for_index: bool = False,
) -> DecodedSlice:
    """Decode a slice: at once if it is small and in the page cache, else in a worker thread."""
    piece = read_cached(partition, cut, offset, settings, is_for_index=is_for_index)
    if piece is not None:
        return piece
    below = partition.last_stable_offset
    aborted = partition.aborted_within(offset, below)
    topic_id = partition.topic_id

    def read() -> DecodedSlice:
        data = memoryview(cut.read())
        return read_messages(data, offset, below, aborted, topic_id, settings, is_for_index=is_for_index)

    return await asyncio.get_running_loop().run_in_executor(workers, read)
