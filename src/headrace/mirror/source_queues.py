"""The state of a queue of a source cluster, and the ends of other queues there. The source may be anyone's: answers are
bounded."""

from collections.abc import Callable, Collection
from typing import Any

from kio.schema.errors import ErrorCode

from headrace.mirror.source import CALL_TIMEOUT_S, SourceCluster, SourceTopic
from headrace.model.errors import HeadraceError, PeerUnavailable, ProtocolError, SourceUnavailable
from headrace.model.ids import NO_LEADER
from headrace.model.queue_state import OWN_KEYS, StateChangesPage, StatePosition
from headrace.protocol.client_codec import request_schema
from headrace.protocol.codec import make
from headrace.replication.calls import ENVELOPE, VERSION, encode_call, read_answer
from headrace.replication.link_calls import AskQueueState

MAX_ENTRIES = 1_000_000
MAX_STATE_BYTES = 256 * 1024 * 1024
"""Of the state of one queue."""
MAX_ANSWER_BYTES = 1024 * 1024
_MAX_PAGE_BYTES = 8 * 1024 * 1024
_LANE = "queue-state"
_LIST_OFFSETS, _LIST_OFFSETS_VERSION = 2, 7
_LATEST = -1


class SourceQueueState:
    """The entries of the state of one queue, as its source has them."""

    def __init__(self) -> None:
        self.entries: dict[bytes, bytes] = {}
        """A state that the queue was in, after a `read` that has returned."""
        self._position = StatePosition()
        self._fence = -1, 0
        self._size_bytes = 0

    @property
    def epoch(self) -> int:
        """The leader epoch of the queue at the source that the entries are of; -1 before the first one."""
        return self._fence[0]

    async def read(self, source: SourceCluster, topic: SourceTopic, check: Callable[[bytes, bytes], None]) -> bool:
        """Bring the entries up to date; True if any has changed. Raises an error, that of `check` for an entry that
        cannot be read here included, and then begins again the next time.

        A broker that was replaced as the leader of the queue, and does not know it yet, is not believed.
        """
        is_changed = False
        try:
            while True:
                page = await _changes(source, topic, self._position)
                if (page.epoch, page.term) < self._fence:
                    raise SourceUnavailable(f"a former leader of {topic.name} has answered")
                self._fence = page.epoch, page.term
                is_changed |= page.is_reset or bool(page.entries)
                self._take(topic.name, page, check)
                if page.is_last:
                    return is_changed
        except BaseException:
            self._position = StatePosition()
            raise

    def _take(self, queue: str, page: StateChangesPage, check: Callable[[bytes, bytes], None]) -> None:
        if page.is_reset:
            self.entries, self._size_bytes = {}, 0
        for key, value in page.entries:
            before = self.entries.pop(key, None)
            self._size_bytes -= 0 if before is None else len(key) + len(before)
            if value is not None:
                if not key.startswith(OWN_KEYS):
                    check(key, value)
                self.entries[key] = value
                self._size_bytes += len(key) + len(value)
        if len(self.entries) > MAX_ENTRIES or self._size_bytes > MAX_STATE_BYTES:
            raise SourceUnavailable(
                f"the state of {queue} has more than {MAX_ENTRIES:,} entries or {MAX_STATE_BYTES:,} bytes, and is not "
                "copied: after a takeover all its messages are delivered again"
            )
        self._position = page.position


async def _changes(source: SourceCluster, topic: SourceTopic, position: StatePosition) -> StateChangesPage:
    call = AskQueueState(topic.name, topic.topic_id, position)
    request: Any = make(
        request_schema(ENVELOPE, VERSION).EnvelopeRequest,
        request_data=encode_call(call),
        request_principal=None,
        client_host_address=b"",
    )
    leader = topic.partitions[0].leader
    if leader == NO_LEADER:
        raise SourceUnavailable(f"no broker of the source leads the queue {topic.name}")
    try:
        answer = await source.peers.call(
            leader, request, lane=_LANE, timeout_s=CALL_TIMEOUT_S, max_answer_bytes=_MAX_PAGE_BYTES
        )
    except (PeerUnavailable, ProtocolError) as error:
        raise SourceUnavailable(f"the source does not give the state of its queues: {error}") from None
    if answer.error_code is not ErrorCode.none or answer.response_data is None:
        raise SourceUnavailable(
            f"the source does not give the state of its queues ({answer.error_code.name}): upgrade it to this version"
        )
    try:
        return read_answer(answer.response_data, StateChangesPage)
    except HeadraceError as error:
        raise SourceUnavailable(f"the source does not give the state of {topic.name}: {error}") from None


async def ends_of(source: SourceCluster, queues: Collection[str]) -> dict[str, int]:
    """The end of the log of each of these queues; one that does not exist there is left out."""
    found: dict[str, int] = {}
    for name in queues:
        part = (await _end(source, name)).topics[0].partitions[0]
        if part.error_code is ErrorCode.none:
            found[name] = int(part.offset)
        elif name in source.topics or part.error_code is not ErrorCode.unknown_topic_or_partition:
            # One that the link may not see is refused with another error: it is not deleted.
            raise SourceUnavailable(
                f"the source does not say where {name} ends, to which messages were moved: {part.error_code.name}"
            )
    return found


async def _end(source: SourceCluster, name: str) -> Any:
    topic, request = source.topics.get(name), _end_request(name)
    if topic is None:
        return await source.ask(request, MAX_ANSWER_BYTES)
    try:
        return await source.peers.call(topic.partitions[0].leader, request, lane=_LANE, timeout_s=CALL_TIMEOUT_S)
    except (PeerUnavailable, ProtocolError) as error:
        raise SourceUnavailable(f"the source does not say where {name} ends: {error}") from None


def _end_request(name: str) -> Any:
    schema = request_schema(_LIST_OFFSETS, _LIST_OFFSETS_VERSION)
    part: Any = make(schema.ListOffsetsPartition, partition_index=0, current_leader_epoch=-1, timestamp=_LATEST)
    topic: Any = make(schema.ListOffsetsTopic, name=name, partitions=(part,))
    return make(schema.ListOffsetsRequest, replica_id=-1, isolation_level=0, topics=(topic,))
