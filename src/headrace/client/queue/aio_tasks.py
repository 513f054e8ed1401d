"""What goes on in the brokers and in workers, for asyncio: redrives, and calls whose results are awaited."""

import asyncio
from collections.abc import Generator
from typing import Any

from headrace.client.keywords import checks_keywords
from headrace.client.queue.calls import TaskCall as SyncCall
from headrace.client.queue.redrive import Redrive as SyncRedrive
from headrace.client.threads import DaemonThreads, result_of


@checks_keywords
class Redrive:
    """The progress of a redrive: messages that the broker moves from one queue to another.

    ```python
    from headrace.aio import Client

    async with Client("localhost:9092") as client:
        redrive = await client.queue("emails-dead").redrive(reason_contains="Timeout")
        print((await redrive.wait()).moved)
    ```
    """

    def __init__(self, move: SyncRedrive, threads: DaemonThreads) -> None:
        self._move = move
        self._threads = threads

    @property
    def id(self) -> str:
        return self._move.id

    @property
    def status(self) -> str:
        return self._move.status

    @property
    def moved(self) -> int:
        return self._move.moved

    @property
    def to_move(self) -> int:
        return self._move.to_move

    async def look(self) -> "Redrive":
        """Ask the broker how far it is."""
        await result_of(self._threads.submit(self._move.look))
        return self

    async def cancel(self) -> "Redrive":
        """Cancel it; messages that were moved stay moved."""
        await result_of(self._threads.submit(self._move.cancel))
        return self

    async def wait(self, timeout: float | None = None) -> "Redrive":
        """Wait until it is over. Raises `QueueFailed` if it failed and `TimeoutError` if it is not over in time."""
        await result_of(self._threads.submit(self._move.wait, timeout))
        return self


@checks_keywords
class TaskCall:
    """A task that was sent with `Queue.call`. Await it for its result, or `result` with a timeout.

    ```python
    from headrace.aio import Client

    async with Client("localhost:9092") as client:
        sums = await client.queue("sums").create()

        @sums.worker()
        async def add(message):
            return sum(message.json())

        async with client.running():
            call = await sums.call([1, 2, 3])
            print(await call.result(timeout=30))  # 6
    ```
    """

    def __init__(self, call: SyncCall, threads: DaemonThreads) -> None:
        self._call = call
        self._threads = threads
        self.queue, self.id, self.message_id = call.queue, call.id, call.message_id

    def done(self) -> bool:
        """Whether the result is there: a value, or a failure."""
        return self._call.done()

    async def result(self, timeout: float | None = None) -> Any:
        """The value that the worker returned. Raises `TimeoutError` and `CallFailed` as `headrace.TaskCall.result`."""
        try:
            async with asyncio.timeout(timeout):
                found = await result_of(self._call.reply)
        except TimeoutError:
            raise TimeoutError(self._call.overdue(timeout)) from None
        # On a thread, because it may ask the schema registry.
        return await result_of(self._threads.submit(self._call.value_of, found))

    def __await__(self) -> Generator[Any, None, Any]:
        return self.result().__await__()

    def __repr__(self) -> str:
        return repr(self._call)
