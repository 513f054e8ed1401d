"""The controller's event loop. Every broker of a cluster runs one; the one that owns `/controller` decides.

- Election: a broker creates `/controller` under its own lease if the key is absent. It is deleted with the lease.
- Events: the difference between two images determines which brokers and partitions to examine. Without changes there
  is no work, however many partitions there are, except the preferred leader check every
  `leader.imbalance.check.interval.seconds`.
- Writes: the changes of `controller.decide`, each a compare-and-set on the revisions of `/controller`, the partition
  and its topic. A former controller, paused for however long, cannot write. After a conflict the decision is made again
  from the next image.
- A starting broker becomes ACTIVE in a transaction of its own, after all of its partitions have been updated.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from headrace.cluster import layout, topics
from headrace.cluster.controller import Changes, Event, PartitionKey, decide
from headrace.cluster.membership import Membership
from headrace.cluster.metadata import Metadata
from headrace.cluster.store import ABSENT, Compare, DeleteKey, Put
from headrace.model.backoff import ExponentialDelay, RetryDelays
from headrace.model.errors import HeadraceError, StoreConflict
from headrace.model.ids import NO_LEADER, BrokerId, TopicPartition
from headrace.model.image import BrokerInfo, ClusterImage
from headrace.runtime.clock import Clock

log = logging.getLogger(__name__)

_RETRY_DELAY_S = ExponentialDelay(0.02, 2.0)
_CONFLICT_DELAY_S = ExponentialDelay(0.02, 0.1)
_STOP_TIMEOUT_S = 2.0


@dataclass(slots=True)
class _Pending:
    """Events that no decision has covered yet."""

    everything: bool = False
    brokers: set[BrokerId] = field(default_factory=set)
    partitions: set[PartitionKey] = field(default_factory=set)
    is_balancing: bool = False

    def __bool__(self) -> bool:
        return self.everything or bool(self.brokers or self.partitions) or self.is_balancing

    def event(self) -> Event:
        return Event(self.everything, frozenset(self.brokers), frozenset(self.partitions), self.is_balancing)

    def add(self, other: "_Pending") -> None:
        self.everything |= other.everything
        self.brokers |= other.brokers
        self.partitions |= other.partitions
        self.is_balancing |= other.is_balancing


class ControllerLoop:
    """Elects itself controller when there is none, then writes the controller's decisions."""

    def __init__(self, metadata: Metadata, membership: Membership, clock: Clock) -> None:
        self._metadata = metadata
        self._membership = membership
        self._clock = clock
        self._fence: Compare | None = None
        """Holds while this broker is the controller; None if it is not, as far as it knows."""
        self._pending = _Pending()
        self._wake = asyncio.Event()
        self._refused: dict[BrokerId, tuple[TopicPartition, ...]] = {}
        self._outdated: frozenset[BrokerId] = frozenset()
        self._balance_at_ms = 0.0
        self._task: asyncio.Task[None] | None = None

    @property
    def is_controller(self) -> bool:
        """True if this broker is the controller, according to its image."""
        return self._fence is not None and self._metadata.unchanged(layout.CONTROLLER) == self._fence

    def start(self) -> None:
        """Start the loop: become controller whenever there is none and this broker is registered."""
        self._metadata.subscribe(self._on_image_change)
        self._membership.on_registered.append(self._wake.set)
        self._task = asyncio.get_running_loop().create_task(self._run(), name="controller")
        self._wake.set()

    async def stop(self) -> None:
        """Stop deciding, and delete `/controller` so that another broker takes over at once."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        fence, self._fence = self._fence, None
        if fence is not None:
            with suppress(HeadraceError, TimeoutError):
                async with asyncio.timeout(_STOP_TIMEOUT_S):
                    await self._metadata.commit([fence], [DeleteKey(layout.CONTROLLER)])

    def _on_image_change(self, old: ClusterImage, new: ClusterImage) -> None:
        if self._fence is None:
            if new.controller_id == NO_LEADER or new.controller_id == self._membership.broker_id:
                self._wake.set()
            return
        self._pending.brokers.update(_changed_brokers(old, new))
        self._pending.partitions.update(_changed_partitions(old, new))
        if self._refused and old.topics.keys() != new.topics.keys():
            self._pending.brokers.update(self._refused)  # The topics that blocked them may have been deleted.
        if self._pending or not self.is_controller:
            self._wake.set()

    async def _run(self) -> None:
        retries, conflicts = RetryDelays(_RETRY_DELAY_S), RetryDelays(_CONFLICT_DELAY_S)
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._until_balancing_s()):
                    await self._wake.wait()
            self._wake.clear()
            try:
                await self._step()
                retries.reset()
                conflicts.reset()
                continue
            except StoreConflict:
                delays = conflicts  # A concurrent change; conflicts do not last.
            except HeadraceError as error:
                delays = retries
                log.warning("the controller could not write its changes, retrying: %s", error)
            except Exception:
                delays = retries
                log.exception("the controller failed, retrying")
            # The next image may make these changes unnecessary.
            await asyncio.sleep(delays.next())
            self._wake.set()

    async def _step(self) -> None:
        if self._fence is not None and not self.is_controller:
            log.info("broker %d is no longer the controller", self._membership.broker_id)
            self._fence, self._pending = None, _Pending()
        if self._fence is None and not await self._take_control():
            return
        if self._until_balancing_s() == 0:
            self._pending.is_balancing |= self._metadata.settings.auto_leader_rebalance_enable
            self._schedule_balancing()
        if self._pending:
            await self._decide()

    async def _take_control(self) -> bool:
        membership = self._membership
        lease = membership.lease
        if lease is None or membership.is_stopping:
            return False
        if self._metadata.image.controller_id == NO_LEADER:
            record = layout.encode(layout.ControllerRecord(membership.broker_id))
            await self._metadata.commit(
                [Compare(layout.CONTROLLER, ABSENT), membership.fence()], [Put(layout.CONTROLLER, record, lease)]
            )
        fence = self._metadata.unchanged(layout.CONTROLLER)
        if self._metadata.image.controller_id != membership.broker_id or fence.mod_revision < membership.epoch:
            return False  # It is another broker, or a leftover of this one's former lease.
        self._fence, self._pending = fence, _Pending(everything=True)
        self._refused, self._outdated = {}, frozenset()
        self._schedule_balancing()
        log.info("broker %d is the controller", membership.broker_id)
        return True

    def _schedule_balancing(self) -> None:
        interval_ms = self._metadata.settings.leader_imbalance_check_interval_seconds * 1000
        self._balance_at_ms = self._clock.monotonic_ms() + interval_ms

    def _until_balancing_s(self) -> float | None:
        if self._fence is None:
            return None
        return max(0.0, self._balance_at_ms - self._clock.monotonic_ms()) / 1000

    async def _decide(self) -> None:
        """Decide from the current image and write the changes. On failure the events are pending again."""
        assert self._fence is not None
        pending, self._pending = self._pending, _Pending()
        try:
            settings = self._metadata.settings
            factors, given = topics.internal_replication_factors(settings), topics.with_given_factors(settings)
            changes = decide(self._metadata.image, pending.event(), factors, on_any_brokers=given)
            admissions = [(self._admission(broker), broker) for broker in changes.brokers]
            self._log_refused(changes)
            if changes.partitions:
                log.info("the controller updates %d partitions", len(changes.partitions))
                await self._metadata.change_partitions(changes.partitions, self._fence)
            for compares, broker in admissions:
                put = Put(layout.broker_key(broker.broker_id), layout.encode_broker(broker))
                await self._metadata.commit(compares, [put])
                log.info("broker %d is admitted by broker %d", broker.broker_id, self._membership.broker_id)
            for broker_id in changes.removed_brokers:
                await self._remove_broker(broker_id)
        except BaseException:
            self._pending.add(pending)
            raise

    def _admission(self, broker: BrokerInfo) -> list[Compare]:
        """The comparisons for admitting a broker: it still has the registration that the changes were decided for."""
        assert self._fence is not None
        of_broker = self._metadata.unchanged(layout.broker_key(broker.broker_id))
        return [self._fence, of_broker, self._metadata.unchanged(layout.alive_key(broker.broker_id))]

    async def _remove_broker(self, broker_id: BrokerId) -> None:
        assert self._fence is not None
        keys = layout.broker_key(broker_id), layout.broker_settings_key(broker_id)
        is_dead = Compare(layout.alive_key(broker_id), ABSENT)
        compares = [self._fence, is_dead, *map(self._metadata.unchanged, keys)]
        await self._metadata.commit(compares, [DeleteKey(key) for key in keys])
        log.info("broker %d was drained and stopped: removed from the cluster", broker_id)

    def _log_refused(self, changes: Changes) -> None:
        for broker_id, partitions in changes.refused.items():
            if self._refused.get(broker_id) != partitions:
                log.error(
                    "broker %d is not admitted: it came back without its data directory, and no other broker has the "
                    "data of %s (%d in all). Start it with its old data.dir, or delete those topics",
                    broker_id,
                    ", ".join(map(str, partitions[:5])),
                    len(partitions),
                )
        self._refused = dict(changes.refused)
        level = self._metadata.image.feature_level
        for broker_id in sorted(set(changes.outdated) - self._outdated):
            log.error(
                "broker %d is not admitted: its version does not support feature level %d of this cluster. Start it "
                "with a newer version of Headrace",
                broker_id,
                level,
            )
        self._outdated = frozenset(changes.outdated)


def _changed_brokers(old: ClusterImage, new: ClusterImage) -> Iterator[BrokerId]:
    for broker_id, broker in new.brokers.items():
        if old.brokers.get(broker_id) != broker:
            yield broker_id
    yield from old.brokers.keys() - new.brokers.keys()


def _changed_partitions(old: ClusterImage, new: ClusterImage) -> Iterator[PartitionKey]:
    for name, topic in new.topics.items():
        before = old.topics.get(name)
        if before is topic:
            continue
        known = before.partitions if before is not None and before.topic_id == topic.topic_id else ()
        for index, state in enumerate(topic.partitions):
            if index >= len(known) or known[index] != state:
                yield topic.topic_id, index
