import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import pytest

from headrace.cluster import layout, sqlite
from headrace.cluster.metadata import Metadata
from headrace.cluster.producer_ids import BLOCK_SIZE, ProducerIds
from headrace.cluster.sqlite import SqliteStore
from headrace.cluster.store import Put, Snapshot, StoreUnavailable
from headrace.config.broker import broker_settings
from headrace.model import errors
from headrace.model.ids import TopicName
from headrace.model.image import ClusterImage, Endpoint
from headrace.runtime.clock import SystemClock


@asynccontextmanager
async def metadata_in(directory: Path, **settings: str) -> AsyncIterator[Metadata]:
    store = await SqliteStore.open(directory / "metadata.db", SystemClock())
    texts = {name.replace("_", "."): text for name, text in settings.items()}
    metadata = Metadata(store, broker_settings(texts), Endpoint("127.0.0.1", 9092))
    try:
        await metadata.open()
        yield metadata
    finally:
        await metadata.close()
        await store.close()


def run(directory: Path, scenario: Callable[[Metadata], Awaitable[None]], **settings: str) -> None:
    async def main() -> None:
        async with metadata_in(directory, **settings) as metadata:
            await scenario(metadata)

    asyncio.run(main())


def names(image: ClusterImage) -> list[str]:
    return sorted(image.topics)


def test_everything_survives_a_restart(tmp_path: Path) -> None:
    before: list[ClusterImage] = []

    async def first(metadata: Metadata) -> None:
        await metadata.create_topic("a", partitions=3, settings={"retention.ms": "5"})
        await metadata.create_topic("b")
        await metadata.add_partitions("b", 6)
        await metadata.alter_topic_settings("a", lambda now: {**now, "cleanup.policy": "compact"})
        await metadata.alter_broker_settings(None, lambda now: {"num.partitions": "9"})
        await metadata.create_topic("c")
        await metadata.delete_topic("c")
        before.append(metadata.image)

    async def second(metadata: Metadata) -> None:
        assert metadata.image == before[0]
        image = metadata.image
        assert image.topics[TopicName("a")].settings == {"retention.ms": "5", "cleanup.policy": "compact"}
        assert len(image.topics[TopicName("a")].partitions) == 3
        assert len(image.topics[TopicName("b")].partitions) == 6
        assert metadata.settings.num_partitions == 9
        assert [topic.name for topic in image.deleted.values()] == ["c"]
        assert image.topic_by_id(image.topics[TopicName("b")].topic_id) is image.topics[TopicName("b")]

    run(tmp_path, first)
    run(tmp_path, second)


def test_a_call_returns_when_the_listeners_have_seen_the_change(tmp_path: Path) -> None:
    async def scenario(metadata: Metadata) -> None:
        seen: list[tuple[list[str], list[str]]] = []

        async def slow(old: ClusterImage, new: ClusterImage) -> None:
            await asyncio.sleep(0.01)
            seen.append((names(old), names(new)))

        metadata.subscribe(slow)
        metadata.subscribe(lambda old, new: None)
        await metadata.create_topic("a")
        assert seen == [([], ["a"])]
        await asyncio.gather(metadata.create_topic("b"), metadata.create_topic("c"), metadata.delete_topic("a"))
        assert seen[1:] == [(["a"], ["a", "b"]), (["a", "b"], ["a", "b", "c"]), (["a", "b", "c"], ["b", "c"])]

    run(tmp_path, scenario)


def test_what_a_listener_raises_reaches_the_caller_and_nobody_else(tmp_path: Path) -> None:
    async def scenario(metadata: Metadata) -> None:
        def failing(old: ClusterImage, new: ClusterImage) -> None:
            if "bad" in new.topics and "bad" not in old.topics:
                raise errors.DiskFull("no room for its log")

        metadata.subscribe(failing)
        await metadata.create_topic("good")
        with pytest.raises(errors.DiskFull, match="no room"):
            await metadata.create_topic("bad")
        await metadata.create_topic("after")
        assert names(metadata.image) == ["after", "bad", "good"]

    run(tmp_path, scenario)


