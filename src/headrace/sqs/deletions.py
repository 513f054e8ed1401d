"""Which queues were deleted a moment ago: the SQS API does not let one of the same name be created at once.

Every broker sees every deletion in the cluster's metadata, whoever asked for it. What was deleted before a broker
started it does not know. All that is lost by that is a refusal (the new queue has an id of its own, and nothing of the
former one is in it), which is not worth a record in the metadata that somebody has to remove a minute later.
"""

from collections.abc import Callable

from headrace.model.image import ClusterImage

_MOST = 10_000


class Deletions:
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
        """How long a new queue of this name has to wait in all, if that is not over; otherwise 0."""
        at_ms = self._deleted_at_ms.get(name)
        wait_ms = self._wait_ms()
        if at_ms is None or self._now_ms() >= at_ms + wait_ms:
            return 0
        return -(-wait_ms // 1000)
