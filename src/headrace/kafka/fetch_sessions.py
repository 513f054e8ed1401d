"""Fetch sessions (KIP-227): a client names its partitions once, and later only what changed. Pure.

The four kinds of request, by session id and epoch:

    id 0,  epoch -1   sessionless, everything in the request counts
    id n,  epoch -1   the same, and session n ends
    id any, epoch 0   a full request that starts a new session (id n ends)
    id n,  epoch > 0  incremental: changes to the partitions of session n; n must exist, the epoch must be the next one

In a replica's session only changed partitions are checked (`changed_partitions.py`): its plan has just the partitions
that the request names. Each replica has one session.

All sessions together have at most `PARTITIONS_MAX` partitions. A client that exceeds this gets no session, and names
its partitions in each request.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from headrace.model.errors import HeadraceError
from headrace.model.ids import BrokerId
from headrace.protocol.fast import FetchedPartition, TopicKey

_EPOCH_MAX = 2**31 - 1
_EVICT_AFTER_MS = 120_000
PARTITIONS_MAX = 500_000
NO_SESSION = 0


class SessionNotFound(HeadraceError): ...


class InvalidSessionEpoch(HeadraceError): ...


class SessionTopicIdMismatch(HeadraceError):
    """A session was begun with topic names and continued with topic ids, or the other way round."""


class PartitionKey(NamedTuple):
    topic: TopicKey | None
    partition: int


class PartitionFetch(NamedTuple):
    """A client's fetch parameters for one partition."""

    offset: int
    max_bytes: int
    current_leader_epoch: int
    last_fetched_epoch: int
    log_start_offset: int = -1
    """The start of the replica's own log."""


@dataclass(slots=True)
class _SentState:
    """The last values sent to the client for a partition: an incremental answer includes it only if they changed."""

    high_watermark: int = -1
    log_start_offset: int = -1


class ReplicaChanges(Protocol):
    """The part of `changed_partitions.ChangedPartitions` that sessions use."""

    replica_id: BrokerId

    def close(self) -> None: ...


class FetchSession:
    def __init__(self, session_id: int, by_id: bool, now_ms: float) -> None:
        self.session_id = session_id
        self.by_id = by_id
        self.next_epoch = 1
        self.last_used_ms = now_ms
        self.wanted: OrderedDict[PartitionKey, PartitionFetch] = OrderedDict()
        self.waiting: Callable[[], None] | None = None
        """Ends the wait of the request in flight, when the next one has changed the session's partitions."""
        self.changes: ReplicaChanges | None = None
        """Set in a replica's session only."""
        self._sent: dict[PartitionKey, _SentState] = {}

    def change(
        self, additions: Sequence[tuple[PartitionKey, PartitionFetch]], forgotten: Sequence[PartitionKey]
    ) -> None:
        for key, wanted in additions:
            self.wanted[key] = wanted
        for key in forgotten:
            self.wanted.pop(key, None)
            self._sent.pop(key, None)

    def is_news(self, key: PartitionKey, part: FetchedPartition) -> bool:
        """Whether an incremental answer must include this partition; records the values as sent."""
        sent = self._sent.setdefault(key, _SentState())
        if part.error_code:
            sent.high_watermark = -1
            return True
        changed = (
            bool(part.records)
            or part.diverging is not None
            or part.preferred_replica >= 0
            or sent.high_watermark != part.high_watermark
            or sent.log_start_offset != part.log_start_offset
        )
        sent.high_watermark = part.high_watermark
        sent.log_start_offset = part.log_start_offset
        return changed

    def take_news(
        self,
        parts: Iterable[tuple[PartitionKey, FetchedPartition]],
        must_name: Callable[[PartitionKey], bool] | None = None,
    ) -> list[tuple[PartitionKey, FetchedPartition]]:
        """The partitions that an incremental answer must include; those with records are served last next time."""
        news = [
            (key, part) for key, part in parts if self.is_news(key, part) or (must_name is not None and must_name(key))
        ]
        for key, part in news:
            if part.records and key in self.wanted:
                self.served(key)
        return news

    def close(self) -> None:
        if self.changes is not None:
            self.changes.close()

    def served(self, key: PartitionKey) -> None:
        """Move a partition that was just served to the back, so that none starves under max bytes."""
        self.wanted.move_to_end(key)


class FetchPlan(NamedTuple):
    """A resolved request: its partitions in the order to serve them, and its session, if any."""

    wanted: Sequence[tuple[PartitionKey, PartitionFetch]]
    session: FetchSession | None
    session_id: int
    is_incremental: bool
    forgotten: Sequence[PartitionKey] = ()


