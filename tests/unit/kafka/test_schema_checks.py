"""What is checked by schemas when partitions change hands while a request waits."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

from headrace.config.topic import topic_settings
from headrace.kafka.schema_checks import SchemaChecks
from headrace.model.errors import InvalidRecord, NotLeader
from headrace.protocol.produce_request import PartitionData, ProduceRequest
from headrace.records.builder import build_batch
from headrace.records.reader import Record


def test_a_partition_that_is_led_only_after_the_check_is_not_written_unchecked() -> None:
    settings = topic_settings({"value.schema.validation": "id"})
    led, new = (
        SimpleNamespace(topic="t", index=index, settings=settings, is_leader=not index, traffic=None)
        for index in range(2)
    )
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
