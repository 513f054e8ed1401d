"""What a follower asks its leaders for, and what becomes of the answers."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headrace.model.errors import CorruptBatch, StorageFailed
from headrace.replication.fetchers import Fetchers
from headrace.replication.peers import Peers
from headrace.runtime.clock import SystemClock

from .leaders import LEADER, OTHER, FakeLeader, FakePartition, Host

PATIENCE_S = 30.0


class Setup:
    def __init__(self, partitions: int, **settings: Any) -> None:
        self.leader = FakeLeader()
        self.host = Host(**{"replica_fetch_wait_max_ms": 20_000, **settings})
        self.peers = Peers(self.leader, self.host, Random(1))
        self.fetchers = Fetchers(self.peers, self.host, broker_epoch=lambda: 55, clock=SystemClock(), random=Random(2))
        self.partitions = [FakePartition(index) for index in range(partitions)]
        self.leader.logs = dict.fromkeys(range(partitions), b"")

    def follow(self) -> None:
        for partition in self.partitions:
            self.fetchers.follow(partition, LEADER)


@asynccontextmanager
async def following(partitions: int = 1, **settings: Any) -> AsyncIterator[Setup]:
    setup = Setup(partitions, **settings)
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield setup
    finally:
        await setup.fetchers.close()
        await setup.peers.close()


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


def test_what_the_leader_has_is_taken_and_acknowledged_with_the_next_request() -> None:
    async def scenario() -> None:
        async with following() as setup:
            leader, (partition,) = setup.leader, setup.partitions
            setup.follow()
            leader.append(0, b"abc")
            await leader.until(lambda: leader.acknowledged.get(0) == 3)
            leader.append(0, b"de")
            await leader.until(lambda: leader.acknowledged.get(0) == 5)
            assert partition.log == b"abcde"
            assert partition.high_watermark == 3
            request = leader.requests[0]
            assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (3, 55)

    run(scenario)


def test_partitions_in_which_nothing_happens_are_named_once() -> None:
    async def scenario() -> None:
        async with following(300, replica_fetch_wait_max_ms=20) as setup:
            leader = setup.leader
            setup.follow()
            await leader.until(lambda: len(leader.requests) >= 4)
            leader.append(7, b"x")
            await leader.until(lambda: leader.acknowledged.get(7) == 1)
            asked = [sum(len(topic.partitions) for topic in request.topics) for request in leader.requests]
            assert asked[0] == 300
            assert sum(asked[1:]) == 1
            assert sum(map(len, leader.answers[1:])) <= 2, "the data, and later the high watermark"

    run(scenario)


def test_a_partition_that_comes_while_a_fetch_waits_is_asked_for_at_once() -> None:
    async def scenario() -> None:
        async with following(2) as setup:
            leader = setup.leader
            setup.fetchers.follow(setup.partitions[0], LEADER)
            await leader.until(lambda: len(leader.requests) >= 2 or 0 in leader.acknowledged)
            leader.append(0, b"x")
            await leader.until(lambda: leader.acknowledged.get(0) == 1)
            leader.append(1, b"first")
            setup.fetchers.follow(setup.partitions[1], LEADER)
            await leader.until(lambda: leader.acknowledged.get(1) == 5)

    run(scenario)


def test_nothing_is_acknowledged_before_it_is_on_disk_and_others_do_not_wait_for_ever() -> None:
    async def scenario() -> None:
        async with following(2, replica_fetch_wait_max_ms=100) as setup:
            leader, (slow, quick) = setup.leader, setup.partitions
            slow.flushes = True
            setup.follow()
            leader.append(0, b"slow")
            await slow.until(lambda: slow.log == b"slow")
            leader.append(1, b"quick")
            await leader.until(lambda: leader.acknowledged.get(1) == 5)
            assert quick.log == b"quick"
            assert leader.acknowledged[0] == 0
            leader.append(0, b"er")
            slow.flushed()
            await leader.until(lambda: leader.acknowledged.get(0) == 4)
            await slow.until(lambda: slow.log == b"slower")
            slow.flushed()
            await leader.until(lambda: leader.acknowledged.get(0) == 6)

    run(scenario)


def test_a_partition_with_unflushed_records_moves_to_another_leader_without_acknowledging_them() -> None:
    async def scenario() -> None:
        async with following() as setup:
            leader, (partition,) = setup.leader, setup.partitions
            partition.flushes = True
            partition.log = b"abc"
            leader.append(0, b"abcdef")
            setup.fetchers.follow(partition, OTHER)
            await partition.asked.wait()
            assert not leader.requests
            partition.flushed()
            await leader.until(lambda: leader.acknowledged.get(0) == 3)

    run(scenario)


@pytest.mark.parametrize(
    "code", [ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch, ErrorCode.unknown_topic_id]
)
def test_a_partition_that_the_leader_refuses_is_tried_again_and_stops_no_other(code: ErrorCode) -> None:
    async def scenario() -> None:
        async with following(2) as setup:
            leader = setup.leader
            leader.errors[0] = code.value
            setup.follow()
            for size in range(1, 4):
                leader.append(1, b"x")
                await leader.until(lambda size=size: leader.acknowledged.get(1) == size)  # type: ignore[misc]
            leader.append(0, b"abc")
            del leader.errors[0]
            await leader.until(lambda: leader.acknowledged.get(0) == 3)

    run(scenario)


def test_a_new_epoch_is_told_at_once() -> None:
    async def scenario() -> None:
        async with following() as setup:
            leader, (partition,) = setup.leader, setup.partitions
            setup.follow()
            await leader.until(lambda: 0 in leader.acknowledged)
            leader.epochs[0] = partition.epoch = 4
            setup.fetchers.follow(partition, LEADER)
            leader.append(0, b"abc")
            await leader.until(lambda: leader.acknowledged.get(0) == 3)

    run(scenario)


def test_what_cannot_be_taken_is_asked_for_again() -> None:
    async def scenario() -> None:
        async with following(2) as setup:
            leader, (partition, _) = setup.leader, setup.partitions
            partition.refuses = CorruptBatch("a checksum is wrong")
            setup.follow()
            leader.append(0, b"abc")
            leader.append(1, b"x")
            await leader.until(lambda: leader.acknowledged.get(1) == 1)
            partition.refuses = None
            await leader.until(lambda: leader.acknowledged.get(0) == 3)

    run(scenario)


@pytest.mark.parametrize("error", [StorageFailed("the disk is gone"), RuntimeError("nobody thought of this")])
def test_a_failed_disk_ends_the_partition_and_nothing_else(error: Exception) -> None:
    async def scenario() -> None:
        async with following(2) as setup:
            leader, (partition, _) = setup.leader, setup.partitions
            partition.refuses = error
            setup.follow()
            leader.append(0, b"abc")
            for size in range(1, 4):
                leader.append(1, b"x")
                await leader.until(lambda size=size: leader.acknowledged.get(1) == size)  # type: ignore[misc]
            assert leader.acknowledged[0] == 0

    run(scenario)


def test_a_flush_that_fails_ends_the_partition() -> None:
    async def scenario() -> None:
        async with following(2) as setup:
            leader, (partition, _) = setup.leader, setup.partitions
            partition.flushes = True
            setup.follow()
            leader.append(0, b"abc")
            await partition.until(lambda: partition.log == b"abc")
            partition.flushed(StorageFailed("fsync"))
            leader.append(1, b"x")
            await leader.until(lambda: leader.acknowledged.get(1) == 1)
            assert leader.acknowledged[0] == 0

    run(scenario)


def test_a_lost_session_and_a_lost_connection_are_begun_anew() -> None:
    async def scenario() -> None:
        async with following(3) as setup:
            leader = setup.leader
            setup.follow()
            leader.append(0, b"abc")
            await leader.until(lambda: leader.acknowledged.get(0) == 3)
            leader.sessions = type(leader.sessions)(1000, iter(range(500, 600)).__next__)
            leader.append(1, b"x")
            await leader.until(lambda: leader.acknowledged.get(1) == 1)
            leader.is_away = True
            leader.channels[-1].close()
            leader.append(2, b"yz")
            await leader.until_called()
            leader.is_away = False
            await leader.until(lambda: leader.acknowledged.get(2) == 2)
            assert [partition.log for partition in setup.partitions] == [b"abc", b"x", b"yz"]

    run(scenario)


def test_a_leader_that_keeps_no_sessions_is_told_everything_each_time() -> None:
    async def scenario() -> None:
        async with following(3) as setup:
            leader = setup.leader
            leader.sessions = type(leader.sessions)(0, lambda: 1)
            setup.follow()
            for size in range(1, 4):
                leader.append(2, b"x")
                await leader.until(lambda size=size: leader.acknowledged.get(2) == size)  # type: ignore[misc]
            assert {sum(len(topic.partitions) for topic in request.topics) for request in leader.requests} == {3}

    run(scenario)


def test_what_is_forgotten_is_given_nothing_more_and_the_leader_is_told() -> None:
    async def scenario() -> None:
        async with following(2) as setup:
            leader, (gone, kept) = setup.leader, setup.partitions
            setup.follow()
            leader.append(0, b"abc")
            leader.append(1, b"x")
            await leader.until(lambda: leader.acknowledged == {0: 3, 1: 1})
            setup.fetchers.forget(gone)
            gone.is_forgotten = True
            leader.append(0, b"more")
            leader.append(1, b"y")
            await leader.until(lambda: leader.acknowledged[1] == 2)
            await leader.until(lambda: any(request.forgotten_topics_data for request in leader.requests))
            setup.fetchers.forget(kept)
            gone.is_forgotten = False
            setup.fetchers.follow(gone, LEADER)
            await leader.until(lambda: leader.acknowledged[0] == 7)
            assert (gone.log, kept.log) == (b"abcmore", b"xy")

    run(scenario)


def test_replicas_that_are_being_added_keep_to_their_rate() -> None:
    async def scenario() -> None:
        async with following(2, follower_replication_throttled_rate=20_000, replica_fetch_max_bytes=5_000) as setup:
            leader, (added, other) = setup.leader, setup.partitions
            leader.append(0, b"z" * 30_000)
            began = asyncio.get_running_loop().time()
            setup.fetchers.follow(added, LEADER, is_throttled=True)
            setup.fetchers.follow(other, LEADER)
            await leader.until(lambda: leader.acknowledged.get(0, 0) >= 20_000)
            leader.append(1, b"at once")
            await leader.until(lambda: leader.acknowledged.get(1) == 7)
            await leader.until(lambda: leader.acknowledged.get(0) == 30_000)
            assert asyncio.get_running_loop().time() - began >= 0.24, "a second's worth at once, then 20 kB/s"

    run(scenario)


def test_a_rate_that_is_raised_holds_for_replicas_that_wait_already() -> None:
    async def scenario() -> None:
        async with following(follower_replication_throttled_rate=1, replica_fetch_max_bytes=1_000) as setup:
            leader, (added,) = setup.leader, setup.partitions
            leader.append(0, b"z" * 3_000)
            setup.fetchers.follow(added, LEADER, is_throttled=True)
            await added.until(lambda: len(added.log) == 1_000)
            setup.host.settings = Host(replica_fetch_wait_max_ms=20_000).settings
            await leader.until(lambda: leader.acknowledged.get(0) == 3_000)

    run(scenario)
