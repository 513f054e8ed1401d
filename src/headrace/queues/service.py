"""The queues of a broker: operations on any queue, routed to the broker that leads it.

A queue is hosted by the broker that leads its partition, for one leader epoch; this service opens and closes queues as
leadership changes. Share groups have engines of their own on the partitions that this broker leads (`share`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from random import Random
from typing import Any
from uuid import UUID

import msgspec

from headrace.cluster.metadata import Metadata
from headrace.config.queue import QueueSettings
from headrace.coordinator.timers import TimerLoop
from headrace.model.errors import HeadraceError, InvalidMessage, NotLeader, QueueElsewhere, UnknownMove, UnknownQueue
from headrace.model.image import ClusterImage, TopicImage
from headrace.model.queue_state import StateChangesPage, StatePosition
from headrace.model.queue_wire import AllReceived, Counts, Filter, Move, OutgoingMessage, Peeked, Received, Sent
from headrace.model.state_partition import state_name
from headrace.queues.api import Failures, QueueEdit, QueueInfo, RangeAcks, RangeFailures, ReceiveOptions
from headrace.queues.catalog import QueueCatalog, is_queue
from headrace.queues.host.backlog import QueueBacklog
from headrace.queues.host.host import HostContext, QueueHost, SteadyClock
from headrace.queues.host.message_cache import MessageCache
from headrace.queues.host.periodic import PeriodicSender
from headrace.queues.host.queue import MOST_MESSAGES, HostedQueue
from headrace.queues.host.send import SendBudget
from headrace.queues.local import LocalQueue
from headrace.queues.move.dead_letters import DeadLetterMover
from headrace.queues.move.redrive import MoveTasks
from headrace.queues.remote import AnyQueueCall, perform
from headrace.queues.router import QueueRouter
from headrace.queues.share.service import ShareCall, ShareService
from headrace.queues.state_store import ReplicatedState, StateCall
from headrace.quotas.disk_pressure import DiskPressure
from headrace.records.reader import Record
from headrace.replication.calls import answer_to, unknown_call
from headrace.replication.partition import Partition
from headrace.replication.partitions import PartitionTable
from headrace.replication.peers import Peers
from headrace.runtime.clock import Clock

log = logging.getLogger(__name__)

_LOADING_AT_A_TIME = 16
_TRIM_EVERY_S = 5.0
_OPEN_AGAIN_S = 1.0
_CLOSED = "the queue is not led by this broker any more: try again"

ServedQueueCall = StateCall | ShareCall | AnyQueueCall
"""Every call of another broker that the service carries out."""

_decode_call = msgspec.msgpack.Decoder(ServedQueueCall).decode


class QueueService:
    """Implements `api.Queues`."""

    def __init__(
        self,
        *,
        metadata: Metadata,
        partitions: PartitionTable,
        clock: Clock,
        workers: Executor,
        random: Random,
        peers: Peers | None = None,
        disk: DiskPressure | None = None,
    ) -> None:
        """Without `peers` this broker is alone; `disk` says whether there is room for more messages."""
        self.state = ReplicatedState(
            metadata=metadata, partitions=partitions, clock=clock, workers=workers, peers=peers
        )
        self.catalog = QueueCatalog(metadata)
        self._metadata = metadata
        self._partitions = partitions
        self._workers = workers
        self._random = random
        self._timers = TimerLoop(clock)
        self._host_context = HostContext(
            store=self.state,
            clock=clock,
            time=SteadyClock(clock),
            timers=self._timers,
            workers=workers,
            jitter=random.random,
            cache=MessageCache(),
            loading=asyncio.Semaphore(_LOADING_AT_A_TIME),
            disk=DiskPressure() if disk is None else disk,
            feature_level=lambda: metadata.image.feature_level,
        )
        self._budget = SendBudget()
        self._router = QueueRouter(self.catalog, metadata, clock, peers, self._local)
        self._queues: dict[UUID, LocalQueue] = {}
        self.shares = ShareService(
            store=self.state, metadata=metadata, partitions=partitions, clock=clock, workers=workers, peers=peers
        )
        self._closing: set[asyncio.Task[None]] = set()
        self._trimming: asyncio.Task[None] | None = None
        self._is_stopped = False
        metadata.subscribe(self._image_changed)

    # -- life

    def start(self) -> None:
        self.state.start()
        for partition in tuple(self._partitions.all()):
            if partition.is_leader:
                self._leads(partition)
        self._partitions.on_leading.append(self._leads)
        self._partitions.on_not_leading.append(self._leads_no_more)
        self._trimming = asyncio.get_running_loop().create_task(self._trim_logs())

    async def stop(self) -> None:
        self._is_stopped = True
        if self._trimming is not None:
            self._trimming.cancel()
            await asyncio.wait((self._trimming,))
        for topic_id in tuple(self._queues):
            self._close(topic_id)
        await self.shares.stop()
        self._timers.clear()
        if self._closing:
            await asyncio.wait(tuple(self._closing))
        await self.state.stop()

    def _leads(self, partition: Partition) -> None:
        if self._is_stopped:
            return
        topic = self._metadata.image.topics.get(partition.topic)
        if partition.index == 0 and partition.settings.queue.is_queue:
            settings = partition.settings.queue
            if topic is not None and topic.topic_id == partition.topic_id and is_queue(topic):
                settings = self.catalog.info(topic).settings
            self._open(partition, settings)

    def _leads_no_more(self, partition: Partition) -> None:
        if partition.index == 0:
            self._close(partition.topic_id)

    def _open(self, partition: Partition, settings: QueueSettings) -> None:
        self._close(partition.topic_id)
        if partition.mirror is not None:
            # It may have been reversed since: there are other messages at the offsets that were set aside.
            self._host_context.cache.drop_topic(partition.topic_id)
        host = QueueHost(partition, settings, self._host_context)
        hosted = HostedQueue(partition.topic, host, self._budget)
        QueueBacklog(host).configure()
        dead_letters = DeadLetterMover(hosted, self._send_records, self._send_reply)
        move_tasks = MoveTasks(hosted, self._send_records, self._new_id)
        self._queues[partition.topic_id] = LocalQueue(hosted, dead_letters, move_tasks, PeriodicSender(hosted))
        host.on_close.append(lambda _: self._open_again_later(host, partition))
        host.start()

    def _new_id(self) -> str:
        return f"{self._random.getrandbits(64):016x}"

    def _close(self, topic_id: UUID) -> None:
        opened = self._queues.pop(topic_id, None)
        if opened is not None:
            opened.host.close(NotLeader(_CLOSED))
            self._close_later(opened.stopped())

    def _open_again_later(self, host: QueueHost, partition: Partition) -> None:
        """A host that closed by itself was fenced by a successor, or had an unexpected error. If this broker still
        leads, the queue is loaded again."""
        opened = self._queues.get(partition.topic_id)
        if opened is not None and opened.host is host and not self._is_stopped:
            asyncio.get_running_loop().call_later(_OPEN_AGAIN_S, self._open_again, host, partition)

    def _open_again(self, host: QueueHost, partition: Partition) -> None:
        opened = self._queues.get(partition.topic_id)
        if opened is not None and opened.host is host and partition.is_leader and not self._is_stopped:
            self._open(partition, host.settings)

    async def _image_changed(self, old: ClusterImage, new: ClusterImage) -> None:
        for name, topic in new.topics.items():
            before = old.topics.get(name)
            if before is topic or (before is not None and before.settings is topic.settings):
                continue
            opened = self._queues.get(topic.topic_id)
            if opened is not None and is_queue(topic):
                self._configure(opened, self.catalog.info(topic).settings)
            elif (opened is not None) != is_queue(topic):
                for partition in self._partitions.of_topic(name):
                    if partition.topic_id == topic.topic_id and partition.is_leader:
                        self._leads(partition) if is_queue(topic) else self._leads_no_more(partition)

    def _configure(self, opened: LocalQueue, settings: QueueSettings) -> None:
        host = opened.host
        had_dead_letters = bool(host.settings.dead_letter)
        host.configure(settings)
        if had_dead_letters and not settings.dead_letter and host.has_engine and host.engine.has_dead:
            # Dead messages stay in the queue: an engine decides that when it is loaded.
            self._open(host.partition, settings)

    def _close_later(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    # -- queues

    async def create(self, name: str, edit: QueueEdit) -> QueueInfo:
        return await self.catalog.create(name, edit)

    async def delete(self, name: str) -> None:
        await self.catalog.delete(name)

    def queues(self, prefix: str = "") -> list[QueueInfo]:
        return self.catalog.all(prefix)

    def find(self, name: str) -> QueueInfo:
        return self.catalog.find(name)

    async def alter(self, name: str, edit: QueueEdit) -> None:
        await self.catalog.alter(name, edit)

    def hosted(self) -> tuple[LocalQueue, ...]:
        """The queues that this broker leads, or is loading."""
        return tuple(self._queues.values())

    # -- messages

    async def send(self, name: str, messages: Sequence[OutgoingMessage]) -> list[Sent]:
        return await self.begin_send(name, messages)

    async def receive(self, name: str, options: ReceiveOptions) -> list[Received]:
        return await self.begin_receive(name, options)

    async def acknowledge(self, name: str, receipts: Sequence[str], *, any_receipt: bool = False) -> Failures:
        return await self.begin_acknowledge(name, receipts, any_receipt=any_receipt)

    def begin_send(self, name: str, messages: Sequence[OutgoingMessage]) -> Awaitable[list[Sent]]:
        _check_count(messages)
        return self._router.begin(name, lambda queue: queue.send(messages), is_repeatable=False)

    def begin_receive(self, name: str, options: ReceiveOptions) -> Awaitable[list[Received]]:
        return self._router.begin(name, lambda queue: queue.receive(options))

    def begin_acknowledge(
        self, name: str, receipts: Sequence[str], *, any_receipt: bool = False
    ) -> Awaitable[Failures]:
        _check_count(receipts)
        return self._router.begin(name, lambda queue: queue.acknowledge(receipts, any_receipt=any_receipt))

    def begin_receive_batches(self, name: str, options: ReceiveOptions) -> Awaitable[list[Received] | AllReceived]:
        return self._router.begin(name, lambda queue: queue.receive_batches(options))

    def begin_acknowledge_ranges(self, name: str, acks: RangeAcks) -> Awaitable[RangeFailures]:
        return self._router.begin(name, lambda queue: queue.acknowledge_ranges(acks))

    async def extend(self, name: str, wanted: Sequence[tuple[str, int]], *, any_receipt: bool = False) -> Failures:
        _check_count(wanted)
        return await self._router.route(name, lambda queue: queue.extend(wanted, any_receipt=any_receipt))

    async def nack(self, name: str, wanted: Sequence[tuple[str, int | None, str]]) -> Failures:
        _check_count(wanted)
        return await self._router.route(name, lambda queue: queue.nack(wanted))

    async def peek(self, name: str, wanted: Filter, after_offset: int = -1) -> list[Peeked]:
        return await self._router.route(name, lambda queue: queue.peek(wanted, after_offset))

    async def purge(self, name: str) -> None:
        purge_id = self._new_id()
        await self._router.route(name, lambda queue: queue.purge(purge_id))

    async def counts(self, name: str) -> Counts:
        return await self._router.route(name, lambda queue: queue.counts())

    # -- the state

    async def state_changes(self, name: str, topic_id: UUID, position: StatePosition) -> StateChangesPage:
        """What changed in the persisted state of a queue since a position, for a link that mirrors it."""
        topic = self.catalog.topic(name)
        if topic.topic_id != topic_id:
            raise UnknownQueue(f"the queue {name} was deleted and created again")
        return await self.state.changes(state_name(topic_id, 0), position)

    # -- moving messages

    async def start_move(
        self, source: str, destination: str | None, wanted: Filter, per_second: int | None = None
    ) -> Move:
        if destination is not None:
            self.find(destination)
        return await self._router.route(
            source, lambda queue: queue.start_move(destination, wanted, per_second), is_repeatable=False
        )

    async def cancel_move(self, move_id: str) -> Move:
        return await self._router.route(self.source_of(move_id), lambda queue: queue.cancel_move(move_id))

    async def moves(self, source: str) -> list[Move]:
        return await self._router.route(source, lambda queue: queue.moves())

    def source_of(self, move_id: str) -> str:
        # The id begins with that of the queue's topic.
        try:
            topic = self._metadata.image.topic_by_id(UUID(hex=move_id.partition("-")[0]))
        except ValueError:
            topic = None
        if topic is None:
            raise UnknownMove(f"there is no task {move_id} that moves messages")
        return topic.name

    async def _send_records(self, name: str, records: Sequence[Record]) -> None:
        """Send a page once: its stream must know whether an attempt has an unknown outcome."""
        await self._router.route(name, lambda queue: queue.send_records(records), is_repeatable=False)

    async def _send_reply(self, name: str, records: Sequence[Record]) -> None:
        await self._router.route(name, lambda queue: queue.send_records(records))

    # -- calls of other brokers

    async def serve(self, call: bytes) -> bytes:
        """Carry out the call of another broker; the answer."""
        try:
            asked: ServedQueueCall = _decode_call(call)
        except msgspec.MsgspecError as error:
            return unknown_call(error)
        if isinstance(asked, StateCall):
            state_call = asked
            return await answer_to(lambda: self.state.serve(state_call))
        if isinstance(asked, ShareCall):
            share_call = asked
            return await answer_to(lambda: self.shares.serve(share_call))
        queue_call = asked
        return await answer_to(lambda: self._perform(queue_call))

    async def _perform(self, call: AnyQueueCall) -> Any:
        try:
            topic = self.catalog.topic(call.queue)
        except QueueElsewhere:
            raise
        except UnknownQueue as error:
            # The caller knows it, from an image that this broker may not have yet. If the queue was deleted, the caller
            # finds that out by itself when it tries again.
            raise NotLeader(f"{error}, or not yet") from None
        return await perform(self._local(topic), call)

    def _local(self, topic: TopicImage) -> LocalQueue:
        opened = self._queues.get(topic.topic_id)
        if opened is None:
            raise NotLeader(f"the queue {topic.name} is not led by this broker, or not yet")
        return opened

    # -- the log

    async def _trim_logs(self) -> None:
        """Delete the records of acked messages from the log, and queues that are abandoned."""
        while True:
            await asyncio.sleep(_TRIM_EVERY_S)
            for opened in tuple(self._queues.values()):
                if opened.hosted.is_abandoned:
                    await self._delete_abandoned(opened)
                    continue
                host = opened.host
                partition = host.partition
                if partition.is_leader and partition.log.start_offset < host.log_start <= partition.high_watermark:
                    try:
                        await partition.delete_before(host.log_start, self._in_worker)
                    except HeadraceError as error:
                        log.warning("the start of %s cannot be moved for now: %s", partition, error)

    async def _delete_abandoned(self, opened: LocalQueue) -> None:
        name = opened.hosted.name
        try:
            await self.catalog.delete(name)
        except HeadraceError as error:
            log.warning("the queue %s, from which no one receives, cannot be deleted for now: %s", name, error)
        else:
            log.info("the queue %s is deleted: no one has received from it for queue.idle.delete.ms", name)

    async def _in_worker(self, work: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._workers, work)


def _check_count(things: Sequence[object]) -> None:
    if len(things) > MOST_MESSAGES:
        raise InvalidMessage(f"{len(things)} messages are more than the {MOST_MESSAGES} of one call: make several")
