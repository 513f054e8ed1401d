"""Produce on a broker of a cluster: who is told what, and when."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID
from weakref import ref

import pytest
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader

from headrace.kafka.dispatch import Context, Peer, Raw
from headrace.kafka.handlers.produce import produce
from headrace.model.ids import BrokerId, LeaderEpoch, PartitionIndex, TopicId, TopicName
from headrace.model.image import BrokerInfo, ClusterImage, Endpoint, PartitionState, TopicImage
from headrace.protocol.codec import RequestHeader, response_header
from headrace.protocol.produce_request import PartitionData, ProduceRequest
from headrace.quotas.broker_quotas import BrokerQuotas
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.replication.partition import Partition
from headrace.replication.partitions import PartitionTable
from headrace.runtime.clock import ManualClock
from headrace.runtime.deferred import Deferred
from headrace.runtime.expiries import Expiries
from headrace.security.security import Security
from headrace.testing.disks import ModelDisk
from headrace.testing.logs import SMALL, LogBench

ONE, TWO = BrokerId(1), BrokerId(2)
NAME, TOPIC_ID = TopicName("orders"), TopicId(UUID(int=7))
STATE = PartitionState(ONE, LeaderEpoch(5), (ONE, TWO), (ONE, TWO))
VERSION = 10


class Bench:
    def __init__(self, state: PartitionState = STATE, *, min_in_sync: int = 1) -> None:
        self.clock = ManualClock()
        settings = replace(SMALL, flush_policy="os", min_insync_replicas=min_in_sync)
        self.partition = Partition(
            NAME,
            PartitionIndex(0),
            TOPIC_ID,
            LogBench(ModelDisk(), settings, clock=self.clock).log,
            LeaderEpoch(0),
            appended=lambda _: None,
            broker_id=ONE,
            high_watermark=0,
        )
        self.image = self.image_with(state)
        self.table = PartitionTable(lambda: self.image)
        self.table.add(self.partition)
        self.is_certain = True
        self.expiries = Expiries()
        self.services: Any = SimpleNamespace(
            security=Security(),
            clock=self.clock,
            partitions=self.table,
            recompressor=SimpleNamespace(is_needed=False),
            schema_checks=SimpleNamespace(is_needed=False),
            backlog_waits=SimpleNamespace(is_needed=False),
            expiries=self.expiries,
            is_certain=lambda: self.is_certain,
            metadata=SimpleNamespace(image=self.image, broker_id=ONE),
            meter=None,
            quotas=BrokerQuotas(),
        )

    def image_with(self, state: PartitionState) -> ClusterImage:
        brokers = {b: BrokerInfo(b, Endpoint(f"broker-{b}", 9000 + b), f"rack-{b}") for b in (ONE, TWO)}
        topics = {NAME: TopicImage(NAME, TOPIC_ID, (state, state))}
        return ClusterImage("c", ONE, brokers, topics, {TOPIC_ID: NAME}, {}, 1)

    def lead(self, **fields: object) -> None:
        self.table.lead(self.partition, replace(STATE, **fields), 0)  # type: ignore[arg-type]

    def produce(self, acks: int, index: int = 0, topic: str = NAME) -> "Answer":
        batch = build_batch([Record(0, self.clock.wall_ms(), None, b"value")])
        request = ProduceRequest(None, acks, 1_000, [(topic, [PartitionData(index, memoryview(batch))])])
        header = RequestHeader(0, VERSION, 7, None, 0)
        return Answer(produce(Context(header, Peer("c:1", Endpoint("seen", 1)), self.services), request), header)


class Answer:
    def __init__(self, answer: Any, header: RequestHeader) -> None:
        self._answer = answer
        self._head = len(response_header(header))
        if isinstance(answer, Deferred):
            self._answer = None
            answer.then(self._came)

    def _came(self, answer: Any) -> None:
        self._answer = answer

    @property
    def is_there(self) -> bool:
        return self._answer is not None

    def read(self) -> Any:
        assert isinstance(self._answer, Raw)
        response, _ = entity_reader(load_response_schema(0, VERSION))(b"".join(self._answer.buffers), self._head)  # type: ignore[arg-type]
        return response

    @property
    def part(self) -> Any:
        return self.read().responses[0].partition_responses[0]

    @property
    def error(self) -> ErrorCode:
        return ErrorCode(self.part.error_code)


def fetched(bench: Bench, offset: int) -> None:
    bench.partition.replica_fetched(TWO, 12, offset, log_start_offset=0, now_ms=0)


def test_acks_all_is_answered_when_every_replica_in_sync_has_the_records() -> None:
    bench = Bench()
    bench.lead()
    answer = bench.produce(-1)
    assert not answer.is_there
    fetched(bench, 1)
    assert (answer.error, answer.part.base_offset) == (ErrorCode.none, 0)


@pytest.mark.parametrize("index", [0, 1])
def test_who_does_not_lead_says_who_does_and_where(index: int) -> None:
    """Whether it has a replica (0) or none (1)."""
    bench = Bench(replace(STATE, leader=TWO))
    bench.table.follow(bench.partition, replace(STATE, leader=TWO))
    answer = bench.produce(1, index)
    assert answer.error is ErrorCode.not_leader_or_follower
    assert (answer.part.current_leader.leader_id, answer.part.current_leader.leader_epoch) == (2, 5)
    (node,) = answer.read().node_endpoints
    assert (node.node_id, node.host, node.port, node.rack) == (2, "broker-2", 9002, "rack-2")


def test_what_does_not_exist_is_not_elsewhere() -> None:
    bench = Bench()
    assert bench.produce(1, index=2).error is ErrorCode.unknown_topic_or_partition
    assert bench.produce(1, topic="other").error is ErrorCode.unknown_topic_or_partition


def test_a_leader_that_loses_its_place_says_so_to_those_who_wait() -> None:
    bench = Bench()
    bench.lead()
    answer = bench.produce(-1)
    bench.services.metadata.image = bench.image_with(replace(STATE, leader=TWO, leader_epoch=LeaderEpoch(6)))
    bench.table.follow(bench.partition, replace(STATE, leader=TWO, leader_epoch=LeaderEpoch(6)))
    assert answer.error is ErrorCode.not_leader_or_follower
    assert (answer.part.current_leader.leader_id, answer.part.current_leader.leader_epoch) == (2, 6)


def test_too_few_in_sync_are_told_before_and_after() -> None:
    bench = Bench(min_in_sync=2)
    bench.lead()
    answer = bench.produce(-1)
    bench.lead(isr=(ONE,), partition_epoch=1)
    assert bench.produce(-1).error is ErrorCode.not_enough_replicas
    assert not answer.is_there
    bench.clock.advance(1_001)
    bench.expiries.sweep(bench.clock.monotonic_ms())
    assert answer.error is ErrorCode.not_enough_replicas_after_append


def test_acks_1_is_as_good_as_all_where_another_may_lead_already() -> None:
    bench = Bench()
    bench.lead()
    assert bench.produce(1).error is ErrorCode.none
    bench.is_certain = False
    answer = bench.produce(1)
    assert not answer.is_there
    fetched(bench, 2)
    assert answer.error is ErrorCode.none
    bench.lead(isr=(ONE,), partition_epoch=1)
    assert bench.produce(1).error is ErrorCode.none, "nobody else can have been elected"


def test_a_request_that_is_refused_as_a_whole_is_freed_without_the_collector() -> None:
    """Producers retry while the disk is nearly full: what they send must not pile up."""
    bench = Bench()
    bench.lead()
    bench.services.quotas.disk.update(0, 1_000, slow_below_bytes=0, refuse_below_bytes=100)
    records = memoryview(build_batch([Record(0, bench.clock.wall_ms(), None, b"value")]))
    gone = ref(records)
    request = ProduceRequest(None, 1, 1_000, [(NAME, [PartitionData(0, records)])])
    header = RequestHeader(0, VERSION, 7, None, 0)
    answer = Answer(produce(Context(header, Peer("c:1", Endpoint("seen", 1)), bench.services), request), header)
    assert answer.error is ErrorCode.kafka_storage_error
    del request, records
    assert gone() is None
