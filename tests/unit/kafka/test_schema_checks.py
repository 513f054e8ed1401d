"""What becomes of a request that waits for the check by schemas: partitions change hands, or its turn does not come."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.config.topic import topic_settings
from headrace.kafka import schema_checks as module
from headrace.kafka.handlers import produce as produce_module
from headrace.kafka.schema_checks import SchemaChecks
from headrace.model.errors import InvalidRecord, NotLeader, SchemasUnavailable
from headrace.protocol.produce_request import PartitionData, ProduceRequest
from headrace.records.builder import build_batch
from headrace.records.compression import Codec
from headrace.records.reader import Record

IMAGE = SimpleNamespace(topics={"t": SimpleNamespace(settings={"value.schema.validation": "id"})})
METADATA = cast(Any, SimpleNamespace(image=IMAGE))


def place(index: int, *, is_leader: bool = True) -> SimpleNamespace:
    settings = topic_settings({"value.schema.validation": "id"})
    return SimpleNamespace(topic="t", index=index, settings=settings, is_leader=is_leader, traffic=None)


def test_a_partition_that_is_led_only_after_the_check_is_not_written_unchecked() -> None:
    led, new = place(0), place(1, is_leader=False)
    table = SimpleNamespace(get=lambda topic, index: (led, new)[index])
    batch = memoryview(build_batch([Record(0, 1, None, b"text")]))
    request = ProduceRequest(None, -1, 1000, [("t", [PartitionData(0, batch), PartitionData(1, batch)])])

    async def test(workers: ThreadPoolExecutor) -> None:
        checks = SchemaChecks(METADATA, cast(Any, table), cast(Any, None), workers)
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


@pytest.mark.parametrize("is_transactional", [False, True])
def test_a_partition_that_is_led_only_after_another_wait_is_not_written_unchecked(
    monkeypatch: pytest.MonkeyPatch, is_transactional: bool
) -> None:
    """Recompression and the coordinator of a transaction are waited for after the check."""
    new = place(0, is_leader=False)
    table = SimpleNamespace(get=lambda topic, index: new)
    request = ProduceRequest(
        "id" if is_transactional else None,
        -1,
        1000,
        [("t", [PartitionData(0, memoryview(build_batch([Record(0, 1, None, b"text")])))])],
    )

    async def recompress(request: ProduceRequest) -> Any:
        new.is_leader = True
        return request, {}

    @asynccontextmanager
    async def joined(*_: Any, **__: Any) -> AsyncIterator[dict[Any, Any]]:
        new.is_leader = True
        yield {}

    def append(_: Any, __: Any, refused: Any, ___: Any = None) -> Any:
        return refused

    monkeypatch.setattr(produce_module, "_produce", append)
    monkeypatch.setattr(produce_module, "joined", joined)

    async def test(workers: ThreadPoolExecutor) -> None:
        services = SimpleNamespace(
            schema_checks=SchemaChecks(METADATA, cast(Any, table), cast(Any, None), workers),
            recompressor=SimpleNamespace(recompress=recompress),
        )
        ctx = cast(Any, SimpleNamespace(services=services, header=SimpleNamespace(api_version=12)))
        if is_transactional:
            refused = await produce_module._produce_when_joined(ctx, request, {}, None, ())
        else:
            refused = await produce_module._produce_recompressed(ctx, request, None, ())
        assert {each: type(error) for each, error in cast(Any, refused).items()} == {("t", 0): NotLeader}

    with ThreadPoolExecutor(1) as workers:
        asyncio.run(test(workers))


def test_a_batch_does_not_wait_for_its_turn_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_WAIT_S", 0.05)
    batch = memoryview(build_batch([Record(0, 1, None, b"text")], codec=Codec.GZIP))
    request = ProduceRequest(None, -1, 1000, [("t", [PartitionData(index, batch) for index in range(3)])])
    table = SimpleNamespace(get=lambda topic, index: place(index))
    goes_on = Event()

    async def test(workers: ThreadPoolExecutor) -> None:
        checks = SchemaChecks(METADATA, cast(Any, table), cast(Any, None), workers)
        first, second, third = checks.concerned(request)
        workers.submit(goes_on.wait)
        waiting = asyncio.ensure_future(checks.refused(request, [first, second, third]))
        await asyncio.sleep(0.2)
        goes_on.set()
        refused = await waiting
        assert [type(refused["t", index]) for index in range(3)] == [InvalidRecord, InvalidRecord, SchemasUnavailable]

    with ThreadPoolExecutor(1) as workers:
        asyncio.run(test(workers))
