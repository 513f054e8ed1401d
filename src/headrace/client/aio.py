"""The client for asyncio: the same verbs and promises as `headrace.Client`, awaited.

librdkafka has threads of its own, so this is the same code behind threads: one per stream, one per handler, and a few
for publishing. The event loop never waits for them when it ends.
"""

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from headrace.client.aio_schedules import Schedules
from headrace.client.aio_topics import Topics
from headrace.client.base import ClientBase
from headrace.client.consume import runner
from headrace.client.consume.aio import Stream, Transaction
from headrace.client.consume.group import Consumption
from headrace.client.consume.options import Delivery
from headrace.client.consume.runner import Loop
from headrace.client.consume.subscription import Start, Subscription
from headrace.client.kafka.librdkafka import log_errors
from headrace.client.kafka.publisher import Published
from headrace.client.keywords import checks_keywords
from headrace.client.message import Message
from headrace.client.outgoing import Headers, Key, Outgoing, Payload
from headrace.client.queue.aio import Queue, on_loop
from headrace.client.queue.description import QueueDescription
from headrace.client.schemas.aio import Schemas
from headrace.client.schemas.schemas import Schemas as SyncSchemas
from headrace.client.signals import chosen, stopping_on
from headrace.client.threads import DaemonThreads
from headrace.client.threads import result_of as _result
from headrace.client.topics import Topics as SyncTopics

if TYPE_CHECKING:
    from headrace.client.schemas.serializer import Serializer

_THREADS = 8

T = TypeVar("T")

__all__ = ["Client", "Stream", "Transaction"]


