"""Repeated fetches: answered as the handler answers them, and counted the same."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from random import Random
from struct import pack, unpack_from
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

import headrace.kafka.handlers  # noqa: F401  (registers the handlers)
from headrace.config.topic import TopicSettings
from headrace.kafka.cold_reads import ColdReads
from headrace.kafka.fetch_sessions import FetchSessions
from headrace.kafka.ordered_reads import OrderedReader, OrderedReads
from headrace.kafka.request_meter import KafkaRequestMeter
from headrace.model.ids import BrokerId, LeaderEpoch, PartitionIndex, TopicId, TopicName, TopicPartition
from headrace.model.image import BrokerInfo, ClusterImage, Endpoint, PartitionState, TopicImage
from headrace.observe.traffic import TrafficTable
from headrace.quotas.broker_quotas import BrokerQuotas
from headrace.records.markers import Marker
from headrace.replication.partition import Partition
from headrace.replication.partitions import PartitionTable
from headrace.runtime.clock import ManualClock
from headrace.runtime.expiries import Expiries
from headrace.security.audit.event import AuditClass
from headrace.security.audit.log import AuditRules
from headrace.security.authorizer import Authorizer
from headrace.security.security import Security
from headrace.storage.log import Log
from headrace.testing.disks import ModelDisk, ModelFile
from headrace.testing.logs import LogBench
from tests.unit.protocol.fetch_requests import FetchBytes, WantedPart

from .test_connection import Client, FakeHost, FakeTransport

ONE = BrokerId(1)
TOPICS = {TopicName("orders"): TopicId(UUID(int=7)), TopicName("prices"): TopicId(UUID(int=8 << 90))}
STATE = PartitionState(ONE, LeaderEpoch(3), (ONE,), (ONE,))
PARTITIONS = 3
SETTINGS = TopicSettings(segment_bytes=60_000, index_interval_bytes=500, flush_policy="os", file_delete_delay_ms=0)


@pytest.fixture(autouse=True)
def _no_socket_stays_open() -> Iterator[None]:
    yield
    while FakeTransport.sockets:
        FakeTransport.sockets.pop().close()


class Served:
    """A broker with two topics, and the connection of a consumer."""

    def __init__(self, *, is_quick: bool = True) -> None:
        self.clock = ManualClock()
        self.benches: dict[tuple[str, int], LogBench] = {}
        self.partitions: dict[tuple[TopicName, int], Partition] = {}
        self.table = PartitionTable(lambda: self.image, traffic=TrafficTable())
        topics = {name: TopicImage(name, topic_id, (STATE,) * PARTITIONS) for name, topic_id in TOPICS.items()}
        brokers = {ONE: BrokerInfo(ONE, Endpoint("broker-1", 9001), "rack-1")}
        names: dict[UUID, TopicName] = {topic_id: name for name, topic_id in TOPICS.items()}
        self.image = ClusterImage("c", ONE, brokers, topics, names, {}, 1)
        for name, topic_id in TOPICS.items():
            for index in range(PARTITIONS):
                self._open(name, topic_id, PartitionIndex(index))
        self.meter = KafkaRequestMeter()
        cold_reads = ColdReads(ThreadPoolExecutor(1), 1)
        self.services: Any = SimpleNamespace(
            security=Security(),
            clock=self.clock,
            partitions=self.table,
            fetch_sessions=FetchSessions(10, count(1).__next__),
            settings=SimpleNamespace(fetch_max_bytes=1 << 20, broker_rack=""),
            cold_reads=cold_reads,
            ordered_reads=OrderedReads(cold_reads),
            metadata=SimpleNamespace(image=self.image, broker_id=ONE),
            meter=self.meter,
            quotas=BrokerQuotas(),
            expiries=Expiries(),
            broker_listener="",
        )
        host = FakeHost()
        host.services, host.quotas, host.meter = self.services, self.services.quotas, self.meter
        host.now_ms, host.now_s = self.clock.monotonic_ms, self.clock.monotonic_s
        self.client = Client(host)
        self.quick = 0
        self._watch(is_quick=is_quick)

    def _open(self, name: TopicName, topic_id: TopicId, index: PartitionIndex) -> None:
        bench = LogBench(ModelDisk(), SETTINGS, clock=self.clock, partition=TopicPartition(name, index))
        partition = Partition(
            name, index, topic_id, bench.log, LeaderEpoch(0), appended=lambda _: None, broker_id=ONE, high_watermark=0
        )
        self.benches[name, index], self.partitions[name, index] = bench, partition
        self.table.add(partition)
        self.table.lead(partition, STATE, 0)

    def _watch(self, *, is_quick: bool) -> None:
        """Count the requests that are answered quickly, or let none be."""
        connection = self.client.connection
        self.fetches = connection._fetches
        handle = self.fetches.handle

        def watched(*args: Any) -> bool:
            done = is_quick and handle(*args)
            self.quick += done
            return done

        connection._fetches = cast(Any, SimpleNamespace(handle=watched))

    @property
    def peer(self) -> Any:
        return self.client.connection.peer

    def append(self, name: str, index: int, *values: bytes, **fields: Any) -> None:
        self.benches[TopicName(name), index].append(*values, **fields)
        self.partitions[TopicName(name), index]._grown()

    async def ask(self, request: bytes) -> bytes:
        """The answer to a request, without its length."""
        self.client.connection.buffer_updated(self.client.put(pack(">i", len(request)) + request))
        loop, got = asyncio.get_running_loop(), b""
        while len(got) < 4 or len(got) < 4 + unpack_from(">i", got)[0]:
            got += await asyncio.wait_for(loop.sock_recv(self.client.transport.other_end, 1 << 20), 60)
        assert len(got) == 4 + unpack_from(">i", got)[0]
        return got[4:]

    def counters(self) -> Any:
        """All that a request may have counted or changed."""
        peer, sessions = self.peer, self.services.fetch_sessions
        return (
            peer.requests,
            peer.client_id,
            peer.sent_bytes,
            peer.delivered and {str(key): value for key, value in peer.delivered.items()},
            {
                name: (traffic.messages_out, traffic.bytes_out)
                for name in TOPICS
                if (traffic := self.partitions[name, 0].traffic) is not None
            },
            {
                key: (session.next_epoch, session.last_used_ms, list(session.wanted.items()), session._sent)
                for key, session in sessions._sessions.items()
            },
            {key: (kind.quick, kind.errors, sum(map(sum, kind._buckets))) for key, kind in self.meter.by_key.items()},
            dict(self.services.security.permitted),
        )


class Both:
    """The same broker twice: one answers repeated fetches quickly."""

    def __init__(self) -> None:
        self.quick, self.usual = Served(), Served(is_quick=False)

    def each(self, action: Callable[[Served], None]) -> None:
        action(self.quick)
        action(self.usual)

    async def ask(self, request: FetchBytes) -> bytes:
        frame = request.encode()
        quick, usual = await self.quick.ask(frame), await self.usual.ask(frame)
        assert quick == usual
        assert self.quick.counters() == self.usual.counters()
        return quick


class Consumer:
    """Requests of a consumer that goes on at its positions, most of the time."""

    def __init__(self, random: Random, *, is_calm: bool) -> None:
        self._random = random
        self._is_calm = is_calm
        self.version = random.randrange(7, 19)
        self.isolation = random.randrange(2)
        self.has_session = random.random() < 0.5
        self._session_id, self._epoch = 0, 0
        wanted = [(name, index) for name in TOPICS for index in range(PARTITIONS)]
        self.wanted = sorted(random.sample(wanted, random.randrange(1, len(wanted) + 1)))
        self.limits = {place: random.choice((0, 100, 3_000, 50_000)) for place in self.wanted}
        self.max_bytes = random.choice((100, 5_000, 200_000))
        self.min_bytes = random.choice((0, 1, 1, 1, 500, 50_000))
        self.max_wait_ms = random.choice((0, 0, 1))
        self.epoch = random.choice((-1, -1, 3))
        self.positions = dict.fromkeys(self.wanted, 0)
        self._correlation = 0

    def request(self, ends: dict[tuple[TopicName, int], int]) -> FetchBytes:
        random = self._random
        self._correlation += 1
        for place, end in ends.items():
            if random.random() < 0.7 or not 0 <= self.positions[place] <= end:
                self.positions[place] = random.randrange(end + 1)
        if not self._is_calm and random.random() < 0.03:
            self.positions[random.choice(self.wanted)] = random.choice((-1, 1 << 40))
        wanted = self.wanted
        session_id, epoch = 0, -1
        if self.has_session:
            if not self._is_calm and random.random() < 0.05:
                self._session_id = random.choice((0, 77))
            session_id, epoch = self._session_id, self._epoch if self._session_id else 0
            if epoch and random.random() < 0.1:
                wanted = sorted(random.sample(wanted, random.randrange(len(wanted) + 1)))
        topics = []
        for name in dict.fromkeys(name for name, _ in wanted):
            parts = [
                WantedPart(index, self.positions[topic, index], self.limits[topic, index], self.epoch)
                for topic, index in wanted
                if topic == name
            ]
            topics.append((name, TOPICS[TopicName(name)], parts))
        return FetchBytes(
            self.version,
            topics,
            correlation_id=self._correlation,
            max_wait_ms=self.max_wait_ms,
            min_bytes=self.min_bytes,
            max_bytes=self.max_bytes,
            isolation=self.isolation,
            session_id=session_id,
            session_epoch=epoch,
        )

    def answered(self, answer: bytes) -> None:
        if self.has_session:
            at = 5 if self.version >= 12 else 4
            error, session_id = unpack_from(">hi", answer, at + 4)
            self._epoch = self._epoch + 1 if session_id == self._session_id and not error else 1
            self._session_id = session_id


def happens(random: Random, both: Both) -> None:
    """Something that changes what is answered."""
    name, index = random.choice([*TOPICS]), random.randrange(PARTITIONS)
    what = random.choices(
        ("append", "transaction", "start", "epoch", "idle", "repair", "acl", "audit", "quota", "removed", "closed"),
        (40, 6, 3, 1, 1, 20, 2, 1, 1, 1, 2),
    )[0]
    size, producer = random.randrange(3_000), random.randrange(3)

    def change(served: Served) -> None:
        partition = served.partitions[name, index]
        log, security = partition.log, served.services.security
        if what == "append":
            served.append(name, index, bytes(size), b"more")
        elif what == "transaction" and partition.is_leader:
            if log.producers.get(producer) is None:
                served.append(name, index, b"open", producer=producer, sequence=0, transactional=True)
                if size % 2:
                    partition.append_marker(producer, 0, _marker(committed=size % 4 == 1))
        elif what == "start" and log.high_watermark:
            log.advance_start(log.high_watermark // 2)
        elif what == "epoch":
            epoch = LeaderEpoch(partition.leader_epoch + 1)
            served.table.lead(partition, replace(STATE, leader_epoch=epoch), 0)
        elif what == "idle":
            served.table.idle(partition)
        elif what == "repair":
            for each in served.partitions.values():
                served.table.lead(each, replace(STATE, leader_epoch=each.leader_epoch), 0)
            security.authorizer = None
            security.audit.rules = AuditRules(classes=frozenset())
            served.services.quotas.is_active = False
        elif what == "acl":
            super_users = (("User:ANONYMOUS",), ("User:nobody",))[size % 2]
            security.authorizer = None if size % 3 == 0 else Authorizer((), super_users=super_users)
        elif what == "audit":
            security.audit.rules = AuditRules(classes=frozenset({AuditClass.CONSUME}) if size % 2 else frozenset())
        elif what == "quota":
            served.services.quotas.is_active = size % 2 == 0
        elif what == "removed" and size % 3 == 0:
            served.table.remove(partition)
            served.table.add(partition)
        elif what == "closed":
            log.roll()

    both.each(change)


def _marker(*, committed: bool) -> Any:
    return Marker(committed, 0)


@pytest.mark.parametrize("is_calm", [True, False])
@pytest.mark.parametrize("seed", range(40))
def test_answers_and_counts_are_those_of_the_handler(seed: int, *, is_calm: bool) -> None:
    """In calm times most are answered quickly, unless there is always too little for the request."""

    async def run() -> None:
        random = Random(seed)
        both, consumer = Both(), Consumer(random, is_calm=is_calm)
        for name in TOPICS:
            for index in range(PARTITIONS):
                for _ in range(random.randrange(30)):
                    values = [random.randbytes(random.choice((10, 700, 9_000))) for _ in range(random.randrange(1, 3))]
                    both.each(lambda served, n=name, i=index, v=values: served.append(n, i, *v))  # type: ignore[misc]
        for _ in range(60):
            ends = {place: both.usual.partitions[place].high_watermark for place in consumer.wanted}
            consumer.answered(await both.ask(consumer.request(ends)))
            if not is_calm and random.random() < 0.3:
                happens(random, both)
        if is_calm and consumer.min_bytes <= 1:
            assert both.quick.quick > 30

    asyncio.run(run())


PLAIN = FetchBytes(13, [("orders", TOPICS[TopicName("orders")], [WantedPart(0, 0, 50_000)])])


async def served(request: FetchBytes = PLAIN) -> Served:
    """A broker with a batch, which has answered this request quickly."""
    broker = Served()
    broker.append("orders", 0, b"x" * 100)
    for _ in range(3):
        await broker.ask(request.encode())
    assert broker.quick == 1
    return broker


def test_what_is_not_in_the_page_cache_is_left_to_the_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        broker = await served()
        expected = await broker.ask(PLAIN.encode())
        monkeypatch.setattr(ModelFile, "read_cached", lambda *_: None)
        monkeypatch.setattr(ModelFile, "is_cached", lambda *_: False)
        assert await broker.ask(PLAIN.encode()) == expected
        assert broker.quick == 2

    asyncio.run(run())


@pytest.mark.parametrize("is_quick", [True, False])
def test_an_answer_that_has_no_room_for_another_batch_does_not_wait(*, is_quick: bool) -> None:
    """A client that wants as many bytes as a partition may give: whole batches are fewer."""

    async def run() -> None:
        broker = Served(is_quick=is_quick)
        for _ in range(30):
            broker.append("orders", 0, b"x" * 900)
        wanted = PLAIN._replace(
            topics=[("orders", TOPICS[TopicName("orders")], [WantedPart(0, 0, 5_000)])],
            min_bytes=5_000,
            max_wait_ms=3_600_000,
        )
        for _ in range(4):
            answer = await broker.ask(wanted.encode())
        assert 3_000 < answer.count(b"x") < 5_000
        assert (broker.quick > 0) is is_quick

    asyncio.run(run())


@pytest.mark.parametrize("is_quick", [True, False])
def test_the_rest_of_a_closed_segment_does_not_wait(*, is_quick: bool) -> None:
    async def run() -> None:
        broker = Served(is_quick=is_quick)
        for _ in range(80):
            broker.append("orders", 0, b"x" * 900)
        log = broker.partitions[TopicName("orders"), 0].log
        last = log.segments[0].next_offset - 1
        wanted = PLAIN._replace(
            topics=[("orders", TOPICS[TopicName("orders")], [WantedPart(0, last, 9_000)])],
            min_bytes=5_000,
            max_wait_ms=3_600_000,
        )
        for _ in range(4):
            answer = await broker.ask(wanted.encode())
        assert answer.count(b"x") == 900
        assert (broker.quick > 0) is is_quick

    asyncio.run(run())


def test_a_partition_that_does_not_fit_takes_the_rest_of_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a fetch of a thousand partitions does not look into all of them."""

    async def run() -> None:
        broker = Served(is_quick=False)
        looked: list[int] = []
        for index in range(PARTITIONS):
            for _ in range(30):
                broker.append("orders", index, b"x" * 900)
        right = Log.slice

        def watched(log: Log, *args: Any, **kwargs: Any) -> Any:
            looked.append(1)
            return right(log, *args, **kwargs)

        monkeypatch.setattr(Log, "slice", watched)
        parts = [WantedPart(index, 0, 50_000) for index in range(PARTITIONS)]
        await broker.ask(PLAIN._replace(topics=[("orders", TOPICS[TopicName("orders")], parts)]).encode())
        assert len(looked) == 1

    asyncio.run(run())


