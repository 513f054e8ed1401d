"""Reads the records of a small compacted topic of a source cluster, from its beginning and then what is new.

It is read as a read_committed consumer does. A reader that has not read for a while begins again: tombstones may have
been removed meanwhile. So does one whose topic was created again, or has become shorter.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode

from headrace.mirror.source import CALL_TIMEOUT_S, SourceCluster
from headrace.model.errors import PeerUnavailable, ProtocolError, RecordError, SourceUnavailable
from headrace.model.ids import NO_LEADER, BrokerId
from headrace.protocol.client_codec import request_schema
from headrace.protocol.codec import make
from headrace.protocol.fetch_request import FETCH_KEY, LINK_FETCH_VERSION, WantedByReplica, write_link_fetch
from headrace.protocol.fetch_response import FetchedRecords, read_fetch_response
from headrace.records.fetched import next_offset, read_records
from headrace.runtime.clock import Clock

MAX_FETCH_BYTES = 4 * 1024 * 1024
MAX_DECODED_BYTES = 64 * 1024 * 1024
"""Of one answer, decompressed."""
MAX_READ_BYTES = 512 * 1024 * 1024
"""Of a topic from its beginning, as it is stored: it is compacted at the source."""
_BEGIN_AGAIN_AFTER_MS = 10 * 60 * 1000
"""Tombstones stay for a day by default (`delete.retention.ms`)."""
_LANE = "registry"
_LIST_OFFSETS, _LIST_OFFSETS_VERSION = 2, 7
_EARLIEST = -2
_PARTITION = 0
_ANY_EPOCH = -1
_OFFSET_OUT_OF_RANGE = int(ErrorCode.offset_out_of_range)
_NO_SESSION = -1

KeyAndValue = tuple[bytes | None, bytes | None]


class ReadPosition(NamedTuple):
    topic_id: UUID
    offset: int
    read_bytes: int
    at_ms: float


class SourceTopicReader:
    """Reads the only partition of a topic; `replay` gets its records in their order, in a worker thread."""

    def __init__(self, source: SourceCluster, topic: str, clock: Clock) -> None:
        self.source = source
        self.topic = topic
        self._clock = clock
        self._position: ReadPosition | None = None

    @property
    def has_begun(self) -> bool:
        """True if what is new is read next, not everything from the beginning."""
        return self._position is not None

    @property
    def topic_id(self) -> UUID:
        """The id of the topic that was read."""
        assert self._position is not None
        return self._position.topic_id

    async def read(self, begin: Callable[[], None], replay: Callable[[Sequence[KeyAndValue]], None]) -> None:
        """Read up to the end that the topic has now. `begin` is called if all is read from the beginning.

        Raises `SourceUnavailable` with the reason; what was read before is not read again then.
        """
        try:
            await self._read(begin, replay)
        except (PeerUnavailable, ProtocolError) as error:
            raise SourceUnavailable(f"the source cluster of the link {self.source.link.name}: {error}") from None

    async def _read(self, begin: Callable[[], None], replay: Callable[[Sequence[KeyAndValue]], None]) -> None:
        position = self._current()
        if position is None:
            position = await self._begin()
            begin()
        end: int | None = None
        while end is None or position.offset < end:
            part, records, after = await self._fetch(position)
            if part.error_code == _OFFSET_OUT_OF_RANGE:
                self._position = None
                raise SourceUnavailable(f"{self.topic} of the source has become shorter: it is read again")
            if part.error_code:
                raise SourceUnavailable(_refusal(self.topic, part.error_code))
            end = part.last_stable_offset if end is None else end
            if after == position.offset < end:
                raise SourceUnavailable(f"the source answers no record of {self.topic} at offset {position.offset}")
            size = position.read_bytes + len(part.records)
            if size > MAX_READ_BYTES:
                raise SourceUnavailable(
                    f"{self.topic} of the source has more than {MAX_READ_BYTES // 2**20} MiB: is it compacted?"
                )
            try:
                await asyncio.to_thread(replay, records)
            except BaseException:
                self._position = None
                raise
            position = self._position = ReadPosition(position.topic_id, after, size, self._clock.monotonic_ms())

    def _current(self) -> ReadPosition | None:
        """Where to read on; None to begin again."""
        position, topic = self._position, self.source.topics.get(self.topic)
        if topic is None:
            raise SourceUnavailable(
                f"the source has no topic {self.topic}, or does not let the link's user read it: allow READ on it"
            )
        if len(topic.partitions) != 1:
            raise SourceUnavailable(f"{self.topic} of the source has {len(topic.partitions)} partitions, not one")
        if position is None or position.topic_id != topic.topic_id:
            return None
        return None if self._clock.monotonic_ms() - position.at_ms > _BEGIN_AGAIN_AFTER_MS else position

    async def _begin(self) -> ReadPosition:
        schema = request_schema(_LIST_OFFSETS, _LIST_OFFSETS_VERSION)
        part: Any = make(
            schema.ListOffsetsPartition,
            partition_index=_PARTITION,
            current_leader_epoch=_ANY_EPOCH,
            timestamp=_EARLIEST,
        )
        topic: Any = make(schema.ListOffsetsTopic, name=self.topic, partitions=(part,))
        request: Any = make(schema.ListOffsetsRequest, replica_id=-1, isolation_level=0, topics=(topic,))
        answer = await self.source.peers.call(self._leader(), request, lane=_LANE, timeout_s=CALL_TIMEOUT_S)
        found = [part for topic in answer.topics for part in topic.partitions]
        if len(found) != 1 or found[0].error_code is not ErrorCode.none:
            raise SourceUnavailable(_refusal(self.topic, int(found[0].error_code) if found else -1))
        topic_id = self.source.topics[self.topic].topic_id
        return ReadPosition(topic_id, int(found[0].offset), 0, self._clock.monotonic_ms())

    async def _fetch(self, position: ReadPosition) -> tuple[FetchedRecords, list[KeyAndValue], int]:
        """The answer, its records, and the offset after them."""
        wanted = WantedByReplica(_PARTITION, _ANY_EPOCH, position.offset, _ANY_EPOCH, -1, MAX_FETCH_BYTES)

        def write(correlation_id: int) -> bytes:
            return write_link_fetch(
                correlation_id,
                f"link-{self.source.link.name}",
                max_wait_ms=0,
                min_bytes=0,
                max_bytes=MAX_FETCH_BYTES,
                session_id=0,
                session_epoch=_NO_SESSION,
                wanted={position.topic_id: [wanted]},
                forgotten={},
            )

        link = self.source.peers.link(self._leader(), _LANE)
        response = await link.exchange(FETCH_KEY, LINK_FETCH_VERSION, write, CALL_TIMEOUT_S)
        try:
            answer = read_fetch_response(LINK_FETCH_VERSION, response.frame, response.body_at)
            if answer.error_code or len(answer.parts) != 1:
                raise SourceUnavailable(_refusal(self.topic, answer.error_code))
            part = answer.parts[0]
            # Copied: the frame is used again.
            part = part._replace(records=memoryview(bytes(part.records)))
        finally:
            link.release(response.frame)
        after = next_offset(part.records, position.offset)
        return part, await asyncio.to_thread(_decoded, part, position.offset), after

    def _leader(self) -> BrokerId:
        topic = self.source.topics.get(self.topic)
        leader = NO_LEADER if topic is None or not topic.partitions else topic.partitions[_PARTITION].leader
        if leader == NO_LEADER:
            raise SourceUnavailable(f"no broker of the source leads {self.topic}")
        return leader


def _decoded(part: FetchedRecords, first_offset: int) -> list[KeyAndValue]:
    found: list[KeyAndValue] = []
    size = 0
    try:
        for record in read_records(part.records, first_offset=first_offset, aborted=part.aborted):
            size += len(record.key or b"") + len(record.value or b"")
            if size > MAX_DECODED_BYTES:
                raise SourceUnavailable(
                    f"records of the source have more than {MAX_DECODED_BYTES:,} bytes decompressed"
                )
            found.append((record.key, record.value))
        return found
    except RecordError as error:
        raise SourceUnavailable(f"records of the source cannot be read: {error}") from None


def _refusal(topic: str, code: int) -> str:
    try:
        name = ErrorCode(code).name
    except ValueError:
        name = str(code)
    if code == ErrorCode.topic_authorization_failed:
        return f"the source does not let the link's user read {topic}: allow READ on it"
    return f"the source refuses {topic}: {name}"
