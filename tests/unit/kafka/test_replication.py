"""A follower and a leader as they are, with everything between them but the sockets."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

import headrace.kafka.handlers  # noqa: F401  (registers the handlers)
from headrace.config.broker import BrokerSettings
from headrace.kafka.cold_reads import ColdReads
from headrace.kafka.dispatch import Context, Peer, Raw, route
from headrace.kafka.fetch import Fetch
from headrace.kafka.fetch_sessions import FetchSessions
from headrace.kafka.ordered_reads import OrderedReads
from headrace.model.ids import BrokerId, LeaderEpoch, PartitionIndex, TopicId, TopicName
from headrace.model.image import BrokerInfo, ClusterImage, Endpoint, PartitionState
from headrace.protocol.codec import peek_api, read_request_header, write_response
from headrace.protocol.exchange import ResponseFrame, SentRequest
from headrace.records.batch import read_header
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.replication.fetchers import Fetchers
from headrace.replication.partition import Partition
from headrace.replication.partitions import PartitionTable
from headrace.replication.peers import Peers
from headrace.replication.throttle import UNLIMITED_BYTES_PER_S, Throttle
from headrace.replication.transport import Channel
from headrace.runtime.clock import SystemClock
from headrace.runtime.deferred import Deferred
from headrace.security.security import Security
from headrace.testing.disks import ModelDisk
from headrace.testing.logs import LogBench, position_of

LEADER, FOLLOWER = BrokerId(1), BrokerId(2)
TOPIC = TopicId(UUID(int=99))
STATE = PartitionState(LEADER, LeaderEpoch(3), (LEADER, FOLLOWER), (LEADER, FOLLOWER))
PATIENCE_S = 30.0
BROKERS = {broker: BrokerInfo(broker, Endpoint("broker", broker), epoch=40 + broker) for broker in (LEADER, FOLLOWER)}


class Side:
    """The partitions of one of the two brokers."""

    def __init__(self, broker_id: BrokerId, count: int, flush_policy: str) -> None:
        self.host: Any = SimpleNamespace(
            broker_id=broker_id,
            settings=BrokerSettings(broker_id=broker_id, replica_fetch_wait_max_ms=100),
            image=ClusterImage("c", LEADER, BROKERS, {}, {}, {}, 1),
        )
        self.table = PartitionTable()
        self.benches = [LogBench(ModelDisk()) for _ in range(count)]
        self.partitions: list[Partition] = []
        self.grown: list[int] = []
        """Which partitions were appended to, in order."""
        for index, bench in enumerate(self.benches):
            bench.log.settings = replace(bench.log.settings, flush_policy=flush_policy, segment_bytes=1 << 20)
            partition = Partition(
                TopicName("t"),
                PartitionIndex(index),
                TOPIC,
                bench.log,
                LeaderEpoch(0),
                appended=self._appended,
                broker_id=broker_id,
                high_watermark=0,
            )
            self.partitions.append(partition)
            self.table.add(partition)
        self._flushes = flush_policy == "ack"

    def _appended(self, log: Any) -> None:
        """Flushed a little later, as by a thread."""
        index = next(index for index, bench in enumerate(self.benches) if bench.log is log)
        self.grown.append(index)
        if self._flushes:
            asyncio.get_running_loop().call_later(0.001, self.benches[index].flush)


class Door:
    """The leader's door, and the way to it."""

    lifetime_s: float | None = None

    def __init__(self, services: Any) -> None:
        self._services = services

    async def connect(self, endpoint: Endpoint) -> Channel:
        return self

    async def exchange(self, request: SentRequest, body: bytes, timeout_s: float) -> ResponseFrame:
        return request.answered_by(await self._answered(body))

    async def _answered(self, frame: bytes) -> memoryview:
        key, version, _ = peek_api(frame)
        found = route(key, version)
        assert found is not None
        header = read_request_header(frame, flexible=found.flexible)
        context = Context(header, Peer("follower:1", Endpoint("leader", 1)), self._services)
        answer: Any = found.handler(context, found.read(frame, header))
        if isinstance(answer, Deferred):
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            answer.then(lambda value: None if future.done() else future.set_result(value))
            answer = await future
        if isinstance(answer, Raw):
            return memoryview(b"".join(_bytes(buffer) for buffer in answer.buffers))
        return memoryview(write_response(header, answer))

    def release(self, frame: memoryview) -> None:
        frame.release()

    def close(self) -> None: ...


def _bytes(part: Any) -> bytes:
    return part.file.read(part.position, part.length) if hasattr(part, "file") else bytes(part)


