"""The share groups of a broker: the state of each group in the partitions that this broker leads.

A partition is opened for a group at its first fetch, and closed when this broker does not lead it any more. The group's
coordinator reads and sets its position on the broker that leads the partition.
"""

import asyncio
from base64 import urlsafe_b64decode
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from headrace.cluster.metadata import Metadata
from headrace.coordinator.coordinator import Coordinator
from headrace.model.errors import (
    CoordinatorError,
    HeadraceError,
    OffsetOutOfRange,
    PeerUnavailable,
    ProtocolError,
    QueueUnavailable,
)
from headrace.model.ids import BrokerId
from headrace.model.state_partition import state_name
from headrace.queues.share.dead_letters import DeadLetterTopics, WriteDeadLetters
from headrace.queues.share.partition import SharePartition, SharePosition
from headrace.queues.state_machine import QueueStateMachine
from headrace.queues.state_store import StateStore
from headrace.replication.calls import Call, ask
from headrace.replication.partition import Partition
from headrace.replication.partitions import PartitionTable
from headrace.replication.peers import Peers
from headrace.runtime.clock import Clock

_LANE = "share-groups"
_TIMEOUT_S = 15.0
_OPEN_FOR_S = 10.0
_RETRY_S = 0.05
_RETRIABLE = (CoordinatorError, QueueUnavailable, PeerUnavailable)


class SharePartitionId(NamedTuple):
    """A share group in a partition, by the id of its topic."""

    topic_id: UUID
    partition: int
    group_id: str


class DescribeShare(Call, frozen=True):
    place: SharePartitionId


class ResetShare(Call, frozen=True):
    place: SharePartitionId
    start_offset: int


class ForgetShare(Call, frozen=True):
    place: SharePartitionId


ShareCall = DescribeShare | ResetShare | ForgetShare | WriteDeadLetters


class ShareLocator:
    """Finds the broker that stores the state of a share group, for FindCoordinator: keys are `group:topic
    id:partition`."""

    def __init__(self, coordinator: Coordinator[QueueStateMachine]) -> None:
        self._coordinator = coordinator

    async def ensure_topic(self) -> None:
        await self._coordinator.ensure_topic()

    def leader_for(self, key: str) -> BrokerId:
        """`ProtocolError` if the key is malformed."""
        try:
            group_id, topic_id, partition = key.rsplit(":", 2)
            place = SharePartitionId(UUID(bytes=urlsafe_b64decode(topic_id + "==")), int(partition), group_id)
        except ValueError:
            raise ProtocolError(f"the key {key} is not GROUP:TOPIC_ID:PARTITION") from None
        return self._coordinator.leader_for(state_name(*place))


