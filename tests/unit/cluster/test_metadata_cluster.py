"""Several brokers' metadata over one store."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.cluster import layout
from headrace.cluster.metadata import Metadata
from headrace.cluster.sqlite import SqliteStore
from headrace.cluster.store import MetadataStore, Put, StoreUnavailable, WatchLost
from headrace.config.broker import broker_settings
from headrace.model.errors import StoreConflict, TopicExists, UnknownTopic
from headrace.model.features import LATEST_LEVEL
from headrace.model.ids import BrokerId, TopicId, TopicName
from headrace.model.image import QUEUE_STATE_TOPIC, BrokerInfo, Endpoint, PartitionState, TopicImage
from headrace.model.state_partition import state_partition
from headrace.runtime.clock import SystemClock
from headrace.testing.etcd import EtcdProcess, is_installed
from tests.waiting import until_async as until

from .ways import WayToStore

WAIT_S = 60

A = TopicName("a")


async def join(store: MetadataStore, broker_id: int) -> None:
    """What a broker that has been admitted has in the store."""
    info = BrokerInfo(BrokerId(broker_id), Endpoint("127.0.0.1", 9092 + broker_id))
    await store.commit([], [Put(layout.broker_key(broker_id), layout.encode_broker(info))])
    await store.commit(
        [], [Put(layout.alive_key(broker_id), layout.encode(layout.AliveRecord("now", "dir", 0, LATEST_LEVEL)))]
    )


Scenario = Callable[[list[Metadata], list[WayToStore]], Awaitable[None]]


def run(directory: Path, scenario: Scenario, *, brokers: int = 2) -> None:
    async def main() -> None:
        store = await SqliteStore.open(directory / "metadata.db", SystemClock())
        ways = [WayToStore(store) for _ in range(brokers)]
        everyone = []
        try:
            for broker_id, way in enumerate(ways):
                await join(store, broker_id)
                metadata = Metadata(
                    way, broker_settings({"broker.id": str(broker_id)}), Endpoint("127.0.0.1", 1), is_single_node=False
                )
                everyone.append(metadata)
                await metadata.open()
            for metadata in everyone:
                await until(lambda metadata=metadata: len(metadata.image.alive_brokers()) == brokers)  # type: ignore[misc]
            async with asyncio.timeout(WAIT_S):
                await scenario(everyone, ways)
        finally:
            for metadata in everyone:
                await metadata.close()
            await store.close()

    asyncio.run(main())


def shrunk(topic: TopicImage, index: int = 0) -> PartitionState:
    """The partition's next state: only its leader is in sync."""
    state = topic.partitions[index]
    return replace(state, isr=(state.leader,), partition_epoch=state.partition_epoch + 1)


async def seen(metadata: Metadata, topic: TopicImage) -> None:
    await until(lambda: topic.topic_id in metadata.image.topic_names)


def test_they_are_one_cluster_and_see_each_others_changes(tmp_path: Path) -> None:
    async def scenario(everyone: list[Metadata], ways: list[WayToStore]) -> None:
        one, two = everyone
        assert one.image.cluster_id == two.image.cluster_id
        topic = await one.create_topic("a", partitions=4)
        await seen(two, topic)
        assert two.image.topics[A] == topic
        assert {len(state.replicas) for state in topic.partitions} == {2}
        with pytest.raises(TopicExists):
            await two.create_topic("a")
        await two.delete_topic("a")
        await until(lambda: A not in one.image.topics)
        with pytest.raises(UnknownTopic):
            await one.delete_topic("a")

    run(tmp_path, scenario)


def test_of_two_who_create_the_same_topic_one_is_told_that_it_exists(tmp_path: Path) -> None:
    async def scenario(everyone: list[Metadata], ways: list[WayToStore]) -> None:
        for number in range(10):
            outcomes = await asyncio.gather(
                *(metadata.create_topic(f"t{number}") for metadata in everyone), return_exceptions=True
            )
            assert sorted(type(outcome).__name__ for outcome in outcomes) == ["TopicExists", "TopicImage"]

    run(tmp_path, scenario)


