"""`client.topics` for asyncio: the same verbs as `headrace.client.topics`, awaited."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

from headrace.client.keywords import checks_keywords
from headrace.client.threads import DaemonThreads, result_of
from headrace.client.topics import Names, SettingValue, TopicDescription
from headrace.client.topics import Topics as SyncTopics

T = TypeVar("T")


@checks_keywords
class Topics:
    """The topics of a cluster. Raises `NoSuchTopic`, `TopicFailed` or `Unreachable`.

    ```python
    from headrace.aio import Client

    async with Client("localhost:9092") as client:
        await client.topics.create("rates", partitions=6, settings={"retention.ms": 86_400_000})
        print((await client.topics.describe("rates")).settings["retention.ms"])
        await client.topics.delete("rates")
    ```
    """

    def __init__(self, topics: SyncTopics, threads: DaemonThreads) -> None:
        self._topics = topics
        self._threads = threads

    async def create(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replicas: int | None = None,
        settings: Mapping[str, SettingValue] | None = None,
        exist_ok: bool = False,
    ) -> None:
        """Make a topic. See `headrace.client.Topics.create`."""
        call = partial(self._topics.create, name, partitions=partitions, replicas=replicas)
        await self._do(partial(call, settings=settings, exist_ok=exist_ok))

    async def describe(self, name: str) -> TopicDescription:
        """The partitions of a topic and its settings. Raises `NoSuchTopic`."""
        return await self._do(partial(self._topics.describe, name))

    async def alter(
        self,
        name: str,
        *,
        partitions: int | None = None,
        settings: Mapping[str, SettingValue] | None = None,
        unset: Iterable[str] = (),
    ) -> None:
        """Change settings of a topic, or how many partitions it has. See `headrace.client.Topics.alter`."""
        await self._do(partial(self._topics.alter, name, partitions=partitions, settings=settings, unset=unset))

    async def delete(self, name: str, *, missing_ok: bool = False) -> None:
        """Delete a topic with everything in it."""
        await self._do(partial(self._topics.delete, name, missing_ok=missing_ok))

    async def list(self, prefix: str = "", *, internal: bool = False) -> Names:
        """The names of the topics that begin with `prefix`, in order."""
        return await self._do(partial(self._topics.list, prefix, internal=internal))

    async def mirrors(self, name: str) -> dict[str, str]:
        """The mirrors here of topics of this name. See `headrace.client.Topics.mirrors`."""
        return await self._do(partial(self._topics.mirrors, name))

    async def _do(self, call: Callable[[], T]) -> T:
        return await result_of(self._threads.submit(call))
