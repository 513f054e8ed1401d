"""Share sessions (KIP-932): the partitions from which a member of a share group fetches on this broker. Pure.

A member has one session with each broker that leads partitions of its assignment. By the epoch of a request:

    0    a full request: begins a session, and replaces an existing one
    n    an incremental request: changes to the session's partitions
    -1   the final request: records that the member has acquired and not acknowledged are released

An epoch other than the next one is refused: an answer was lost. The member then begins a new session; records that it
has acquired stay acquired until it acknowledges them or their locks expire. A session also ends with its connection:
that counts as a failed delivery of the acquired records, while a session that its member ends does not.

All sessions together have at most `PLACES_MAX` partitions.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple
from uuid import UUID

from headrace.model.errors import HeadraceError

INITIAL, FINAL = 0, -1
_EPOCH_MAX = 2**31 - 1
PLACES_MAX = 500_000


class ShareSessionNotFound(HeadraceError): ...


class InvalidShareSessionEpoch(HeadraceError): ...


class ShareSessionLimit(HeadraceError): ...


class SharePlace(NamedTuple):
    topic_id: UUID
    partition: int


class ShareSession:
    def __init__(self, group_id: str, member_id: str) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.next_epoch = 1
        self.places: dict[SharePlace, None] = {}
        """The session's partitions, in the order to serve them."""
        self.waiting: Callable[[], None] | None = None
        """Ends the wait of the request in flight, when a later request replaces it."""
        self.on_end: Callable[[], None] | None = None
        """Called when the session ends."""
        self.is_over = False
        """True once the session has ended: nothing more may be acquired for its member."""

    def served(self, place: SharePlace) -> None:
        """Move a partition that was just served to the back, so that none starves."""
        if place in self.places:
            del self.places[place]
            self.places[place] = None

    def end_wait(self) -> None:
        if self.waiting is not None:
            self.waiting()

    def ended(self) -> None:
        self.end_wait()
        on_end, self.on_end = self.on_end, None
        if on_end is not None:
            on_end()


class ShareSessions:
    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self._sessions: dict[tuple[str, str], ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, group_id: str, member_id: str) -> ShareSession:
        """Begin a session, which replaces an existing one."""
        former = self._sessions.pop((group_id, member_id), None)
        if former is not None:
            former.ended()
        if len(self._sessions) >= self._limit():
            raise ShareSessionLimit(f"this broker has group.share.max.share.sessions={self._limit()} already")
        session = self._sessions[group_id, member_id] = ShareSession(group_id, member_id)
        return session

    def change(self, session: ShareSession, added: Iterable[SharePlace], forgotten: Iterable[SharePlace]) -> None:
        """Add and remove partitions, as a request asks."""
        others = sum(len(other.places) for other in self._sessions.values() if other is not session)
        for place in added:
            session.places.setdefault(place)
        for place in forgotten:
            session.places.pop(place, None)
        if others + len(session.places) > PLACES_MAX:
            self.drop(session)
            raise ShareSessionLimit("share sessions have no room for more partitions")

    def go_on(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        """Return the session of an incremental request, if its epoch is the next one."""
        session = self._of(group_id, member_id)
        if epoch != session.next_epoch:
            raise InvalidShareSessionEpoch(
                f"the share session of {member_id} expects epoch {session.next_epoch}, the request has {epoch}"
            )
        session.next_epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        return session

    def end(self, group_id: str, member_id: str) -> ShareSession:
        session = self._of(group_id, member_id)
        del self._sessions[group_id, member_id]
        session.is_over = True
        session.ended()
        return session

    def drop(self, session: ShareSession) -> bool:
        """Remove the session; False if it was not the current one."""
        key = session.group_id, session.member_id
        if self._sessions.get(key) is not session:
            return False
        del self._sessions[key]
        session.is_over = True
        session.ended()
        return True

    def _of(self, group_id: str, member_id: str) -> ShareSession:
        session = self._sessions.get((group_id, member_id))
        if session is None:
            raise ShareSessionNotFound(f"the member {member_id} of {group_id} has no share session with this broker")
        return session