def test_a_deleted_topic_is_remembered_until_its_folders_are_gone(tmp_path: Path) -> None:
    async def scenario(metadata: Metadata) -> None:
        first = await metadata.create_topic("a", partitions=2)
        await metadata.delete_topic("a")
        second = await metadata.create_topic("a")
        assert first.topic_id != second.topic_id
        (gone,) = metadata.image.deleted.values()
        assert (gone.name, gone.topic_id, gone.partition_count) == ("a", first.topic_id, 2)
        await metadata.forget_deleted(first.topic_id)
        await metadata.forget_deleted(first.topic_id)
        assert metadata.image.deleted == {}
        assert names(metadata.image) == ["a"]

    run(tmp_path, scenario)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "x" * 250, "a\n", "a\x00"])
def test_names_that_cannot_be(tmp_path: Path, name: str) -> None:
    async def scenario(metadata: Metadata) -> None:
        with pytest.raises(errors.InvalidTopicName):
            await metadata.create_topic(name)

    run(tmp_path, scenario)


def test_names_that_collide(tmp_path: Path) -> None:
    async def scenario(metadata: Metadata) -> None:
        await metadata.create_topic("a.b")
        await metadata.create_topic("x" * 249)
        with pytest.raises(errors.InvalidTopicName, match=r"collides with the existing topic a\.b"):
            await metadata.create_topic("a_b")
        with pytest.raises(errors.TopicExists):
            await metadata.create_topic("a.b")

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"partitions": 0}, errors.InvalidPartitions),
        ({"partitions": -2}, errors.InvalidPartitions),
        ({"partitions": 11}, errors.PolicyViolation),
        ({"partitions": 2**31 - 1}, errors.PolicyViolation),
        ({"partitions": 8}, errors.PolicyViolation),
        ({"replication_factor": 0}, errors.InvalidReplicationFactor),
        ({"replication_factor": 2}, errors.InvalidReplicationFactor),
        ({"assignment": {0: [1]}}, errors.InvalidReplicaAssignment),
        ({"assignment": {0: [0, 0]}}, errors.InvalidReplicaAssignment),
        ({"assignment": {0: []}}, errors.InvalidReplicaAssignment),
        ({"assignment": {1: [0]}}, errors.InvalidReplicaAssignment),
        ({"settings": {"retention.mss": "1"}}, errors.InvalidSettings),
        ({"settings": {"retention.ms": "x"}}, errors.InvalidSettings),
        ({"settings": {"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"}}, errors.InvalidSettings),
    ],
)
def test_topics_that_cannot_be(tmp_path: Path, arguments: dict[str, object], error: type[Exception]) -> None:
    async def scenario(metadata: Metadata) -> None:
        await metadata.create_topic("there", partitions=5)
        for validate_only in (True, False):
            with pytest.raises(error):
                await metadata.create_topic("new", validate_only=validate_only, **arguments)  # type: ignore[arg-type]
        assert names(metadata.image) == ["there"]

    run(tmp_path, scenario, max_partitions_per_topic="10", max_partitions_per_broker="12")


def test_validating_changes_nothing(tmp_path: Path) -> None:
    async def scenario(metadata: Metadata) -> None:
        await metadata.create_topic("a", assignment={0: [0], 1: [0]})
        before = metadata.image
        assert len((await metadata.create_topic("b", partitions=2, validate_only=True)).partitions) == 2
        await metadata.add_partitions("a", 5, validate_only=True)
        await metadata.alter_topic_settings("a", lambda now: {"retention.ms": "1"}, validate_only=True)
        await metadata.alter_broker_settings(0, lambda now: {"num.partitions": "1"}, validate_only=True)
        assert metadata.image is before

    run(tmp_path, scenario)


