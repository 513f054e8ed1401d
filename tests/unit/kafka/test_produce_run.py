"""Produce requests that come in one piece: handled together, each is answered as it would be by itself."""

import asyncio
import errno
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from random import Random
from struct import pack, unpack_from
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader

import headrace.kafka.handlers  # noqa: F401  (registers the handlers)
from headrace.kafka import produce_run
from headrace.kafka.request_meter import KafkaRequestMeter
from headrace.model.quotas import QuotaKind
from headrace.observe.request_mark import current_request
from headrace.observe.traffic import TopicTraffic
from headrace.records.batch import check_batch
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.replication.partition import Partition
from headrace.runtime.varint import encode_uvarint
from headrace.security.audit.event import AuditClass
from headrace.security.audit.log import AuditRules
from headrace.storage.appender import ProducedBatch
from headrace.testing.disks import ModelDisk
from tests.unit.storage.log_faults import fail_when

from .test_connection import Client, FakeHost, FakeTransport
from .test_produce_cluster import NAME, ONE, STATE, TOPIC_ID, TWO, Bench, fetched

VERSION = 10
GOOD, FULL = ErrorCode.none, ErrorCode.kafka_storage_error
REFUSED = ["again", "gap", "crc", "none", "large", "elsewhere"]
"""Kinds of requests that are not appended; the first is a duplicate."""
ALONE = {"replicas": (ONE,), "isr": (ONE,)}


@pytest.fixture(autouse=True)
def _no_socket_stays_open() -> Iterator[None]:
    yield
    while FakeTransport.sockets:
        FakeTransport.sockets.pop().close()


class Answered(NamedTuple):
    correlation_id: int
    error: ErrorCode
    base_offset: int


class Served(Bench):
    """A partition, and a client that sends it requests in one piece."""

    def __init__(self, *, in_runs: bool = True, segment_bytes: int = 100_000, **state: Any) -> None:
        super().__init__()
        self.partition.reconfigure(replace(self.partition.settings, segment_bytes=segment_bytes))
        self.lead(**(state or ALONE))
        self.partition.traffic = self.traffic = TopicTraffic()
        self.services.meter = meter = KafkaRequestMeter()
        self.host = FakeHost()
        self.host.services, self.host.quotas, self.host.meter = self.services, self.services.quotas, meter
        self.host.now_ms, self.host.now_s = self.clock.monotonic_ms, self.clock.monotonic_s
        self.client = Client(self.host)
        if not in_runs:
            self.client.connection._runs = cast(Any, SimpleNamespace(handle=lambda *_: False))

    @property
    def disk(self) -> ModelDisk:
        disk = self.partition.log._state.disk
        assert isinstance(disk, ModelDisk)
        return disk

    def batch(self, value: bytes = b"value", *, producer: int = -1, sequence: int = -1, **fields: Any) -> bytes:
        record = Record(0, self.clock.wall_ms(), None, value)
        epoch = 0 if producer >= 0 else -1
        return build_batch([record], producer_id=producer, producer_epoch=epoch, base_sequence=sequence, **fields)

    def request(
        self, batch: bytes | None, correlation_id: int, *, acks: int = -1, version: int = VERSION, partition: int = 0
    ) -> bytes:
        records = b"\x00" if batch is None else encode_uvarint(len(batch) + 1) + batch
        name = TOPIC_ID.bytes if version >= 13 else encode_uvarint(len(NAME) + 1) + NAME.encode()
        return (
            pack(">hhih", 0, version, correlation_id, 1) + b"c\x00\x00" + pack(">hi", acks, 1_000)
            + b"\x02" + name + b"\x02" + pack(">i", partition) + records + b"\x00\x00\x00"
        )  # fmt: skip

    async def send(self, *requests: bytes) -> bytes:
        """Hand over the requests in one piece, and return what was answered."""
        data = b"".join(pack(">i", len(request)) + request for request in requests)
        self.client.connection.buffer_updated(self.client.put(data))
        return await self.received()

    async def received(self) -> bytes:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        received = b""
        try:
            while True:
                received += self.client.transport.other_end.recv(1 << 20)
        except BlockingIOError:
            return received

    async def ask(self, *correlation_ids: int, acks: int = -1) -> list[Answered]:
        """Send a good request for each of these."""
        return answers(await self.send(*[self.request(self.batch(), each, acks=acks) for each in correlation_ids]))

    async def start(self) -> None:
        """Append a first batch: a segment begins with one that is in no run."""
        assert [answer.error for answer in await self.ask(100, acks=1)] == [GOOD]

    @property
    def end_offset(self) -> int:
        return self.partition.log.end_offset


