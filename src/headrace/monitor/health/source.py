"""Collects the facts of this broker for the checks of health."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace.cluster.membership import Membership
from headrace.cluster.metadata import Metadata
from headrace.config.address import is_loopback
from headrace.config.broker import BrokerSettings
from headrace.model.ids import BrokerId
from headrace.model.image import ClusterImage, TopicImage
from headrace.monitor.health.activity import EventWindow, GroupLag, MeanWindow, QueueBook, QueueLook, StallBook
from headrace.monitor.health.facts import (
    CertificateFact,
    ClusterFacts,
    DiskFacts,
    GroupFact,
    HealthFacts,
    HealthLimits,
    PipelineFact,
    StoreFacts,
    TransactionFact,
)
from headrace.monitor.health.image_scan import ImageScan
from headrace.monitor.health.rules import PIPELINE_RESTART_WINDOW_S
from headrace.monitor.loop_slices import sliced
from headrace.monitor.monitor import Monitor
from headrace.monitor.pipelines.entries import PipelineEntry
from headrace.monitor.pipelines.service import PipelineReports
from headrace.monitor.snapshots import BrokerStat, DiskStat, GroupStat, QueueStat, TransactionStat
from headrace.quotas.disk_pressure import DiskPressure
from headrace.runtime.clock import Clock
from headrace.security.authenticator import Login
from headrace.security.security import Security

_FAILED, _SILENT = "failed", "not-reporting"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthParts:
    """The parts of a broker whose health is checked."""

    metadata: Metadata
    monitor: Monitor
    pipelines: PipelineReports
    security: Security
    clock: Clock
    membership: Membership | None
    """None on a single node."""
    failure: Callable[[], BaseException | None]
    """Why the data directory takes no more writes."""
    locked_topics: Callable[[], Sequence[str]]
    """Encrypted topics whose data keys this broker cannot unwrap."""


class HealthSource:
    def __init__(self, parts: HealthParts) -> None:
        self._parts = parts
        self._metadata = parts.metadata
        self._scan = ImageScan()
        self._scanned: ClusterImage | None = None
        self._scanned_by: tuple[object, ...] = ()
        self._cluster_facts: ClusterFacts | None = None
        self._stalls = StallBook()
        self._queues = QueueBook()
        self._failed_logins = EventWindow()
        self._store_mean = MeanWindow()
        self._restarts: dict[str, EventWindow] = {}
        self._restart_counts: dict[str, int] = {}
        self._budget_waits_since_s: float | None = None
        parts.security.on_login.append(self._logged_in)
        # Set when there are listeners:
        self.certificates: Callable[[], Sequence[CertificateFact]] = tuple
        self.is_budget_used_up: Callable[[], bool] = lambda: False
        self.disk_pressure = DiskPressure()
        self.loop_lag_s: Callable[[], float] = lambda: 0.0
        """The longest time that the event loop was held up within the last minute."""
        self.store_calls: Callable[[], tuple[int, float]] = lambda: (0, 0.0)
        """How many calls to the metadata store were answered, and how many seconds that took in sum."""

    def _logged_in(self, login: Login) -> None:
        if not login.has_succeeded:
            self._failed_logins.add(self._now_s)

    @property
    def _now_s(self) -> float:
        return self._parts.clock.monotonic_ms() / 1000

    async def facts(self) -> HealthFacts:
        """The facts as they are now."""
        parts, image, settings = self._parts, self._metadata.image, self._metadata.settings
        cluster = await self._cluster(image)
        others, disks = await self._others(image), (await parts.monitor.own_totals()).disks
        now_s, failure = self._now_s, parts.failure()
        groups: list[GroupStat] = await parts.monitor.own_rows("groups")
        queues: list[QueueStat] = await parts.monitor.own_rows("queues")
        transactions: list[TransactionStat] = await parts.monitor.own_rows("transactions")
        stalled = await self._stalled(groups, now_s)
        return HealthFacts(
            self._metadata.broker_id,
            cluster=cluster,
            limits=_limits(settings),
            store=self.store(),
            disk=_disk(disks[0], self.disk_pressure) if disks else None,
            failure="" if failure is None else str(failure),
            loop_lag_s=self.loop_lag_s(),
            budget_wait_s=self._budget_wait_s(now_s),
            login_failures=self._failed_logins.count(now_s),
            certificates=self.certificates(),
            locked_topics=parts.locked_topics(),
            clock_skews={each.broker_id: each.clock_skew_ms / 1000 for each in others if each.clock_skew_ms},
            silent=[
                each.broker_id for each in others if each.totals is None and image.can_lead(BrokerId(each.broker_id))
            ],
            open_listeners=open_listeners(settings),
            groups=stalled,
            queues=self._queues.update(self._counts(queues), now_s),
            transactions=self._transactions(transactions),
            pipelines=[self._pipeline(each, now_s) for each in parts.pipelines.led()],
        )

    async def _cluster(self, image: ClusterImage) -> ClusterFacts:
        settings = self._metadata.settings
        defaults = (settings.topic_defaults, settings.given)
        if defaults != self._scanned_by:
            self._scanned_by = defaults
            self._scan.clear()
        elif image is self._scanned and self._cluster_facts is not None:
            return self._cluster_facts
        async for _ in sliced(self._scan.topics(image, self._min_isr)):
            pass
        self._scanned = image
        self._cluster_facts = facts = self._scan.facts(image)
        return facts

    def _min_isr(self, topic: TopicImage) -> int:
        return self._metadata.topic_settings(topic).min_insync_replicas

    async def _others(self, image: ClusterImage) -> list[BrokerStat]:
        """The other brokers, if this one watches them.

        The controller does, and one more in case that the controller is the one that hangs: if all brokers asked all
        others, a large cluster would be busy with that.
        """
        own_id, controller = self._metadata.broker_id, image.controller_id
        watchers = sorted((each.broker_id for each in image.alive_brokers()), key=lambda each: each != controller)
        if self._parts.membership is None or own_id not in watchers[:2]:
            return []
        return [each for each in await self._parts.monitor.brokers() if each.broker_id != own_id]

    def store(self) -> StoreFacts:
        membership, metadata = self._parts.membership, self._metadata
        mean_s = self._store_mean.mean(self._now_s, *self.store_calls())
        latency_ms = None if mean_s is None else mean_s * 1000
        if membership is None:
            return StoreFacts("sqlite", metadata.is_watching, latency_ms)
        return StoreFacts("etcd", metadata.is_watching and membership.is_lease_live(), latency_ms)

    def _budget_wait_s(self, now_s: float) -> float:
        if not self.is_budget_used_up():
            self._budget_waits_since_s = None
            return 0.0
        if self._budget_waits_since_s is None:
            self._budget_waits_since_s = now_s
        return now_s - self._budget_waits_since_s

    async def _stalled(self, groups: Sequence[GroupStat], now_s: float) -> list[GroupFact]:
        """The groups that fall behind without moving."""
        now_ms, found = self._parts.clock.wall_ms(), []
        async for each in sliced(groups):
            if each.lag_messages:
                lag = GroupLag(each.group, each.members, each.lag_messages, each.lag_seconds, _stalled_s(each, now_ms))
                if (fact := self._stalls.look(lag, now_s)) is not None:
                    found.append(fact)
        self._stalls.finish()
        return found

    def _counts(self, queues: Sequence[QueueStat]) -> list[QueueLook]:
        now_ms, dead_letter_queues = self._parts.clock.wall_ms(), self._scan.dead_letter_queues()
        return [
            QueueLook(
                each.queue,
                each.visible,
                each.visible + (each.in_flight or 0) + (each.delayed or 0),
                each.oldest_age_s or 0.0,
                None if each.last_received_ms is None else max(0.0, (now_ms - each.last_received_ms) / 1000),
                each.queue in dead_letter_queues,
            )
            for each in queues
            if each.visible is not None
        ]

    def _transactions(self, transactions: Sequence[TransactionStat]) -> list[TransactionFact]:
        now_ms = self._parts.clock.wall_ms()
        return [
            TransactionFact(each.transactional_id, (now_ms - each.started_ms) / 1000, each.partition_count)
            for each in transactions
            if each.started_ms is not None
        ]

    def _pipeline(self, entry: PipelineEntry, now_s: float) -> PipelineFact:
        window = self._restarts.setdefault(entry.name, EventWindow(PIPELINE_RESTART_WINDOW_S, 60.0))
        before = self._restart_counts.get(entry.name, entry.restarts)
        if entry.restarts > before:
            window.add(now_s, entry.restarts - before)
        self._restart_counts[entry.name] = entry.restarts
        silent_s = max(0.0, (self._parts.clock.wall_ms() - entry.reported_ms) / 1000)
        return PipelineFact(
            entry.name,
            _FAILED if entry.state == _FAILED else "running",
            is_wanted=entry.state == _SILENT,
            silent_s=silent_s,
            restarts=window.count(now_s),
            last_error=entry.last_error,
        )


def open_listeners(settings: BrokerSettings) -> list[str]:
    """The listeners without authentication that other machines can reach."""
    found = [str(each) for each in settings.kafka_listeners if not each.is_local and not each.authenticates]
    http = settings.http_address
    is_open = not (settings.sqs_access_keys or settings.authorization_enable)
    if http is not None and is_open and not is_loopback(http.host):
        found.append(f"HTTP on port {http.port}")
    return found


def _limits(settings: BrokerSettings) -> HealthLimits:
    return HealthLimits(
        settings.health_stuck_ms / 1000,
        settings.health_transaction_open_ms / 1000,
        settings.health_disk_free_percent / 100,
    )


def _disk(disk: DiskStat, pressure: DiskPressure) -> DiskFacts:
    effect = ""
    if pressure.is_refusing:
        effect = "producers are refused until there is room"
    elif pressure.is_slowing:
        effect = "producers are slowed down until there is room"
    return DiskFacts(disk.path, disk.total_bytes, disk.free_bytes, disk.full_in_s, effect)


def _stalled_s(group: GroupStat, now_ms: int) -> float:
    if group.stalled_s is not None:
        return group.stalled_s
    return 0.0 if group.last_commit_ms is None else max(0.0, (now_ms - group.last_commit_ms) / 1000)
