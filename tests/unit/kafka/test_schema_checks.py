"""What becomes of a request that waits for the check by schemas: partitions change hands, or its turn does not come."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.config.topic import topic_settings
from headrace.kafka import schema_checks as module
from headrace.kafka.schema_checks import SchemaChecks
from headrace.model.errors import InvalidRecord, NotLeader, SchemasUnavailable
from headrace.protocol.produce_request import PartitionData, ProduceRequest
from headrace.records.builder import build_batch
from headrace.records.compression import Codec
from headrace.records.reader import Record


def place(index: int, *, is_leader: bool = True) -> SimpleNamespace:
    settings = topic_settings({"value.schema.validation": "id"})
    return SimpleNamespace(topic="t", index=index, settings=settings, is_leader=is_leader, traffic=None)


def test_a_partition_that_is_led_only_after_the_check_is_not_written_unchecked() -> None:
    led, new = place(0), place(1, is_leader=False)
    table = SimpleNamespace(get=lambda topic, index: (led, new)[index])
    batch = memoryview(build_batch([Record(0, 1, None, b"text")]))
    request = ProduceRequest(None, -1, 1000, [("t", [PartitionData(0, batch), PartitionData(1, batch)])])

    async def test(workers: ThreadPoolExecutor) -> None:
        checks = SchemaChecks(cast(Any, None), cast(Any, table), cast(Any, None), workers)
        batches = checks.concerned(request)
        assert [each.partition.index for each in batches] == [0]
        waiting = asyncio.ensure_future(checks.refused(request, batches))
        new.is_leader = True
        refused = await waiting
        assert {place: type(error) for place, error in refused.items()} == {
            ("t", 0): InvalidRecord,
            ("t", 1): NotLeader,
        }

    with ThreadPoolExecutor(1) as workers:
        asyncio.run(test(workers))


def test_a_batch_does_not_wait_for_its_turn_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_WAIT_S", 0.05)
    batch = memoryview(build_batch([Record(0, 1, None, b"text")], codec=Codec.GZIP))
    request = ProduceRequest(None, -1, 1000, [("t", [PartitionData(index, batch) for index in range(3)])])
    table = SimpleNamespace(get=lambda topic, index: place(index))
    goes_on = Event()

    async def test(workers: ThreadPoolExecutor) -> None:
        checks = SchemaChecks(cast(Any, None), cast(Any, table), cast(Any, None), workers)
        first, second, third = checks.concerned(request)
        workers.submit(goes_on.wait)
        waiting = asyncio.ensure_future(checks.refused(request, [first, second, third]))
        await asyncio.sleep(0.2)
        goes_on.set()
        refused = await waiting
        assert [type(refused["t", index]) for index in range(3)] == [InvalidRecord, InvalidRecord, SchemasUnavailable]

    with ThreadPoolExecutor(1) as workers:
        asyncio.run(test(workers))
