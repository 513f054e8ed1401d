"""A partition that is fetched from its leader, as the fetcher sees it."""

import asyncio
from collections.abc import Callable
from typing import Protocol
from uuid import UUID

from headrace.replication.follower import Fetched


class Following(Protocol):
    """The part of a following partition that the fetcher uses."""

    @property
    def topic_id(self) -> UUID: ...

    @property
    def index(self) -> int: ...

    def fetch_position(self) -> tuple[int, int, int, int]:
        """Leader epoch, offset, epoch of the last record, log start offset."""
        ...

    def take_fetched(self, leader_epoch: int, part: Fetched) -> None:
        """Apply the response of this epoch's leader to a fetch at the current position."""
        ...

    def when_flushed(self, callback: Callable[[BaseException | None], None]) -> bool:
        """True if the whole log may be acknowledged; otherwise call back when it may be, or with the error."""
        ...


class Followed:
    """A partition with this leader, and why it may not be fetched now."""

    __slots__ = (
        "covered_ms",
        "failures",
        "is_flushing",
        "is_held",
        "is_throttled",
        "named_in",
        "partition",
        "timer",
        "why",
    )

    def __init__(self, partition: Following) -> None:
        self.partition = partition
        self.is_throttled = False
        self.is_held = False
        """Paused until the timer fires, after a failure or by the throttle."""
        self.is_flushing = False
        self.named_in = 0
        """The number of the last request that named it."""
        self.covered_ms: float | None = None
        """When the last request of an earlier session was sent whose response covered it."""
        self.failures = 0
        self.why = ""
        """The reason of the last failure."""
        self.timer: asyncio.TimerHandle | None = None

    @property
    def is_ready(self) -> bool:
        return not (self.is_held or self.is_flushing)

    def release(self) -> None:
        self.is_held = False
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