def test_adding_partitions(tmp_path: Path) -> None:
    async def scenario(metadata: Metadata) -> None:
        await metadata.create_topic("a", partitions=2)
        for total, assignment, error in [
            (2, None, errors.InvalidPartitions),
            (1, None, errors.InvalidPartitions),
            (-1, None, errors.InvalidPartitions),
            (11, None, errors.PolicyViolation),
            (4, [[0]], errors.InvalidReplicaAssignment),
            (4, [[0], [7]], errors.InvalidReplicaAssignment),
            (4, [], errors.InvalidReplicaAssignment),
        ]:
            with pytest.raises(error):
                await metadata.add_partitions("a", total, assignment)
        with pytest.raises(errors.UnknownTopic):
            await metadata.add_partitions("none", 3)
        await metadata.add_partitions("a", 4, [[0], [0]])
        grown = await metadata.add_partitions("a", 5)
        assert metadata.image.topics[TopicName("a")] == grown
        assert len(grown.partitions) == 5

    run(tmp_path, scenario, max_partitions_per_topic="10")


def test_topic_defaults_follow_the_broker_while_it_runs(tmp_path: Path) -> None:
    async def scenario(metadata: Metadata) -> None:
        plain = await metadata.create_topic("plain")
        own = await metadata.create_topic("own", settings={"retention.ms": "7"})
        assert metadata.topic_settings(plain).retention_ms == 1000
        await metadata.alter_broker_settings(None, lambda now: {"log.retention.ms": "2000"})
        assert metadata.topic_settings(plain).retention_ms == 2000
        await metadata.alter_broker_settings(0, lambda now: {"log.retention.ms": "3000"})
        assert metadata.topic_settings(plain).retention_ms == 3000
        assert metadata.topic_settings(own).retention_ms == 7
        await metadata.alter_broker_settings(0, lambda now: {})
        await metadata.alter_broker_settings(None, lambda now: {})
        assert metadata.topic_settings(plain).retention_ms == 1000
        assert metadata.settings == metadata.boot_settings

    run(tmp_path, scenario, log_retention_ms="1000")


def test_broker_settings_that_cannot_be(tmp_path: Path) -> None:
    async def scenario(metadata: Metadata) -> None:
        await metadata.create_topic("a", settings={"max.compaction.lag.ms": "10"})
        for changes, reason in [
            ({"broker.id": "3"}, "cannot be changed on a running broker"),
            ({"nope": "3"}, "unknown setting nope"),
            ({"num.partitions": "0"}, "out of range"),
            ({"log.cleaner.min.compaction.lag.ms": "11"}, "topic a: min.compaction.lag.ms is larger"),
        ]:
            with pytest.raises(errors.InvalidSettings, match=reason):
                await metadata.alter_broker_settings(None, lambda now, changes=changes: changes)  # type: ignore[misc]
        assert metadata.image.broker_settings == {}

    run(tmp_path, scenario)


def test_another_brokers_data_is_refused(tmp_path: Path) -> None:
    async def nothing(metadata: Metadata) -> None: ...

    run(tmp_path, nothing)
    with pytest.raises(errors.StartupError, match=r"belongs to broker 0, not to broker 1: start with broker\.id=0"):
        run(tmp_path, nothing, broker_id="1")


def test_stored_topics_that_do_not_fit_new_defaults_stop_the_start(tmp_path: Path) -> None:
    async def first(metadata: Metadata) -> None:
        await metadata.create_topic("a", settings={"max.compaction.lag.ms": "10"})

    run(tmp_path, first)
    with pytest.raises(errors.StartupError, match="topic a: min"):
        run(tmp_path, first, log_cleaner_min_compaction_lag_ms="11")


def test_metadata_changed_by_hand_stops_the_start(tmp_path: Path) -> None:
    async def spoil() -> None:
        store = await SqliteStore.open(tmp_path / "metadata.db", SystemClock())
        await store.commit([], [Put(layout.topic_key("a"), b"{")])
        await store.close()

    async def nothing(metadata: Metadata) -> None: ...

    asyncio.run(spoil())
    with pytest.raises(errors.StartupError, match="/topics/a cannot be decoded"):
        run(tmp_path, nothing)