def test_changes_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    async def scenario(everyone: list[Metadata], ways: list[WayToStore]) -> None:
        topic = await everyone[0].create_topic("a")
        for metadata in everyone:
            await seen(metadata, topic)

        async def alter(metadata: Metadata, name: str, broker_name: str) -> None:
            for number in range(1_001, 1_011):
                await metadata.alter_topic_settings("a", lambda now, text=str(number): {**now, name: text})  # type: ignore[misc]
                await metadata.alter_broker_settings(None, lambda now, text=str(number): {**now, broker_name: text})  # type: ignore[misc]

        await asyncio.gather(
            alter(everyone[0], "retention.ms", "num.partitions"), alter(everyone[1], "segment.ms", "max.connections")
        )
        for metadata in everyone:
            await until(
                lambda metadata=metadata: (  # type: ignore[misc]
                    metadata.image.topics[A].settings == {"retention.ms": "1010", "segment.ms": "1010"}
                    and metadata.image.broker_settings == {"num.partitions": "1010", "max.connections": "1010"}
                )
            )

    run(tmp_path, scenario)


def test_a_watch_that_goes_back_is_not_followed(tmp_path: Path) -> None:
    """What came late would replace what is newer, and every comparison with it would fail from then on."""

    async def scenario(everyone: list[Metadata], ways: list[WayToStore]) -> None:
        one, two = everyone
        ways[1].swaps = True
        for number in range(6):
            await one.alter_broker_settings(None, lambda now, number=number: {"num.partitions": str(number + 1)})  # type: ignore[misc]
        ways[1].swaps = False
        await one.create_topic("a")
        await until(lambda: two.image.revision == one.image.revision)
        assert two.image == one.image
        assert two.unchanged(layout.ALL_BROKERS_SETTINGS) == one.unchanged(layout.ALL_BROKERS_SETTINGS)

    run(tmp_path, scenario)


def test_partitions_change_only_from_the_state_that_was_seen(tmp_path: Path) -> None:
    async def scenario(everyone: list[Metadata], ways: list[WayToStore]) -> None:
        one, two = everyone
        topic = await one.create_topic("a", partitions=3)
        await seen(two, topic)
        key = (topic.topic_id, 1)
        new = shrunk(topic, 1)
        await one.change_partitions({key: new})
        assert one.image.topics[A].partitions[1] == new
        await until(lambda: two.image.topics[A].partitions[1] == new)
        for metadata in everyone:
            with pytest.raises(StoreConflict):
                await metadata.change_partitions({key: new})
        # Decided by both from the same image: one of them is late.
        again = replace(new, partition_epoch=2)
        outcomes = await asyncio.gather(
            *(metadata.change_partitions({key: again}) for metadata in everyone), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes if outcome is not None] == [StoreConflict]

    run(tmp_path, scenario)


def test_a_fence_that_does_not_hold_keeps_the_partitions_as_they_are(tmp_path: Path) -> None:
    async def scenario(everyone: list[Metadata], ways: list[WayToStore]) -> None:
        one, _ = everyone
        topic = await one.create_topic("a")
        fence = one.unchanged(layout.alive_key(0))
        other = one.unchanged(layout.alive_key(1))
        await one.change_partitions({(topic.topic_id, 0): shrunk(topic)}, fence, [other])
        await ways[1].store.commit(
            [], [Put(layout.alive_key(1), layout.encode(layout.AliveRecord("now", "dir", 0, LATEST_LEVEL)))]
        )
        topic = one.image.topics[A]
        for fences in ((fence, [other]), (other, []), (None, [other])):
            with pytest.raises(StoreConflict):
                await one.change_partitions({(topic.topic_id, 0): shrunk(topic)}, *fences)
        assert one.image.topics[A].partitions[0].partition_epoch == 1

    run(tmp_path, scenario)


def test_many_partitions_are_changed_in_several_transactions(tmp_path: Path) -> None:
    async def scenario(everyone: list[Metadata], ways: list[WayToStore]) -> None:
        one, two = everyone
        topic = await one.create_topic("a", partitions=120)
        before = one.image.revision
        await one.change_partitions({(topic.topic_id, index): shrunk(topic, index) for index in range(120)})
        assert one.image.revision == before + 3
        assert {state.partition_epoch for state in one.image.topics[A].partitions} == {1}
        await until(lambda: two.image.revision == one.image.revision)
        assert two.image.topics == one.image.topics

    run(tmp_path, scenario)


