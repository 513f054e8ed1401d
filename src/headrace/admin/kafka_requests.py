"""Requests of Kafka's APIs as routes need them: built, sent to the leader or coordinator, and checked for errors.

A request that meets a change of leader is repeated for at most `PATIENCE_S`, so that a failover is a delay.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from kio.schema.errors import ErrorCode

from headrace.admin.errors import AdminError, check_kafka, kafka_error
from headrace.admin.routes import AdminRequest
from headrace.model.errors import NotLeader, PeerUnavailable
from headrace.model.ids import NO_LEADER, TopicName, by_topic
from headrace.model.image import TopicImage
from headrace.protocol.client_codec import request_schema
from headrace.protocol.codec import make
from headrace.protocol.units import from_ms

EARLIEST, LATEST = -2, -1
"""Special times of ListOffsets."""
PATIENCE_S = 5.0
_RETRY_EVERY_S = 0.25
_FETCH, _LIST_OFFSETS, _FIND_COORDINATOR = 1, 2, 10
_READ_COMMITTED = 1
_PASSING = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.leader_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.offset_not_available,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
    }
)

T = TypeVar("T")


async def ask(
    request: AdminRequest,
    key: int,
    version: int,
    build: Callable[[ModuleType], Any],
    *,
    broker_id: int | None = None,
    wait_s: float = 0.0,
) -> Any:
    """The answer of a broker, this one by default, to the request that `build` makes from its schema."""
    entity = build(request_schema(key, version))
    return await request.services.kafka.call(request.subject, entity, broker_id=broker_id, wait_s=wait_s)


async def patiently(attempt: Callable[[], Awaitable[T]], *, is_repeatable: bool = True) -> T:
    """Repeat an attempt while leaders or coordinators change. One that is not repeatable fails if it may be done."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + PATIENCE_S
    while True:
        try:
            return await attempt()
        except AdminError as error:
            if error.code not in _PASSING_NAMES or loop.time() >= deadline_s:
                raise
        except (NotLeader, PeerUnavailable) as error:
            if loop.time() >= deadline_s or (not is_repeatable and getattr(error, "may_have_arrived", False)):
                raise
        await asyncio.sleep(_RETRY_EVERY_S)


_PASSING_NAMES = frozenset(code.name for code in _PASSING)


def topic_image(request: AdminRequest, name: str) -> TopicImage:
    topic = request.services.metadata.image.topics.get(TopicName(name))
    if topic is None:
        raise AdminError(404, "unknown_topic", f"there is no topic {name}")
    return topic


def leader_of(request: AdminRequest, topic: str, partition: int) -> int:
    """The broker that leads a partition; raises `NotLeader` if none does."""
    partitions = topic_image(request, topic).partitions
    if not 0 <= partition < len(partitions):
        raise AdminError(404, "unknown_partition", f"{topic} has no partition {partition}, only {len(partitions)}")
    leader = partitions[partition].leader
    if leader == NO_LEADER or not request.services.metadata.image.is_alive(leader):
        raise NotLeader(f"partition {partition} of {topic} has no leader now: its brokers are down")
    return leader


# -- offsets


class OffsetFound(NamedTuple):
    offset: int
    """-1 if there is no record at or after the time."""
    timestamp_ms: int


Partition = tuple[str, int]


async def list_offsets(request: AdminRequest, times_ms: Mapping[Partition, int]) -> dict[Partition, OffsetFound]:
    """The first offset at or after a time, for each partition, from its leader; only committed records count."""
    found: dict[Partition, OffsetFound] = {}

    async def attempt() -> None:
        by_leader: defaultdict[int, dict[Partition, int]] = defaultdict(dict)
        for (topic, partition), time_ms in times_ms.items():
            if (topic, partition) not in found:
                by_leader[leader_of(request, topic, partition)][topic, partition] = time_ms
        results = await asyncio.gather(*(_offsets_of(request, leader, part) for leader, part in by_leader.items()))
        for result in results:
            found.update(result)

    await patiently(attempt)
    return found