class FetchSessions:
    def __init__(self, slots: int, new_id: Callable[[], int]) -> None:
        self._slots = slots
        self._new_id = new_id
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def plan(self, request: Any, *, by_id: bool, now_ms: float, is_replica: bool = False) -> FetchPlan:
        """Resolve a request (kio entity) against its session; raises the session errors above."""
        session_id: int = getattr(request, "session_id", NO_SESSION)
        epoch: int = getattr(request, "session_epoch", -1)
        wanted = _wanted(request, by_id)
        if epoch > 0:
            return self._go_on(session_id, epoch, request, wanted, by_id, now_ms, is_replica=is_replica)
        self.end(session_id)
        session = self._begin(by_id, now_ms) if epoch == 0 and wanted and self._has_room_for(len(wanted)) else None
        if session is None:
            return FetchPlan(wanted, None, NO_SESSION, is_incremental=False)
        session.change(wanted, ())
        return FetchPlan(wanted, session, session.session_id, is_incremental=False)

    def _go_on(
        self,
        session_id: int,
        epoch: int,
        request: Any,
        wanted: Sequence[tuple[PartitionKey, PartitionFetch]],
        by_id: bool,
        now_ms: float,
        *,
        is_replica: bool,
    ) -> FetchPlan:
        session = self._sessions.get(session_id)
        if session is None:
            raise SessionNotFound(f"there is no fetch session {session_id}")
        if epoch != session.next_epoch:
            raise InvalidSessionEpoch(
                f"fetch session {session_id} expects epoch {session.next_epoch}, the request has {epoch}"
            )
        if session.by_id != by_id:
            raise SessionTopicIdMismatch(f"fetch session {session_id} mixes topic names and topic ids")
        added = sum(key not in session.wanted for key, _ in wanted)
        if added and not self._has_room_for(added):
            self.end(session_id)
            raise SessionNotFound(f"fetch session {session_id} has ended: sessions have no room for more partitions")
        self.go_on(session, now_ms)
        forgotten = _forgotten(request, by_id)
        session.change(wanted, forgotten)
        everything = wanted if is_replica else tuple(session.wanted.items())
        return FetchPlan(everything, session, session_id, is_incremental=True, forgotten=forgotten)

    def find(self, session_id: int, epoch: int, *, by_id: bool) -> FetchSession | None:
        """The session that a request continues; None if it must be refused."""
        session = self._sessions.get(session_id)
        return session if session is not None and session.next_epoch == epoch and session.by_id == by_id else None

    def go_on(self, session: FetchSession, now_ms: float) -> None:
        """Note that a request continues the session."""
        session.next_epoch = 1 if session.next_epoch == _EPOCH_MAX else session.next_epoch + 1
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session.session_id)

    def only_for(self, session: FetchSession, changes: ReplicaChanges) -> None:
        """Make this the replica's only session: end any earlier one."""
        session.changes = changes
        for other in tuple(self._sessions.values()):
            former = other.changes
            if other is not session and former is not None and former.replica_id == changes.replica_id:
                self.end(other.session_id)

    def end(self, session_id: int) -> None:
        """End a session; a no-op if there is none."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()

    def _has_room_for(self, partitions: int) -> bool:
        return partitions + sum(len(session.wanted) for session in self._sessions.values()) <= PARTITIONS_MAX

    def _begin(self, by_id: bool, now_ms: float) -> FetchSession | None:
        """Begin a session, evicting the least recently used one if it has been idle for long; None if full."""
        if len(self._sessions) >= self._slots:
            oldest_id, oldest = next(iter(self._sessions.items()), (0, None))
            if oldest is None or now_ms - oldest.last_used_ms < _EVICT_AFTER_MS:
                return None
            self.end(oldest_id)
        session_id = self._new_id()
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._new_id()
        session = self._sessions[session_id] = FetchSession(session_id, by_id, now_ms)
        return session


def _topic_key(topic: Any, by_id: bool) -> TopicKey | None:
    if by_id:
        topic_id: UUID | None = topic.topic_id
        return topic_id
    name: str = topic.topic
    return name


def _wanted(request: Any, by_id: bool) -> list[tuple[PartitionKey, PartitionFetch]]:
    return [
        (
            PartitionKey(_topic_key(topic, by_id), part.partition),
            PartitionFetch(
                part.fetch_offset,
                part.partition_max_bytes,
                getattr(part, "current_leader_epoch", -1),
                getattr(part, "last_fetched_epoch", -1),
                getattr(part, "log_start_offset", -1),
            ),
        )
        for topic in request.topics
        for part in topic.partitions
    ]


def _forgotten(request: Any, by_id: bool) -> list[PartitionKey]:
    return [
        PartitionKey(_topic_key(topic, by_id), index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]