def test_a_request_that_begins_a_session_is_left_to_the_handler() -> None:
    async def run() -> None:
        broker = await served()
        answer = await broker.ask(PLAIN._replace(session_epoch=0).encode())
        assert broker.quick == 1
        assert len(broker.services.fetch_sessions) == 1
        assert unpack_from(">i", answer, 11) != (0,)

    asyncio.run(run())


def test_a_client_that_reads_old_data_in_order_is_left_to_the_handler() -> None:
    async def run() -> None:
        broker = await served()
        expected = await broker.ask(PLAIN.encode())
        other = broker.partitions[TopicName("prices"), 1]
        broker.peer.ordered_reads = {other: OrderedReader(broker.peer, other)}
        assert await broker.ask(PLAIN.encode()) == expected
        assert broker.quick == 2

    asyncio.run(run())


def test_a_quick_answer_does_not_overtake_one_that_waits() -> None:
    async def run() -> None:
        broker = await served()
        waiting = PLAIN._replace(correlation_id=100, min_bytes=5_000, max_wait_ms=60_000).encode()
        frames = (waiting, PLAIN._replace(correlation_id=101).encode())
        broker.client.connection.buffer_updated(broker.client.put(b"".join(pack(">i", len(f)) + f for f in frames)))
        await asyncio.sleep(0)
        with pytest.raises(BlockingIOError):
            broker.client.transport.other_end.recv(1)
        broker.append("orders", 0, b"y" * 6_000)
        loop, got = asyncio.get_running_loop(), b""
        while got.count(b"y" * 6_000) < 1 or got.count(b"x" * 100) < 2:
            got += await asyncio.wait_for(loop.sock_recv(broker.client.transport.other_end, 1 << 20), 60)
        assert unpack_from(">i", got, 4) == (100,)
        assert unpack_from(">i", got, 4 + unpack_from(">i", got)[0] + 4) == (101,)

    asyncio.run(run())


def test_a_connection_remembers_few_patterns() -> None:
    async def run() -> None:
        broker = await served()
        for version in (12, 13, 14, 15, 16, 17, 18, 11, 10, 9, 8, 7):
            for _ in range(2):
                await broker.ask(PLAIN._replace(version=version, client_id="c" * version).encode())
        assert len(broker.fetches._known) == 8

    asyncio.run(run())