async def _offsets_of(
    request: AdminRequest, leader: int, times_ms: Mapping[Partition, int]
) -> dict[Partition, OffsetFound]:
    def build(schema: ModuleType) -> Any:
        return make(
            schema.ListOffsetsRequest,
            replica_id=-1,
            isolation_level=_READ_COMMITTED,
            topics=tuple(
                make(
                    schema.ListOffsetsTopic,
                    name=topic,
                    partitions=tuple(
                        make(schema.ListOffsetsPartition, partition_index=index, timestamp=times_ms[topic, index])
                        for index in indexes
                    ),
                )
                for topic, indexes in by_topic(times_ms).items()
            ),
        )

    answer = await ask(request, _LIST_OFFSETS, 7, build, broker_id=leader)
    found = {}
    for topic in answer.topics:
        for part in topic.partitions:
            check_kafka(part.error_code)
            found[str(topic.name), int(part.partition_index)] = OffsetFound(int(part.offset), int(part.timestamp))
    return found


# -- records


class FetchedPart(NamedTuple):
    """Record batches of a partition."""

    records: bytes
    aborted: tuple[Any, ...]
    end_offset: int
    """The last stable offset: readers get no further."""
    start_offset: int
    """The first offset of the log."""


async def fetch(request: AdminRequest, topic: str, partition: int, offset: int, *, max_bytes: int) -> FetchedPart:
    """Fetch committed record batches from an offset on, from the leader. `AdminError` if the log does not have it."""

    async def attempt() -> FetchedPart:
        leader = leader_of(request, topic, partition)
        return (await _fetch(request, leader, topic, {partition: offset}, max_bytes, 0))[partition]

    return await patiently(attempt)


async def fetch_partitions(
    request: AdminRequest, topic: str, positions: Mapping[int, int], *, max_bytes: int, wait_ms: int
) -> dict[int, FetchedPart]:
    """Fetch from several partitions, from each leader at most `max_bytes`; waits for the first records.

    A partition that has nothing at its offset any more gives no records, and its first offset.
    """
    by_leader: defaultdict[int, dict[int, int]] = defaultdict(dict)
    for partition, offset in positions.items():
        by_leader[leader_of(request, topic, partition)][partition] = offset
    found = await asyncio.gather(
        *(
            _fetch(request, leader, topic, part, max_bytes, wait_ms, is_lenient=True)
            for leader, part in by_leader.items()
        )
    )
    return {index: part for parts in found for index, part in parts.items()}


async def _fetch(
    request: AdminRequest,
    leader: int,
    topic: str,
    positions: Mapping[int, int],
    max_bytes: int,
    wait_ms: int,
    *,
    is_lenient: bool = False,
) -> dict[int, FetchedPart]:
    def build(schema: ModuleType) -> Any:
        wanted: tuple[Any, ...] = tuple(
            make(schema.FetchPartition, partition=index, fetch_offset=offset, partition_max_bytes=max_bytes)
            for index, offset in positions.items()
        )
        return make(
            schema.FetchRequest,
            max_wait=from_ms(wait_ms),
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=_READ_COMMITTED,
            topics=(make(schema.FetchTopic, topic=topic, partitions=wanted),),
            forgotten_topics_data=(),
        )

    answer = await ask(request, _FETCH, 12, build, broker_id=leader, wait_s=wait_ms / 1000)
    check_kafka(answer.error_code)
    found = {}
    for part in answer.responses[0].partitions if answer.responses else ():
        if not (is_lenient and part.error_code is ErrorCode.offset_out_of_range):
            check_kafka(part.error_code)
        found[int(part.partition_index)] = FetchedPart(
            bytes(part.records or b""),
            tuple(part.aborted_transactions or ()),
            int(part.last_stable_offset),
            int(part.log_start_offset),
        )
    return found


# -- coordinators

GROUP, TRANSACTION, SHARE = 0, 1, 2
"""Key types of FindCoordinator."""


async def coordinated(
    request: AdminRequest, kind: int, name: str, key: int, version: int, build: Callable[[ModuleType], Any]
) -> Any:
    """The answer of the coordinator of a group or of a transactional id."""
    return await ask(request, key, version, build, broker_id=await coordinator_of(request, kind, name))


async def coordinator_of(request: AdminRequest, kind: int, name: str) -> int:
    def build(schema: ModuleType) -> Any:
        return make(schema.FindCoordinatorRequest, key_type=kind, coordinator_keys=(name,))

    (found,) = (await ask(request, _FIND_COORDINATOR, 4, build)).coordinators
    if found.error_code is not ErrorCode.none:
        raise kafka_error(found.error_code, found.error_message)
    return int(found.node_id)
