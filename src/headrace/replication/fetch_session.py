"""The follower's side of a fetch session (KIP-227): what the leader remembers, and what it must be told. Pure."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from headrace.protocol.fetch_request import WantedByReplica

_EPOCH_MAX = 2**31 - 1

Key = tuple[UUID, int]
"""Topic id and partition index."""


class Ask(NamedTuple):
    """What a request says beside the limits."""

    session_id: int
    session_epoch: int
    wanted: Mapping[UUID, list[WantedByReplica]]
    forgotten: Mapping[UUID, list[int]]

    @property
    def is_news(self) -> bool:
        return bool(self.wanted or self.forgotten)


class FollowerSession:
    """One session from its first request to its end. `told` is what the leader knows when it has all requests."""

    def __init__(self, replaces: int = 0) -> None:
        """`replaces` is the session that ends when this one begins."""
        self.told: dict[Key, WantedByReplica] = {}
        self._session_id = replaces
        self._epoch = 0

    @property
    def is_begun(self) -> bool:
        """Whether requests name changes only; else each names everything."""
        return self._epoch > 0

    def begun(self, session_id: int) -> None:
        """The leader has answered the first request; with 0 it keeps no session."""
        self._session_id = session_id
        self._epoch = 1 if session_id else 0

    def successor(self) -> "FollowerSession":
        """Nothing is known to be remembered any more."""
        return FollowerSession(self._session_id)

    def tell(self, wanted: Mapping[Key, WantedByReplica], gone: Iterable[Key]) -> Ask:
        """The next request. Before the session has begun `wanted` must be everything.

        What is gone and wanted again is named even if nothing else is new: the leader answered with an error, and does
        not look at it again by itself.
        """
        if not self.is_begun:
            self.told.clear()
        forgotten: dict[UUID, list[int]] = {}
        for key in gone:
            if self.told.pop(key, None) is not None and key not in wanted:
                forgotten.setdefault(key[0], []).append(key[1])
        by_topic: dict[UUID, list[WantedByReplica]] = {}
        for key, part in wanted.items():
            if self.told.get(key) != part:
                self.told[key] = part
                by_topic.setdefault(key[0], []).append(part)
        return Ask(self._session_id, self._epoch, by_topic, forgotten)

    def sent(self) -> None:
        """The request is on its way."""
        if self._epoch:
            self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1
