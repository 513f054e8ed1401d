"""Streams of messages for asyncio: a thread per stream polls, and the event loop awaits its messages."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from headrace.client.consume.exactly_once import ExactlyOnce
from headrace.client.consume.stream import Stream as SyncStream
from headrace.client.errors import Unreachable
from headrace.client.keywords import checks_keywords
from headrace.client.message import Message
from headrace.client.outgoing import Headers, Key, Outgoing, Payload
from headrace.client.threads import DaemonThreads, result_of

if TYPE_CHECKING:
    from headrace.client.schemas.serializer import Serializer

_AT_ONCE = 100
_SLICE_S = 0.2

T = TypeVar("T")
StreamT = TypeVar("StreamT", bound=SyncStream)


@checks_keywords
class Stream(AsyncIterator[Message], Generic[StreamT]):
    """Messages of topics, for `async for`. Cancelling a wait for a message loses none.

    ```python
    from headrace.aio import Client

    async with Client("localhost:9092") as client:
        async with client.consume("orders", group="billing") as orders:
            async for order in orders:
                print(order.json()["item"])
                order.ack()
                break
    ```
    """

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
                self._stream = await result_of(self._opening)
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
                # One at a time where requesting the next message marks the previous one as done.
                at_once = 1 if isinstance(stream, ExactlyOnce) else _AT_ONCE
                self._pending = self._thread.submit(_take, stream, at_once)
            # A caller that is cancelled leaves the question standing, and the next one gets its answer.
            await self._settle()
            if not self._buffer and stream.is_over:
                if stream.ends_by_itself:
                    await self.close()
                raise StopAsyncIteration
        return self._buffer.popleft()

    async def _settle(self) -> None:
        """Wait for the poll in progress."""
        if (pending := self._pending) is not None:
            await asyncio.wait([asyncio.wrap_future(pending)])
            if self._pending is pending:
                self._pending = None
                self._buffer.extend(pending.result())

    async def seek(self, partition: int, offset: int, topic: str | None = None) -> None:
        """Go on from an offset of a partition."""
        await self._go(lambda stream: stream.seek(partition, offset, topic))

    async def seek_to_time(self, when: datetime) -> None:
        """Go on from the first message of each partition at or after a time."""
        await self._go(lambda stream: stream.seek_to_time(when))

    async def _go(self, move: Callable[[Any], None]) -> None:
        stream = await self.open()
        await self._settle()
        await self._do(move, stream)
        self._buffer.clear()

    def stop(self) -> None:
        """End the iteration before the next message."""
        if self._stream is not None:
            self._stream.stop()

    async def close(self) -> None:
        """Close it; what is done is committed."""
        await self._end(is_success=True)

    async def abandon(self) -> None:
        """End it after a failure, see `headrace.client.consume.stream.Stream`."""
        await self._end(is_success=False)

    async def _end(self, *, is_success: bool) -> None:
        if self._is_ended:
            return
        self._is_ended = True
        self.stop()
        closing = self._thread.submit(self._close, is_success)
        self._thread.shutdown(wait=False)
        self.when_closed()
        await result_of(closing)

    def _close(self, is_success: bool) -> None:
        """Run a call on the stream's thread, after all earlier ones; the awaiting task may be cancelled."""
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
        return await result_of(self._thread.submit(function, *args))


def _take(stream: SyncStream, at_once: int) -> list[Message]:
    """Take messages, with their values read: that may ask the schema registry, for which the event loop cannot wait."""
    messages = stream.take(at_once, _SLICE_S)
    unreachable: Unreachable | None = None
    for each in messages:
        unreachable = each.read_ahead(unreachable)
    return messages


StreamSelf = TypeVar("StreamSelf", bound=Stream[Any])


@checks_keywords
class Transaction(Stream[ExactlyOnce]):
    """Messages of topics, consumed exactly once: results and offsets are committed in one transaction.

    ```python
    from headrace.aio import Client

    async with Client("localhost:9092") as client:
        async with client.consume("orders", group="copy", delivery="exactly-once") as orders:
            async for order in orders:
                await orders.publish("copies", order.payload, key=order.key)
                break
    ```
    """

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
    ) -> None:
        """Publish in the transaction: readers see it when the transaction is committed. The arguments are those of
        `Client.publish`."""
        event = (type, content_type, correlation_id, id, source, subject, schema, key_schema)
        outgoing = Outgoing(topic, payload, key, headers, partition, timestamp, *event)
        stream = await self.open()
        await self._do(stream.publish_outgoing, outgoing)
