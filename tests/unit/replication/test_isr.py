"""Changes of who is in sync on their way to the store: what is compared, and what happens when the store says no."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from uuid import UUID

import pytest

from headrace.cluster import layout
from headrace.cluster.store import Compare, Put, Revision, StoreUnavailable, Write
from headrace.config.broker import BrokerSettings
from headrace.model.errors import DiskFull, StoreConflict
from headrace.model.ids import BrokerId, LeaderEpoch, PartitionIndex, TopicId, TopicName
from headrace.model.image import BrokerInfo, BrokerState, ClusterImage, Endpoint, PartitionState, TopicImage
from headrace.records.batch import read_header
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.replication.isr import InSync
from headrace.replication.partition import Partition
from headrace.replication.partitions import PartitionTable
from headrace.runtime.clock import ManualClock
from headrace.testing.disks import ModelDisk
from headrace.testing.logs import SMALL, LogBench

ONE, TWO, THREE = map(BrokerId, (1, 2, 3))
NAME, TOPIC_ID = TopicName("orders"), TopicId(UUID(int=7))
STATE = PartitionState(ONE, LeaderEpoch(5), (ONE, THREE), (ONE, TWO, THREE), partition_epoch=4)
FENCE = Compare(layout.alive_key(ONE), Revision(11))
BATCH = build_batch([Record(0, 1000, None, b"value")])


class Store:
    """A store with one partition, and the image that comes back from it."""

    def __init__(self) -> None:
        brokers = {b: BrokerInfo(b, Endpoint("h", 1), epoch=10 + b) for b in (ONE, TWO, THREE)}
        topic = TopicImage(NAME, TOPIC_ID, (STATE,))
        self.image = ClusterImage("c", ONE, brokers, {NAME: topic}, {TOPIC_ID: NAME}, {}, 1)
        self.settings = BrokerSettings(replica_lag_time_max_ms=10_000)
        self.refusal: Exception | None = None
        self.commits: list[tuple[set[Compare], PartitionState]] = []
        self.asked = asyncio.Event()
        self.partition: Partition | None = None

    def unchanged(self, key: str) -> Compare:
        return Compare(key, Revision(100))

    async def commit(self, compares: Sequence[Compare], writes: Sequence[Write]) -> None:
        assert len(writes) == 1
        assert isinstance(writes[0], Put)
        changed = layout._state(layout._partition.decode(writes[0].value))
        self.commits.append((set(compares), changed))
        self.asked.set()
        await asyncio.sleep(0)
        if self.refusal is not None:
            raise self.refusal
        topic = replace(self.image.topics[NAME], partitions=(changed,))
        self.image = replace(self.image, topics={NAME: topic})
        assert self.partition is not None
        self.partition.lead(changed, 0)

    def put(self, broker_id: BrokerId, **fields: object) -> None:
        broker = replace(self.image.brokers[broker_id], **fields)  # type: ignore[arg-type]
        self.image = replace(self.image, brokers={**self.image.brokers, broker_id: broker})


class Bench:
    def __init__(self) -> None:
        self.store = Store()
        self.clock = ManualClock()
        log = LogBench(ModelDisk(), replace(SMALL, flush_policy="os")).log
        self.partition = self.store.partition = Partition(
            NAME, PartitionIndex(0), TOPIC_ID, log, LeaderEpoch(0), appended=lambda _: None, broker_id=ONE,
            high_watermark=0,
        )  # fmt: skip
        table = PartitionTable()
        table.add(self.partition)
        self.in_sync = InSync(table, self.store, fence=lambda: FENCE, clock=self.clock)
        self.partition.on_joinable = self.in_sync.look_at
        self.partition.lead(STATE, 0)
        self.task = asyncio.ensure_future(self.in_sync.run())

    def append(self) -> None:
        self.partition.append(BATCH, read_header(BATCH))

    def fetched(self, broker_id: BrokerId, offset: int, epoch: int | None = None) -> None:
        self.partition.replica_fetched(
            broker_id,
            10 + broker_id if epoch is None else epoch,
            offset,
            log_start_offset=0,
            now_ms=self.clock.monotonic_ms(),
        )

    async def asked(self) -> None:
        """Until the store was asked for something, and has answered."""
        await asyncio.wait_for(self.store.asked.wait(), 30)
        self.store.asked.clear()
        for _ in range(5):
            await asyncio.sleep(0)


def run(scenario: Callable[[Bench], Awaitable[None]]) -> None:
    async def main() -> None:
        bench = Bench()
        await asyncio.sleep(0)
        try:
            await scenario(bench)
        finally:
            bench.task.cancel()
            await asyncio.wait((bench.task,))

    asyncio.run(main())


def test_a_follower_that_has_caught_up_joins_under_the_lease_it_caught_up_with() -> None:
    async def scenario(bench: Bench) -> None:
        bench.append()
        bench.fetched(THREE, 1)
        bench.fetched(TWO, 0)
        assert bench.partition.high_watermark == 1
        bench.fetched(TWO, 1)
        await bench.asked()
        ((compares, state),) = bench.store.commits
        assert state == replace(STATE, isr=(ONE, TWO, THREE), partition_epoch=5)
        assert compares == {
            FENCE,
            Compare(layout.partition_key(TOPIC_ID, 0), Revision(100)),
            Compare(layout.topic_key(NAME), Revision(100)),
            Compare(layout.alive_key(TWO), Revision(12)),
        }
        assert bench.partition.in_sync_count == 3

    run(scenario)


@pytest.mark.parametrize(
    "fields", [{"epoch": 99}, {"is_alive": False}, {"state": BrokerState.STOPPING}, {"state": BrokerState.STARTING}]
)
def test_who_cannot_be_elected_does_not_join(fields: dict[str, object]) -> None:
    async def scenario(bench: Bench) -> None:
        bench.store.put(TWO, **fields)
        bench.fetched(TWO, 0)
        for _ in range(5):
            await asyncio.sleep(0)
        assert bench.store.commits == []

    run(scenario)


def test_a_refused_change_is_made_anew_from_the_next_image() -> None:
    async def scenario(bench: Bench) -> None:
        bench.append()
        bench.fetched(THREE, 1)
        bench.store.refusal = StoreConflict("played")
        bench.fetched(TWO, 1)
        await bench.asked()
        assert bench.partition.leading is not None
        assert bench.partition.leading.maximal == {ONE, THREE}
        bench.store.refusal = None
        await bench.asked()
        assert bench.partition.in_sync_count == 3

    run(scenario)


@pytest.mark.parametrize("refusal", [StoreUnavailable("played"), DiskFull("played: a listener's")])
def test_a_change_without_an_answer_counts_until_the_store_has_a_newer_state(refusal: Exception) -> None:
    async def scenario(bench: Bench) -> None:
        bench.append()
        bench.fetched(THREE, 1)
        bench.store.refusal = refusal
        bench.fetched(TWO, 1)
        await bench.asked()
        bench.append()
        bench.fetched(THREE, 2)
        assert bench.partition.high_watermark == 1
        bench.fetched(TWO, 2)
        assert bench.partition.high_watermark == 2
        assert bench.partition.leading is not None
        assert bench.partition.leading.maximal == {ONE, TWO, THREE}
        bench.partition.lead(replace(STATE, partition_epoch=5), 0)
        assert bench.partition.leading.maximal == {ONE, THREE}
        assert not bench.task.done()

    run(scenario)


def test_who_has_not_been_level_for_too_long_leaves() -> None:
    async def scenario(bench: Bench) -> None:
        bench.append()
        bench.fetched(THREE, 0)
        bench.clock.advance(10_000)
        bench.in_sync.look_at(bench.partition)
        for _ in range(5):
            await asyncio.sleep(0)
        assert bench.store.commits == []
        bench.clock.advance(1)
        bench.in_sync.look_at(bench.partition)
        await bench.asked()
        assert bench.partition.in_sync_count == 1
        assert bench.partition.high_watermark == 1

    run(scenario)
