"""Fetch where reading does not go as it should."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader

from headrace.kafka.cold_reads import ColdReads
from headrace.kafka.dispatch import Context, Peer
from headrace.kafka.fetch_sessions import FetchSessions
from headrace.kafka.handlers.fetch import fetch
from headrace.kafka.ordered_reads import OrderedReads
from headrace.model.ids import LeaderEpoch, PartitionIndex, TopicId, TopicName
from headrace.model.image import Endpoint
from headrace.protocol.codec import RequestHeader
from headrace.replication.partition import Partition
from headrace.replication.partitions import PartitionTable
from headrace.runtime.clock import ManualClock
from headrace.runtime.deferred import Deferred
from headrace.security.security import Security
from headrace.testing.disks import ModelFile
from headrace.testing.logs import LogBench

VERSION = 11


def request_of_first_batch() -> Any:
    part = SimpleNamespace(partition=0, fetch_offset=0, partition_max_bytes=1000, current_leader_epoch=-1)
    return SimpleNamespace(
        replica_id=-1,
        max_wait=timedelta(0),
        min_bytes=1,
        max_bytes=1000,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=(SimpleNamespace(topic="orders", partitions=(part,)),),
        forgotten_topics_data=(),
    )


def context_of_cold_batch(workers: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch) -> Context:
    """A broker with one partition, whose batch is not in the page cache."""
    bench = LogBench()
    bench.append(b"x" * 60)
    bench.flush()
    table = PartitionTable()
    table.add(
        Partition(
            TopicName("orders"),
            PartitionIndex(0),
            TopicId(UUID(int=7)),
            bench.log,
            LeaderEpoch(0),
            appended=lambda _: None,
        )
    )
    monkeypatch.setattr(ModelFile, "read_cached", lambda *_: None)
    monkeypatch.setattr(ModelFile, "is_cached", lambda *_: False)
    services: Any = SimpleNamespace(
        security=Security(),
        clock=ManualClock(),
        partitions=table,
        workers=workers,
        cold_reads=(cold_reads := ColdReads(workers, 1)),
        ordered_reads=OrderedReads(cold_reads),
        fetch_sessions=FetchSessions(10, lambda: 1),
        settings=SimpleNamespace(fetch_max_bytes=1000),
        meter=None,
    )
    return Context(RequestHeader(1, VERSION, 7, None, 0), Peer("client", Endpoint("h", 1)), services)


@pytest.mark.parametrize("error", [OSError("played"), MemoryError("played"), RuntimeError("played")])
def test_a_cold_read_that_fails_is_answered(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it fails with: a connection gets its answers in order, so none would follow."""

    def read(*_: Any) -> bytes:
        raise error

    async def run(workers: ThreadPoolExecutor) -> bytes:
        context = context_of_cold_batch(workers, monkeypatch)
        monkeypatch.setattr(ModelFile, "read", read)
        waiting = fetch(context, request_of_first_batch())
        assert isinstance(waiting, Deferred)
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        waiting.then(answered.set_result)
        return b"".join((await asyncio.wait_for(answered, 60)).buffers)

    with ThreadPoolExecutor(1) as workers:
        data = asyncio.run(run(workers))
    response: Any = entity_reader(load_response_schema(1, VERSION))(data, 4)[0]
    assert response.responses[0].partitions[0].error_code is not ErrorCode.none


def test_a_cold_read_for_a_client_that_is_gone_leaves_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(workers: ThreadPoolExecutor) -> None:
        context = context_of_cold_batch(workers, monkeypatch)
        gate, reads = threading.Event(), context.services.cold_reads
        reads.run(lambda: gate.wait(60), lambda _: None, is_follower=False)
        try:
            waiting = fetch(context, request_of_first_batch())
            assert isinstance(waiting, Deferred)
            assert reads.waiting_count == 1
            waiting.hurry()
            assert reads.waiting_count == 0
            assert waiting.done
        finally:
            gate.set()

    with ThreadPoolExecutor(1) as workers:
        asyncio.run(run(workers))
