"""Routing of operations to the broker that leads a queue: this one, or another.

While the leader changes, an operation is repeated for a while if it was certainly not done, or if repeating it has no
further effect. A send whose outcome is unknown is not repeated: its sender decides.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from headrace.cluster.metadata import Metadata
from headrace.model.backoff import ExponentialDelay, RetryDelays
from headrace.model.errors import HeadraceError, NotCoordinator, NotLeader, PeerUnavailable, QueueUnavailable
from headrace.model.ids import NO_LEADER
from headrace.model.image import TopicImage
from headrace.queues.catalog import QueueCatalog
from headrace.queues.operations import QueueOperations
from headrace.queues.remote import RemoteQueue, WaitingLanes
from headrace.replication.peers import Peers
from headrace.runtime.clock import Clock

T = TypeVar("T")

_PATIENCE_MS = 10_000
_RETRY_DELAY_S = ExponentialDelay(0.01, 0.25)


class QueueRouter:
    def __init__(
        self,
        catalog: QueueCatalog,
        metadata: Metadata,
        clock: Clock,
        peers: Peers | None,
        local: Callable[[TopicImage], QueueOperations],
    ) -> None:
        """`local` gives a queue that this broker leads; `NotLeader` if it does not."""
        self._catalog = catalog
        self._metadata = metadata
        self._clock = clock
        self._peers = peers
        self._local = local
        self._lanes = WaitingLanes()

    async def route(
        self, name: str, operation: Callable[[QueueOperations], Awaitable[T]], *, is_repeatable: bool = True
    ) -> T:
        """Do an operation on the queue's leader. `UnknownQueue`, `QueueUnavailable` after a while, or the operation's
        own error. An operation that is not repeatable fails when its outcome is unknown."""
        deadline_ms = self._clock.monotonic_ms() + _PATIENCE_MS
        delays = RetryDelays(_RETRY_DELAY_S)
        while True:
            topic = self._catalog.topic(name)
            try:
                return await operation(self._on_leader(topic))
            except (NotLeader, NotCoordinator) as error:
                problem: HeadraceError = error
            except (PeerUnavailable, QueueUnavailable) as error:
                if not is_repeatable:
                    raise _unavailable(error) from None
                problem = error
            if self._clock.monotonic_ms() >= deadline_ms:
                raise _unavailable(problem) from None
            await asyncio.sleep(delays.next())

    def _on_leader(self, topic: TopicImage) -> QueueOperations:
        leader = topic.partitions[0].leader
        if leader == self._metadata.broker_id:
            return self._local(topic)
        if self._peers is None or leader == NO_LEADER or not self._metadata.image.is_alive(leader):
            raise NotLeader(f"the queue {topic.name} has no leader now")
        return RemoteQueue(
            topic.name,
            leader,
            self._peers,
            self._clock,
            self._lanes,
            default_wait_ms=self._catalog.info(topic).settings.receive_wait_ms,
        )


def _unavailable(error: HeadraceError) -> HeadraceError:
    return (
        error if isinstance(error, QueueUnavailable) else QueueUnavailable(f"the queue is not available now: {error}")
    )