class Pair:
    def __init__(self, leader: Side, follower: Side, fetchers: Fetchers) -> None:
        self.leader = leader
        self.follower = follower
        self.fetchers = fetchers
        self.throttle_bytes_per_s = UNLIMITED_BYTES_PER_S

    def lead(self) -> None:
        for mine, theirs in zip(self.leader.partitions, self.follower.partitions, strict=True):
            self.leader.table.lead(mine, STATE, 0)
            self.follower.table.follow(theirs, STATE)
            self.fetchers.follow(theirs, LEADER)

    def append(self, index: int, *values: bytes) -> None:
        batch = build_batch([Record(0, 1_700_000_000_000, None, value) for value in values])
        self.leader.partitions[index].append(batch, read_header(batch))

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not holds():  # noqa: ASYNC110  (several things are looked at, none of which tells)
                await asyncio.sleep(0.002)

    def is_level(self, index: int, end: int) -> bool:
        mine, theirs = self.leader.partitions[index], self.follower.partitions[index]
        return (theirs.log.end_offset, mine.high_watermark, theirs.high_watermark) == (end, end, end)


@asynccontextmanager
async def pair(count: int, flush_policy: str = "os") -> AsyncIterator[Pair]:
    leader, follower = Side(LEADER, count, flush_policy), Side(FOLLOWER, count, flush_policy)
    with ThreadPoolExecutor(1) as workers:
        services: Any = SimpleNamespace(
            security=Security(),
            clock=SystemClock(),
            partitions=leader.table,
            workers=workers,
            cold_reads=(cold_reads := ColdReads(workers, 1)),
            ordered_reads=OrderedReads(cold_reads),
            metadata=leader.host,
            settings=leader.host.settings,
            fetch_sessions=FetchSessions(10, iter(range(1, 100)).__next__),
            meter=None,
        )
        peers = Peers(Door(services), follower.host, Random(1))
        fetchers = Fetchers(
            peers, follower.host, broker_epoch=lambda: 40 + FOLLOWER, clock=SystemClock(), random=Random(2)
        )
        both = Pair(leader, follower, fetchers)
        services.leader_throttle = Throttle(lambda: both.throttle_bytes_per_s, SystemClock().monotonic_ms())
        try:
            yield both
        finally:
            await fetchers.close()
            await peers.close()


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


@pytest.mark.parametrize("flush_policy", ["os", "ack"])
def test_a_follower_gets_what_its_leader_has_and_both_learn_that_it_is_committed(flush_policy: str) -> None:
    async def scenario() -> None:
        async with pair(5, flush_policy) as both:
            both.lead()
            for turn in range(20):
                for index in range(5):
                    both.append(index, b"%d-%d" % (index, turn), bytes(turn))
            await both.until(lambda: all(both.is_level(index, 40) for index in range(5)))
            for mine, theirs in zip(both.leader.benches, both.follower.benches, strict=True):
                assert mine.log.active.reader().read(0, mine.log.active.size) == theirs.log.active.reader().read(
                    0, theirs.log.active.size
                )

    run(scenario)


def test_partitions_where_nothing_happens_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        looked: list[int] = []
        look_at = Fetch._look_at

        def counted(self: Fetch, key: Any, *args: Any, **named: Any) -> Any:
            looked.append(key.partition)
            return look_at(self, key, *args, **named)

        monkeypatch.setattr(Fetch, "_look_at", counted)
        async with pair(200) as both:
            both.lead()
            both.append(3, b"first")
            await both.until(lambda: both.is_level(3, 1))
            looked.clear()
            await asyncio.sleep(0.35)
            assert not looked, "several requests have come and gone"
            both.append(7, b"x")
            await both.until(lambda: both.is_level(7, 1))
            assert set(looked) == {7}

    run(scenario)


def test_a_follower_that_left_the_history_comes_back_to_it() -> None:
    async def scenario() -> None:
        async with pair(1) as both:
            for bench, values in ((both.leader.benches[0], b"ab"), (both.follower.benches[0], b"abc")):
                for value in values:
                    bench.append(bytes([value]), epoch=1)
            both.follower.benches[0].append(b"never committed", epoch=2)
            both.lead()
            both.append(0, b"d")
            await both.until(lambda: both.is_level(0, 3))
            assert [record.value for record in both.follower.benches[0].records()] == [b"a", b"b", b"d"]

    run(scenario)