@checks_keywords
class Client(ClientBase[Stream[Any]]):
    """A client of a broker or a cluster, for asyncio. It belongs to one event loop.

    ```python
    from headrace.aio import Client

    async with Client("localhost:9092") as client:
        await client.publish("orders", {"item": "tea"}, key="alice")
        async for order in client.consume("orders", group="billing"):
            print(order.json()["item"])
            client.ack(order)
            break
    ```
    """

    def _prepare(self) -> None:
        self._threads = DaemonThreads(_THREADS, "headrace-aio")
        self._aio_queues: dict[str, Queue] = {}
        self._topics = Topics(SyncTopics(self._connection.contact, self._connection.admin_config()), self._threads)
        self._schemas = Schemas(SyncSchemas(self._connection.schemas), self._threads)
        self._schedules = Schedules(self._made_schedules(), self._threads)

    @property
    def topics(self) -> Topics:
        """Create, list, describe, alter and delete topics: `await client.topics.create("orders", partitions=6)`."""
        return self._topics

    @property
    def schemas(self) -> Schemas:
        """The schema registry of the brokers: `await client.schemas.register("orders-value", Order)`."""
        return self._schemas

    @property
    def schedules(self) -> Schedules:
        """List, remove and run the schedules of the cluster: `await client.schedules.list()`."""
        return self._schedules

    async def publish(
        self,
        topic: str,
        payload: Payload,
        *,
        key: Key = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp: datetime | int | None = None,
        type: str | None = None,
        content_type: str | None = None,
        correlation_id: str | None = None,
        id: str | None = None,
        source: str | None = None,
        subject: str | None = None,
        schema: "str | Serializer | None" = None,
        key_schema: "str | Serializer | None" = None,
    ) -> Published:
        """Send a message and wait until it is stored. For many at once, gather: they go out in batches.

        ```python
        from headrace.aio import Client

        async with Client("localhost:9092") as client:
            await client.publish("orders", {"item": "tea"}, key="alice", headers={"tenant": "7"})
        ```

        The arguments are those of `headrace.Client.publish`.
        """
        event = (type, content_type, correlation_id, id, source, subject, schema, key_schema)
        outgoing = Outgoing(topic, payload, key, headers, partition, timestamp, *event)
        return await asyncio.wrap_future(await self._do(self._send, outgoing))

    def _send(self, outgoing: Outgoing) -> "Future[Published]":
        """On a thread, because it waits for the first contact with a broker, and while the queue is full."""
        return self._connection.publisher.send(outgoing, is_awaited=True)

    async def flush(self) -> None:
        """Wait until every message sent so far is stored."""
        if (publisher := self._connection.used_publisher) is not None:
            await self._do(publisher.flush)

    def subscribe(
        self, topic: str, *, start: Start = "latest", type: Any = None, everywhere: bool = False
    ) -> Stream[Subscription]:
        """Every message of a topic from `start` on, without a group. The starting point is settled when the stream is
        entered with `async with`, or at the first message asked for. `everywhere`: those of its mirrors, too."""
        open_stream = self._connection.subscription
        return self._opened(Stream(lambda: open_stream(topic, start, bounded=False, kind=type, everywhere=everywhere)))

    def replay(
        self,
        topic: str,
        since: Start = "earliest",
        until: datetime | None = None,
        *,
        type: Any = None,
        everywhere: bool = False,
    ) -> Stream[Subscription]:
        """The messages of a topic between two times, once over; without `until`, up to the present end."""
        open_stream = self._connection.subscription
        return self._opened(
            Stream(lambda: open_stream(topic, since, until, bounded=True, kind=type, everywhere=everywhere))
        )

    @overload
    def consume(
        self,
        topic: str | Sequence[str],
        group: str,
        delivery: Literal["exactly-once"],
        *,
        start: Literal["earliest", "latest"] = ...,
        batch: int = ...,
        max_unacked: int = ...,
        commit_interval_s: float | None = ...,
        transactional_id: str | None = ...,
        type: Any = ...,
        everywhere: bool = ...,
    ) -> Transaction: ...
    @overload
    def consume(
        self,
        topic: str | Sequence[str],
        group: str,
        delivery: Delivery = ...,
        *,
        start: Literal["earliest", "latest"] = ...,
        batch: int = ...,
        max_unacked: int = ...,
        commit_interval_s: float | None = ...,
        transactional_id: str | None = ...,
        type: Any = ...,
        everywhere: bool = ...,
    ) -> Stream[Consumption]: ...
    def consume(
        self,
        topic: str | Sequence[str],
        group: str,
        delivery: Delivery = "at-least-once",
        *,
        start: Literal["earliest", "latest"] = "earliest",
        batch: int = 100,
        max_unacked: int = 10_000,
        commit_interval_s: float | None = None,
        transactional_id: str | None = None,
        type: Any = None,
        everywhere: bool = False,
    ) -> Any:
        """Consume topics as a member of a group: each partition is read by one member.

        ```python
        from headrace.aio import Client

        async with Client("localhost:9092") as client:
            async with client.consume("orders", group="billing") as orders:
                async for order in orders:
                    print(order.json()["item"])
                    client.ack(order)
                    break
        ```

        See `headrace.Client.consume` for the guarantee of each delivery mode and the further arguments.
        """

        def make() -> Any:
            return self._connection.consumption(
                topic,
                group,
                delivery,
                start=start,
                batch=batch,
                max_unacked=max_unacked,
                commit_interval_s=commit_interval_s,
                transactional_id=transactional_id,
                kind=type,
                everywhere=everywhere,
            )

        return self._opened(Transaction(make) if delivery == "exactly-once" else Stream(make))

    def queue(self, name: str) -> Queue:
        """The queue of this name; the same object for the same name. `Queue.create` creates it on the broker."""
        if name not in self._aio_queues:
            self._aio_queues[name] = Queue(self._queue(name))
        return self._aio_queues[name]

    async def queues(self, prefix: str = "", *, with_counts: bool = False) -> list[QueueDescription]:
        """List the queues whose names begin with `prefix`, ordered by name."""
        return await self._do(self._connection.queues, prefix, with_counts=with_counts)

    async def run(self, *, signals: Iterable[int] | None = None) -> None:
        """Run the registered handlers and workers until `stop`, SIGTERM, Ctrl-C or cancellation, then finish the
        messages in progress. Raises the error that stopped one of them.

        `signals` are those that stop it: by default SIGTERM and SIGINT (Ctrl-C), each only if it has no other handler.
        A web server handles them itself: see `running`.
        """
        wanted = chosen(signals)
        self._begin(await self._loops_on_loop())
        with stopping_on(wanted, self.stop):
            running_loops = asyncio.gather(*map(asyncio.wrap_future, runner.start(self._loops)), return_exceptions=True)
            try:
                results = await asyncio.shield(running_loops)
            except asyncio.CancelledError:
                self.stop()
                await running_loops
                raise
            finally:
                self._is_stopped = False
        for result in results:
            if isinstance(result, BaseException):
                raise result

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Client"]:
        """Run the registered handlers and workers in the background while the block lasts. Leaving it finishes the
        messages in progress, and raises the error that stopped one of them. Signals are left alone: made for the
        lifespan of a web application.

        ```python
        from headrace.aio import Client

        async with Client("localhost:9092") as client, client.running():
            print(client.health().is_running)
        ```
        """
        self._begin(await self._loops_on_loop())
        futures = runner.start(self._loops)
        ended = asyncio.gather(*map(asyncio.wrap_future, futures), return_exceptions=True)
        is_left_well = False
        try:
            yield self
            is_left_well = True
        finally:
            self.stop()
            try:
                results = await asyncio.shield(ended)
            finally:
                self._is_stopped = False
            for result in results:
                if is_left_well and isinstance(result, BaseException):
                    raise result

    async def _loops_on_loop(self) -> list[Loop]:
        loop = asyncio.get_running_loop()
        handlers = [each.calling(_on_loop(each.function, loop)) for each in self._handlers]
        workers = [on_loop(each, loop) for each in self._workers]
        return await self._do(self._made_loops, handlers, workers)

    async def close(self) -> None:
        """Flush messages and acknowledgements, commit and close every stream. A failure does not stop the rest."""
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(self._threads.release_idle)
            if (publisher := self._connection.used_publisher) is not None:
                stack.push_async_callback(self._do, publisher.close)
            stack.push_async_callback(self._do, self._connection.close_calls)
            for name in list(self._queues):
                stack.push_async_callback(self.queue(name).close)
            for stream in list(self._streams):
                stack.push_async_callback(stream.close)

    async def abandon(self) -> None:
        """Close after a failure: open transactions are aborted, and further errors are only logged."""
        for stream in list(self._streams):
            await stream.abandon()
        with log_errors("closing"):
            await self.close()

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await (self.close() if kind is None else self.abandon())

    async def _do(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        return await _result(self._threads.submit(function, *args, **kwargs))


def _on_loop(function: Callable[[Message], object], loop: asyncio.AbstractEventLoop) -> Callable[[Message], object]:
    """A handler as the worker threads call it: a coroutine runs on the event loop, and its thread waits for it."""
    if not inspect.iscoroutinefunction(function):
        return function

    def call(message: Message) -> object:
        coroutine: Coroutine[Any, Any, object] = function(message)
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result()

    return call
