"""Odd requests of producers and consumers."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from kio.static.primitive import i64
from odd_case import COMPACTED, NO_PRODUCER, NOWHERE, TOPIC, Case
from tests.interop import batches, raw_client


def offsets() -> Iterator[Case]:
    def one(what: str, topic: str, *partitions: tuple[int, int], version: int = 10, **fields: Any) -> Case:
        wanted = [
            {"partition_index": at, "timestamp": i64(when), "current_leader_epoch": fields.get("epoch", -1)}
            for at, when in partitions
        ]
        body = {"replica_id": fields.get("replica_id", -1), "topics": [{"name": topic, "partitions": wanted}]}
        return Case(f"ListOffsets: {what}", raw_client.LIST_OFFSETS, version, body)

    yield one("a topic there is not", "nowhere", (0, -1))
    yield one("a partition there is not", TOPIC, (9, -1))
    yield one("a negative partition", TOPIC, (-1, -1))
    yield one("a partition twice", TOPIC, (0, -1), (0, -2))
    yield one("a special time there is not", TOPIC, (0, -9))
    yield one("as a replica", TOPIC, (0, -1), replica_id=5)
    yield one("as the debugging consumer", TOPIC, (0, -1), replica_id=-2)
    yield one("an epoch that is ahead", TOPIC, (0, -1), epoch=5)
    for special in (-1, -2, -3, 0):
        yield one(f"time {special} of an empty partition", TOPIC, (1, special))
    for version, special in ((6, -3), (7, -4), (8, -5)):
        yield one(f"special time {special} in version {version}", TOPIC, (0, special), version=version)

    def epochs(what: str, topic: str, at: int, epoch: int, current: int = -1) -> Case:
        wanted = [{"partition": at, "leader_epoch": epoch, "current_leader_epoch": current}]
        body = {"replica_id": -1, "topics": [{"topic": topic, "partitions": wanted}]}
        return Case(f"OffsetForLeaderEpoch: {what}", raw_client.OFFSET_FOR_LEADER_EPOCH, 4, body)

    yield epochs("a topic there is not", "nowhere", 0, 0)
    yield epochs("a partition there is not", TOPIC, 9, 0)
    yield epochs("a later epoch", TOPIC, 0, 5)
    yield epochs("epoch -1", TOPIC, 0, -1)
    yield epochs("a current epoch that is ahead", TOPIC, 0, 0, 5)
    yield epochs("an epoch of an empty log", TOPIC, 1, 0)


def produce() -> Iterator[Case]:
    good = batches.batch([b"x"])

    def one(what: str, records: bytes | None = good, topic: str = TOPIC, at: int = 1, **fields: Any) -> Case:
        body = raw_client.produce_body(topic, records, partition=at, acks=fields.pop("acks", -1)) | fields
        return Case(f"Produce: {what}", raw_client.PRODUCE, 9, body)

    for acks in (2, -2, 32767):
        yield one(f"acks={acks}", acks=acks)
    yield one("a topic there is not", topic="nowhere")
    yield one("a name that cannot be", topic="a b")
    yield one("a partition there is not", at=9)
    yield one("a negative partition", at=-1)
    yield one("no records", None)
    yield one("empty records", b"")
    yield one("a batch without records", batches.batch([]))
    yield one("a wrong checksum", batches.batch([b"x"], crc=1))
    yield one("an unknown codec", batches.batch([b"x"], attributes=7))
    yield one("log-append time", batches.batch([b"x"], attributes=batches.LOG_APPEND_TIME))
    yield one("a control batch", batches.batch([b"x"], attributes=0x20))
    yield one("a batch cut short", good[:-1])
    yield one("a wrong count", batches.batch([b"x"], count=2))
    yield one("a wrong last offset", batches.batch([b"x"], last_offset_delta=5))
    yield one("two batches", good + good)
    yield one("too large", batches.batch([b"x" * 1_100_000]))
    yield one("no key on a compacted topic", topic=COMPACTED, at=0)
    yield one("an idempotent batch without an epoch", batches.batch([b"x"], producer_id=5, base_sequence=0))
    yield one("an idempotent batch without a sequence", batches.batch([b"x"], producer_id=5, producer_epoch=0))
    yield one("a timestamp in two hours", batches.batch([b"x"], timestamp_ms=batches.now_ms() + 7_200_000))
    body = raw_client.produce_body(TOPIC, good, partition=1)
    body["topic_data"][0]["partition_data"] *= 2
    yield Case("Produce: a partition twice", raw_client.PRODUCE, 9, body)
    body = raw_client.produce_body("", good, topic_id=NOWHERE)
    yield Case("Produce v13: an id there is not", raw_client.PRODUCE, 13, body)


def fetch(topic_id: UUID) -> Iterator[Case]:
    def one(what: str, topic: str | UUID = TOPIC, offset: int = 2, **fields: Any) -> Case:
        body = raw_client.fetch_body(topic, offset, **fields)
        return Case(f"Fetch: {what}", raw_client.FETCH, 12 if isinstance(topic, str) else 13, body)

    for offset in (-1, 1, 7, 8):
        yield one(f"offset {offset} of 2 to 7", offset=offset)
    yield one("a topic there is not", "nowhere")
    yield one("an id there is not", NOWHERE)
    yield one("a partition there is not", topic_id, partition=9)
    yield one("a negative partition", partition=-1)
    yield one("as a replica there is not", replica_id=5)
    yield one("max_bytes of 0", max_bytes=0)
    yield one("a negative max_bytes", max_bytes=-1)
    yield one("a negative partition_max_bytes", partition_max_bytes=-1)
    yield one("an isolation level there is not", isolation_level=9)
    for what, epoch in (("an epoch that is ahead", 5), ("an epoch of -2", -2)):
        body = raw_client.fetch_body(TOPIC, 2)
        body["topics"][0]["partitions"][0]["current_leader_epoch"] = epoch
        yield Case(f"Fetch: {what}", raw_client.FETCH, 12, body)
    for what, session_id, session_epoch in (("a session there is not", 77, 3), ("a session to open with an id", 77, 0)):
        body = raw_client.fetch_body(TOPIC, 2, session_id=session_id, session_epoch=session_epoch)
        yield Case(f"Fetch: {what}", raw_client.FETCH, 12, body)


def producer_ids() -> Iterator[Case]:
    def one(what: str, **fields: Any) -> Case:
        return Case(f"InitProducerId: {what}", raw_client.INIT_PRODUCER_ID, 4, NO_PRODUCER | fields)

    yield one("an empty transactional id", transactional_id="")
    yield one("an id without an epoch", producer_id=5)
    yield one("an epoch without an id", producer_epoch=5)
    yield one("a negative id", producer_id=-2, producer_epoch=0)
    yield one("an id that nobody has", producer_id=123456, producer_epoch=0)
    yield one("a timeout of 0", transaction_timeout=0)
    yield one("a negative timeout", transaction_timeout=-1)
    yield Case("FindCoordinator: a key type there is not", 10, 4, {"key_type": 9, "coordinator_keys": ["g"]})
    yield Case("FindCoordinator: no keys", 10, 4, {"key_type": 0, "coordinator_keys": []})
    yield Case("ApiVersions: an empty name of the client", 18, 3, {"client_software_name": ""})
