"""The controller at work. Every broker of a cluster runs one of these; the one that holds `/controller` decides.

- Who controls: `/controller` is taken under the broker's own lease, where there is none. It goes with the lease.
- What happens: the difference between one image and the next says which brokers and partitions to look at. Nothing is
  done while nothing changes, however many partitions there are, but for the look at preferred leaders every
  `leader.imbalance.check.interval.seconds`.
- What is written: what `controller.decide` says, compared with the revision of `/controller`, of each partition and of
  its topic. A former controller, paused for however long, cannot write. When a comparison does not hold, the decision
  is made anew from the image that shows why.
- A broker that starts becomes ACTIVE in a transaction of its own, after every one of its partitions is put right.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from headrace.cluster import layout
from headrace.cluster.controller import Changes, Event, PartitionKey, decide
from headrace.cluster.membership import Membership
from headrace.cluster.metadata import Metadata
from headrace.cluster.store import ABSENT, Compare, DeleteKey, Put
from headrace.model.errors import HeadraceError, StoreConflict
from headrace.model.ids import NO_LEADER, BrokerId, TopicName, TopicPartition
from headrace.model.image import BrokerInfo, ClusterImage
from headrace.runtime.clock import Clock

log = logging.getLogger(__name__)

_RETRY_FIRST_S = 0.02
_RETRY_MAX_S = 2.0
_CONFLICT_MAX_S = 0.1
_STOP_TIMEOUT_S = 2.0


@dataclass(slots=True)
class _Pending:
    """What has happened and is not decided yet."""

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
    def __init__(self, metadata: Metadata, membership: Membership, clock: Clock) -> None:
        self._metadata = metadata
        self._membership = membership
        self._clock = clock
        self._fence: Compare | None = None
        """Holds while this broker controls, as far as it knows."""
        self._pending = _Pending()
        self._wake = asyncio.Event()
        self._refused: dict[BrokerId, tuple[TopicPartition, ...]] = {}
        self._outdated: frozenset[BrokerId] = frozenset()
        self._balance_at_ms = 0.0
        self._task: asyncio.Task[None] | None = None

    @property
    def is_controller(self) -> bool:
        """Whether this broker controls, as far as its image shows."""
        return self._fence is not None and self._metadata.unchanged(layout.CONTROLLER) == self._fence

    def start(self) -> None:
        """From now on, control the cluster whenever nobody else does and this broker is registered."""
        self._metadata.subscribe(self._image_changed)
        self._membership.on_registered.append(self._wake.set)
        self._task = asyncio.get_running_loop().create_task(self._run(), name="controller")
        self._wake.set()

    async def stop(self) -> None:
        """Decide nothing any more, and let another broker control at once."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        fence, self._fence = self._fence, None
        if fence is not None:
            with suppress(HeadraceError, TimeoutError):
                async with asyncio.timeout(_STOP_TIMEOUT_S):
                    await self._metadata.commit([fence], [DeleteKey(layout.CONTROLLER)])

    def _image_changed(self, old: ClusterImage, new: ClusterImage) -> None:
        if self._fence is None:
            if new.controller_id == NO_LEADER or new.controller_id == self._membership.broker_id:
                self._wake.set()
            return
        self._pending.brokers.update(_changed_brokers(old, new))
        self._pending.partitions.update(_changed_partitions(old, new))
        if self._refused and old.topics.keys() != new.topics.keys():
            self._pending.brokers.update(self._refused)  # What kept them out may have been deleted.
        if self._pending or not self.is_controller:
            self._wake.set()

    async def _run(self) -> None:
        pause_s = _RETRY_FIRST_S
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._until_balancing_s()):
                    await self._wake.wait()
            self._wake.clear()
            try:
                await self._step()
                pause_s = _RETRY_FIRST_S
                continue
            except StoreConflict:
                pause_s = min(pause_s, _CONFLICT_MAX_S)  # Somebody else was faster, and will not be for ever.
            except HeadraceError as error:
                log.warning("what the controller decided could not be written, trying again: %s", error)
            except Exception:
                log.exception("the controller failed, trying again")
            # What the image shows by then may make all of it superfluous.
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _RETRY_MAX_S)
            self._wake.set()

    async def _step(self) -> None:
        if self._fence is not None and not self.is_controller:
            log.info("broker %d does not control the cluster any more", self._membership.broker_id)
            self._fence, self._pending = None, _Pending()
        if self._fence is None and not await self._take_control():
            return
        if self._until_balancing_s() == 0:
            self._pending.is_balancing |= self._metadata.settings.auto_leader_rebalance_enable
            self._rearm()
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
            return False  # It is another broker, or what is left of this one's former lease.
        self._fence, self._pending = fence, _Pending(everything=True)
        self._refused, self._outdated = {}, frozenset()
        self._rearm()
        log.info("broker %d controls the cluster", membership.broker_id)
        return True

    def _rearm(self) -> None:
        interval_ms = self._metadata.settings.leader_imbalance_check_interval_seconds * 1000
        self._balance_at_ms = self._clock.monotonic_ms() + interval_ms

    def _until_balancing_s(self) -> float | None:
        if self._fence is None:
            return None
        return max(0.0, self._balance_at_ms - self._clock.monotonic_ms()) / 1000

    async def _decide(self) -> None:
        """One decision from the current image, written. What happened is pending again if that fails."""
        assert self._fence is not None
        pending, self._pending = self._pending, _Pending()
        try:
            changes = decide(self._metadata.image, pending.event(), self._factors())
            admissions = [(self._admission(broker), broker) for broker in changes.brokers]
            self._say_who_is_refused(changes)
            if changes.partitions:
                log.info("the controller changes %d partitions", len(changes.partitions))
                await self._metadata.change_partitions(changes.partitions, self._fence)
            for compares, broker in admissions:
                put = Put(layout.broker_key(broker.broker_id), layout.encode_broker(broker))
                await self._metadata.commit(compares, [put])
                log.info("broker %d is admitted by broker %d", broker.broker_id, self._membership.broker_id)
            for broker_id in changes.forgotten:
                await self._forget(broker_id)
        except BaseException:
            self._pending.add(pending)
            raise

    def _factors(self) -> dict[TopicName, int]:
        """Of the topics that the cluster needs itself."""
        settings = self._metadata.settings
        return {
            TopicName("__consumer_offsets"): settings.offsets_topic_replication_factor,
            TopicName("__transaction_state"): settings.transaction_state_log_replication_factor,
        }

    def _admission(self, broker: BrokerInfo) -> list[Compare]:
        """What must still hold when a broker becomes ACTIVE: it is the very one that all was put right for."""
        assert self._fence is not None
        of_broker = self._metadata.unchanged(layout.broker_key(broker.broker_id))
        return [self._fence, of_broker, self._metadata.unchanged(layout.alive_key(broker.broker_id))]

    async def _forget(self, broker_id: BrokerId) -> None:
        assert self._fence is not None
        keys = layout.broker_key(broker_id), layout.broker_settings_key(broker_id)
        is_dead = Compare(layout.alive_key(broker_id), ABSENT)
        compares = [self._fence, is_dead, *map(self._metadata.unchanged, keys)]
        await self._metadata.commit(compares, [DeleteKey(key) for key in keys])
        log.info("broker %d was drained and stopped: it has left the cluster", broker_id)

    def _say_who_is_refused(self, changes: Changes) -> None:
        for broker_id, partitions in changes.refused.items():
            if self._refused.get(broker_id) != partitions:
                log.error(
                    "broker %d is not admitted: it came back without its data directory, and nobody else has what was "
                    "in %s (%d in all). Start it with its old data.dir, or delete those topics",
                    broker_id,
                    ", ".join(map(str, partitions[:5])),
                    len(partitions),
                )
        self._refused = dict(changes.refused)
        level = self._metadata.image.feature_level
        for broker_id in sorted(set(changes.outdated) - self._outdated):
            log.error(
                "broker %d is not admitted: its version does not know feature level %d of this cluster. Start it with "
                "a newer version of Headrace",
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
