"""The feature level of a cluster: raised when every broker knows the next one, never lowered, fencing older ones."""

import asyncio
from pathlib import Path

import pytest

from headrace.cluster import bootstrap, layout, membership
from headrace.cluster.feature_level import update_features
from headrace.cluster.layout import ClusterIdentity
from headrace.cluster.metadata import Metadata
from headrace.cluster.sqlite import SqliteStore
from headrace.cluster.store import Compare, Put
from headrace.config.broker import broker_settings
from headrace.model.errors import FeatureUpdateRefused, InvalidFeatureLevel, InvalidSettings, StartupError
from headrace.model.features import FEATURE, FIRST_LEVEL, LATEST_LEVEL, finalized
from headrace.model.ids import BrokerId
from headrace.model.image import Endpoint
from headrace.runtime.clock import SystemClock
from tests.waiting import until_async as until

from .members import Member, Members, run

TWO = BrokerId(2)
TRANSACTIONS = "transaction.version"


async def raise_level(metadata: Metadata, level: int, *, validate_only: bool = False) -> None:
    await update_features(metadata, {FEATURE: level}, validate_only=validate_only)


async def set_level(member: Member, level: int) -> None:
    """As if the cluster had been founded at this level."""
    record = layout.encode_cluster(ClusterIdentity(member.metadata.image.cluster_id, level))
    await member.metadata.commit([], [Put(layout.CLUSTER, record)])