def test_a_lost_watch_is_made_good_by_a_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "HISTORY_LIMIT", 4)

    async def scenario(metadata: Metadata) -> None:
        gate, held = asyncio.Event(), asyncio.Event()
        store = metadata._watcher._store

        async def hold(old: ClusterImage, new: ClusterImage) -> None:
            if "first" in new.topics:
                held.set()
                await gate.wait()

        metadata.subscribe(hold)
        creating = asyncio.create_task(metadata.create_topic("first"))
        await held.wait()
        topic = metadata.image.topics[TopicName("first")]
        for number in range(20):
            await store.commit([], [Put(layout.topic_key(f"t{number}"), layout.encode_topic(topic))])
        gate.set()
        await creating
        await metadata.create_topic("last")
        assert len(metadata.image.topics) == 22

    run(tmp_path, scenario)


def test_a_store_that_fails_is_an_error_and_not_a_wait(tmp_path: Path) -> None:
    async def scenario(metadata: Metadata) -> None:
        await metadata._watcher._store.close()
        with pytest.raises(errors.HeadraceError):
            await asyncio.wait_for(metadata.create_topic("a"), 60)

    run(tmp_path, scenario)


def test_ids_are_random_and_never_begin_with_a_dash(tmp_path: Path) -> None:
    given = iter([UUID(int=0xFB << 120), UUID(int=3), UUID(int=0xFB << 120), UUID(int=4)])

    async def main() -> None:
        store = await SqliteStore.open(tmp_path / "metadata.db", SystemClock())
        metadata = Metadata(store, broker_settings({}), Endpoint("h", 1), new_uuid=lambda: next(given))
        await metadata.open()
        assert metadata.image.cluster_id == "AAAAAAAAAAAAAAAAAAAAAw"
        assert (await metadata.create_topic("a")).topic_id == UUID(int=4)
        await metadata.close()
        await store.close()

    asyncio.run(main())


def test_announcing_the_port(tmp_path: Path) -> None:
    async def scenario(metadata: Metadata) -> None:
        metadata.announce(Endpoint("h", 5))
        await metadata.create_topic("a")
        assert metadata.image.brokers[metadata.broker_id].endpoint == Endpoint("h", 5)

    run(tmp_path, scenario)


def test_producer_ids_never_repeat(tmp_path: Path) -> None:
    given: list[int] = []

    async def main() -> None:
        store = await SqliteStore.open(tmp_path / "metadata.db", SystemClock())
        one, two = ProducerIds(store), ProducerIds(store)
        for ids in (one, two, one):
            given.extend(await asyncio.gather(*(ids.next() for _ in range(BLOCK_SIZE + 10))))
        await store.close()

    asyncio.run(main())
    asyncio.run(main())
    assert len(given) == 6 * (BLOCK_SIZE + 10) == len(set(given))
    assert min(given) == 0


def test_producer_ids_fail_together_when_the_store_is_away(tmp_path: Path) -> None:
    """Not one after the other, each after a timeout of its own: producers wait for their ids on both sides."""

    class AwayStore(SqliteStore):
        is_away = True
        attempts = 0

        async def snapshot(self, prefix: str = "") -> Snapshot:
            if self.is_away:
                self.attempts += 1
                await asyncio.sleep(0)
                raise StoreUnavailable("away")
            return await super().snapshot(prefix)

    async def main() -> None:
        store = await AwayStore.open(tmp_path / "metadata.db", SystemClock())
        assert isinstance(store, AwayStore)
        ids = ProducerIds(store)
        outcomes = await asyncio.gather(*(ids.next() for _ in range(20)), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * 20
        assert store.attempts == 1
        with pytest.raises(StoreUnavailable):
            await ids.next()
        store.is_away = False
        assert [await ids.next(), await ids.next()] == [0, 1]
        await store.close()

    asyncio.run(main())
