"""The client for asyncio: the same verbs and promises as `headrace.Client`, awaited.

librdkafka has threads of its own, so this is the same code behind threads: one per stream, one per handler, and a few
for publishing. The event loop never waits for them when it ends.
"""

import asyncio
import contextlib
import inspect
import signal
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from datetime import datetime
from types import TracebackType
from typing import Any, Generic, Literal, TypeVar, Unpack, overload

from headrace.client import running
from headrace.client.aio_queue import Queue, on_loop
from headrace.client.aio_queue import result_of as _result
from headrace.client.base import ClientBase
from headrace.client.connection import ClientOptions, ConsumeOptions
from headrace.client.consumption import Consumption
from headrace.client.exactly_once import ExactlyOnce
from headrace.client.handlers import Delivery
from headrace.client.librdkafka import logged
from headrace.client.message import Message
from headrace.client.outgoing import Options, Outgoing, Payload
from headrace.client.publisher import Published
from headrace.client.queue import Description
from headrace.client.stream import Stream as SyncStream
from headrace.client.subscription import Start, Subscription
from headrace.client.threads import DaemonThreads

_AT_ONCE = 100
_SLICE_S = 0.2
_THREADS = 8

T = TypeVar("T")
StreamT = TypeVar("StreamT", bound=SyncStream)


class Stream(AsyncIterator[Message], Generic[StreamT]):
    """Iterate over it with `async for`, in an `async with` block. Cancelling a wait for a message loses none."""

    def __init__(self, make: Callable[[], StreamT]) -> None:
        self._make = make
        self._stream: StreamT | None = None
        self._opening: Future[StreamT] | None = None
        self._thread = DaemonThreads(1, "headrace-stream")
        self._buffer: deque[Message] = deque()
        self._pending: Future[list[Message]] | None = None
        self._is_ended = False
        self.when_closed: Callable[[], None] = lambda: None

    async def open(self) -> StreamT:
        """The stream below; made on first use, because that asks the broker."""
        if self._stream is None:
            if self._opening is None:
                self._opening = self._thread.submit(self._make)
            try:
                self._stream = await _result(self._opening)
            except Exception:
                self._opening = None
                raise
        return self._stream

    async def __anext__(self) -> Message:
        stream = await self.open()
        while not self._buffer:
            if self._is_ended and stream.ends_by_itself:
                raise StopAsyncIteration
            if self._pending is None:
                # One at a time where coming back for more says that what was handed over is done.
                at_once = 1 if isinstance(stream, ExactlyOnce) else _AT_ONCE
                self._pending = self._thread.submit(stream.take, at_once, _SLICE_S)
            # A caller that is cancelled leaves the question standing, and the next one gets its answer.
            await self._settle()
            if not self._buffer and stream.is_over:
                if stream.ends_by_itself:
                    await self.close()
                raise StopAsyncIteration
        return self._buffer.popleft()

    async def _settle(self) -> None:
        """Wait for what is being read."""
        if (pending := self._pending) is not None:
            await asyncio.wait([asyncio.wrap_future(pending)])
            if self._pending is pending:
                self._pending = None
                self._buffer.extend(pending.result())

    async def seek(self, partition: int, offset: int) -> None:
        """Go on from an offset of a partition."""
        await self._go(lambda stream: stream.seek(partition, offset))

    async def seek_to_time(self, when: datetime) -> None:
        """Go on from the first message of each partition at or after a time."""
        await self._go(lambda stream: stream.seek_to_time(when))

    async def _go(self, move: Callable[[Any], None]) -> None:
        stream = await self.open()
        await self._settle()
        await self._do(move, stream)
        self._buffer.clear()

    def stop(self) -> None:
        """Let the iteration end where it would next hand over a message."""
        if self._stream is not None:
            self._stream.stop()

    async def close(self) -> None:
        """End it, keeping what is done."""
        await self._end(is_success=True)

    async def abandon(self) -> None:
        """End it after a failure, see `headrace.client.stream.Stream`."""
        await self._end(is_success=False)

    async def _end(self, *, is_success: bool) -> None:
        if self._is_ended:
            return
        self._is_ended = True
        self.stop()
        closing = self._thread.submit(self._close, is_success)
        self._thread.shutdown(wait=False)
        self.when_closed()
        await _result(closing)

    def _close(self, is_success: bool) -> None:
        """On the thread, so after everything that was begun before; whoever waits for it may be cancelled."""
        if self._opening is None or self._opening.exception() is not None:
            return
        stream = self._opening.result()
        if self._pending is not None and self._pending.exception() is None:
            stream.hand_back(self._pending.result())
        stream.hand_back(self._buffer)
        if is_success:
            stream.close()
        else:
            stream.abandon()

    async def __aenter__(self: "StreamSelf") -> "StreamSelf":
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end(is_success=kind is None)

    async def _do(self, function: Callable[..., T], *args: Any) -> T:
        return await _result(self._thread.submit(function, *args))


StreamSelf = TypeVar("StreamSelf", bound=Stream[Any])


class Transaction(Stream[ExactlyOnce]):
    """Exactly once: what is published here and the positions are committed together (see `ExactlyOnce`)."""

    async def publish(self, topic: str, payload: Payload, **options: Unpack[Options]) -> None:
        """Publish in the transaction: readers see it when the transaction is committed."""
        stream = await self.open()
        await self._do(lambda: stream.publish(topic, payload, **options))


