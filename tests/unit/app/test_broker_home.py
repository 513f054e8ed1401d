import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.app.broker_home import IN_ETCD, MOVED_FILE, BrokerHome, open_home
from headrace.cluster import bootstrap, layout
from headrace.cluster.metadata import Metadata
from headrace.cluster.producer_ids import BLOCK_SIZE, ProducerIds
from headrace.cluster.sqlite import SqliteStore
from headrace.cluster.store import Compare, MetadataStore, Put, Revision, Snapshot, StoreUnavailable, Write
from headrace.cluster.store_selection import METADATA_FILE, open_store
from headrace.config.broker import broker_settings
from headrace.model.errors import StartupError
from headrace.model.ids import TopicName
from headrace.model.image import ClusterImage, Endpoint
from headrace.runtime.clock import Clock, SystemClock
from headrace.runtime.disk import OsDisk

HERE = Endpoint("127.0.0.1", 9092)


class Killed(BaseException):
    """The process ends here."""


class Kill:
    """Counts what is done, and ends the process at the step that it is told; before it or after it."""

    def __init__(self, at: int = -1) -> None:
        self.at = at
        self.steps = 0

    def step(self) -> None:
        if self.steps == self.at:
            raise Killed
        self.steps += 1


class KilledStore(SqliteStore):
    """Stands for etcd."""

    kill: Kill

    async def snapshot(self, prefix: str = "") -> Snapshot:
        self.kill.step()
        return await super().snapshot(prefix)

    async def commit(self, compares: Sequence[Compare], writes: Sequence[Write]) -> Revision | None:
        self.kill.step()
        revision = await super().commit(compares, writes)
        self.kill.step()
        return revision


class KilledDisk(OsDisk):
    def __init__(self, kill: Kill) -> None:
        self._kill = kill

    def write_atomic(self, path: Path, data: bytes) -> None:
        self._kill.step()
        super().write_atomic(path, data)
        self._kill.step()

    def rename(self, source: Path, target: Path, *, sync: bool = True) -> None:
        self._kill.step()
        super().rename(source, target, sync=sync)
        self._kill.step()


class Brokers:
    """Brokers with directories under `root`, over an etcd that is a file."""

    def __init__(self, root: Path, etcd: str = "etcd.db") -> None:
        self.root = root
        self.etcd = root / etcd

    @asynccontextmanager
    async def home(
        self, name: str = "data", *, alone: bool = False, kill: Kill | None = None, broker_id: int = 0
    ) -> AsyncIterator[BrokerHome]:
        kill = kill or Kill()

        async def open_file(settings: Any, path: Path, clock: Clock) -> MetadataStore:
            store = await KilledStore.open(self.etcd, clock)
            assert isinstance(store, KilledStore)
            store.kill = kill
            return store

        texts = {"data.dir": str(self.root / name), "broker.id": str(broker_id)}
        if not alone:
            texts["etcd.endpoints"] = "etcd.test:2379"
        opening = open_store if alone else open_file
        home = await open_home(broker_settings(texts), KilledDisk(kill), SystemClock(), open_store=opening)
        try:
            yield home
        finally:
            await home.close()

    async def image(self, home: BrokerHome, broker_id: int = 0) -> ClusterImage:
        settings = broker_settings({"broker.id": str(broker_id)})
        metadata = Metadata(home.store, settings, HERE, is_single_node=home.is_single_node)
        await metadata.open(home.data_dir.cluster_id)
        await metadata.close()
        return metadata.image

    async def fill(self, name: str = "data") -> ClusterImage:
        """A broker that is alone and has something of everything."""
        async with self.home(name, alone=True) as home:
            metadata = Metadata(home.store, broker_settings({}), HERE)
            await metadata.open(home.data_dir.cluster_id)
            for number in range(3):
                await metadata.create_topic(f"t{number}", partitions=number + 1, settings={"retention.ms": "5"})
            await metadata.create_topic("gone")
            await metadata.delete_topic("gone")
            await metadata.alter_broker_settings(None, lambda now: {"num.partitions": "3"})
            await metadata.alter_broker_settings(0, lambda now: {"num.partitions": "4"})
            await metadata.alter_group_settings("g", lambda now: {"consumer.session.timeout.ms": "46000"})
            assert await ProducerIds(home.store).next() == 0
            await metadata.close()
            return metadata.image


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 90))


async def check_moved(brokers: Brokers, home: BrokerHome, before: ClusterImage) -> None:
    after = await brokers.image(home)
    assert after.cluster_id == before.cluster_id == home.data_dir.cluster_id
    assert after.topics == before.topics
    assert after.broker_settings == before.broker_settings
    assert after.settings_by_broker == before.settings_by_broker
    assert after.settings_by_group == before.settings_by_group
    assert [(gone.name, gone.brokers) for gone in after.deleted.values()] == [("gone", (0,))]
    assert after.brokers == {}
    assert await ProducerIds(home.store).next() >= BLOCK_SIZE
    assert layout.MIGRATION not in (await home.store.snapshot()).items


def test_from_one_node_to_a_cluster(tmp_path: Path) -> None:
    async def scenario() -> None:
        brokers = Brokers(tmp_path)
        before = await brokers.fill()
        for _ in range(2):
            async with brokers.home() as home:
                assert not home.is_single_node
                await check_moved(brokers, home, before)
        assert (tmp_path / "data" / MOVED_FILE).exists()
        async with brokers.home("new", broker_id=1) as home:
            assert home.data_dir.cluster_id == before.cluster_id
            assert (await brokers.image(home, 1)).topics == before.topics
        with pytest.raises(StartupError, match=r"is in etcd: set etcd\.endpoints"):
            async with brokers.home(alone=True):
                pass

    run(scenario)