def test_states_survive_changes_of_the_topic_and_a_new_reader(tmp_path: Path) -> None:
    async def scenario(everyone: list[Metadata], ways: list[WayToStore]) -> None:
        one, _ = everyone
        topic = await one.create_topic("a", partitions=2)
        await one.change_partitions({(topic.topic_id, 1): shrunk(topic, 1)})
        await one.alter_topic_settings("a", lambda now: {"retention.ms": "5"})
        await one.add_partitions("a", 3)
        image = one.image
        assert [len(state.isr) for state in image.topics[A].partitions] == [2, 1, 2]
        late = Metadata(ways[0], broker_settings({"broker.id": "7"}), Endpoint("127.0.0.1", 1), is_single_node=False)
        await late.open()
        assert late.image == image
        await late.close()

    run(tmp_path, scenario)


def test_the_last_broker_to_forget_a_deleted_topic_leaves_nothing_of_it(tmp_path: Path) -> None:
    async def scenario(everyone: list[Metadata], ways: list[WayToStore]) -> None:
        one, two = everyone
        topic = await one.create_topic("a", partitions=120)
        await one.change_partitions({(topic.topic_id, index): shrunk(topic, index) for index in range(120)})
        await one.delete_topic("a")
        recreated = await one.create_topic("a", partitions=1)
        await seen(two, recreated)
        assert one.image.deleted[topic.topic_id].brokers == (0, 1)
        await asyncio.gather(*(metadata.forget_deleted(topic.topic_id) for metadata in everyone))
        await asyncio.gather(*(metadata.forget_deleted(topic.topic_id) for metadata in everyone))
        for metadata in everyone:
            await until(lambda metadata=metadata: not metadata.image.deleted)  # type: ignore[misc]
            assert metadata.image.topics[A] == recreated
        left = (await ways[0].store.snapshot()).items
        assert not [key for key in left if str(topic.topic_id) in key]

    run(tmp_path, scenario)


def test_a_change_to_a_topic_that_was_deleted_and_made_again_is_refused(tmp_path: Path) -> None:
    async def scenario(everyone: list[Metadata], ways: list[WayToStore]) -> None:
        one, two = everyone
        topic = await one.create_topic("a")
        await seen(two, topic)
        ways[1].go_away()
        await until(lambda: not two.is_watching)
        await one.delete_topic("a")
        recreated = await one.create_topic("a")
        ways[1].is_away = False
        # It may or may not have heard of it: the change is to the topic that was, and never to its successor.
        with pytest.raises(StoreConflict):
            await two.change_partitions({(topic.topic_id, 0): shrunk(topic)})
        await seen(two, recreated)
        assert two.image.topics[A] == recreated
        with pytest.raises(StoreConflict):
            await two.change_partitions({(TopicId(topic.topic_id), 0): shrunk(topic)})

    run(tmp_path, scenario)


def test_a_store_that_is_away_is_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(everyone: list[Metadata], ways: list[WayToStore]) -> None:
        one, two = everyone
        assert two.is_watching
        shown: list[int] = []
        two.subscribe(lambda old, new: shown.append(new.revision))
        ways[1].go_away()
        await until(lambda: not two.is_watching)
        with pytest.raises(StoreUnavailable):
            await two.create_topic("b")
        for name in ("a", "c"):
            await one.create_topic(name)
        image = two.image
        refused = ways[1].refused
        await until(lambda: ways[1].refused >= refused + 2)
        assert two.image is image
        ways[1].is_away = False
        await until(lambda: len(two.image.topics) == 2)
        assert two.is_watching
        assert shown == [one.image.revision - 1, one.image.revision]
        await two.create_topic("b")
        assert caplog.text.count("does not answer") == caplog.text.count("answers again") == 1

    caplog.set_level(logging.WARNING)
    run(tmp_path, scenario)