def test_a_start_that_moved_is_told_and_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with pair(2) as both:
            both.lead()
            both.append(0, b"a")
            both.append(0, b"b")
            await both.until(lambda: both.is_level(0, 2))

            async def at_once(work: Callable[[], None]) -> None:
                work()

            assert await both.leader.partitions[0].delete_before(1, at_once) == 1
            leading = both.leader.partitions[0].leading
            assert leading is not None
            await both.until(lambda: leading.low_watermark(1, lambda _: True) == 1)
            assert both.follower.partitions[0].log.start_offset == 1

    run(scenario)


def test_many_partitions_with_much_to_send_take_turns() -> None:
    async def scenario() -> None:
        async with pair(8) as both:
            both.follower.host.settings = replace(both.follower.host.settings, replica_fetch_response_max_bytes=3_000)
            for index in range(8):
                both.leader.table.lead(both.leader.partitions[index], STATE, 0)
                for _ in range(10):
                    both.append(index, b"x" * 1_000)
            both.lead()
            await both.until(lambda: all(both.is_level(index, 10) for index in range(8)))
            assert set(both.follower.grown[:16]) == set(range(8)), "none gets its second share long before another"

    run(scenario)


@pytest.mark.parametrize("byte", [0, 9, 14, 16, 100])
def test_what_has_gone_bad_on_the_leaders_disk_is_not_sent_but_told_of(byte: int) -> None:
    """In the records, and in what the checksum does not cover: offset, length, leader epoch, version."""

    async def scenario() -> None:
        async with pair(1) as both:
            leader, bench = both.leader.partitions[0], both.leader.benches[0]
            found: list[int] = []
            leader.on_damaged = lambda _, offset: found.append(offset)
            both.leader.table.lead(leader, STATE, 0)
            for number in range(4):
                both.append(0, b"%d" % number * 100)
            path, position = bench.log.active.path, position_of(bench.log, 2)
            bench.log.roll()
            both.append(0, b"in another segment")
            file = bench.disk.open(path)
            data = bytearray(file.read(0, file.size()))
            data[position + byte] ^= 4
            file.truncate(0)
            file.append((bytes(data),))
            both.lead()
            await both.until(lambda: found != [])
            assert max(found) <= 2
            assert both.follower.partitions[0].log.end_offset <= 2

    run(scenario)


def test_a_replica_that_is_brought_in_gets_no_more_than_the_leader_may_send() -> None:
    async def scenario() -> None:
        async with pair(1) as both:
            state = replace(STATE, isr=(LEADER,), adding=(FOLLOWER,))
            leader, follower = both.leader.partitions[0], both.follower.partitions[0]
            both.throttle_bytes_per_s = 20_000
            started_s = asyncio.get_running_loop().time()
            both.leader.table.lead(leader, state, 0)
            for _ in range(30):
                both.append(0, b"x" * 1_000)
            both.follower.host.settings = replace(both.follower.host.settings, replica_fetch_max_bytes=2_000)
            both.follower.table.follow(follower, state)
            both.fetchers.follow(follower, LEADER)
            await both.until(lambda: follower.log.end_offset == 30)
            # A second's worth at once, and the rest at that rate.
            assert asyncio.get_running_loop().time() - started_s > 0.4

    run(scenario)


def test_a_replica_that_asks_before_its_leader_knows_of_it_is_in_sync_later_though_nothing_is_written() -> None:
    before = replace(STATE, isr=(LEADER,), replicas=(LEADER,), partition_epoch=0)
    after = replace(STATE, isr=(LEADER,), adding=(FOLLOWER,), partition_epoch=1)

    async def scenario() -> None:
        async with pair(2) as both:
            joinable: list[int] = []
            both.leader.table.lead(both.leader.partitions[0], STATE, 0)
            both.leader.table.lead(both.leader.partitions[1], before, 0)
            both.leader.partitions[1].on_joinable = lambda partition: joinable.append(partition.index)
            for state, theirs in zip((STATE, after), both.follower.partitions, strict=True):
                both.follower.table.follow(theirs, state)
                both.fetchers.follow(theirs, LEADER)
            both.append(0, b"the session has begun")
            await both.until(lambda: both.is_level(0, 1))
            both.leader.table.lead(both.leader.partitions[1], after, 0)
            await both.until(lambda: joinable == [1])

    run(scenario)


def test_a_follower_that_is_read_from_hears_at_once_of_what_is_committed() -> None:
    async def scenario() -> None:
        async with pair(1) as both:
            both.follower.host.settings = replace(both.follower.host.settings, replica_fetch_wait_max_ms=2**31 - 1)
            both.leader.partitions[0].is_read_elsewhere = True
            both.lead()
            for end in range(1, 5):
                both.append(0, b"x")
                await both.until(lambda end=end: both.is_level(0, end))  # type: ignore[misc]

    run(scenario)
