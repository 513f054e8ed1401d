"""Commits ISR changes to the metadata store: followers that have caught up join, those that fell behind leave.

`leader.py` decides; this module commits. A change is one transaction that compares the partition's key, the topic's
key, this broker's lease and, for each follower that joins, the lease under which it has caught up. So the changes of a
former leader are refused, and so are those that add a follower that has restarted since.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from math import inf
from typing import NamedTuple, Protocol

from headrace.cluster import layout
from headrace.cluster.store import Compare, Put, Revision, Write
from headrace.config.broker import BrokerSettings
from headrace.model.errors import HeadraceError, StoreConflict
from headrace.model.ids import BrokerId
from headrace.model.image import ClusterImage
from headrace.replication.leader import Leading, Proposal
from headrace.replication.partition import Partition
from headrace.replication.partitions import PartitionTable
from headrace.runtime.clock import Clock

log = logging.getLogger(__name__)

_TOGETHER_MAX = 20
"""The most changes in one transaction. etcd allows 128 operations, and each change compares up to four keys."""
_TRY_AGAIN_S = 0.5


class IsrMetadata(Protocol):
    """The part of `cluster.metadata.Metadata` that this module uses."""

    @property
    def image(self) -> ClusterImage: ...

    @property
    def settings(self) -> BrokerSettings: ...

    def unchanged(self, key: str) -> Compare: ...

    async def commit(self, compares: Sequence[Compare], writes: Sequence[Write]) -> None: ...


class _Change(NamedTuple):
    partition: Partition
    leading: Leading
    proposal: Proposal
    compares: tuple[Compare, ...]
    write: Put


class InSync:
    def __init__(
        self, partitions: PartitionTable, metadata: IsrMetadata, *, fence: Callable[[], Compare], clock: Clock
    ) -> None:
        """`fence` returns the comparison that succeeds while this broker's lease is live."""
        self._partitions = partitions
        self._metadata = metadata
        self._fence = fence
        self._clock = clock
        self._due: dict[Partition, None] = {}
        self._wake = asyncio.Event()

    def look_at(self, partition: Partition) -> None:
        """Check soon whether a follower of this partition may join the ISR."""
        self._due[partition] = None
        self._wake.set()

    async def run(self) -> None:
        """Commit changes until cancelled. Followers that may join are checked soon, lagging ones periodically."""
        sweep_at_ms = 0.0
        while True:
            now_ms = self._clock.monotonic_ms()
            if now_ms >= sweep_at_ms:
                self._due.update((p, None) for p in self._partitions.all() if _may_change(p))
                sweep_at_ms = now_ms + self._metadata.settings.replica_lag_time_max_ms / 2
            due, self._due = iter(tuple(self._due)), {}
            self._wake.clear()
            try:
                while changes := list(islice(filter(None, map(self._change, due)), _TOGETHER_MAX)):
                    await self._put(changes)
            except HeadraceError as error:
                # The store is unavailable, or the change was committed and applying its result failed.
                log.info("the ISR cannot be changed now: %s", error)
                await asyncio.sleep(_TRY_AGAIN_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, sweep_at_ms - self._clock.monotonic_ms()) / 1000):
                    await self._wake.wait()

    async def _put(self, changes: Sequence[_Change]) -> None:
        if not await self._commit(changes) and len(changes) > 1:
            # One of them is out of date: commit the others one by one.
            for change in changes:
                again = self._change(change.partition)
                if again is not None:
                    await self._commit([again])

    def _change(self, partition: Partition) -> _Change | None:
        """The change to commit now; None if there is none, or the partition does not have the newest state yet."""
        leading, image = partition.leading, self._metadata.image
        topic = image.topics.get(partition.topic)
        if leading is None or topic is None or topic.topic_id != partition.topic_id:
            return None
        if topic.partitions[partition.index].partition_epoch != leading.state.partition_epoch:
            return None

        def is_eligible(broker_id: BrokerId, epoch: int) -> bool:
            return image.can_lead(broker_id) and image.brokers[broker_id].epoch == epoch

        # A leader that is resigning (disk failed, or stopping) removes no follower: one of them must lead next.
        stays = image.can_lead(leading.state.leader)
        proposal = leading.propose(
            now_ms=self._clock.monotonic_ms(),
            lag_max_ms=self._metadata.settings.replica_lag_time_max_ms if stays else inf,
            end_offset=partition.log.end_offset,
            high_watermark=partition.high_watermark,
            is_eligible=is_eligible,
        )
        if proposal is None:
            return None
        key = layout.partition_key(partition.topic_id, partition.index)
        compares = (
            self._metadata.unchanged(key),
            self._metadata.unchanged(layout.topic_key(partition.topic)),
            *(Compare(layout.alive_key(broker), Revision(epoch)) for broker, epoch in proposal.added.items()),
        )
        return _Change(partition, leading, proposal, compares, Put(key, layout.encode_partition(proposal.state)))

    async def _commit(self, changes: Sequence[_Change]) -> bool:
        """Commit the changes; False if the store refused. Raises another error if the outcome is unknown."""
        compares = dict.fromkeys((self._fence(), *(compare for change in changes for compare in change.compares)))
        for change in changes:
            change.leading.begin(change.proposal)
        try:
            await self._metadata.commit(tuple(compares), [change.write for change in changes])
        except StoreConflict:
            loop = asyncio.get_running_loop()
            for change in changes:
                change.leading.refused(change.proposal)
                # The change that came first is in the next image.
                loop.call_later(_TRY_AGAIN_S, self.look_at, change.partition)
            return False
        except BaseException:
            for change in changes:
                change.leading.unanswered(change.proposal)
            raise
        for change in changes:
            log.info("in sync on %s: %s", change.partition, ", ".join(map(str, change.proposal.state.isr)))
            # The image and the partition have the change by now, and the partition has dropped the proposal.
            change.leading.unanswered(change.proposal)
        return True


def _may_change(partition: Partition) -> bool:
    leading = partition.leading
    return leading is not None and not leading.is_settled(partition.log.end_offset)
