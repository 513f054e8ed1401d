"""Creates the internal topics of streams groups in the background.

Every heartbeat of a group requests its missing topics until they exist. A failure (more replicas than brokers, an
unknown setting) is reported to the members of the group, and retried at a later heartbeat.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

from headrace.cluster.metadata import Metadata
from headrace.groups.streams_records import InternalTopic
from headrace.model.errors import HeadraceError, TopicExists

log = logging.getLogger(__name__)


class InternalTopics:
    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """The running task of each group, at most one."""
        self._problems: dict[str, str] = {}

    def create(self, group_id: str, topics: Sequence[InternalTopic]) -> None:
        """Start creating topics, unless a creation for the group is in progress."""
        if group_id not in self._tasks:
            task = asyncio.get_running_loop().create_task(self._create_all(group_id, topics))
            self._tasks[group_id] = task
            task.add_done_callback(lambda _: self._tasks.pop(group_id, None))

    def problem(self, group_id: str) -> str | None:
        """Why the last attempt failed; None if it did not."""
        return self._problems.get(group_id)

    async def stop(self) -> None:
        for task in tuple(self._tasks.values()):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _create_all(self, group_id: str, topics: Sequence[InternalTopic]) -> None:
        problems: list[str] = []
        for topic in topics:
            try:
                await self._create(topic)
                log.info("created the topic %s for the streams group %s", topic.name, group_id)
            except TopicExists:
                pass
            except HeadraceError as error:
                problems.append(f"{topic.name}: {error}")
        before, now = self._problems.pop(group_id, None), "; ".join(problems)
        if problems:
            self._problems[group_id] = now
            if now != before:
                log.warning("topics of the streams group %s cannot be created: %s", group_id, now)

    async def _create(self, topic: InternalTopic) -> None:
        await self._metadata.create_topic(
            topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor if topic.replication_factor > 0 else None,
            settings=dict(topic.settings),
        )
