"""Routing of operations to the broker that leads a queue: this one, or another.

While the leader changes, an operation is repeated for a while if it was certainly not done, or if repeating it has no
further effect. A send whose outcome is unknown is not repeated: its sender decides.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from headrace.cluster.metadata import Metadata
from headrace.coordinator.completion import PendingResult, refused
from headrace.coordinator.result import Result
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

_MOVED = (NotLeader, NotCoordinator, PeerUnavailable, QueueUnavailable)
"""Errors while the leader changes, for which an operation may be repeated."""

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
        self._retries: set[asyncio.Task[None]] = set()

    async def route(
        self, name: str, operation: Callable[[QueueOperations], Awaitable[T]], *, is_repeatable: bool = True
    ) -> T:
        """Do an operation on the queue's leader. `UnknownQueue`, `QueueUnavailable` after a while, or the operation's
        own error. An operation that is not repeatable fails when its outcome is unknown."""
        return await self._retried(name, operation, is_repeatable=is_repeatable)

    def begin(
        self, name: str, operation: Callable[[QueueOperations], Awaitable[T]], *, is_repeatable: bool = True
    ) -> Awaitable[T]:
        """Like `route`. What is done on this broker without a coroutine is a `PendingResult` here, too."""
        try:
            begun = operation(self._on_leader(self._catalog.topic(name)))
        except _MOVED as error:
            begun = refused(error)
            return self._retried(name, operation, begun, is_repeatable=is_repeatable)
        if not isinstance(begun, PendingResult):
            return self._retried(name, operation, begun, is_repeatable=is_repeatable)
        rescue = partial(self._begin_again, name, operation, is_repeatable)
        if begun.done:
            routed: PendingResult[T] = PendingResult()
            routed.rescue(rescue)
            begun.then(routed.resolve)
            return routed
        begun.rescue(rescue)
        return begun

    def _begin_again(
        self,
        name: str,
        operation: Callable[[QueueOperations], Awaitable[T]],
        is_repeatable: bool,
        error: HeadraceError,
    ) -> PendingResult[T] | None:
        """The result of an operation that has failed with this error; None if it is not repeated."""
        if not isinstance(error, _MOVED):
            return None
        routed: PendingResult[T] = PendingResult()
        self._go_on(self._retried(name, operation, refused(error), is_repeatable=is_repeatable), routed)
        return routed

    def _go_on(self, work: Coroutine[Any, Any, T], routed: PendingResult[T]) -> None:
        """Resolve a result with that of a coroutine."""

        async def go_on() -> None:
            try:
                routed.resolve(Result(await work))
            except HeadraceError as error:
                routed.resolve(Result(error=error))
            except BaseException:
                routed.resolve(Result(error=QueueUnavailable("the operation was broken off: try again")))
                raise

        task = asyncio.get_running_loop().create_task(go_on())
        self._retries.add(task)
        task.add_done_callback(self._retries.discard)

    async def _retried(
        self,
        name: str,
        operation: Callable[[QueueOperations], Awaitable[T]],
        begun: Awaitable[T] | None = None,
        *,
        is_repeatable: bool,
    ) -> T:
        """The result of an operation, which may have begun; it is repeated while the leader changes."""
        deadline_ms = self._clock.monotonic_ms() + _PATIENCE_MS
        delays = RetryDelays(_RETRY_DELAY_S)
        while True:
            if begun is None:
                topic = self._catalog.topic(name)
            try:
                return await (operation(self._on_leader(topic)) if begun is None else begun)
            except (NotLeader, NotCoordinator) as error:
                problem: HeadraceError = error
            except (PeerUnavailable, QueueUnavailable) as error:
                if not is_repeatable:
                    raise _unavailable(error) from None
                problem = error
            begun = None
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
