"""Offsets and records: ListOffsets, Fetch, and the offsets that groups have committed."""

from collections.abc import Mapping
from types import ModuleType
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from headrace.model.data_keys import unreadable_text
from headrace.model.ids import by_topic
from headrace.protocol.codec import make
from headrace.protocol.fetch_response import FetchedRecords, read_fetch_response
from headrace.protocol.group_offsets import offset_commit
from headrace.protocol.units import from_ms
from headrace.wire.connection import WireConnection
from headrace.wire.errors import WireError, check
from headrace.wire.router import GROUP, LeaderRouter, Partition

EARLIEST, LATEST = -2, -1
"""Special times of ListOffsets: the log start offset, and the offset of the next record."""

READ_UNCOMMITTED, READ_COMMITTED = 0, 1

_FETCH, _LIST_OFFSETS, _OFFSET_COMMIT, _OFFSET_FETCH = 1, 2, 8, 9
_FETCH_VERSIONS = (7, 12)
_LIST_OFFSETS_VERSION = 7
_OFFSET_COMMIT_VERSION = 9
_OFFSET_FETCH_VERSION = 7
_NO_REPLICA = -1


class OffsetAt(NamedTuple):
    offset: int
    """-1 if there is no record at or after the requested time."""
    timestamp_ms: int
    """The timestamp of the record at that offset; -1 for the special times."""


def list_offsets(router: LeaderRouter, times_ms: Mapping[Partition, int], isolation: int) -> dict[Partition, OffsetAt]:
    """The first offset at or after a time, for each partition."""
    found: dict[Partition, OffsetAt] = {}

    def attempt() -> None:
        missing = {partition: time_ms for partition, time_ms in times_ms.items() if partition not in found}
        for address, part in router.by_leader(missing).items():
            with router.using(address) as connection:
                found.update(_ask_offsets(connection, part, isolation))

    router.patiently(attempt)
    return found


def _ask_offsets(
    connection: WireConnection, times_ms: Mapping[Partition, int], isolation: int
) -> dict[Partition, OffsetAt]:
    def build(schema: ModuleType) -> Any:
        return make(
            schema.ListOffsetsRequest,
            replica_id=_NO_REPLICA,
            isolation_level=isolation,
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

    answer = connection.call(_LIST_OFFSETS, _LIST_OFFSETS_VERSION, build, lowest=2)
    found = {}
    for topic in answer.topics:
        for part in topic.partitions:
            check(f"looking up offsets of {topic.name}-{part.partition_index}", part.error_code)
            found[topic.name, part.partition_index] = OffsetAt(part.offset, part.timestamp)
    return found


def fetch(
    router: LeaderRouter,
    partition: Partition,
    offset: int,
    *,
    max_bytes: int,
    max_wait_ms: int,
    min_bytes: int,
    isolation: int,
) -> FetchedRecords:
    """Fetch record batches from an offset on, as bytes."""

    def attempt() -> FetchedRecords:
        with router.using(router.leader(partition)) as connection:
            send_fetch(
                connection,
                partition,
                offset,
                max_bytes=max_bytes,
                max_wait_ms=max_wait_ms,
                min_bytes=min_bytes,
                isolation=isolation,
            )
            return receive_fetch(connection, partition, offset)

    return router.patiently(attempt)


def send_fetch(
    connection: WireConnection,
    partition: Partition,
    offset: int,
    *,
    max_bytes: int,
    max_wait_ms: int,
    min_bytes: int,
    isolation: int,
) -> None:
    """Send a Fetch request; `receive_fetch` waits for its response."""

    def build(schema: ModuleType) -> Any:
        wanted: Any = make(
            schema.FetchPartition, partition=partition[1], fetch_offset=offset, partition_max_bytes=max_bytes
        )
        return make(
            schema.FetchRequest,
            replica_id=_NO_REPLICA,
            max_wait=from_ms(max_wait_ms),
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=isolation,
            topics=(make(schema.FetchTopic, topic=partition[0], partitions=(wanted,)),),
            forgotten_topics_data=(),
            rack_id="",
        )

    lowest, highest = _FETCH_VERSIONS
    connection.ask(_FETCH, highest, build, lowest=lowest, wait_s=max_wait_ms / 1000)


def receive_fetch(connection: WireConnection, partition: Partition, offset: int) -> FetchedRecords:
    topic, index = partition
    answer = connection.receive()
    what = f"fetching {topic}-{index} from offset {offset}"
    found = read_fetch_response(answer.version, answer.frame, answer.body_at)
    check(what, found.error_code)
    for part in found.parts:
        if (part.topic, part.partition) == partition:
            check(what, part.error_code, unreadable_text(part.error_code, topic))
            return part
    raise WireError(f"{what} failed: the answer says nothing of that partition")


def commit_offsets(router: LeaderRouter, group: str, offsets: Mapping[Partition, int], metadata: str) -> None:
    """Commit offsets for a group without members."""

    def build(schema: ModuleType) -> Any:
        return offset_commit(schema, group, offsets, metadata)

    def attempt() -> None:
        answer = router.coordinated(GROUP, group, _OFFSET_COMMIT, _OFFSET_COMMIT_VERSION, build, lowest=5)
        for topic in answer.topics:
            for part in topic.partitions:
                _check_coordinator(router, group, part.error_code, f"{topic.name}-{part.partition_index}")

    if offsets:
        router.patiently(attempt)


def committed_offsets(router: LeaderRouter, group: str) -> dict[Partition, int]:
    """The committed offsets of a group."""

    def build(schema: ModuleType) -> Any:
        return make(schema.OffsetFetchRequest, group_id=group, topics=None, require_stable=True)

    def attempt() -> dict[Partition, int]:
        answer = router.coordinated(GROUP, group, _OFFSET_FETCH, _OFFSET_FETCH_VERSION, build, lowest=2)
        _check_coordinator(router, group, answer.error_code, "")
        found = {}
        for topic in answer.topics:
            for part in topic.partitions:
                _check_coordinator(router, group, part.error_code, f"{topic.name}-{part.partition_index}")
                if part.committed_offset >= 0:
                    found[topic.name, part.partition_index] = part.committed_offset
        return found

    return router.patiently(attempt)


def _check_coordinator(router: LeaderRouter, group: str, code: ErrorCode, where: str) -> None:
    if code is not ErrorCode.none:
        router.forget_coordinator(GROUP, group)
    check(f"the offsets of group {group} {where}".rstrip(), code)
