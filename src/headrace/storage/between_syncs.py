"""Whether logs are being synced, and how often: for threads whose own use of the disk would delay a sync.

The disk counts as busy with syncs after `BUSY_SYNCS` of them within `BUSY_S`, and until that is as long ago. A producer
that waits for its data to be durable makes hundreds a second; a broker whose clients only read makes one now and then,
for the offsets that they commit.
"""

from collections import deque
from collections.abc import Callable
from threading import Event
from time import monotonic

BUSY_SYNCS = 4
BUSY_S = 2.0


class BetweenSyncs:
    """The event loop that begins and ends syncs tells it; any thread may ask."""

    __slots__ = ("_begun_s", "_idle", "_now_s")

    def __init__(self, now_s: Callable[[], float] = monotonic) -> None:
        self._now_s = now_s
        self._idle = Event()
        self._idle.set()
        self._begun_s: deque[float] = deque(maxlen=BUSY_SYNCS)
        """When the last syncs began."""

    def note_begun(self) -> None:
        """A sync begins, perhaps beside others."""
        self._begun_s.append(self._now_s())
        self._idle.clear()

    def note_idle(self) -> None:
        """No sync is in progress any more."""
        self._idle.set()

    @property
    def is_syncing(self) -> bool:
        return not self._idle.is_set()

    @property
    def is_quiet(self) -> bool:
        """True while no sync is in progress and there were few lately: much can be read at once."""
        begun_s = self._begun_s
        return not self.is_syncing and (len(begun_s) < BUSY_SYNCS or self._now_s() - begun_s[0] >= BUSY_S)

    def wait(self, timeout_s: float) -> bool:
        """Wait until no sync is in progress, but not longer than so many seconds; False if one still is."""
        return self._idle.wait(timeout_s)
