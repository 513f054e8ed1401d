"""Queues that were deleted recently: the SQS API refuses to create one of the same name for a minute.

Every broker sees every deletion in the cluster's metadata. It does not know of deletions before it started: all that is
lost is a refusal, since the new queue has its own id and none of the old messages, and that is not worth a record in
the metadata that has to be removed a minute later.
"""

from collections.abc import Callable

from headrace.model.image import ClusterImage

_MOST = 10_000


class RecentDeletions:
    def __init__(self, now_ms: Callable[[], float], wait_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._wait_ms = wait_ms
        self._deleted_at_ms: dict[str, float] = {}
        """In the order of their times."""

    async def image_changed(self, old: ClusterImage, new: ClusterImage) -> None:
        """For `Metadata.subscribe`."""
        if old.topics is new.topics:
            return
        for name in old.topics.keys() - new.topics.keys():
            if old.topics[name].settings.get("queue.type", "none") != "none":
                self._deleted_at_ms.pop(name, None)
                self._deleted_at_ms[name] = self._now_ms()
        while len(self._deleted_at_ms) > _MOST:
            del self._deleted_at_ms[next(iter(self._deleted_at_ms))]

    def wait_s(self, name: str) -> int:
        """The whole wait before a queue of this name may be created again; 0 if it is over."""
        at_ms = self._deleted_at_ms.get(name)
        wait_ms = self._wait_ms()
        if at_ms is None or self._now_ms() >= at_ms + wait_ms:
            return 0
        return -(-wait_ms // 1000)