def answers(data: bytes, version: int = VERSION) -> list[Answered]:
    found = []
    while data:
        size, correlation_id = unpack_from(">ii", data)
        decoded: tuple[Any, int] = entity_reader(load_response_schema(0, version))(data[: 4 + size], 9)
        response, read = decoded
        assert read == size - 5
        ((topic,), at) = response.responses, 4 + size
        (part,) = topic.partition_responses
        found.append(Answered(correlation_id, ErrorCode(part.error_code), part.base_offset))
        data = data[at:]
    return found


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of requests in each run."""
    found: list[int] = []
    append_run = Partition.append_run

    def noted(partition: Partition, batches: Iterator[ProducedBatch]) -> list[ProducedBatch]:
        run = append_run(partition, batches)
        found.extend([len(run)] if run else [])
        return run

    monkeypatch.setattr(Partition, "append_run", noted)
    return found


def run(check: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(check())


def test_requests_in_one_piece_are_one_write_and_each_is_answered(sizes: list[int]) -> None:
    async def check() -> None:
        bench = Served()
        await bench.start()
        before = len(bench.disk.steps)
        assert await bench.ask(5, 6, -7) == [Answered(5, GOOD, 1), Answered(6, GOOD, 2), Answered(-7, GOOD, 3)]
        assert [what for what, _ in bench.disk.steps[before:]] == ["write"]
        assert sizes == [3]
        assert (bench.traffic.messages_in, bench.traffic.bytes_in) == (4, 4 * len(bench.batch()))
        peer = bench.client.connection.peer
        assert peer is not None
        assert (peer.requests, peer.client_id) == (4, "c")
        assert bench.services.meter.api(0).count == 4

    run(check)


@pytest.mark.parametrize("seed", range(25))
def test_whatever_comes_is_answered_and_stored_as_one_by_one(seed: int) -> None:
    """Good requests and such as are refused, for two partitions of which one is elsewhere, over the end of segments."""

    async def check() -> None:
        random = Random(seed)
        both = [Served(in_runs=each, segment_bytes=2000) for each in (True, False)]
        bench, sequence = both[0], 0
        for number in range(12):
            pieces = []
            for place in range(random.randrange(1, 12)):
                kind = random.choice(
                    ["good"] * 8 + ["next"] * 8 + ["again", "gap", "crc", "none", "large", "elsewhere"]
                )
                producer = {"next": sequence, "again": max(0, sequence - 1), "gap": sequence + 2}
                value = b"v" * (3000 if kind == "large" else random.randrange(80))
                batch: bytes | None = bench.batch(value)
                if kind in producer:
                    batch = bench.batch(value if kind == "next" else b"", producer=9, sequence=producer[kind])
                    sequence += kind == "next"
                elif kind == "crc":
                    batch = cast(bytes, batch)[:-1] + b"?"
                elif kind == "none":
                    batch = None
                acks, version = random.choice((-1, -1, -1, 1)), random.choice((10, 10, 10, 10, 9, 13))
                partition = 1 if kind == "elsewhere" else 0
                pieces.append(
                    bench.request(batch, number * 20 + place, acks=acks, version=version, partition=partition)
                )
            received = [await each.send(*pieces) for each in both]
            assert received[0] == received[1]
        logs = [each.partition.log for each in both]
        assert logs[0].end_offset == logs[1].end_offset > 20
        assert logs[0].producers.to_snapshot(0) == logs[1].producers.to_snapshot(0)
        names = [each.disk.files(log.directory) for each, log in zip(both, logs, strict=True)]
        assert names[0] == names[1]
        for name in names[0]:
            one, other = (each.disk.read_bytes(log.directory / name) for each, log in zip(both, logs, strict=True))
            assert one == other, name
        traffic = [each.traffic for each in both]
        assert (traffic[0].messages_in, traffic[0].bytes_in) == (traffic[1].messages_in, traffic[1].bytes_in)
        kinds = [each.services.meter.api(0) for each in both]
        assert (kinds[0].count, kinds[0].errors) == (kinds[1].count, kinds[1].errors)

    run(check)


def test_a_run_is_answered_when_its_last_records_are_committed(sizes: list[int]) -> None:
    async def check() -> None:
        bench = Served(isr=(ONE, TWO))
        await bench.start()
        assert await bench.ask(1, 2, 3) == []
        assert await bench.ask(4, acks=1) == [], "answers are sent in the order of the requests"
        assert sizes == [3, 1]
        assert bench.client.connection.unanswered_count == 4
        fetched(bench, 3)
        assert await bench.received() == b""
        fetched(bench, 4)
        assert answers(await bench.received()) == [
            Answered(1, GOOD, 1), Answered(2, GOOD, 2), Answered(3, GOOD, 3), Answered(4, GOOD, 4),
        ]  # fmt: skip
        assert bench.client.connection.unanswered_count == 0
        assert len(bench.expiries) == 0
        assert bench.services.meter.api(0).count == 5

    run(check)


def test_in_time_or_not_is_said_of_each_request() -> None:
    async def check() -> None:
        bench = Served(isr=(ONE, TWO))
        await bench.start()
        assert await bench.ask(1, 2, 3) == []
        fetched(bench, 3)
        bench.expiries.sweep(bench.clock.monotonic_ms() + 1_001)
        late = ErrorCode.request_timed_out
        expected = [Answered(1, GOOD, 1), Answered(2, GOOD, 2), Answered(3, late, -1)]
        assert answers(await bench.received()) == expected
        fetched(bench, 4)
        assert await bench.received() == b"", "the commit comes too late"
        assert bench.services.meter.api(0).errors == {"REQUEST_TIMED_OUT": 1}

    run(check)


def test_who_loses_the_leadership_refuses_what_is_not_committed() -> None:
    async def check() -> None:
        bench = Served(isr=(ONE, TWO))
        await bench.start()
        assert await bench.ask(1, 2, 3) == []
        fetched(bench, 2)
        bench.table.follow(bench.partition, replace(STATE, leader=TWO))
        not_leader = ErrorCode.not_leader_or_follower
        assert answers(await bench.received()) == [
            Answered(1, GOOD, 1), Answered(2, not_leader, -1), Answered(3, not_leader, -1),
        ]  # fmt: skip
        assert len(bench.expiries) == 0
        assert await bench.ask(4, 5) == [Answered(4, not_leader, -1), Answered(5, not_leader, -1)]

    run(check)


def test_a_lease_that_may_have_ended_makes_acks_1_wait_like_acks_all() -> None:
    async def check() -> None:
        bench = Served(isr=(ONE, TWO))
        await bench.start()
        bench.is_certain = False
        assert await bench.ask(1, 2, acks=1) == []
        fetched(bench, 3)
        assert answers(await bench.received()) == [Answered(1, GOOD, 1), Answered(2, GOOD, 2)]

    run(check)


def test_too_few_replicas_refuse_each_request() -> None:
    async def check() -> None:
        bench = Served()
        await bench.start()
        bench.partition.reconfigure(replace(bench.partition.settings, min_insync_replicas=2))
        few = ErrorCode.not_enough_replicas
        assert await bench.ask(1, 2) == [Answered(1, few, -1), Answered(2, few, -1)]

    run(check)


def test_on_a_full_disk_those_that_have_room_are_stored() -> None:
    async def check() -> None:
        bench = Served()
        await bench.start()
        used = sum(
            sum(bench.disk.files(folder).values()) for folder in (bench.disk.root, bench.partition.log.directory)
        )
        bench.disk.room_bytes = used + 2 * len(bench.batch()) + 10
        expected = [Answered(1, GOOD, 1), Answered(2, GOOD, 2), Answered(3, FULL, -1), Answered(4, FULL, -1)]
        assert await bench.ask(1, 2, 3, 4) == expected
        bench.disk.room_bytes = None
        assert await bench.ask(5) == [Answered(5, GOOD, 3)]
        assert bench.end_offset == 4

    run(check)


def test_a_failed_write_is_an_error_of_each_request_and_of_those_that_waited() -> None:
    async def check() -> None:
        bench = Served(isr=(ONE, TWO))
        await bench.start()
        assert await bench.ask(1, 2) == []
        bench.disk.hook = fail_when("write", ".log", errno.EIO)
        assert await bench.ask(3, 4) == [Answered(number, FULL, -1) for number in (1, 2, 3, 4)]
        bench.disk.hook = None
        assert await bench.ask(5) == [Answered(5, FULL, -1)]
        assert bench.end_offset == 3

    run(check)


def test_no_more_requests_are_begun_than_may_be_in_flight(sizes: list[int]) -> None:
    async def check() -> None:
        bench = Served(isr=(ONE, TWO))
        await bench.start()
        bench.host.max_in_flight = 4
        assert await bench.ask(*range(10)) == []
        assert (bench.end_offset, bench.client.connection.unanswered_count) == (5, 4)
        assert not bench.client.transport.is_reading
        for end in (5, 9, 11):
            fetched(bench, end)
        assert [answer.correlation_id for answer in answers(await bench.received())] == [*range(10)]
        assert sizes == [4, 4, 2]
        assert bench.client.transport.is_reading

    run(check)


def test_a_client_that_goes_away_leaves_nothing_behind() -> None:
    async def check() -> None:
        bench = Served(isr=(ONE, TWO))
        await bench.start()
        assert await bench.ask(1, 2) == []
        bench.client.connection.connection_lost(None)
        assert bench.client.connection.unanswered_count == 0
        fetched(bench, 3)
        assert await bench.received() == b""
        assert len(bench.expiries) == 0

    run(check)


@pytest.mark.parametrize("limit", [1e9, 700, 2000])
def test_bytes_count_on_quotas_as_one_by_one(limit: float) -> None:
    async def check() -> None:
        received = []
        both = [Served(in_runs=each) for each in (True, False)]
        for bench in both:
            bench.services.quotas.update({(("user", None),): {QuotaKind.PRODUCE: limit}}, 2**31 - 1, {}, 0)
            bench.services.broker_listener = "brokers"
            await bench.start()
            found = [await bench.send(*[bench.request(bench.batch(), each) for each in range(5)]) for _ in range(4)]
            received.append((found, [use.used for use in bench.services.quotas.use(0)]))
            bench.client.connection.connection_lost(None)
        assert received[0] == received[1]
        assert received[0][1] != [0]

    run(check)


def test_a_permission_that_is_revoked_is_gone_at_once() -> None:
    async def check() -> None:
        bench = Served()
        security = bench.services.security
        security.authorizer = SimpleNamespace(allows=lambda *_: True)
        await bench.start()
        assert await bench.ask(1, 2) == [Answered(1, GOOD, 1), Answered(2, GOOD, 2)]
        refusal = SimpleNamespace(reason="there is no rule for it")
        security.authorizer = SimpleNamespace(allows=lambda *_: False, decide=lambda *_: refusal)
        denied = ErrorCode.topic_authorization_failed
        assert await bench.ask(3, 4) == [Answered(3, denied, -1), Answered(4, denied, -1)]
        assert bench.end_offset == 3

    run(check)


def test_each_request_is_in_the_audit_log_where_producing_is(sizes: list[int]) -> None:
    async def check() -> None:
        bench = Served()
        await bench.start()
        audit = bench.services.security.audit
        audit.configure(AuditRules(classes=frozenset({AuditClass.PRODUCE})))
        seen: list[str] = []
        audit.used = lambda *of: seen.append(of[-1])
        assert [answer.error for answer in await bench.ask(1, 2)] == [GOOD, GOOD]
        assert (seen, sizes) == ([NAME, NAME], [])

    run(check)


@pytest.mark.parametrize(
    "settings",
    [
        {"message_timestamp_type": "LogAppendTime"},
        {"compression_type": "lz4"},
        {"value_schema_validation": "id"},
    ],
)
def test_topics_that_change_or_check_records_have_no_runs(sizes: list[int], settings: dict[str, Any]) -> None:
    async def check() -> None:
        bench = Served()
        await bench.start()
        bench.partition.reconfigure(replace(bench.partition.settings, **settings))
        assert [answer.error for answer in await bench.ask(1, 2)] == [GOOD, GOOD]
        assert sizes == []

    run(check)


def test_log_lines_name_the_first_request_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        bench = Served()
        await bench.start()
        seen = []
        valid = check_batch

        def noted(records: memoryview) -> Any:
            request = current_request()
            seen.append(None if request is None else request.request_id)
            return valid(records)

        monkeypatch.setattr(produce_run, "check_batch", noted)
        await bench.ask(41, 42)
        assert seen == ["client/41", "client/41"]
        assert current_request() is None

    run(check)
