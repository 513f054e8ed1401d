"""Tasks of a streams group (KIP-1071), and their stored form. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

StoredTasks = tuple[tuple[str, tuple[int, ...]], ...]
"""Partitions by subtopology, in order."""


class StreamsTask(NamedTuple):
    """One partition of the topics that a subtopology reads."""

    subtopology: str
    partition: int


Tasks = frozenset[StreamsTask]


@dataclass(frozen=True, slots=True)
class TaskSet:
    """Tasks by role. Set operations apply to each role separately: an active task and its standby are distinct."""

    active: Tasks = frozenset()
    standby: Tasks = frozenset()

    def __and__(self, other: "TaskSet") -> "TaskSet":
        return TaskSet(self.active & other.active, self.standby & other.standby)

    def __or__(self, other: "TaskSet") -> "TaskSet":
        return TaskSet(self.active | other.active, self.standby | other.standby)

    def __sub__(self, other: "TaskSet") -> "TaskSet":
        return TaskSet(self.active - other.active, self.standby - other.standby)

    def __le__(self, other: "TaskSet") -> bool:
        return self.active <= other.active and self.standby <= other.standby

    def __bool__(self) -> bool:
        return bool(self.active or self.standby)


NO_TASKS = TaskSet()


def stored_tasks(tasks: Tasks) -> StoredTasks:
    return tuple(
        (subtopology, tuple(task.partition for task in of_subtopology))
        for subtopology, of_subtopology in groupby(sorted(tasks), key=lambda task: task.subtopology)
    )


def restored_tasks(tasks: Iterable[tuple[str, Iterable[int]]]) -> Tasks:
    return frozenset(
        StreamsTask(subtopology, partition) for subtopology, partitions in tasks for partition in partitions
    )