def test_a_store_that_has_gone_back_is_not_followed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(everyone: list[Metadata], ways: list[WayToStore]) -> None:
        one, two = everyone
        ways[1].behind = 1
        ways[1].break_watch()
        await until(lambda: not two.is_watching)
        assert "if it was restored from a backup, restart every broker" in caplog.text
        topic = await one.create_topic("a")
        # It was only late, after all.
        ways[1].behind = 0
        await seen(two, topic)
        assert two.is_watching

    caplog.set_level(logging.WARNING)
    run(tmp_path, scenario)


def test_a_watch_that_breaks_and_is_there_again_is_not_worth_a_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(everyone: list[Metadata], ways: list[WayToStore]) -> None:
        for number in range(5):
            ways[1].break_watch()
            await everyone[0].create_topic(f"t{number}")
            await until(lambda number=number: len(everyone[1].image.topics) == number + 1)  # type: ignore[misc]
        assert everyone[1].is_watching

    caplog.set_level(logging.WARNING)
    run(tmp_path, scenario)
    assert not [record for record in caplog.records if record.name.startswith("headrace.cluster")]


def test_a_lost_watch_is_followed_by_reading_everything_but_never_by_going_back(tmp_path: Path) -> None:
    async def scenario(everyone: list[Metadata], ways: list[WayToStore]) -> None:
        one, two = everyone
        stale = await ways[1].store.snapshot()
        gone = await one.create_topic("gone")
        await seen(two, gone)
        ways[1].go_away()
        await until(lambda: not two.is_watching)
        await one.delete_topic("gone")
        await one.create_topic("a")
        shown: list[tuple[set[str], set[str]]] = []
        two.subscribe(lambda old, new: shown.append((set(old.topics), set(new.topics))))
        ways[1].stale = [stale]
        ways[1].is_away = False
        ways[1].break_watch(WatchLost)
        await until(lambda: A in two.image.topics)
        assert two.image == one.image
        assert shown[-1][1] == {"a"}
        assert all("gone" in old or new == {"a"} for old, new in shown)

    run(tmp_path, scenario)


def test_two_of_three_replicas_must_be_in_sync_unless_something_else_was_set(tmp_path: Path) -> None:
    async def scenario(everyone: list[Metadata], ways: list[WayToStore]) -> None:
        one = everyone[0]
        expected = {"3": 2, "2": 1, "1": 1}
        for factor, count in expected.items():
            topic = await one.create_topic(f"rf{factor}", replication_factor=int(factor))
            assert one.topic_settings(topic).min_insync_replicas == count
        own = await one.create_topic("own", replication_factor=3, settings={"min.insync.replicas": "1"})
        assert one.topic_settings(own).min_insync_replicas == 1
        await one.alter_broker_settings(None, lambda now: {"min.insync.replicas": "3"})
        assert one.topic_settings(one.image.topics[TopicName("rf2")]).min_insync_replicas == 3
        assert one.topic_settings(own).min_insync_replicas == 1

    run(tmp_path, scenario, brokers=3)


