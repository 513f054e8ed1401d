"""The transaction coordinator on real logs: what is decided is completed, if need be by the next start."""

import asyncio
from collections.abc import AsyncIterator, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from headrace.app.hosted_partitions import HostedPartitions
from headrace.cluster.metadata import Metadata
from headrace.cluster.producer_ids import ProducerIds
from headrace.cluster.sqlite import SqliteStore
from headrace.config.broker import broker_settings
from headrace.model.errors import (
    CoordinatorLoading,
    DiskFull,
    FencedCoordinator,
    HeadraceError,
    PeerUnavailable,
    SupersededProducer,
)
from headrace.model.ids import NO_PRODUCER, BrokerId, ProducerIdAndEpoch
from headrace.model.image import Endpoint
from headrace.records.batch import read_header
from headrace.records.builder import build_batch
from headrace.records.markers import Marker, read_marker
from headrace.records.reader import Record
from headrace.replication.partitions import PartitionTable
from headrace.runtime.clock import SystemClock
from headrace.runtime.deferred import Deferred
from headrace.runtime.disk import OsDisk
from headrace.storage.datadir import DataDir
from headrace.storage.flusher import Flusher
from headrace.storage.manager import LogManager
from headrace.transactions.markers import MarkerWriter
from headrace.transactions.records import Place
from headrace.transactions.service import TransactionService
from headrace.transactions.states import TransactionState

PLACES: tuple[Place, ...] = (("t", 0), ("t", 1), ("t", 2))


class StubbornWriter(MarkerWriter):
    """Writes markers, but for those of some partitions: they hang, fail the first time, or are late the first time."""

    stuck: Collection[Place] = ()
    failing: set[Place]
    losing: frozenset[Place] = frozenset()
    late: tuple[tuple[Place, ProducerIdAndEpoch, Marker], ...] = ()
    """Those that were sent, and of which nothing has been heard."""

    def write(self, place: Place, producer: ProducerIdAndEpoch, marker: Marker) -> Deferred[HeadraceError | None]:
        if place in self.stuck:
            return Deferred()
        if place in self.losing:
            self.losing = self.losing - {place}
            self.late = (*self.late, (place, producer, marker))
            silence = PeerUnavailable("no answer")
            silence.may_have_arrived = True
            lost: Deferred[HeadraceError | None] = Deferred()
            lost.resolve(silence)
            return lost
        if place in self.failing:
            self.failing.discard(place)
            failed: Deferred[HeadraceError | None] = Deferred()
            failed.resolve(DiskFull("no room"))
            return failed
        return super().write(place, producer, marker)


class Broker:
    def __init__(self, partitions: PartitionTable, transactions: TransactionService) -> None:
        self.partitions = partitions
        self.transactions = transactions

    async def begin(self, name: str, timeout_ms: int = 60_000) -> ProducerIdAndEpoch:
        """A producer with a record in each partition, and its transaction open."""
        await self.transactions.coordinator.ensure_topic()
        producer = await self.transactions.init(name, timeout_ms, NO_PRODUCER)
        await self.write(name, producer)
        return producer

    async def write(self, name: str, producer: ProducerIdAndEpoch, sequence: int = 0) -> None:
        await self.transactions.add(name, producer, PLACES)
        for topic, index in PLACES:
            batch = build_batch(
                [Record(0, 1, None, b"v")],
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                base_sequence=sequence,
                transactional=True,
            )
            self.partitions.get(topic, index).append(batch, read_header(batch))

    def markers(self) -> list[list[bool]]:
        """What the markers in each partition say."""
        found = []
        for topic, index in PLACES:
            log = self.partitions.get(topic, index).log
            batches = [(segment, at, header) for segment in log.segments for at, header in segment.headers()]
            read = [read_marker(s.reader().read(at, h.size), h) for s, at, h in batches if h.is_control]
            found.append([marker.committed for marker in read if marker is not None])
        return found

    async def until(self, name: str, state: TransactionState | None) -> None:
        """Wait until a transactional id is in this state, or forgotten."""
        deadline = asyncio.get_running_loop().time() + 60
        while True:
            assert asyncio.get_running_loop().time() < deadline
            with suppress(CoordinatorLoading):
                known = await self.transactions.find(name)
                if (known and known.state) is state:
                    return
            await asyncio.sleep(0.005)