def test_killed_at_every_step_it_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "WRITES_PER_COMMIT", 3)

    async def scenario() -> None:
        at = steps = 0
        while at <= steps:
            root = tmp_path / str(at)
            root.mkdir()
            brokers = Brokers(root)
            before = await brokers.fill()
            kill = Kill(at)
            try:
                async with brokers.home(kill=kill) as home:
                    steps = kill.steps
                    assert at >= steps
            except Killed:
                steps = at + 1
                # Wherever it was: alone it does not start any more, unless nothing had begun.
                if (root / "data" / IN_ETCD).exists():
                    with pytest.raises(StartupError, match="is in etcd"):
                        async with brokers.home(alone=True):
                            pass
                else:
                    async with brokers.home(alone=True) as home:
                        assert (await brokers.image(home)).topics == before.topics
                # And killed once more, at the same step of what is left.
                try:
                    async with brokers.home(kill=Kill(at)):
                        pass
                except Killed:
                    pass
            async with brokers.home() as home:
                await check_moved(brokers, home, before)
            assert not (root / "data" / METADATA_FILE).exists()
            at += 1
        assert at > 10

    run(scenario)


def test_while_one_moves_in_nobody_else_founds_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "_WAIT_FOR_MIGRATION_S", 1.0)

    async def scenario() -> None:
        brokers = Brokers(tmp_path)
        before = await brokers.fill()
        at = 0
        while True:
            try:
                async with brokers.home(kill=Kill(at)):
                    pytest.fail("it moved in before it could be stopped")
            except Killed:
                store = await SqliteStore.open(brokers.etcd, SystemClock())
                has_begun = layout.MIGRATION in (await store.snapshot()).items
                await store.close()
                if has_begun:
                    break
            at += 1
        with pytest.raises(StartupError, match="broker 0 has not finished migrating its metadata to etcd"):
            async with brokers.home("new", broker_id=1):
                pass
        assert not (tmp_path / "new").exists()
        await brokers.fill("other")
        with pytest.raises(StartupError, match=f"broker 0 is migrating the cluster {before.cluster_id}"):
            async with brokers.home("other"):
                pass
        async with brokers.home() as home:
            await check_moved(brokers, home, before)

    run(scenario)


def test_an_etcd_that_holds_another_cluster_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        brokers = Brokers(tmp_path)
        async with brokers.home("new") as home:
            founded = home.data_dir.cluster_id
        before = await brokers.fill()
        with pytest.raises(StartupError, match=f"belongs to the cluster {before.cluster_id}, and etcd has {founded}"):
            async with brokers.home():
                pass
        # Nothing was changed: it can go on alone.
        async with brokers.home(alone=True) as home:
            assert await brokers.image(home) == before

    run(scenario)


def test_an_etcd_with_keys_of_something_else_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        brokers = Brokers(tmp_path)
        await brokers.fill()
        store = await SqliteStore.open(brokers.etcd, SystemClock())
        await store.commit([], [Put("/topics/left-over", b"{}")])
        await store.close()
        with pytest.raises(StartupError, match="/topics/left-over"):
            async with brokers.home():
                pass

    run(scenario)


def test_an_etcd_that_lost_its_data_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Brokers(tmp_path).home() as home:
            cluster_id = home.data_dir.cluster_id
        with pytest.raises(StartupError, match="restore it from a backup"):
            async with Brokers(tmp_path, "another.db").home():
                pass
        async with Brokers(tmp_path).home() as home:
            assert home.data_dir.cluster_id == cluster_id

    run(scenario)


def test_a_directory_that_was_made_and_never_used_founds_the_cluster(tmp_path: Path) -> None:
    async def scenario() -> None:
        brokers = Brokers(tmp_path)
        async with brokers.home(alone=True) as home:
            cluster_id = home.data_dir.cluster_id
        (tmp_path / "data" / METADATA_FILE).unlink()
        async with brokers.home() as home:
            assert home.data_dir.cluster_id == cluster_id
            assert (await brokers.image(home)).cluster_id == cluster_id

    run(scenario)


def test_metadata_from_a_time_alone_is_not_forgotten_silently(tmp_path: Path) -> None:
    async def scenario() -> None:
        brokers = Brokers(tmp_path)
        await brokers.fill()
        async with brokers.home():
            pass
        directory = tmp_path / "data"
        (directory / MOVED_FILE).rename(directory / METADATA_FILE)
        (directory / IN_ETCD).unlink()
        async with brokers.home(alone=True) as home:
            assert TopicName("t1") in (await brokers.image(home)).topics
        with pytest.raises(StartupError, match="of a single node"):
            async with brokers.home():
                pass

    run(scenario)


def test_an_etcd_that_goes_away_meanwhile_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        brokers = Brokers(tmp_path)
        before = await brokers.fill()

        async def unanswered(*_: object) -> None:
            raise StoreUnavailable("etcd at etcd.test cannot be reached")

        with monkeypatch.context() as patch:
            patch.setattr(KilledStore, "commit", unanswered)
            with pytest.raises(StartupError, match="start again when etcd answers"):
                async with brokers.home():
                    pass
        async with brokers.home() as home:
            await check_moved(brokers, home, before)

    run(scenario)