class ShareService:
    def __init__(
        self,
        *,
        store: StateStore,
        metadata: Metadata,
        partitions: PartitionTable,
        clock: Clock,
        workers: Executor,
        peers: Peers | None = None,
    ) -> None:
        self._store = store
        self._metadata = metadata
        self._partitions = partitions
        self._clock = clock
        self._workers = workers
        self._peers = peers
        self._letters = DeadLetterTopics(
            metadata=metadata, partitions=partitions, clock=clock, workers=workers, peers=peers
        )
        self._opened: dict[SharePartitionId, SharePartition] = {}
        self._opening: dict[SharePartitionId, asyncio.Task[SharePartition]] = {}
        partitions.on_not_leading.append(self._not_leading)

    async def stop(self) -> None:
        for task in self._opening.values():
            task.cancel()
        if self._opening:
            await asyncio.wait(tuple(self._opening.values()))
        for opened in tuple(self._opened.values()):
            opened.close()
        self._opened.clear()

    # -- on the broker that leads

    def current(self, place: SharePartitionId) -> SharePartition | None:
        """The partition, if it is open."""
        found = self._opened.get(place)
        return None if found is None or found.is_void else found

    def opened(self) -> tuple[SharePartition, ...]:
        """The partitions that are open: members have fetched them since this broker leads them."""
        return tuple(each for each in self._opened.values() if not each.is_void)

    def opening(self, place: SharePartitionId) -> "asyncio.Task[SharePartition]":
        """The task that opens the partition; errors as of `PartitionTable.by_id`, or `NotLeader`. Callers must not
        cancel it: others may wait for it, too."""
        partition = self._partitions.by_id(place.topic_id, place.partition)
        partition.check_leading()
        task = self._opening.get(place)
        if task is None:
            task = self._begin(place, partial(self._open, place, partition))
        return task

    async def open(self, place: SharePartitionId) -> SharePartition:
        found = self.current(place)
        return await asyncio.shield(self.opening(place)) if found is None else found

    def _begin(self, place: SharePartitionId, work: Callable[[], Any]) -> "asyncio.Task[SharePartition]":
        task = self._opening[place] = asyncio.get_running_loop().create_task(work())

        def done(task: "asyncio.Task[SharePartition]") -> None:
            if self._opening.get(place) is task:
                del self._opening[place]
            # Callers that wait get the error; there may be none.
            if not task.cancelled():
                task.exception()

        task.add_done_callback(done)
        return task

    async def _open(
        self, place: SharePartitionId, partition: Partition, start_offset: int | None = None, *, is_reset: bool = False
    ) -> SharePartition:
        await self._close(place)
        deadline_ms = self._clock.monotonic_ms() + _OPEN_FOR_S * 1000
        while True:
            partition.check_leading()
            made = SharePartition(
                partition,
                place.group_id,
                store=self._store,
                clock=self._clock,
                workers=self._workers,
                settings=lambda: self._metadata.group_settings(place.group_id),
                letters=self._letters,
            )
            try:
                if is_reset:
                    await self._store.forget(state_name(*place))
                await made.open(start_offset)
            except _RETRIABLE:
                # Its shard was just created, or is moving or loading.
                if self._clock.monotonic_ms() >= deadline_ms:
                    raise
                await asyncio.sleep(_RETRY_S)
            else:
                self._opened[place] = made
                return made

    async def _close(self, place: SharePartitionId) -> None:
        """Close the current instance: when this returns, it writes nothing any more."""
        former = self._opened.pop(place, None)
        if former is not None:
            former.close()
            await former.settled()

    def _not_leading(self, partition: Partition) -> None:
        for place in [place for place, opened in self._opened.items() if opened.partition is partition]:
            self._opened.pop(place).close()

    # -- positions, on any broker

    async def describe(self, place: SharePartitionId) -> SharePosition:
        position: SharePosition = await self._ask(place, DescribeShare(place), SharePosition)
        return position

    async def reset(self, place: SharePartitionId, start_offset: int) -> None:
        """Set the group's position, and void its state. -1 and -2 are the end and the start of the log."""
        await self._ask(place, ResetShare(place, start_offset), type(None))

    async def forget(self, place: SharePartitionId) -> None:
        """Delete the state of the group."""
        await self._ask(place, ForgetShare(place), type(None))

    async def _ask(self, place: SharePartitionId, call: ShareCall, result: type[Any]) -> Any:
        leader = self._leader(place)
        if leader == self._metadata.broker_id or self._peers is None:
            return await self.serve(call)
        return await ask(self._peers, leader, call, result, lane=_LANE, timeout_s=_TIMEOUT_S)

    def _leader(self, place: SharePartitionId) -> BrokerId:
        topic = self._metadata.image.topic_by_id(place.topic_id)
        if topic is None or not 0 <= place.partition < len(topic.partitions):
            self._partitions.by_id(place.topic_id, place.partition)
            raise QueueUnavailable(f"partition {place.partition} has no known leader: try again")
        return topic.partitions[place.partition].leader

    async def serve(self, call: ShareCall) -> Any:
        """Carry out a call on this broker. `NotLeader` if it does not lead the partition."""
        match call:
            case DescribeShare(place):
                return (await self.open(place)).position()
            case ResetShare(place, start_offset):
                await self._reset(place, start_offset)
            case ForgetShare(place):
                await self._forget(place)
            case WriteDeadLetters():
                await self._letters.serve(call)
        return None

    async def _reset(self, place: SharePartitionId, start_offset: int) -> None:
        partition = self._partitions.by_id(place.topic_id, place.partition)
        partition.check_leading()
        first, end = partition.log.start_offset, partition.high_watermark
        offset = {-1: end, -2: first}.get(start_offset, start_offset)
        if not first <= offset <= end:
            raise OffsetOutOfRange(f"{partition} has offsets from {first} to {end}, not {offset}")
        await self._alone(place)
        await asyncio.shield(self._begin(place, partial(self._open, place, partition, offset, is_reset=True)))

    async def _forget(self, place: SharePartitionId) -> None:
        partition = self._partitions.by_id(place.topic_id, place.partition)
        partition.check_leading()
        await self._alone(place)
        await self._close(place)
        await self._store.forget(state_name(*place))

    async def _alone(self, place: SharePartitionId) -> None:
        """Returns when no task opens the partition."""
        while (task := self._opening.get(place)) is not None and not task.done():
            try:
                await asyncio.shield(task)
            except HeadraceError:
                continue