@asynccontextmanager
async def running(
    path: Path, *, stuck: Collection[Place] = (), failing: Collection[Place] = (), **settings: str
) -> AsyncIterator[Broker]:
    clock, disk = SystemClock(), OsDisk()
    texts = {name.replace("_", "."): value for name, value in settings.items()}
    own = broker_settings({"data.dir": str(path), "transaction.state.log.num.partitions": "1", **texts})
    data_dir = DataDir.acquire(path, disk, broker_id=BrokerId(0))
    with ThreadPoolExecutor(2) as workers:
        store = await SqliteStore.open(path / "metadata.sqlite", clock)
        metadata = Metadata(store, own, Endpoint("127.0.0.1", 1))
        await metadata.open(data_dir.cluster_id)
        partitions = PartitionTable()
        logs = LogManager(data_dir, disk=disk, clock=clock)
        logs.start()
        flusher = Flusher(threads=1)
        hosting = HostedPartitions(metadata, logs, partitions, flusher, workers)
        await hosting.open_all()
        metadata.subscribe(hosting.image_changed)
        if "t" not in metadata.image.topics:
            await metadata.create_topic("t", partitions=len(PLACES))
        writer = StubbornWriter(partitions, lambda *_: None)
        writer.stuck, writer.failing = stuck, set(failing)
        transactions = TransactionService(
            own,
            metadata=metadata,
            partitions=partitions,
            producer_ids=ProducerIds(store),
            markers=writer,
            clock=clock,
            workers=workers,
        )
        transactions.start()
        try:
            yield Broker(partitions, transactions)
        finally:
            await transactions.stop()
            await hosting.finish()
            await flusher.stop()
            logs.stop()
            await metadata.close()
            await store.close()
            data_dir.release()


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("stuck", [PLACES, PLACES[1:], PLACES[2:], ()], ids=lambda stuck: f"{3 - len(stuck)} markers")
def test_an_interrupted_end_is_completed_by_the_next_start(
    tmp_path: Path, stuck: Collection[Place], committed: bool
) -> None:
    async def first() -> ProducerIdAndEpoch:
        async with running(tmp_path, stuck=stuck) as broker:
            producer = await broker.begin("a")
            ending = asyncio.create_task(broker.transactions.end("a", producer, committed=committed, bumps_epoch=True))
            if stuck:
                await broker.until(
                    "a", TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT
                )
                assert not ending.done()
            else:
                await ending
        answer = await ending
        assert answer == (producer.producer_id, producer.epoch + 1), "decided is decided"
        return producer

    async def second(producer: ProducerIdAndEpoch) -> None:
        async with running(tmp_path) as broker:
            await broker.until("a", TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT)
            assert all(committed in markers for markers in broker.markers())
            assert all((not committed) not in markers for markers in broker.markers())
            for topic, index in PLACES:
                partition = broker.partitions.get(topic, index)
                assert partition.last_stable_offset == partition.high_watermark
            again = await broker.transactions.end("a", producer, committed=committed, bumps_epoch=True)
            assert again.epoch == producer.epoch + 1

    asyncio.run(second(asyncio.run(first())))


def test_a_marker_that_fails_is_written_again(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, failing=PLACES[:2]) as broker:
            producer = await broker.begin("a")
            await broker.transactions.end("a", producer, committed=True, bumps_epoch=False)
            assert broker.markers() == [[True], [True], [True]]

    asyncio.run(run())


def test_a_new_instance_waits_for_the_abort_of_the_old_one(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path) as broker:
            old = await broker.begin("a")
            new = await broker.transactions.init("a", 60_000, NO_PRODUCER)
            assert new == (old.producer_id, old.epoch + 2)
            assert broker.markers() == [[False], [False], [False]]
            with pytest.raises(SupersededProducer):
                await broker.transactions.end("a", old, committed=True, bumps_epoch=False)

    asyncio.run(run())


@pytest.mark.parametrize("restart", [False, True])
def test_a_transaction_that_takes_too_long_is_aborted(tmp_path: Path, restart: bool) -> None:
    async def begin() -> None:
        async with running(tmp_path) as broker:
            await broker.begin("a", timeout_ms=200)
            if not restart:
                await broker.until("a", TransactionState.COMPLETE_ABORT)
                assert broker.markers() == [[False], [False], [False]]

    async def after() -> None:
        async with running(tmp_path) as broker:
            await broker.until("a", TransactionState.COMPLETE_ABORT)
            assert broker.markers() == [[False], [False], [False]]

    asyncio.run(begin())
    asyncio.run(after())


def test_ids_that_nobody_uses_are_forgotten(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "transactional_id_expiration_ms": "1",
        "transaction_remove_expired_transaction_cleanup_interval_ms": "20",
    }

    async def run() -> None:
        async with running(tmp_path, **settings) as broker:
            await broker.transactions.coordinator.ensure_topic()
            await broker.transactions.init("a", 60_000, NO_PRODUCER)
            await broker.until("a", None)

    asyncio.run(run())


@pytest.mark.parametrize("bumps_epoch", [False, True])
def test_a_marker_that_comes_late_does_not_end_the_next_transaction(tmp_path: Path, bumps_epoch: bool) -> None:
    """It was sent again because nothing was heard of it, and the producer has gone on since."""

    async def main() -> None:
        async with running(tmp_path) as broker:
            writer = broker.transactions.markers
            assert isinstance(writer, StubbornWriter)
            producer = await broker.begin("a")
            writer.losing = frozenset(PLACES[:1])
            producer = await broker.transactions.end("a", producer, committed=False, bumps_epoch=bumps_epoch)
            await broker.until("a", TransactionState.COMPLETE_ABORT)
            await broker.write("a", producer, sequence=0 if bumps_epoch else 1)
            (late,) = writer.late
            arrived: list[HeadraceError | None] = []
            writer.write(*late).then(arrived.append)
            assert [type(answer) for answer in arrived] == [FencedCoordinator]
            await broker.transactions.end("a", producer, committed=True, bumps_epoch=bumps_epoch)
            await broker.until("a", TransactionState.COMPLETE_COMMIT)
            assert broker.markers() == [[False, True]] * len(PLACES)
            assert [entry.first_offset for entry in broker.partitions.get(*PLACES[0]).log.aborted.within(0, 100)] == [0]

    asyncio.run(main())
