"""The groups of this broker, for links that copy committed offsets."""

import asyncio
from collections.abc import Mapping
from typing import TypeVar

from headrace.coordinator.result import Result
from headrace.groups.offsets import Committer, OffsetCommit
from headrace.groups.records import OffsetValue
from headrace.groups.service import GroupService
from headrace.mirror.source import GroupOffsets
from headrace.runtime.deferred import Deferred

A = TypeVar("A")

_TIMEOUT_S = 10.0


class LinkGroups:
    def __init__(self, groups: GroupService) -> None:
        self._groups = groups

    async def prepare(self) -> None:
        await self._groups.coordinator.ensure_topic()

    def is_here(self, group: str) -> bool:
        return self._groups.coordinator.is_here(group)

    def names(self) -> list[str]:
        """All groups that this broker coordinates; `CoordinatorLoading` while they are being loaded."""
        return [each.group_id for each in self._groups.listed()]

    async def offsets(self, group: str) -> Mapping[tuple[str, int], int]:
        found = await _settled(self._groups.fetch(group, None))
        return {
            (topic, partition): value.offset
            for topic, parts in found.items()
            for partition, value in parts.items()
            if isinstance(value, OffsetValue)
        }

    async def commit(self, group: str, offsets: GroupOffsets) -> None:
        commits = [
            OffsetCommit(topic, partition, each.offset, each.leader_epoch, each.metadata)
            for (topic, partition), each in offsets.items()
        ]
        # By no member: groups that have members refuse it.
        refused = await _settled(self._groups.commit(group, Committer(), commits))
        for error in refused.values():
            raise error


async def _settled(answer: Deferred[Result[A]]) -> A:
    waiting: asyncio.Future[Result[A]] = asyncio.get_running_loop().create_future()
    answer.then(lambda result: None if waiting.done() else waiting.set_result(result))
    async with asyncio.timeout(_TIMEOUT_S):
        return (await waiting).get()
