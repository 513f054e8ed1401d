"""The store of queues' state: a shard of `__queue_state`, on this broker or on another one.

`StateStore` is the interface for an engine's host. Its errors: `StaleQueueLeader` is final, the caller does not lead
any more. After any other error the outcome of a write is unknown: it is repeated after the state was opened again,
which rules out that the former write arrives later.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from typing import Any, Protocol, TypeVar

from headrace.cluster.metadata import Metadata
from headrace.coordinator.completion import committed
from headrace.coordinator.coordinator import Coordinator
from headrace.coordinator.machine import InternalRecord, Outcome
from headrace.coordinator.shard import Shard
from headrace.model.features import LINKS_LEVEL
from headrace.model.image import QUEUE_STATE_TOPIC, ClusterImage
from headrace.model.queue_state import StateChangesPage, StatePosition
from headrace.queues.state_machine import QueueStateMachine, StatePage
from headrace.replication.calls import Call, ask
from headrace.replication.partitions import PartitionTable
from headrace.replication.peers import Peers
from headrace.runtime.clock import Clock

A = TypeVar("A")

_PARTITIONS = 16
_TOPIC_SETTINGS = {
    "cleanup.policy": "compact",
    # Every received message leaves a few records that are obsolete when it is acked: they are compacted soon, so that
    # the next leader has little to read. A replica that was away for longer than the retention of tombstones may have
    # obsolete entries; those are of messages below the queue's head, which is never removed.
    "segment.bytes": str(16 * 1024 * 1024),
    "min.cleanable.dirty.ratio": "0.3",
    "delete.retention.ms": str(5 * 60 * 1000),
}
_LANE = "queue-state"
_TIMEOUT_S = 10.0


class OpenState(Call, frozen=True):
    queue: str
    epoch: int


class ReadState(Call, frozen=True):
    queue: str
    term: int
    at: int


class WriteState(Call, frozen=True):
    queue: str
    term: int
    entries: list[tuple[bytes, bytes | None]]


class ForgetState(Call, frozen=True):
    queue: str


class ReadStateChanges(Call, frozen=True):
    """What changed in a queue's state since a position: a `StateChangesPage`, for a link of another cluster."""

    level = LINKS_LEVEL

    queue: str
    position: StatePosition


StateCall = OpenState | ReadState | WriteState | ForgetState | ReadStateChanges


class StateStore(Protocol):
    async def open(self, queue: str, epoch: int) -> int:
        """Become the leader of a queue in a leader epoch; the term to write with. Earlier terms are fenced."""
        ...

    async def read(self, queue: str, term: int) -> list[InternalRecord]:
        """All entries of a queue."""
        ...

    async def write(self, queue: str, term: int, entries: Sequence[InternalRecord]) -> None:
        """Set entries, or remove those without a value; returns when that is committed."""
        ...

    async def forget(self, queue: str) -> None:
        """Remove the state of a queue that was deleted."""
        ...