def test_a_new_cluster_has_the_latest_level(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        (one,) = await members.start_all(1)
        assert one.metadata.image.feature_level == LATEST_LEVEL
        await raise_level(one.metadata, LATEST_LEVEL)

    run(tmp_path, scenario)


def test_the_level_is_raised_when_every_broker_knows_it(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        one, two = await members.start_all(1, 2)
        await set_level(one, FIRST_LEVEL)
        await raise_level(two.metadata, LATEST_LEVEL, validate_only=True)
        assert two.metadata.image.feature_level == FIRST_LEVEL
        await raise_level(two.metadata, LATEST_LEVEL)
        await until(lambda: one.metadata.image.feature_level == LATEST_LEVEL)
        assert one.metadata.image.features_revision == two.metadata.image.features_revision > 0
        with pytest.raises(FeatureUpdateRefused, match="cannot be lowered"):
            await raise_level(one.metadata, FIRST_LEVEL)
        with pytest.raises(InvalidFeatureLevel, match="up to"):
            await raise_level(one.metadata, LATEST_LEVEL + 1)
        with pytest.raises(InvalidFeatureLevel, match="cannot be removed"):
            await raise_level(one.metadata, 0)

    run(tmp_path, scenario)


def test_an_older_broker_holds_the_level_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(members: Members) -> None:
        (one,) = await members.start_all(1)
        await set_level(one, FIRST_LEVEL)
        with monkeypatch.context() as older:
            older.setattr(membership, "LATEST_LEVEL", FIRST_LEVEL)
            two = await members.start(2)
        await until(lambda: one.metadata.image.can_lead(TWO))
        with pytest.raises(FeatureUpdateRefused, match=r"broker 2 is of a version before 0\.2"):
            await raise_level(one.metadata, LATEST_LEVEL)
        await two.crash()
        await until(lambda: not one.metadata.image.is_alive(TWO))
        with pytest.raises(FeatureUpdateRefused, match="broker 2 is down"):
            await raise_level(one.metadata, LATEST_LEVEL)
        assert one.metadata.image.feature_level == FIRST_LEVEL
        again = await members.start(2)
        await asyncio.wait_for(again.membership.wait_until_admitted(), 60)
        await until(lambda: one.metadata.image.can_lead(TWO))
        await raise_level(one.metadata, LATEST_LEVEL)

    run(tmp_path, scenario)


def test_the_transaction_compares_the_level_and_every_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(members: Members) -> None:
        one, _ = await members.start_all(1, 2)
        await set_level(one, FIRST_LEVEL)
        seen: list[set[str]] = []
        commit = one.way.store.commit

        async def watched(compares: list[Compare], writes: list[Put]) -> object:
            if any(write.key == layout.CLUSTER for write in writes):
                seen.append({compare.key for compare in compares})
            return await commit(compares, writes)

        monkeypatch.setattr(one.way.store, "commit", watched)
        await raise_level(one.metadata, LATEST_LEVEL)
        assert seen == [{layout.CLUSTER, layout.alive_key(1), layout.alive_key(2)}]

    run(tmp_path, scenario)


def test_a_broker_that_does_not_know_the_level_is_not_admitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(members: Members) -> None:
        (one,) = await members.start_all(1)
        with monkeypatch.context() as older:
            older.setattr(membership, "LATEST_LEVEL", FIRST_LEVEL)
            two = await members.start(2)
        await until(lambda: "broker 2 is not admitted: its version does not support feature level" in caplog.text)
        assert not one.metadata.image.can_lead(TWO)
        assert not two.membership.is_admitted

    run(tmp_path, scenario)


def test_settings_of_a_level_wait_for_it(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        (one,) = await members.start_all(1)
        await set_level(one, FIRST_LEVEL)
        level = {"compression.gzip.level": "1"}
        with pytest.raises(InvalidSettings, match="needs feature level 2, and the cluster is at 1"):
            await one.metadata.create_topic("a", partitions=1, settings=level)
        await one.metadata.create_topic("a", partitions=1)
        with pytest.raises(InvalidSettings, match="headrace cluster upgrade"):
            await one.metadata.alter_topic_settings("a", lambda _: level)
        with pytest.raises(InvalidSettings, match="headrace cluster upgrade"):
            await one.metadata.alter_broker_settings(None, lambda _: level)
        await raise_level(one.metadata, LATEST_LEVEL)
        await one.metadata.alter_topic_settings("a", lambda _: level)
        await one.metadata.alter_broker_settings(None, lambda _: level)

    run(tmp_path, scenario)


def test_a_cluster_of_an_unknown_level_is_refused_in_a_sentence(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await SqliteStore.open(tmp_path / "metadata.sqlite", SystemClock())
        try:
            await store.commit(
                [], [Put(layout.CLUSTER, layout.encode_cluster(ClusterIdentity("id", LATEST_LEVEL + 1)))]
            )
            for opened in (bootstrap.read_cluster(store), bootstrap.bootstrap_cluster(store, "other")):
                with pytest.raises(StartupError, match=f"feature level {LATEST_LEVEL + 1}.*start a newer version"):
                    await opened
        finally:
            await store.close()

    asyncio.run(scenario())


def test_metadata_that_moves_into_etcd_keeps_its_level(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = SystemClock()
        stores = [await SqliteStore.open(tmp_path / name, clock) for name in ("from", "to")]
        try:
            await stores[0].commit([], [Put(layout.CLUSTER, layout.encode_cluster(ClusterIdentity("id", FIRST_LEVEL)))])
            await bootstrap.migrate_cluster(stores[0], stores[1], "id", BrokerId(0))
            assert await bootstrap.read_cluster(stores[1]) == ClusterIdentity("id", FIRST_LEVEL)
        finally:
            for store in stores:
                await store.close()

    asyncio.run(scenario())


def test_level_one_is_stored_as_the_first_release_reads_it_and_others_are_not() -> None:
    assert layout.encode_cluster(ClusterIdentity("id", FIRST_LEVEL)) == b'{"cluster_id":"id"}'
    assert b"cluster_id" not in layout.encode_cluster(ClusterIdentity("id", LATEST_LEVEL))
    assert layout.decode_cluster(layout.encode_cluster(ClusterIdentity("id", LATEST_LEVEL))) == ClusterIdentity(
        "id", LATEST_LEVEL
    )


def test_a_single_broker_raises_its_level_too(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await SqliteStore.open(tmp_path / "metadata.sqlite", SystemClock())
        metadata = Metadata(store, broker_settings({}), Endpoint("h", 1))
        try:
            await store.commit([], [Put(layout.CLUSTER, layout.encode_cluster(ClusterIdentity("id", FIRST_LEVEL)))])
            await metadata.open()
            assert metadata.image.feature_level == FIRST_LEVEL
            await raise_level(metadata, LATEST_LEVEL)
            assert metadata.image.feature_level == LATEST_LEVEL
        finally:
            await metadata.close()
            await store.close()

    asyncio.run(scenario())


def test_the_transaction_version_can_be_held_back_and_let_go_on(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        (one,) = await members.start_all(1)

        def version() -> int | None:
            image = one.metadata.image
            return finalized(image.feature_level, image.chosen_features).get(TRANSACTIONS)

        assert version() == 2
        with pytest.raises(FeatureUpdateRefused, match="ask for a downgrade"):
            await update_features(one.metadata, {TRANSACTIONS: 1})
        await update_features(one.metadata, {TRANSACTIONS: 1}, may_lower={TRANSACTIONS})
        assert version() == 1
        await update_features(one.metadata, {TRANSACTIONS: 0}, may_lower={TRANSACTIONS})
        assert version() is None
        with pytest.raises(InvalidFeatureLevel, match="from 0 to 2, not 3"):
            await update_features(one.metadata, {TRANSACTIONS: 3})
        await update_features(one.metadata, {TRANSACTIONS: 2})
        assert version() == 2

    run(tmp_path, scenario)


def test_nothing_is_chosen_that_the_first_release_could_not_store(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        (one,) = await members.start_all(1)
        await set_level(one, FIRST_LEVEL)
        with pytest.raises(FeatureUpdateRefused, match=r"choosing transaction\.version needs feature level 2"):
            await update_features(one.metadata, {TRANSACTIONS: 1}, may_lower={TRANSACTIONS})
        await update_features(one.metadata, {TRANSACTIONS: 1, FEATURE: 2}, may_lower={TRANSACTIONS})
        assert one.metadata.image.chosen_features == {TRANSACTIONS: 1}

    run(tmp_path, scenario)
