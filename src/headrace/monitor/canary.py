"""A canary: small messages that a broker writes and reads itself, all the time, while `canary.enable` is true.

    topic   appended to a partition of `__canary` that this broker leads, until it is committed and read back
    queue   sent to a queue of this broker's own, until it is received; then it is deleted

It tells whether the broker can do its work, without the network between it and its clients: `headrace probe` measures
that, too. `__canary` has as many partitions as there are brokers when it is created; on a broker that leads none of
them the topic is not measured. At most one message is on its way on each path. One that takes longer than
`LOST_AFTER_S` is lost.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from contextlib import suppress
from itertools import count

from headrace.cluster.metadata import Metadata
from headrace.cluster.topics import initial_replication_factor
from headrace.model.errors import HeadraceError, NotLeader, TopicExists
from headrace.model.image import CANARY_TOPIC
from headrace.model.queue_wire import OutgoingMessage
from headrace.model.unique_ids import new_id
from headrace.observe.end_to_end import EndToEnd
from headrace.observe.repeated_log import RepeatedLog
from headrace.queues.api import QueueEdit, ReceiveOptions
from headrace.queues.service import QueueService
from headrace.records.batch import read_header
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.replication.partition import Partition
from headrace.replication.partitions import PartitionTable
from headrace.runtime.clock import Clock

log = logging.getLogger(__name__)

LOST_AFTER_S = 10.0
_RETENTION_MS = 10 * 60 * 1000
_TOPIC_SETTINGS = {
    "cleanup.policy": "delete",
    "retention.ms": str(_RETENTION_MS),
    "segment.ms": str(_RETENTION_MS),
}
_READ_BYTES = 64 * 1024


class Canary:
    """Measures in the background, between `run` and its cancellation."""

    def __init__(
        self, metadata: Metadata, partitions: PartitionTable, queues: QueueService, clock: Clock, workers: Executor
    ) -> None:
        self._metadata = metadata
        self._partitions = partitions
        self._queues = queues
        self._clock = clock
        self._workers = workers
        self._numbers = count()
        self._turn = 0
        self._changed = asyncio.Event()
        self._failures = RepeatedLog(log)
        self._is_queue_ready = False
        self.paths = {"topic": EndToEnd(LOST_AFTER_S), "queue": EndToEnd(LOST_AFTER_S)}
        metadata.subscribe(lambda *_: self._changed.set())

    @property
    def queue(self) -> str:
        """The queue of this broker."""
        return f"{CANARY_TOPIC}_queue_{self._metadata.broker_id}"

    async def run(self) -> None:
        while True:
            self._changed.clear()
            settings = self._metadata.settings
            if not settings.canary_enable:
                await self._changed.wait()
                continue
            topic, queue = self._measure("topic", self._through_topic), self._measure("queue", self._through_queue)
            await asyncio.gather(topic, queue)
            await asyncio.sleep(settings.canary_interval_ms / 1000)

    async def _measure(self, name: str, send: Callable[[EndToEnd, int], Awaitable[None]]) -> None:
        figures, number = self.paths[name], next(self._numbers)
        try:
            async with asyncio.timeout(LOST_AFTER_S):
                await send(figures, number)
        except (HeadraceError, OSError) as error:
            reason = str(error) or f"it took longer than {LOST_AFTER_S:.0f} s"
            figures.fail(number, reason)
            self._failures.note(name, f"a message of the canary through its {name} was lost: {reason}")

    def _now_s(self) -> float:
        return self._clock.monotonic_ms() / 1000

    # -- the topic

    async def _through_topic(self, figures: EndToEnd, number: int) -> None:
        await self._ensure_topic()
        led = [each for each in self._partitions.of_topic(CANARY_TOPIC) if each.is_leader]
        if not led:
            return
        self._turn += 1
        partition = led[self._turn % len(led)]
        batch = build_batch([Record(0, self._clock.wall_ms(), None, str(number).encode(), ())])
        figures.send(number, self._now_s())
        appended = partition.append(batch, read_header(batch))
        await partition.until_committed(appended.last_offset + 1)
        figures.ack(number, self._now_s())
        await self._read(partition, appended.last_offset)
        figures.receive(number, self._now_s())

    async def _read(self, partition: Partition, offset: int) -> None:
        """Read a record as a fetch does: what is committed, from the page cache or else from the disk."""
        found = partition.log.slice(offset, _READ_BYTES, partition.high_watermark, at_least_one=True)
        if found is None:
            raise NotLeader(f"a committed record of {partition} cannot be read: it does not lead any more")
        if found.read_cached() is None:
            await asyncio.get_running_loop().run_in_executor(self._workers, found.read)

    async def _ensure_topic(self) -> None:
        image = self._metadata.image
        if CANARY_TOPIC in image.topics:
            return
        alive = sum(broker.can_lead for broker in image.brokers.values())
        if not alive:
            return
        with suppress(TopicExists):
            await self._metadata.create_topic(
                CANARY_TOPIC,
                partitions=alive,
                replication_factor=initial_replication_factor(image, self._metadata.settings, CANARY_TOPIC),
                settings=_TOPIC_SETTINGS,
            )

    # -- the queue

    async def _through_queue(self, figures: EndToEnd, number: int) -> None:
        if not self._is_queue_ready:
            await self._queues.create(self.queue, QueueEdit({"retention.ms": str(_RETENTION_MS)}))
            self._is_queue_ready = True
        message = OutgoingMessage(str(number).encode(), new_id())
        figures.send(number, self._now_s())
        try:
            await self._queues.send(self.queue, (message,))
            figures.ack(number, self._now_s())
            while not await self._receive(figures, message.id, number):
                pass
        except HeadraceError:
            # It may have been deleted.
            self._is_queue_ready = False
            raise

    async def _receive(self, figures: EndToEnd, message_id: str, number: int) -> bool:
        """Receive what there is, delete it, and tell whether the message was among it."""
        options = ReceiveOptions(max_messages=10, wait_ms=1_000)
        received = await self._queues.receive(self.queue, options)
        has_come = any(each.id == message_id for each in received)
        if has_come:
            figures.receive(number, self._now_s())
        if received:
            await self._queues.acknowledge(self.queue, [each.receipt for each in received])
        return has_come
