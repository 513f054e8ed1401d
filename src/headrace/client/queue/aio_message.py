"""Received messages of queues for asyncio."""

import asyncio
import contextlib
from types import TracebackType
from typing import Any

from headrace.client.failures import reason_for_broker
from headrace.client.keywords import checks_keywords
from headrace.client.queue.acks import AckResult
from headrace.client.queue.message import QueueMessage as SyncMessage
from headrace.client.queue.message import QueueMessageBody, Seconds
from headrace.model.queue_wire import Received


async def _settled(settlement: AckResult) -> None:
    """Wait until the broker has it; raises what went wrong."""
    loop = asyncio.get_running_loop()
    answered = asyncio.Event()

    def tell(_: AckResult) -> None:
        # Nothing waits on a closed loop.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(answered.set)

    settlement.when_done(tell)
    await answered.wait()
    settlement.result()


@checks_keywords
class QueueMessage(QueueMessageBody[Received]):
    """A received message, leased to this receiver until it is acknowledged or its visibility timeout ends.

    ```python
    from headrace.aio import Client

    async with Client("localhost:9092") as client:
        for message in await client.queue("emails").receive(max=10):
            async with message:  # acknowledges it; an exception returns it to the queue with the reason
                print(message.id, message.attempt, message.json())
    ```
    """

    __slots__ = ("_message", "queue")

    def __init__(self, message: SyncMessage) -> None:
        super().__init__(message.found)
        self._message = message
        self.queue = message.queue

    @property
    def value(self) -> Any:
        """The body as a value of the `type` that `receive` or the worker was given. Raises `InvalidMessage` if it is
        not of that type."""
        return self._message.value

    async def ack(self) -> None:
        """It is done and is not received again. Goes out together with others; returns when the broker has it."""
        await _settled(self._message.ack())

    async def nack(self, delay: Seconds | None = None, reason: str = "") -> None:
        """It failed, and is to be tried again after `delay`; without one, as the queue's retry policy says."""
        await _settled(self._message.nack(delay, reason))

    async def __aenter__(self) -> "QueueMessage":
        """`async with message:` acknowledges it when the block ends, unless it was settled there; when an exception
        ends the block, it is returned with that as the reason."""
        self._message.begin_process()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if not self._message.is_settled:
                if error is None:
                    await self.ack()
                else:
                    await self.nack(reason=reason_for_broker(error))
        finally:
            self._message.end_process(error)

    async def extend(self, seconds: Seconds) -> None:
        """Keep it for so long from now on. Raises `LeaseLost` if it is not ours any more."""
        await _settled(self._message.extend_soon(seconds))

    def __repr__(self) -> str:
        return repr(self._message)
