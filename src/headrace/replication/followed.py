"""A partition that is fetched from its leader, as the fetcher sees it."""

import asyncio
from collections.abc import Callable
from typing import Protocol
from uuid import UUID

from headrace.replication.follower import Fetched


class Following(Protocol):
    """A partition that follows, as far as it matters here."""

    @property
    def topic_id(self) -> UUID: ...

    @property
    def index(self) -> int: ...

    def fetch_position(self) -> tuple[int, int, int, int]:
        """Leader epoch, offset, epoch of the last record, log start offset."""
        ...

    def take_fetched(self, leader_epoch: int, part: Fetched) -> None:
        """Do what the leader of this epoch answered to the current position."""
        ...

    def when_flushed(self, callback: Callable[[BaseException | None], None]) -> bool:
        """True if all that is there may be acknowledged; else call back when it may be, or with what rules it out."""
        ...


class Followed:
    """A partition with this leader, and why it may not be asked for now."""

    __slots__ = ("failures", "is_flushing", "is_held", "is_throttled", "partition", "timer")

    def __init__(self, partition: Following) -> None:
        self.partition = partition
        self.is_throttled = False
        self.is_held = False
        """It failed, or spent its share: not before the timer says so."""
        self.is_flushing = False
        self.failures = 0
        self.timer: asyncio.TimerHandle | None = None

    @property
    def is_ready(self) -> bool:
        return not (self.is_held or self.is_flushing)

    def release(self) -> None:
        self.is_held = False
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