@pytest.mark.xdist_group("etcd store")
@pytest.mark.skipif(not is_installed(), reason="etcd is not installed")
def test_over_etcd_that_is_killed_paused_and_compacted() -> None:
    async def scenario(etcd: EtcdProcess) -> None:
        from headrace.cluster.store_selection import open_store

        settings = [
            broker_settings({"broker.id": str(broker_id), "etcd.endpoints": etcd.endpoint}) for broker_id in range(2)
        ]
        stores = [await open_store(each, Path(), SystemClock()) for each in settings]
        everyone = [
            Metadata(store, each, Endpoint("127.0.0.1", 1), is_single_node=False)
            for store, each in zip(stores, settings, strict=True)
        ]
        one, two = everyone
        for store, metadata in zip(stores, everyone, strict=True):
            await join(store, metadata.broker_id)
            await metadata.open()
        await until(lambda: all(len(each.image.alive_brokers()) == 2 for each in everyone))

        async def same_after(name: str) -> None:
            for _ in range(600):
                try:
                    await one.create_topic(name)
                except TopicExists:
                    break
                except StoreUnavailable:
                    await asyncio.sleep(0.1)
                else:
                    break
            await until(lambda: TopicName(name) in two.image.topics)
            await until(lambda: two.image.topics == one.image.topics)
            # Of two who create it while an answer is lost, each may be the one: there is one topic all the same.
            assert len({topic.topic_id for topic in one.image.topics.values()}) == len(one.image.topics)

        await same_after("before")
        etcd.kill()
        await until(lambda: not one.is_watching and not two.is_watching)
        await asyncio.to_thread(etcd.start)
        await same_after("killed")
        etcd.pause()
        pausing = asyncio.gather(*(each.create_topic("paused") for each in everyone), return_exceptions=True)
        assert all(isinstance(outcome, StoreUnavailable) for outcome in await pausing)
        etcd.resume()
        await same_after("paused")
        await asyncio.to_thread(etcd.compact)
        await asyncio.to_thread(etcd.restart)
        await same_after("compacted")
        for metadata, store in zip(everyone, stores, strict=True):
            await metadata.close()
            await store.close()

    with EtcdProcess() as etcd:
        asyncio.run(asyncio.wait_for(scenario(etcd), 2 * WAIT_S))


def test_the_default_of_min_insync_is_what_every_partition_can_have(tmp_path: Path) -> None:
    """While partitions are reassigned to three replicas one by one, those that still have one are written to."""

    async def scenario(everyone: list[Metadata], ways: list[WayToStore]) -> None:
        topic = await everyone[0].create_topic("a", partitions=2, replication_factor=1)
        three = replace(topic.partitions[0], replicas=(BrokerId(0), BrokerId(1), BrokerId(2)))
        partly = replace(topic, partitions=(three, topic.partitions[1]))
        wholly = replace(topic, partitions=(three, three))
        assert everyone[0].topic_settings(partly).min_insync_replicas == 1
        assert everyone[0].topic_settings(wholly).min_insync_replicas == 2

    run(tmp_path, scenario, brokers=3)


def test_a_new_queue_is_led_by_the_broker_that_leads_its_state(tmp_path: Path) -> None:
    async def scenario(everyone: list[Metadata], ways: list[WayToStore]) -> None:
        one, two = everyone

        async def create_state() -> None:
            with suppress(TopicExists):
                await seen(two, await one.create_topic(QUEUE_STATE_TOPIC, partitions=16, replication_factor=1))

        one.before_queue = two.before_queue = create_state
        settings = {"queue.type": "standard"}
        made = []
        for metadata in everyone:
            for number, factor in enumerate([None, None, 1, 1]):
                name = f"q{metadata.broker_id}-{number}"
                made.append(
                    await metadata.create_topic(name, partitions=1, replication_factor=factor, settings=settings)
                )
        assigned = await one.create_topic("assigned", assignment={0: [1, 0]}, settings=settings)
        assert (assigned.partitions[0].replicas, assigned.partitions[0].leader) == ((1, 0), 1)
        made.append(assigned)
        states = one.image.topics[QUEUE_STATE_TOPIC].partitions
        assert {topic.partitions[0].leader for topic in made} == {0, 1}
        for topic in made:
            assert states[state_partition(topic.topic_id, 16)].leader == topic.partitions[0].leader

    run(tmp_path, scenario)


def test_a_topic_that_is_no_queue_does_not_ask_for_the_state(tmp_path: Path) -> None:
    async def scenario(everyone: list[Metadata], ways: list[WayToStore]) -> None:
        asked: list[str] = []

        async def refuse() -> None:
            asked.append("state")
            raise StoreConflict("not now")

        one = everyone[0]
        one.before_queue = refuse
        await one.create_topic("plain", partitions=1)
        await one.create_topic("checked", partitions=1, settings={"queue.type": "standard"}, validate_only=True)
        assert not asked
        # A queue is created even though the topic of its state cannot be created now.
        await one.create_topic("made", partitions=1, settings={"queue.type": "standard"})
        await one.create_topic("mirrored", partitions=1, has_queue=True)
        assert asked == ["state", "state"]

    run(tmp_path, scenario)
