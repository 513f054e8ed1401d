"""`client.schedules` for asyncio: the same verbs as `headrace.client.schedules`, awaited."""

from functools import partial

from headrace.client.keywords import checks_keywords
from headrace.client.schedules import ScheduleDescription
from headrace.client.schedules import Schedules as SyncSchedules
from headrace.client.threads import DaemonThreads, result_of


@checks_keywords
class Schedules:
    """The schedules of a cluster, as `headrace.Client.schedules`, for asyncio.

    ```python
    from headrace.aio import Client

    async with Client("localhost:9092") as client:
        for each in await client.schedules.list():
            print(each.name, each.rule, each.next_due)
    ```
    """

    def __init__(self, schedules: SyncSchedules, threads: DaemonThreads) -> None:
        self._schedules = schedules
        self._threads = threads

    async def remove(self, name: str) -> int:
        """Remove a schedule; how many failed runs are left in its dead-letter queue."""
        return await result_of(self._threads.submit(partial(self._schedules.remove, name)))

    async def run(self, name: str) -> None:
        """Let a schedule run once more, as soon as a worker is free."""
        await result_of(self._threads.submit(partial(self._schedules.run, name)))

    async def list(self) -> list[ScheduleDescription]:
        """All schedules, by name."""
        return await result_of(self._threads.submit(self._schedules.list))
