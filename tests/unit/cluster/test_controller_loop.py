"""The controller at work: over a store that several brokers share, with brokers that die, hang and come back."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from headrace.cluster import layout
from headrace.cluster.store import MetadataStore, Put
from headrace.model.errors import InvalidReplicationFactor, StoreConflict
from headrace.model.ids import NO_LEADER, BrokerId, TopicName
from headrace.model.image import INTERNAL_TOPICS, BrokerState
from headrace.testing.etcd import EtcdProcess, is_installed
from tests.waiting import until_async as until

from .members import Member, Members, run

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)


def leaders(member: Member, topic: str) -> list[int]:
    return [state.leader for state in member.metadata.image.topics[TopicName(topic)].partitions]


async def on_three(members: Members, partitions: int = 6, **settings: str) -> list[Member]:
    brokers = await members.start_all(1, 2, 3, **settings)
    await brokers[0].metadata.create_topic("a", partitions=partitions, replication_factor=3)
    await until(lambda: all("a" in member.metadata.image.topics for member in brokers))
    return brokers


def test_a_dead_broker_leads_nothing_and_a_restarted_one_comes_back_by_catching_up(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        one, two, _ = await on_three(members)
        assert sorted(leaders(one, "a")) == [1, 1, 2, 2, 3, 3]
        await two.crash()
        await until(lambda: 2 not in leaders(one, "a"))
        for index in range(6):
            state = one.state("a", index)
            assert set(state.isr) == {1, 3}
            assert set(state.replicas) == {1, 2, 3}
        again = await members.start(2)
        await asyncio.wait_for(again.membership.wait_until_admitted(), 60)
        assert 2 not in leaders(again, "a")
        assert all(TWO not in again.state("a", index).isr for index in range(6))
        await one.catch_up("a")
        assert all(set(one.state("a", index).isr) == {1, 2, 3} for index in range(6))

    run(tmp_path, scenario)


def test_the_controller_dies_and_the_next_one_puts_everything_right(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        one, two, three = await on_three(members)
        assert one.controlling.is_controller
        await one.crash()
        await until(lambda: two.metadata.image.controller_id in (TWO, THREE))
        await until(lambda: set(leaders(two, "a")) == {2, 3})
        assert all(set(two.state("a", index).isr) == {2, 3} for index in range(6))
        assert [two.controlling.is_controller, three.controlling.is_controller].count(True) == 1

    run(tmp_path, scenario)


def test_a_controller_that_was_silent_cannot_write(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        one, two, _ = await on_three(members)
        fence = one.metadata.unchanged(layout.CONTROLLER)
        one.cut()
        await one.lose_lease()
        await until(lambda: two.metadata.image.controller_id in (TWO, THREE))
        with pytest.raises(StoreConflict):
            await two.metadata.commit([fence], [Put("/test", b"")])
        one.join_again()
        await until(lambda: two.metadata.image.can_lead(ONE))
        await until(lambda: not one.controlling.is_controller)

    run(tmp_path, scenario)


def test_when_all_of_the_isr_are_gone_nobody_leads_until_one_of_them_is_back(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        one, two, three = await on_three(members, partitions=1)
        assert set(one.state("a").isr) == {1, 2, 3}
        last = one.state("a").leader
        keeps = next(member for member in (one, two, three) if member.broker_id != last)
        others = [member for member in (one, two, three) if member is not keeps]
        follower = next(member for member in others if member.broker_id != last)
        # First the two others leave one after the other, so that the last leader alone is in sync.
        await follower.crash()
        await until(lambda: follower.broker_id not in keeps.state("a").isr)
        await keeps.stop()
        leader = next(member for member in others if member.broker_id == last)
        await until(lambda: leader.state("a").isr == (last,))
        await leader.crash()
        # Whoever was not in sync comes back, and must not lead.
        back = await members.start(keeps.broker_id)
        await asyncio.wait_for(back.membership.wait_until_admitted(), 60)
        await until(lambda: back.state("a").leader == NO_LEADER)
        assert back.state("a").isr == (last,)
        epoch = back.state("a").leader_epoch
        await members.start(last)
        await until(lambda: back.state("a").leader == last)
        assert back.state("a").leader_epoch == epoch + 1

    run(tmp_path, scenario)


def test_preferred_leaders_get_back_what_they_led(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        settings: dict[str, Any] = {"leader_imbalance_check_interval_seconds": "1"}
        one, _, three = await on_three(members, **settings)
        before = leaders(one, "a")
        await three.crash()
        await until(lambda: 3 not in leaders(one, "a"))
        again = await members.start(3, **settings)
        await asyncio.wait_for(again.membership.wait_until_admitted(), 60)
        await one.catch_up("a")
        await until(lambda: leaders(one, "a") == before)

    run(tmp_path, scenario)


def test_internal_topics_of_a_broker_that_was_alone_get_replicas_on_those_that_join(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        one = await members.start(1)
        await asyncio.wait_for(one.membership.wait_until_admitted(), 60)
        for name in INTERNAL_TOPICS:
            await one.metadata.create_topic(name, partitions=2, replication_factor=1)
        await one.metadata.create_topic("a", partitions=1)
        for broker_id in (2, 3):
            await members.start(broker_id)
            for name in INTERNAL_TOPICS:
                for index in range(2):
                    await until(lambda: broker_id in one.state(name, index).replicas)  # noqa: B023 - awaited here
                await one.catch_up(name)
        for name in INTERNAL_TOPICS:
            assert all(set(one.state(name, index).isr) == {1, 2, 3} for index in range(2))
        assert one.state("a").replicas == (1,)

    run(tmp_path, scenario)


def test_a_drained_broker_has_nothing_left_and_leaves_the_cluster_when_it_stops(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        one, _, three = await members.start_all(1, 2, 3)
        await one.metadata.create_topic("a", partitions=30, replication_factor=2)
        four = await members.start(4)
        await asyncio.wait_for(four.membership.wait_until_admitted(), 60)
        await one.metadata.alter_broker_settings(3, lambda _: {"broker.draining": "true"})

        def is_drained() -> bool:
            return all(THREE not in state.replicas for state in one.metadata.image.topics[TopicName("a")].partitions)

        async with asyncio.timeout(60):
            while not is_drained():
                moving = [s for s in one.metadata.image.topics[TopicName("a")].partitions if s.is_reassigning]
                assert len(moving) <= 10, "only so many move at the same time"
                await one.catch_up("a")
                await asyncio.sleep(0.01)
        states = one.metadata.image.topics[TopicName("a")].partitions
        assert all(len(set(state.replicas)) == 2 for state in states)
        assert not any(state.is_reassigning for state in states)
        await one.metadata.create_topic("b", partitions=6)
        assert all(THREE not in one.state("b", index).replicas for index in range(6))
        await three.stop()
        await until(lambda: THREE not in one.metadata.image.brokers)
        back = await members.start(3)
        await asyncio.wait_for(back.membership.wait_until_admitted(), 60)
        assert not back.metadata.image.brokers[THREE].is_draining

    run(tmp_path, scenario)


def test_a_topic_can_be_made_while_a_broker_is_restarted(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        one, two, three = await members.start_all(1, 2, 3)
        await two.crash()
        await until(lambda: not one.metadata.image.is_alive(TWO))
        await one.metadata.create_topic("a", partitions=4)
        for index in range(4):
            state = one.state("a", index)
            assert set(state.replicas) == {1, 2, 3}
            assert set(state.isr) == {1, 3}
            assert state.leader in (1, 3)
        with pytest.raises(InvalidReplicationFactor, match="the cluster has 3 brokers"):
            await one.metadata.create_topic("b", replication_factor=4)
        await one.metadata.alter_broker_settings(2, lambda _: {"broker.draining": "true"})
        await until(lambda: three.metadata.image.brokers[TWO].is_draining)
        with pytest.raises(InvalidReplicationFactor, match="2 brokers, not counting those being drained: 2"):
            await three.metadata.create_topic("b", replication_factor=3)

    run(tmp_path, scenario)


def test_a_broker_without_its_data_is_not_trusted(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        one, two = await members.start_all(1, 2)
        await one.metadata.create_topic("safe", partitions=1, replication_factor=2)
        await one.metadata.create_topic("single", assignment={0: [2]})
        await until(lambda: "single" in two.metadata.image.topics)
        await two.crash()
        await until(lambda: not one.metadata.image.is_alive(TWO))
        blank = await members.start(2, data_dir="a new disk")
        await until(lambda: one.metadata.image.brokers[TWO].is_alive)
        await until(lambda: one.state("safe").isr == (ONE,))
        assert one.state("single").leader == NO_LEADER
        assert one.metadata.image.brokers[TWO].state is BrokerState.STARTING
        assert not blank.membership.is_admitted
        await one.metadata.delete_topic("single")
        await asyncio.wait_for(blank.membership.wait_until_admitted(), 60)
        assert not one.metadata.image.brokers[TWO].has_lost_data

    run(tmp_path, scenario)


@pytest.mark.skipif(not is_installed(), reason="etcd is not installed")
@pytest.mark.xdist_group("etcd members")
def test_with_a_real_etcd(own: EtcdProcess) -> None:
    """A leader is silent, the controller dies, and etcd itself is away for longer than a session."""
    etcd_store = pytest.importorskip("headrace.cluster.etcd")
    etcd_client = pytest.importorskip("headrace.cluster.etcd_client")

    async def main() -> None:
        async with asyncio.timeout(110), AsyncExitStack() as undo:

            async def open_store() -> MetadataStore:
                access = etcd_client.EtcdAccess((own.endpoint,))
                store = await etcd_store.EtcdStore.open(access, "/test", timeout_s=1.0, start_timeout_s=60)
                undo.push_async_callback(store.close)
                return store

            members = Members(open_store, undo)
            one, two, three = await on_three(members, broker_session_timeout_ms="2000")
            two.cut()
            await until(lambda: 2 not in leaders(one, "a"))
            two.join_again()
            await until(lambda: one.metadata.image.can_lead(TWO) and two.membership.is_admitted)
            await one.crash()
            await until(lambda: set(leaders(three, "a")) == {3})
            await three.catch_up("a")
            own.pause()
            await until(lambda: not two.membership.is_lease_live() and not three.membership.is_lease_live())
            own.resume()
            await until(lambda: two.membership.is_lease_live() and three.membership.is_lease_live())
            await until(lambda: two.membership.is_admitted and three.membership.is_admitted)
            await until(lambda: all(leader in (2, 3) for leader in leaders(three, "a")))
            assert all(ONE not in three.state("a", index).isr for index in range(6))

    asyncio.run(main())
