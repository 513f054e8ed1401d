"""Views that are computed once for all pages that show them, again every two seconds while there are any.

Only the newest event waits for a watcher, so that a slow one gets fewer events and holds no memory; one that does not
read at all is disconnected (`streams.py`). Sessions that have ended end their streams.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.admin.sessions import Session
from headrace.admin.streams import RETRY, event

EVERY_S = 2.0
BUSY_SHARE = 0.05
"""A view that takes long to compute is sent less often: it may take this share of the time."""
OVER = "over"
"""The name of the last event of a view that has ended, with the error."""
_SESSION_OVER = event(b'{"error":"unauthorized","message":"the session is over: log in again"}', name=OVER)


class LiveEvent(NamedTuple):
    piece: bytes
    """Encoded, as it is sent to every watcher."""
    is_last: bool = False


@dataclass(eq=False, slots=True)
class Watcher:
    """One page that shows a view."""

    session: Session | None
    """None without a login by session."""
    pending: LiveEvent | None = None
    has_news: asyncio.Event = field(default_factory=asyncio.Event)

    def offer(self, newest: LiveEvent) -> None:
        """Replace what the watcher has not taken yet."""
        self.pending = newest
        self.has_news.set()


class LiveView:
    """The watchers of a view with the same rights, and the task that computes it while there are any."""

    def __init__(self, compute: Callable[[], Awaitable[LiveEvent]], is_used: Callable[[Session], bool]) -> None:
        """`is_used` notes that a session is in use; False if it is over."""
        self._compute = compute
        self._is_used = is_used
        self._watchers: set[Watcher] = set()
        self._task: asyncio.Task[None] | None = None
        self._newest: LiveEvent | None = None
        self._newest_s = 0.0

    def join(self, watcher: Watcher) -> None:
        self._watchers.add(watcher)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="live-view")
        elif self._newest is not None:
            watcher.offer(self._newest)

    def leave(self, watcher: Watcher) -> bool:
        """True if that was the last one."""
        self._watchers.discard(watcher)
        if not self._watchers and self._task is not None:
            self._task.cancel()
            self._task = None
        return not self._watchers

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._watchers:
            began_s = loop.time()
            newest = self._newest = await self._compute()
            for watcher in self._watchers:
                is_over = watcher.session is not None and not self._is_used(watcher.session)
                watcher.offer(LiveEvent(_SESSION_OVER, True) if is_over else newest)
            if newest.is_last:
                return
            await asyncio.sleep(pause_s(loop.time() - began_s))


def pause_s(took_s: float) -> float:
    """How long to wait after an event that took so long."""
    return max(EVERY_S - took_s, took_s / BUSY_SHARE - took_s)


ViewKey = tuple[str, str, str]
"""The view, and the principal and host whose rights it is shown with; both empty for everyone."""


class LiveViews:
    """The views that are watched on a broker."""

    def __init__(self) -> None:
        self._views: dict[ViewKey, LiveView] = {}

    def __len__(self) -> int:
        return len(self._views)

    async def watch(
        self, key: ViewKey, make: Callable[[], LiveView], watcher: Watcher, first: bytes = b""
    ) -> AsyncIterator[bytes]:
        """The events of a view, after `first`."""
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = make()
        view.join(watcher)
        try:
            yield RETRY + first
            while True:
                await watcher.has_news.wait()
                watcher.has_news.clear()
                newest = watcher.pending
                assert newest is not None
                yield newest.piece
                if newest.is_last:
                    return
        finally:
            if view.leave(watcher) and self._views.get(key) is view:
                del self._views[key]