class ReplicatedState:
    """The store of a broker: its own shards, and calls to those of other brokers."""

    def __init__(
        self,
        *,
        metadata: Metadata,
        partitions: PartitionTable,
        clock: Clock,
        workers: Executor,
        peers: Peers | None = None,
    ) -> None:
        """Without `peers` this broker is alone."""
        self._metadata = metadata
        self._peers = peers
        self._clock = clock
        self._lists = 0
        self.coordinator: Coordinator[QueueStateMachine] = Coordinator(
            QUEUE_STATE_TOPIC,
            partition_count=_PARTITIONS,
            topic_settings=_TOPIC_SETTINGS,
            make_machine=lambda _: QueueStateMachine(),
            metadata=metadata,
            partitions=partitions,
            clock=clock,
            workers=workers,
            on_loaded=self._loaded,
        )
        metadata.subscribe(self._image_changed)

    def start(self) -> None:
        self._metadata.before_queue = self.coordinator.ensure_topic
        self.coordinator.start()

    async def stop(self) -> None:
        await self.coordinator.stop()

    # -- for leaders of queues

    async def open(self, queue: str, epoch: int) -> int:
        await self.coordinator.ensure_topic()
        return await self._do(OpenState(queue, epoch), int)

    async def read(self, queue: str, term: int) -> list[InternalRecord]:
        entries: list[InternalRecord] = []
        at: int | None = 0
        while at is not None:
            page = await self._do(ReadState(queue, term, at), StatePage)
            entries.extend(InternalRecord(key, value) for key, value in page.entries)
            at = page.next_at
        return entries

    async def write(self, queue: str, term: int, entries: Sequence[InternalRecord]) -> None:
        if not self._is_elsewhere(queue):
            await self._write(queue, term, entries)
            return
        await self._do(WriteState(queue, term, [(key, value) for key, value in entries]), type(None))

    async def forget(self, queue: str) -> None:
        # It may be the first call to the store ever: offsets of a share group can be set before the first fetch.
        await self.coordinator.ensure_topic()
        await self._do(ForgetState(queue), type(None))

    async def changes(self, queue: str, position: StatePosition) -> StateChangesPage:
        """What changed in a queue's state since a position, all of it committed."""
        await self.coordinator.ensure_topic()
        return await self._do(ReadStateChanges(queue, position), StateChangesPage)

    async def _do(self, call: StateCall, result: type[A]) -> A:
        if self._peers is not None and self._is_elsewhere(call.queue):
            leader = self.coordinator.leader_for(call.queue)
            return await ask(self._peers, leader, call, result, lane=_LANE, timeout_s=_TIMEOUT_S)
        answer: A = await self.serve(call)
        return answer

    def _is_elsewhere(self, queue: str) -> bool:
        return self._peers is not None and self.coordinator.leader_for(queue) != self._metadata.broker_id

    # -- on the leader of the shard

    async def serve(self, call: StateCall) -> Any:
        """Carry out a call in a shard of this broker. `NotCoordinator` if it does not lead the shard."""
        shard = self.coordinator.shard(call.queue)
        match call:
            case OpenState(queue, epoch):
                return await committed(shard.run(lambda _: shard.machine.open(queue, epoch)))
            case ReadState(queue, term, at):
                return await committed(shard.run(lambda _: Outcome((), shard.machine.read(queue, term, at))))
            case WriteState(queue, term, entries):
                return await self._write(queue, term, [InternalRecord(key, value) for key, value in entries])
            case ReadStateChanges(queue, position):
                self._lists += 1
                # Unique also after a restart in the same leader epoch.
                instance = f"{shard.epoch}:{self._clock.wall_ms():.0f}:{self._lists}"
                return await committed(
                    shard.run(lambda now_ms: Outcome((), shard.machine.changes(queue, position, instance, now_ms)))
                )
            case ForgetState(queue):
                return await committed(shard.run(lambda _: shard.machine.forget(queue)))

    async def _write(self, queue: str, term: int, entries: Sequence[InternalRecord]) -> None:
        shard = self.coordinator.shard(queue)
        await committed(shard.run(lambda _: shard.machine.write(queue, term, entries)))

    # -- deleted topics

    def _loaded(self, shard: Shard[QueueStateMachine]) -> None:
        """Remove the state of deleted topics. All entries were written before this broker led the shard, by leaders of
        topics that are in its image, too, unless they were deleted."""
        known = {topic_id.hex for topic_id in self._metadata.image.topic_names}
        self._forget(shard, (queue for queue in shard.machine.queues if queue.partition(":")[0] not in known))

    async def _image_changed(self, old: ClusterImage, new: ClusterImage) -> None:
        gone = {topic_id.hex for topic_id in old.topic_names if topic_id not in new.topic_names}
        if gone:
            for shard in self.coordinator.shards():
                if shard.is_active:
                    self._forget(shard, (queue for queue in shard.machine.queues if queue.partition(":")[0] in gone))

    @staticmethod
    def _forget(shard: Shard[QueueStateMachine], queues: Iterable[str]) -> None:
        for queue in queues:
            shard.run(lambda _, queue=queue: shard.machine.forget(queue))  # type: ignore[misc]
