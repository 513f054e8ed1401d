"""What a broker of a cluster hosts, and which part it plays for it, follows the image."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.app.hosted_partitions import ClusterRuntime, HostedPartitions
from headrace.app.topic_ciphers import TopicCiphers
from headrace.cluster import layout
from headrace.cluster.data_keys import DataKeyMaker
from headrace.cluster.metadata import Metadata
from headrace.cluster.sqlite import SqliteStore
from headrace.cluster.store import DeleteKey, Put
from headrace.config.broker import broker_settings
from headrace.model.errors import NotLeader, UnknownPartition, UnknownTopic
from headrace.model.features import LATEST_LEVEL
from headrace.model.ids import NO_LEADER, BrokerId, LeaderEpoch, PartitionIndex, TopicName
from headrace.model.image import BrokerInfo, BrokerState, ClusterImage, Endpoint, PartitionState
from headrace.records.batch import read_header
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.replication.partition import Partition
from headrace.replication.partitions import PartitionTable
from headrace.replication.readable import Role
from headrace.runtime.clock import SystemClock
from headrace.runtime.disk import OsDisk
from headrace.security.encryption.master_key import MasterKey, MasterKeys
from headrace.storage.datadir import DataDir
from headrace.storage.flusher import Flusher
from headrace.storage.manager import LogManager

OWN, OTHER, THIRD = map(BrokerId, (1, 2, 3))
BATCH = build_batch([Record(0, 1000, None, b"value")])


class Fetching:
    """Who is followed where."""

    def __init__(self) -> None:
        self.leaders: dict[str, BrokerId] = {}
        self.throttled: set[str] = set()

    def follow(self, partition: Partition, leader_id: BrokerId, *, is_throttled: bool = False) -> None:
        self.leaders[str(partition)] = leader_id
        (self.throttled.add if is_throttled else self.throttled.discard)(str(partition))

    def forget(self, partition: Partition) -> None:
        self.leaders.pop(str(partition), None)


class Bench:
    def __init__(self, root: Path, store: SqliteStore) -> None:
        self.root = root
        self.store = store
        settings, keys = broker_settings({"broker.id": "1"}), DataKeyMaker(MasterKeys(MasterKey(bytes(32))), lambda: 0)
        self.metadata = Metadata(store, settings, Endpoint("h", 1), is_single_node=False, data_keys=keys)
        self.partitions = PartitionTable(lambda: self.metadata.image)
        self.fetching = Fetching()
        self.ciphers = TopicCiphers(None)
        """This broker lacks the master key that others have."""
        self.epoch = 0
        self.hosting: HostedPartitions

    async def put_broker(self, broker_id: BrokerId, state: BrokerState, *, epoch_of_own: bool = True) -> None:
        """A broker takes a place, or changes its state in it."""
        info = BrokerInfo(broker_id, Endpoint("h", 1), state=state)
        writes: list[Put | DeleteKey] = [Put(layout.broker_key(broker_id), layout.encode_broker(info))]
        if state is BrokerState.STARTING:
            writes.append(
                Put(layout.alive_key(broker_id), layout.encode(layout.AliveRecord("now", "dir", 0, LATEST_LEVEL)))
            )
        await self.metadata.commit([], writes)
        if state is BrokerState.STARTING and broker_id == OWN and epoch_of_own:
            self.epoch = self.metadata.image.brokers[OWN].epoch

    async def change(self, index: int = 0, topic: str = "t", **fields: object) -> None:
        state = self.state(topic, index)
        changed = replace(state, partition_epoch=state.partition_epoch + 1, **fields)  # type: ignore[arg-type]
        topic_id = self.metadata.image.topics[TopicName(topic)].topic_id
        await self.metadata.change_partitions({(topic_id, index): changed}, None)

    def state(self, topic: str = "t", index: int = 0) -> PartitionState:
        return self.metadata.image.topics[TopicName(topic)].partitions[index]

    def get(self, index: int = 0, topic: str = "t") -> Partition:
        return self.partitions.get(topic, index)

    def folders(self) -> set[str]:
        return {path.name for path in self.root.iterdir() if path.is_dir() and not path.name.endswith("-delete")}


@asynccontextmanager
async def bench_in(root: Path) -> AsyncIterator[Bench]:
    clock, disk = SystemClock(), OsDisk()
    store = await SqliteStore.open(root / "metadata.sqlite", clock)
    bench = Bench(root, store)
    await bench.metadata.open("cluster")
    logs = LogManager(DataDir(root, "cluster", OWN), disk=disk, clock=clock, is_replicated=True)
    logs.start()
    flusher = Flusher()
    cluster = ClusterRuntime(lambda: bench.epoch, bench.fetching, lambda _: None, clock)
    with ThreadPoolExecutor(2) as workers:
        hosting = bench.hosting = HostedPartitions(
            bench.metadata, logs, bench.partitions, flusher, workers, cluster=cluster, ciphers=bench.ciphers
        )
        await hosting.open_all()
        bench.metadata.subscribe(hosting.image_changed)
        try:
            yield bench
        finally:
            await hosting.finish()
            await flusher.stop()
            await asyncio.to_thread(logs.stop)
            await bench.metadata.close()
            await store.close()


def run(root: Path, *scenarios: Callable[[Bench], Awaitable[None]]) -> None:
    """Each in a process of its own, on the same data."""

    async def main(scenario: Callable[[Bench], Awaitable[None]]) -> None:
        async with bench_in(root) as bench:
            await scenario(bench)

    for scenario in scenarios:
        asyncio.run(main(scenario))


async def three_brokers(bench: Bench) -> None:
    for broker_id in (OWN, OTHER, THIRD):
        await bench.put_broker(broker_id, BrokerState.STARTING)
    for broker_id in (OTHER, THIRD):
        await bench.put_broker(broker_id, BrokerState.ACTIVE)


async def topic_on(bench: Bench, assignment: dict[int, list[int]]) -> None:
    await bench.put_broker(OWN, BrokerState.ACTIVE)
    await bench.metadata.create_topic("t", assignment=assignment)


def test_a_broker_hosts_its_own_replicas_and_knows_of_the_others(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        await three_brokers(bench)
        await topic_on(bench, {0: [1, 2], 1: [2, 1], 2: [2, 3]})
        assert bench.folders() == {"t-0", "t-1"}
        assert bench.get(0).is_leader
        assert bench.get(1).role is Role.FOLLOWER
        assert bench.fetching.leaders == {"t-1": OTHER}
        with pytest.raises(NotLeader, match="broker 2 leads it"):
            bench.get(2)
        with pytest.raises(UnknownPartition):
            bench.get(3)
        with pytest.raises(UnknownTopic):
            bench.partitions.get("u", 0)

    run(tmp_path, scenario)


def test_roles_wait_for_the_broker_to_be_admitted_under_its_present_lease(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        await three_brokers(bench)
        await topic_on(bench, {0: [1, 2], 1: [2, 1]})
        # A new lease, of which the controller does not know anything yet.
        await bench.put_broker(OWN, BrokerState.STARTING)
        assert {bench.get(0).role, bench.get(1).role} == {Role.IDLE}
        assert bench.fetching.leaders == {}
        await bench.change(0, leader=OTHER, leader_epoch=LeaderEpoch(1))
        assert bench.get(0).role is Role.IDLE
        await bench.put_broker(OWN, BrokerState.ACTIVE)
        assert bench.get(0).role is Role.FOLLOWER
        assert bench.fetching.leaders == {"t-0": OTHER, "t-1": OTHER}
        # Admitted, but under a lease that this process does not have.
        await bench.put_broker(OWN, BrokerState.STARTING, epoch_of_own=False)
        await bench.put_broker(OWN, BrokerState.ACTIVE)
        assert bench.get(0).role is Role.IDLE

    run(tmp_path, scenario)


def test_roles_change_in_the_order_of_the_store(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        await three_brokers(bench)
        await topic_on(bench, {0: [1, 2]})
        told: list[str] = []
        bench.partitions.on_leading.append(lambda partition: told.append(f"leads {partition.leader_epoch}"))
        bench.partitions.on_not_leading.append(lambda partition: told.append("leads not"))
        waiting: list[BaseException | None] = []
        bench.get().append(BATCH, read_header(BATCH))
        assert not bench.get().when_committed(1, waiting.append)
        await bench.change(isr=(OWN,))
        assert bench.get().in_sync_count == 1
        await bench.change(leader=OTHER, leader_epoch=LeaderEpoch(1), isr=(OWN, OTHER))
        assert bench.get().leader_id == OTHER
        await bench.change(leader=NO_LEADER, leader_epoch=LeaderEpoch(2), isr=(OTHER,))
        assert bench.get().role is Role.IDLE
        assert bench.fetching.leaders == {}
        await bench.change(leader=OWN, leader_epoch=LeaderEpoch(3), isr=(OWN,))
        assert told == ["leads not", "leads 3"]
        await bench.put_broker(OWN, BrokerState.STOPPING)
        assert bench.get().is_leader

    run(tmp_path, scenario)


def test_a_replica_that_a_reassignment_takes_away_goes_with_its_folder(tmp_path: Path) -> None:
    async def moved(bench: Bench) -> None:
        await three_brokers(bench)
        await topic_on(bench, {0: [2, 1], 1: [2, 1]})
        assert bench.folders() == {"t-0", "t-1"}
        await bench.change(0, replicas=(OTHER, THIRD), isr=(OTHER, THIRD))
        assert bench.folders() == {"t-1"}
        with pytest.raises(NotLeader):
            bench.get(0)
        await bench.change(0, replicas=(OTHER, OWN, THIRD), adding=(OWN,))
        assert bench.fetching.throttled == {"t-0"}
        await bench.change(0, isr=(OTHER, OWN))
        assert not bench.fetching.throttled

    run(tmp_path, moved)
    (tmp_path / "strange-0").mkdir()
    # The other one goes while this broker is down.
    asyncio.run(_change_behind_its_back(tmp_path))

    async def strangers_stay(bench: Bench) -> None:
        assert bench.folders() == {"t-0", "strange-0"}

    run(tmp_path, strangers_stay)


def test_a_topic_without_its_key_that_was_moved_away_is_no_problem_any_more(tmp_path: Path) -> None:
    async def moved(bench: Bench) -> None:
        await three_brokers(bench)
        await bench.put_broker(OWN, BrokerState.ACTIVE)
        encrypted = {"encryption.at.rest": "true"}
        await bench.metadata.create_topic("t", assignment={0: [2, 1], 1: [2, 1]}, settings=encrypted)
        assert bench.ciphers.locked_topics() == ["t"]
        await bench.change(0, replicas=(OTHER, THIRD), isr=(OTHER, THIRD))
        assert bench.ciphers.locked_topics() == ["t"]
        await bench.change(1, replicas=(OTHER, THIRD), isr=(OTHER, THIRD))
        assert bench.ciphers.locked_topics() == []
        await bench.change(1, replicas=(OTHER, OWN, THIRD), adding=(OWN,))
        assert bench.ciphers.locked_topics() == ["t"]

    run(tmp_path, moved)


def test_a_broker_that_stops_leaves_changes_to_the_next_start(tmp_path: Path) -> None:
    async def stopping(bench: Bench) -> None:
        await three_brokers(bench)
        await topic_on(bench, {0: [2, 1], 1: [2, 3]})
        assert bench.folders() == {"t-0"}
        await bench.hosting.finish()
        # The logs are closed by then, and another process may have their folders.
        await bench.change(0, replicas=(OTHER, THIRD), isr=(OTHER, THIRD))
        await bench.change(1, replicas=(OTHER, OWN), isr=(OTHER,))
        assert bench.folders() == {"t-0"}

    async def started_again(bench: Bench) -> None:
        assert bench.folders() == {"t-1"}

    run(tmp_path, stopping, started_again)


async def _change_behind_its_back(root: Path) -> None:
    store = await SqliteStore.open(root / "metadata.sqlite", SystemClock())
    metadata = Metadata(store, broker_settings({"broker.id": "2"}), Endpoint("h", 1), is_single_node=False)
    await metadata.open("cluster")
    topic = metadata.image.topics[TopicName("t")]
    state = topic.partitions[1]
    changed = replace(state, replicas=(OTHER, THIRD), isr=(OTHER, THIRD), partition_epoch=state.partition_epoch + 1)
    await metadata.change_partitions({(topic.topic_id, 1): changed}, None)
    await metadata.close()
    await store.close()


def test_a_topic_is_deleted_on_each_broker_that_has_a_part_of_it(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        await three_brokers(bench)
        await topic_on(bench, {0: [1, 2], 1: [2, 3]})
        topic_id = bench.metadata.image.topics[TopicName("t")].topic_id
        forgotten = asyncio.Event()

        def look(_: ClusterImage, new: ClusterImage) -> None:
            if topic_id in new.deleted and OWN not in new.deleted[topic_id].brokers:
                forgotten.set()

        bench.metadata.subscribe(look)
        await bench.metadata.delete_topic("t")
        assert bench.folders() == set()
        await asyncio.wait_for(forgotten.wait(), 30)
        assert bench.metadata.image.deleted[topic_id].brokers == (OTHER, THIRD)
        # Another topic of that name is none of the old one's business.
        await bench.metadata.create_topic("t", assignment={0: [1, 2]})
        assert bench.get(0).is_leader

    run(tmp_path, scenario)


def test_what_is_known_as_committed_survives_a_restart(tmp_path: Path) -> None:
    async def first(bench: Bench) -> None:
        await three_brokers(bench)
        await topic_on(bench, {0: [1, 2]})
        partition = bench.get()
        for _ in range(3):
            partition.append(BATCH, read_header(BATCH))
        partition.replica_fetched(OTHER, 7, 2, log_start_offset=0, now_ms=0)
        async with asyncio.timeout(30):
            await partition.until_committed(2)

    async def second(bench: Bench) -> None:
        assert bench.get().role is Role.IDLE
        assert bench.get().high_watermark == 2
        assert bench.partitions.get("t", PartitionIndex(0)).log.end_offset == 3

    run(tmp_path, first, second)


async def until(bench: Bench, holds: Callable[[], bool]) -> None:
    """Until it holds after a change of the image, which it will."""
    looked = asyncio.Event()
    bench.metadata.subscribe(lambda _, __: looked.set())
    async with asyncio.timeout(30):
        while not holds():
            looked.clear()
            await looked.wait()


def test_a_damaged_replica_leaves_those_in_sync_and_is_fetched_anew_from_there(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        await three_brokers(bench)
        await topic_on(bench, {0: [1, 2], 1: [2, 1], 2: [1, 3]})
        for index in (0, 2):
            for _ in range(3):
                bench.get(index).append(BATCH, read_header(BATCH))
        await bench.change(2, isr=(OWN,))
        bench.get(0).on_damaged(bench.get(0), 1)
        bench.get(1).on_damaged(bench.get(1), 0)
        bench.get(2).on_damaged(bench.get(2), 1)
        await until(bench, lambda: bench.state(index=0).isr == (OTHER,) == bench.state(index=1).isr)
        assert (bench.state(index=0).leader, bench.state(index=0).leader_epoch) == (NO_LEADER, 1)
        assert (bench.state(index=1).leader, bench.state(index=1).leader_epoch) == (OTHER, 0)
        assert bench.get(0).role is Role.IDLE
        assert bench.get(0).log.end_offset == 3
        await bench.change(0, leader=OTHER, leader_epoch=LeaderEpoch(2))
        assert bench.get(0).log.end_offset == 1
        assert bench.get(0).log.damaged_from is None
        # Nobody else is known to have it.
        assert bench.state(index=2).isr == (OWN,)
        assert bench.get(2).is_leader

    run(tmp_path, scenario)


def test_a_damaged_follower_that_is_not_in_sync_is_fetched_anew_as_well(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        await three_brokers(bench)
        await topic_on(bench, {0: [1, 2]})
        bench.get().append(BATCH, read_header(BATCH))
        await bench.change(leader=OTHER, leader_epoch=LeaderEpoch(1), isr=(OTHER,))
        assert bench.get().log.end_offset == 1
        bench.get().on_damaged(bench.get(), 0)
        await bench.hosting.finish()
        assert bench.get().log.end_offset == 0

    run(tmp_path, scenario)


def test_a_leader_whose_log_ends_before_the_damage_is_whole(tmp_path: Path) -> None:
    async def first(bench: Bench) -> None:
        await three_brokers(bench)
        await topic_on(bench, {0: [1, 2]})
        await bench.change(isr=(OWN,))
        bench.get().append(BATCH, read_header(BATCH))
        await asyncio.to_thread(bench.get().log.note_damage, 1)

    async def second(bench: Bench) -> None:
        await bench.hosting.withdraw()
        assert bench.state().isr == (OWN,)
        assert bench.get().log.damaged_from == 1
        await bench.put_broker(OWN, BrokerState.STARTING)
        await bench.put_broker(OWN, BrokerState.ACTIVE)
        assert bench.get().is_leader
        assert bench.get().log.damaged_from is None

    run(tmp_path, first, second)


def test_a_replica_found_damaged_at_the_start_withdraws_before_it_takes_its_place(tmp_path: Path) -> None:
    async def first(bench: Bench) -> None:
        await three_brokers(bench)
        await topic_on(bench, {0: [1, 2]})
        bench.get().append(BATCH, read_header(BATCH))
        await asyncio.to_thread(bench.get().log.note_damage, 0)

    async def second(bench: Bench) -> None:
        await bench.hosting.withdraw()
        assert bench.state().isr == (OTHER,)
        assert bench.state().leader == NO_LEADER
        assert bench.get().log.end_offset == 1

    run(tmp_path, first, second)
