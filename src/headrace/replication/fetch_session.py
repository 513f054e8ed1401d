"""The follower's side of a fetch session (KIP-227): tracks the leader's session state and what to send. Pure."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from headrace.protocol.fetch_request import WantedByReplica

_EPOCH_MAX = 2**31 - 1

Key = tuple[UUID, int]
"""Topic id and partition index."""


class Ask(NamedTuple):
    """The content of a request besides the limits."""

    session_id: int
    session_epoch: int
    wanted: Mapping[UUID, list[WantedByReplica]]
    forgotten: Mapping[UUID, list[int]]

    @property
    def is_news(self) -> bool:
        return bool(self.wanted or self.forgotten)


class FollowerSession:
    """One session from its first request to its end. `requested` is the leader's state once it has all requests."""

    def __init__(self, replaces: int = 0) -> None:
        """`replaces` is the session that ends when this one begins."""
        self.requested: dict[Key, WantedByReplica] = {}
        self._session_id = replaces
        self._epoch = 0

    @property
    def is_begun(self) -> bool:
        """Whether requests are incremental; otherwise each is a full one."""
        return self._epoch > 0

    def begun(self, session_id: int) -> None:
        """Begin the session with the id in the first response; 0 if the leader has no session."""
        self._session_id = session_id
        self._epoch = 1 if session_id else 0

    def successor(self) -> "FollowerSession":
        """A new session to replace this one, with nothing known to the leader."""
        return FollowerSession(self._session_id)

    def tell(self, wanted: Mapping[Key, WantedByReplica], gone: Iterable[Key]) -> Ask:
        """Make the next request. Before the session has begun `wanted` must be every partition.

        A partition that is both gone and wanted is sent even if unchanged: the leader answered it with an error, and
        does not retry it by itself.
        """
        if not self.is_begun:
            self.requested.clear()
        forgotten: dict[UUID, list[int]] = {}
        for key in gone:
            if self.requested.pop(key, None) is not None and key not in wanted:
                forgotten.setdefault(key[0], []).append(key[1])
        by_topic: dict[UUID, list[WantedByReplica]] = {}
        for key, part in wanted.items():
            if self.requested.get(key) != part:
                self.requested[key] = part
                by_topic.setdefault(key[0], []).append(part)
        return Ask(self._session_id, self._epoch, by_topic, forgotten)

    def sent(self) -> None:
        """Advance the session after a request was sent."""
        if self._epoch:
            self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1
