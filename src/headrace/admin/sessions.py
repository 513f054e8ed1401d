"""Sessions of people in a browser: a random id in a cookie, everything else in this broker's memory.

A session ends when its user is deleted or has another password, when it is idle for too long, at the latest after its
maximum time, and with the broker. At most `MAX_SESSIONS` exist, `MAX_PER_USER` for each user: the one that is unused
for the longest time makes room.
"""

from collections.abc import Callable
from dataclasses import dataclass
from hmac import compare_digest
from secrets import token_urlsafe

from headrace.model.users import User

COOKIE = "headrace_session"
"""The name of the cookie; the broker's port follows, since browsers do not tell the ports of a machine apart."""
MAX_SESSIONS = 1000
MAX_PER_USER = 20
_ID_BYTES = 32


@dataclass(slots=True)
class Session:
    session_id: str
    user: User
    csrf: str
    """Sent by the page in the header `X-CSRF-Token` with each change: other sites cannot read it."""
    began_ms: float
    used_ms: float

    def accepts(self, csrf: str) -> bool:
        return compare_digest(self.csrf.encode(), csrf.encode())

    def __repr__(self) -> str:
        return f"Session(user={self.user.name!r})"


class SessionStore:
    def __init__(
        self,
        now_ms: Callable[[], float],
        user: Callable[[str], User | None],
        idle_ms: Callable[[], float],
        max_ms: Callable[[], float],
    ) -> None:
        """`now_ms` is monotonic; `user` finds a user as of now."""
        self._now_ms = now_ms
        self._user = user
        self._idle_ms = idle_ms
        self._max_ms = max_ms
        self._sessions: dict[str, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, user: User) -> Session:
        now_ms = self._now_ms()
        self._make_room(user.name)
        session = Session(token_urlsafe(_ID_BYTES), user, token_urlsafe(_ID_BYTES), now_ms, now_ms)
        self._sessions[session.session_id] = session
        return session

    def find(self, session_id: str) -> Session | None:
        """The session, which counts as used now; None if there is none, or if it has ended."""
        session = self._sessions.get(session_id)
        if session is None:
            return None
        if not self.is_live(session):
            self.end(session)
            return None
        session.used_ms = self._now_ms()
        return session

    def is_live(self, session: Session) -> bool:
        now_ms = self._now_ms()
        return (
            session.session_id in self._sessions
            and now_ms - session.used_ms <= self._idle_ms()
            and now_ms - session.began_ms <= self._max_ms()
            and self._user(session.user.name) == session.user
        )

    def end(self, session: Session) -> None:
        self._sessions.pop(session.session_id, None)

    def _make_room(self, name: str) -> None:
        for session in [each for each in self._sessions.values() if not self.is_live(each)]:
            self.end(session)
        own = [each for each in self._sessions.values() if each.user.name == name]
        if len(own) >= MAX_PER_USER:
            self.end(min(own, key=lambda each: each.used_ms))
        if len(self._sessions) >= MAX_SESSIONS:
            self.end(min(self._sessions.values(), key=lambda each: each.used_ms))
