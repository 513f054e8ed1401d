"""What the odd requests are about: the topics and ids that a broker has, and those that it has not."""

from typing import Any, NamedTuple
from uuid import UUID

TOPIC, COMPACTED = "odd", "odd-compacted"
NOWHERE = UUID("00112233-4455-6677-8899-aabbccddeeff")
BROKER_ID = 1
NO_PRODUCER = {"transactional_id": None, "producer_id": -1, "producer_epoch": -1, "transaction_timeout": 1000}


class Case(NamedTuple):
    name: str
    key: int
    version: int
    body: dict[str, Any]


def deletion(topic: str, partition: int, offset: int) -> dict[str, Any]:
    wanted = [{"partition_index": partition, "offset": offset}]
    return {"topics": [{"name": topic, "partitions": wanted}], "timeout": 10_000}
