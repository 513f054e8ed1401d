"""Queues for asyncio: the same verbs and promises as `headrace.client.queue.queue`, awaited."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from headrace.client.errors import Unreachable
from headrace.client.keywords import checks_keywords
from headrace.client.outgoing import Headers, Payload
from headrace.client.queue import queue as sync
from headrace.client.queue.aio_message import QueueMessage
from headrace.client.queue.aio_tasks import Redrive, TaskCall
from headrace.client.queue.description import QueueDescription
from headrace.client.queue.message import NewMessage, PeekedMessage, Seconds, SendOptions, SentMessage
from headrace.client.queue.message import QueueMessage as SyncMessage
from headrace.client.queue.settings import QueueOptions
from headrace.client.queue.worker import Concurrency, QueueWorker
from headrace.client.threads import DaemonThreads, result_of
from headrace.model.queue_wire import Counts

if TYPE_CHECKING:
    from headrace.client.schemas.serializer import Serializer

_THREADS = 64
"""So many receives may wait at the same time."""

T = TypeVar("T")
WorkerT = TypeVar("WorkerT", bound=Callable[..., object])


@checks_keywords
class Queue:
    """A queue, as `headrace.Queue`, for asyncio.

    ```python
    from headrace.aio import Client

    async with Client("localhost:9092") as client:
        emails = client.queue("emails")
        await emails.send({"to": "alice@example.org"})
        for message in await emails.receive(max=10, wait=20):
            print(message.json()["to"])
            await message.ack()
    ```
    """

    def __init__(self, queue: sync.Queue) -> None:
        self._queue = queue
        self.name = queue.name
        self._threads = DaemonThreads(_THREADS, f"headrace-aio-{queue.name}")

    async def create(
        self,
        *,
        type: Literal["standard", "fifo"] | None = None,
        visibility: Seconds | None = None,
        delay: Seconds | None = None,
        retention: Seconds | None = None,
        max_receives: int | None = None,
        dead_letter: str | None = None,
        backoff: Seconds | None = None,
        backoff_factor: float | None = None,
        backoff_max: Seconds | None = None,
        jitter: float | None = None,
        priority_ageing: Seconds | None = None,
        dedupe_by_content: bool | None = None,
        max_in_flight: int | None = None,
        max_backlog: int | None = None,
        max_backlog_bytes: int | None = None,
        max_backlog_age: Seconds | None = None,
        max_backlog_policy: Literal["block", "refuse", "drop-oldest"] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> "Queue":
        """Make the queue. The arguments are those of `headrace.Queue.create`."""
        options = QueueOptions(
            type=type,
            visibility=visibility,
            delay=delay,
            retention=retention,
            max_receives=max_receives,
            dead_letter=dead_letter,
            backoff=backoff,
            backoff_factor=backoff_factor,
            backoff_max=backoff_max,
            jitter=jitter,
            priority_ageing=priority_ageing,
            dedupe_by_content=dedupe_by_content,
            max_in_flight=max_in_flight,
            max_backlog=max_backlog,
            max_backlog_bytes=max_backlog_bytes,
            max_backlog_age=max_backlog_age,
            max_backlog_policy=max_backlog_policy,
            settings=settings,
        )
        await self._do(lambda: self._queue.create(**options))
        return self

    async def alter(
        self,
        unset: Iterable[str] = (),
        *,
        type: Literal["standard", "fifo"] | None = None,
        visibility: Seconds | None = None,
        delay: Seconds | None = None,
        retention: Seconds | None = None,
        max_receives: int | None = None,
        dead_letter: str | None = None,
        backoff: Seconds | None = None,
        backoff_factor: float | None = None,
        backoff_max: Seconds | None = None,
        jitter: float | None = None,
        priority_ageing: Seconds | None = None,
        dedupe_by_content: bool | None = None,
        max_in_flight: int | None = None,
        max_backlog: int | None = None,
        max_backlog_bytes: int | None = None,
        max_backlog_age: Seconds | None = None,
        max_backlog_policy: Literal["block", "refuse", "drop-oldest"] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Change settings; those that are not given stay. The arguments are those of `headrace.Queue.alter`."""
        options = QueueOptions(
            type=type,
            visibility=visibility,
            delay=delay,
            retention=retention,
            max_receives=max_receives,
            dead_letter=dead_letter,
            backoff=backoff,
            backoff_factor=backoff_factor,
            backoff_max=backoff_max,
            jitter=jitter,
            priority_ageing=priority_ageing,
            dedupe_by_content=dedupe_by_content,
            max_in_flight=max_in_flight,
            max_backlog=max_backlog,
            max_backlog_bytes=max_backlog_bytes,
            max_backlog_age=max_backlog_age,
            max_backlog_policy=max_backlog_policy,
            settings=settings,
        )
        await self._do(lambda: self._queue.alter(unset, **options))

    async def delete(self) -> None:
        """Delete the queue with everything in it."""
        await self._do(self._queue.delete)

    async def describe(self) -> QueueDescription:
        """Its settings, and how many messages it has."""
        return await self._do(self._queue.describe)

    async def counts(self) -> Counts:
        """How many messages are available, in flight and delayed; right within a second."""
        return await self._do(self._queue.counts)

    async def purge(self) -> None:
        """Delete every message that was sent before; at most once a minute."""
        await self._do(self._queue.purge)

    async def send(
        self,
        body: Payload,
        *,
        delay: Seconds | None = None,
        at: datetime | None = None,
        priority: int | None = None,
        group: str | None = None,
        dedupe: str | None = None,
        ttl: Seconds | None = None,
        headers: Headers | None = None,
        schema: "str | Serializer | None" = None,
    ) -> SentMessage:
        """Send a message and wait until it is stored. For many at once, gather: they go out in batches. The arguments
        are those of `headrace.Queue.send`."""
        message = NewMessage(body, delay, at, priority, group, dedupe, ttl, headers, schema)
        return await result_of(await self._do(lambda: self._queue.send_awaited(message)))

    async def send_many(
        self,
        bodies: "Iterable[Payload | NewMessage]",
        *,
        delay: Seconds | None = None,
        at: datetime | None = None,
        priority: int | None = None,
        group: str | None = None,
        dedupe: str | None = None,
        ttl: Seconds | None = None,
        headers: Headers | None = None,
        schema: "str | Serializer | None" = None,
    ) -> list[SentMessage]:
        """Send messages in batches and wait until all are stored. The arguments are those of
        `headrace.Queue.send_many`."""
        options = SendOptions(
            delay=delay,
            at=at,
            priority=priority,
            group=group,
            dedupe=dedupe,
            ttl=ttl,
            headers=headers,
            schema=schema,
        )
        return await self._do(lambda: self._queue.send_many(bodies, **options))

    async def call(
        self,
        body: Payload,
        *,
        delay: Seconds | None = None,
        at: datetime | None = None,
        priority: int | None = None,
        group: str | None = None,
        dedupe: str | None = None,
        ttl: Seconds | None = None,
        headers: Headers | None = None,
        schema: "str | Serializer | None" = None,
        type: Any = None,
    ) -> TaskCall:
        """Send a message whose result is wanted. The arguments are those of `headrace.Queue.call`."""
        options = SendOptions(
            delay=delay,
            at=at,
            priority=priority,
            group=group,
            dedupe=dedupe,
            ttl=ttl,
            headers=headers,
            schema=schema,
        )
        return TaskCall(await self._do(lambda: self._queue.call(body, type=type, **options)), self._threads)

    async def receive(
        self, max: int = 1, wait: float = 20.0, visibility: Seconds | None = None, *, type: Any = None
    ) -> list[QueueMessage]:
        """Up to `max` messages, as soon as there are any. Messages that arrive after a cancellation are returned to the
        queue. `type` is that of `message.value`."""
        future = self._threads.submit(_receive, self._queue, max, wait, visibility, type)
        try:
            return [QueueMessage(each) for each in await result_of(future)]
        except asyncio.CancelledError:
            future.add_done_callback(_return_received)
            raise

    async def peek(
        self,
        max: int = 10,
        *,
        after_offset: int = -1,
        ids: Iterable[str] = (),
        body_contains: str | bytes = b"",
        reason_contains: str = "",
    ) -> list[PeekedMessage]:
        """Look at messages without leasing them. See `headrace.Queue.peek`."""
        call = partial(self._queue.peek, max, after_offset=after_offset, ids=ids)
        return await self._do(lambda: call(body_contains=body_contains, reason_contains=reason_contains))

    async def redrive(
        self,
        to: str | None = None,
        *,
        ids: Iterable[str] = (),
        body_contains: str | bytes = b"",
        reason_contains: str = "",
        sent_from: datetime | None = None,
        sent_before: datetime | None = None,
        limit: int | None = None,
        rate: int | None = None,
    ) -> Redrive:
        """Move messages of this queue, as out of a dead-letter queue. See `headrace.Queue.redrive`."""
        call = partial(self._queue.redrive, to, ids=ids, body_contains=body_contains, limit=limit, rate=rate)
        chosen = partial(call, reason_contains=reason_contains, sent_from=sent_from, sent_before=sent_before)
        return Redrive(await self._do(chosen), self._threads)

    async def redrives(self) -> list[Redrive]:
        """The latest moves out of this queue, the last first."""
        return [Redrive(each, self._threads) for each in await self._do(self._queue.redrives)]

    def worker(
        self, concurrency: Concurrency = 8, *, visibility: Seconds | None = None, type: Any = None
    ) -> Callable[[WorkerT], WorkerT]:
        """Register a function that `Client.run` calls with the messages, `concurrency` at a time: a coroutine function
        on the event loop, another on a thread. See `headrace.client.queue.queue.Queue.worker`."""
        return self._queue.worker(concurrency, visibility=visibility, type=type)

    async def flush(self) -> None:
        """Wait until every acknowledgement so far is with the broker."""
        await self._do(self._queue.flush)

    async def __aenter__(self) -> "Queue":
        """Like `headrace.Queue`: flushes when the block ends."""
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            await self.flush()

    async def close(self) -> None:
        """Wait for the acknowledgements in flight, and close; closing the client does it."""
        try:
            await self._do(self._queue.close)
        finally:
            self._threads.shutdown(wait=False)

    async def _do(self, function: Callable[[], T]) -> T:
        return await result_of(self._threads.submit(function))


def on_loop(worker: QueueWorker, loop: asyncio.AbstractEventLoop) -> QueueWorker:
    """A worker as the threads call it: a coroutine runs on the event loop, and its thread waits for it."""
    function: Callable[[Any], Any] = worker.function
    if not asyncio.iscoroutinefunction(function):
        return worker

    def call(message: SyncMessage) -> object:
        coroutine: Coroutine[Any, Any, object] = function(QueueMessage(message))
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result()

    return worker.calling(call)


def _receive(queue: sync.Queue, maximum: int, wait: float, visibility: Seconds | None, kind: Any) -> list[SyncMessage]:
    """Receive messages, with their values read: that may ask the schema registry, for which the event loop cannot
    wait."""
    found = queue.receive(maximum, wait, visibility, type=kind)
    if kind is not None:
        unreachable: Unreachable | None = None
        for each in found:
            unreachable = each.read_ahead(unreachable)
    return found


def _return_received(received: "Future[list[SyncMessage]]") -> None:
    """Return the messages of a receive that was cancelled."""
    if received.exception() is None:
        for each in received.result():
            each.nack(0, "the receiver was cancelled")