class Client(ClientBase[Stream[Any]]):
    """A connection to a broker, for one event loop.

    async with headrace.aio.Client("localhost:9092") as client:
        await client.publish("orders", {"item": "tea"}, key="alice")
        async for order in client.consume("orders", group="billing"):
            await bill(order.json())
            client.ack(order)
    """

    def __init__(self, bootstrap: str = "localhost:9092", **options: Unpack[ClientOptions]) -> None:
        super().__init__(bootstrap, **options)
        self._threads = DaemonThreads(_THREADS, "headrace-aio")
        self._aio_queues: dict[str, Queue] = {}

    async def publish(self, topic: str, payload: Payload, **options: Unpack[Options]) -> Published:
        """Send a message and wait until it is stored. For many at once, gather: they go out in batches."""
        outgoing = Outgoing(topic, payload, **options)
        # On a thread, because a full queue makes it wait.
        sent = await self._do(self._connection.publisher.send, outgoing, is_awaited=True)
        return await asyncio.wrap_future(sent)

    async def flush(self) -> None:
        """Wait until every message sent so far is stored."""
        if (publisher := self._connection.used_publisher) is not None:
            await self._do(publisher.flush)

    def subscribe(self, topic: str, *, start: Start = "latest") -> Stream[Subscription]:
        """Every message of a topic from `start` on, without a group. The starting point is settled when the stream is
        entered with `async with`, or at the first message asked for."""
        return self._opened(Stream(lambda: self._connection.subscription(topic, start, bounded=False)))

    def replay(self, topic: str, since: Start = "earliest", until: datetime | None = None) -> Stream[Subscription]:
        """The messages of a topic between two times, once over; without `until`, up to what is there now."""
        return self._opened(Stream(lambda: self._connection.subscription(topic, since, until, bounded=True)))

    @overload
    def consume(
        self,
        topic: str | Sequence[str],
        group: str,
        delivery: Literal["exactly-once"],
        **options: Unpack[ConsumeOptions],
    ) -> Transaction: ...
    @overload
    def consume(
        self, topic: str | Sequence[str], group: str, delivery: Delivery = ..., **options: Unpack[ConsumeOptions]
    ) -> Stream[Consumption]: ...
    def consume(
        self,
        topic: str | Sequence[str],
        group: str,
        delivery: Delivery = "at-least-once",
        **options: Unpack[ConsumeOptions],
    ) -> Any:
        """The messages of one or more topics, shared among all who consume with the same group. See `headrace.Client`
        for what each delivery promises."""

        def make() -> Any:
            return self._connection.consumption(topic, group, delivery, options)

        return self._opened(Transaction(make) if delivery == "exactly-once" else Stream(make))

    def queue(self, name: str) -> Queue:
        """A queue: work that is handed out, acknowledged and retried. The same object for the same name."""
        if name not in self._aio_queues:
            self._aio_queues[name] = Queue(self._queue(name))
        return self._aio_queues[name]

    async def queues(self, prefix: str = "", *, with_counts: bool = False) -> list[Description]:
        """The queues that there are, those whose names begin with `prefix`, in the order of their names."""
        return await self._do(self._connection.queues, prefix, with_counts=with_counts)

    async def run(self) -> None:
        """Run the registered handlers and workers until `stop`, SIGTERM, Ctrl-C or cancellation; the messages in hand
        are finished first. Raises what stopped one of them."""
        loop = asyncio.get_running_loop()
        handlers = [each.calling(_on_loop(each.function, loop)) for each in self._handlers]
        workers = [on_loop(each, loop) for each in self._workers]
        self._begin(await self._do(self._made_loops, handlers, workers))
        with _stopping_on_signals(loop, self.stop):
            running_loops = asyncio.gather(
                *map(asyncio.wrap_future, running.start(self._loops)), return_exceptions=True
            )
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

    async def close(self) -> None:
        """Flush what was sent and acknowledged, end every stream with what is done kept. Lets go of everything,
        whatever fails of it."""
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(self._threads.let_go)
            if (publisher := self._connection.used_publisher) is not None:
                stack.push_async_callback(self._do, publisher.close)
            for queue in self._aio_queues.values():
                stack.push_async_callback(queue.close)
            for stream in list(self._streams):
                stack.push_async_callback(stream.close)

    async def abandon(self) -> None:
        """The same after a failure: transactions in progress are aborted, and what fails now is only logged."""
        for stream in list(self._streams):
            await stream.abandon()
        with logged("closing"):
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


@contextlib.contextmanager
def _stopping_on_signals(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> Iterator[None]:
    """The first SIGTERM or Ctrl-C calls `stop`; a second one takes effect as if we were not here."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signals = (signal.SIGINT, signal.SIGTERM)
    previous = {each: signal.getsignal(each) for each in signals}

    def restore() -> None:
        for each in signals:
            loop.remove_signal_handler(each)
            signal.signal(each, previous[each])

    def on_signal() -> None:
        restore()
        stop()

    for each in signals:
        loop.add_signal_handler(each, on_signal)
    try:
        yield
    finally:
        restore()
