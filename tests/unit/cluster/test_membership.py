"""Places in a cluster: leases, epochs, being admitted, lost and taken over."""

import asyncio
from pathlib import Path

import pytest

from headrace.cluster import membership
from headrace.cluster.store import StoreUnavailable
from headrace.model.errors import StartupError
from headrace.model.ids import NO_LEADER, BrokerId, TopicName
from headrace.model.image import BrokerState, ClusterImage
from tests.waiting import until_async as until

from .members import Members, run

ONE, TWO = BrokerId(1), BrokerId(2)


def test_a_broker_registers_is_admitted_and_leaves(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        one = await members.start(1, broker_rack="east")
        await asyncio.wait_for(one.membership.wait_until_admitted(), 60)
        assert one.membership.is_lease_live()
        two = await members.start(2)
        await asyncio.wait_for(two.membership.wait_until_admitted(), 60)
        await until(lambda: one.metadata.image.can_lead(TWO))
        seen = two.metadata.image.brokers[ONE]
        assert (seen.rack, seen.endpoint.port, seen.epoch) == ("east", 9001, one.membership.epoch)
        assert two.metadata.image.controller_id == ONE
        await one.stop()
        await until(lambda: not two.metadata.image.is_alive(ONE))
        await until(lambda: two.metadata.image.controller_id == TWO)
        with pytest.raises(StoreUnavailable, match="lost its lease"):
            one.membership.fence()

    run(tmp_path, scenario)


def test_silence_costs_the_place_and_another_is_taken_with_a_new_epoch(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        # First the one whose lease ends first: SQLite looks for leases that have ended when the next one was to end.
        two = await members.start(2, broker_session_timeout_ms="2000")
        one = await members.start(1)
        await until(lambda: two.membership.is_admitted and one.membership.is_admitted)
        before = two.membership.epoch
        two.cut()
        await until(lambda: not one.metadata.image.is_alive(TWO))
        assert not two.membership.is_lease_live(), "it knew before anybody could take it for dead"
        two.join_again()
        await until(lambda: one.metadata.image.can_lead(TWO))
        assert two.lost
        await until(lambda: two.membership.is_admitted)
        assert two.membership.epoch > before
        assert one.lost == 0

    run(tmp_path, scenario)


def test_a_short_silence_costs_nothing(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        (one,) = await members.start_all(1)
        epoch = one.membership.epoch
        one.cut()
        await until(lambda: not one.metadata.is_watching)
        one.join_again()
        await until(lambda: one.metadata.is_watching)
        assert (one.membership.epoch, one.lost) == (epoch, 0)

    run(tmp_path, scenario)


def test_a_new_process_with_the_same_data_directory_does_not_wait(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        (one,) = await members.start_all(1)
        epoch = one.membership.epoch
        await one.crash(is_noticed=False)
        again = await members.start(1)
        await asyncio.wait_for(again.membership.wait_until_admitted(), 60)
        assert again.membership.epoch > epoch
        assert again.metadata.image.controller_id == ONE

    run(tmp_path, scenario)


def test_another_process_with_the_same_id_is_refused_while_the_first_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(membership, "_SESSIONS_TO_WAIT", 0.5)

    async def scenario(members: Members) -> None:
        one = await members.start(1)
        await asyncio.wait_for(one.membership.wait_until_admitted(), 60)
        with pytest.raises(StartupError, match="another process is registered as broker 1"):
            await members.start(1, data_dir="another directory", broker_session_timeout_ms="2000")
        # Tried several times, said once.
        assert sum("waiting for it to end" in each.message for each in caplog.records) == 1
        assert one.membership.is_lease_live()
        assert one.lost == 0

    run(tmp_path, scenario)


def test_whoever_resigns_stays_and_is_not_admitted_again(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        one, two = await members.start_all(1, 2)
        two.membership.resign("its disk failed")
        await until(lambda: one.metadata.image.brokers[TWO].state is BrokerState.STOPPING)
        assert one.metadata.image.is_alive(TWO)
        await two.lose_lease()
        await until(lambda: two.lost == 1 and one.metadata.image.is_alive(TWO))
        assert one.metadata.image.brokers[TWO].state is BrokerState.STOPPING

    run(tmp_path, scenario)


def test_the_last_broker_does_not_wait_for_anybody_to_take_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "_LINGER_S", 600.0)

    async def scenario(members: Members) -> None:
        (one,) = await members.start_all(1, controlled_shutdown_timeout_ms="600000")
        await one.metadata.create_topic("a", partitions=3)
        await asyncio.wait_for(one.stop(), 60)

    run(tmp_path, scenario)


def test_whoever_has_handed_over_answers_on_for_a_moment(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        one, two = await members.start_all(1, 2, controlled_shutdown_timeout_ms="600000")
        await two.metadata.create_topic("a", partitions=2, replication_factor=2)
        await until(lambda: "a" in one.metadata.image.topics)
        loop = asyncio.get_running_loop()
        last_led_at_s = loop.time()

        def look(old: ClusterImage, _: ClusterImage) -> None:
            nonlocal last_led_at_s
            if any(state.leader == ONE for state in old.topics[TopicName("a")].partitions):
                last_led_at_s = loop.time()

        one.metadata.subscribe(look)
        await one.membership.begin_stopping()
        assert loop.time() - last_led_at_s >= membership._LINGER_S
        assert one.metadata.image.is_alive(ONE)

    run(tmp_path, scenario)


def test_a_planned_stop_hands_over_first(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        one, two, three = await members.start_all(1, 2, 3, controlled_shutdown_timeout_ms="600000")
        await three.metadata.create_topic("a", partitions=9, replication_factor=3)
        await until(lambda: "a" in one.metadata.image.topics)
        await one.membership.begin_stopping()
        for index in range(9):
            state = one.state("a", index)
            assert state.leader in (2, 3)
            assert set(state.isr) == {2, 3}
        assert one.metadata.image.is_alive(ONE)
        await one.controlling.stop()
        await until(lambda: two.metadata.image.controller_id not in (ONE, NO_LEADER))
        assert one.metadata.image.is_alive(ONE), "somebody else controls before this one is gone"
        await one.stop()

    run(tmp_path, scenario)
