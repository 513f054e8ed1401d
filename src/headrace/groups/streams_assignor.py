"""The assignor of streams groups (KIP-1071): sticky and deterministic. Pure.

Active tasks: every task belongs to one member, no member has two more than another, and as few move as that allows.
A task that moves goes to a process with its state, if that has room: one that has it as a standby, or had it active.
Otherwise it goes to the member with the fewest tasks, in the process with the fewest per member.

Standbys: each stateful task has the configured number, each in another process than the task and its other standbys, as
far as there are processes. Existing standbys stay where possible; others go to processes with tags (or racks) that the
task does not have yet, and among these to the one with the fewest tasks per member.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

from headrace.groups.streams_tasks import NO_TASKS, StreamsTask, TaskSet


class TaskTaker(NamedTuple):
    """A member that tasks can be assigned to."""

    process_id: str
    held: TaskSet = NO_TASKS
    """Its previous target."""
    tags: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class _Load:
    """The tasks assigned to a member so far."""

    process_id: str
    active: set[StreamsTask] = field(default_factory=set)
    standby: set[StreamsTask] = field(default_factory=set)

    @property
    def total(self) -> int:
        return len(self.active) + len(self.standby)


def assign_tasks(
    workers: Mapping[str, TaskTaker], tasks: Iterable[StreamsTask], stateful: frozenset[str], standby_replicas: int
) -> dict[str, TaskSet]:
    """Return the tasks of each member. `stateful` are the subtopologies with changelogs: only these have standbys."""
    if not workers:
        return {}
    ordered = sorted(tasks)
    plan = _Plan(workers)
    plan.give_active(ordered)
    plan.give_standbys([task for task in ordered if task.subtopology in stateful], standby_replicas)
    return {
        member_id: TaskSet(frozenset(load.active), frozenset(load.standby)) for member_id, load in plan.loads.items()
    }


class _Plan:
    def __init__(self, workers: Mapping[str, TaskTaker]) -> None:
        self._workers = workers
        self.loads = {member_id: _Load(workers[member_id].process_id) for member_id in sorted(workers)}
        self._members_of: dict[str, list[str]] = defaultdict(list)
        for member_id in self.loads:
            self._members_of[workers[member_id].process_id].append(member_id)
        self._process_total: dict[str, int] = dict.fromkeys(self._members_of, 0)
        self._tags = {
            process_id: frozenset(tag for member_id in members for tag in workers[member_id].tags)
            for process_id, members in self._members_of.items()
        }
        self._share = self._extra = 0
        """The number of active tasks of each member, and how many members may still get one more."""
        self._had_active: dict[StreamsTask, list[str]] = defaultdict(list)
        self._had_standby: dict[StreamsTask, list[str]] = defaultdict(list)
        for member_id in self.loads:
            for task in workers[member_id].held.active:
                self._had_active[task].append(member_id)
            for task in workers[member_id].held.standby:
                self._had_standby[task].append(member_id)

    # -- active tasks

    def give_active(self, tasks: list[StreamsTask]) -> None:
        self._share, self._extra = divmod(len(tasks), len(self.loads))
        homeless = [task for task in self._keep_active(tasks) if not self._give_to_its_state(task)]
        least = [(self._order(member_id), member_id) for member_id in self.loads]
        heapify(least)
        for task in homeless:
            while True:
                known, member_id = least[0]
                if not self._has_room(member_id):
                    heappop(least)
                elif (order := self._order(member_id)) != known:
                    # Loads only grow: a stale entry is reinserted with its new load when it reaches the top.
                    heapreplace(least, (order, member_id))
                else:
                    break
            self._give(member_id, task)

    def _has_room(self, member_id: str) -> bool:
        """Whether a member may get one more active task: if they do not divide evenly, some members get one more."""
        size = len(self.loads[member_id].active)
        return size < self._share or (size == self._share and self._extra > 0)

    def _order(self, member_id: str) -> tuple[int, float]:
        load = self.loads[member_id]
        return len(load.active), self._process_load(load.process_id)

    def _keep_active(self, tasks: list[StreamsTask]) -> list[StreamsTask]:
        """Retain previous active tasks as far as the balance allows. Returns the unassigned tasks."""
        left = dict.fromkeys(tasks)
        most_first = sorted(self.loads, key=lambda member_id: (-len(self._workers[member_id].held.active), member_id))
        for member_id in most_first:
            for task in sorted(self._workers[member_id].held.active):
                if task in left and self._has_room(member_id):
                    del left[task]
                    self._give(member_id, task)
        return list(left)

    def _give_to_its_state(self, task: StreamsTask) -> bool:
        """Assign a task to a member of a process that has its state, if one has room. Returns whether one has."""
        for had in (self._had_active[task], self._had_standby[task]):
            room = [
                member_id
                for process_id in sorted({self.loads[member_id].process_id for member_id in had})
                for member_id in self._members_of[process_id]
                if self._has_room(member_id)
            ]
            if room:
                self._give(min(room, key=lambda member_id: (self._order(member_id), member_id)), task)
                return True
        return False

    # -- standbys

    def give_standbys(self, tasks: list[StreamsTask], replicas: int) -> None:
        replicas = min(replicas, len(self._members_of) - 1)
        if replicas <= 0:
            return
        everything = sum(load.total for load in self.loads.values()) + replicas * len(tasks)
        limit = -(-everything // len(self.loads))
        owners = {task: member_id for member_id, load in self.loads.items() for task in load.active}
        homes = {task: {self.loads[owners[task]].process_id} for task in tasks}
        tags = {task: set(self._tags[self.loads[owners[task]].process_id]) for task in tasks}
        # Existing standbys first: otherwise moved ones could take their room.
        for task in tasks:
            for member_id in (*self._had_standby[task], *self._had_active[task]):
                load = self.loads[member_id]
                if len(homes[task]) <= replicas and load.process_id not in homes[task] and load.total < limit:
                    self._give_standby(member_id, task, homes, tags)
        for task in tasks:
            while len(homes[task]) <= replicas:
                self._give_standby(self._best_standby(homes[task], tags[task]), task, homes, tags)

    def _give_standby(
        self,
        member_id: str,
        task: StreamsTask,
        homes: dict[StreamsTask, set[str]],
        tags: dict[StreamsTask, set[tuple[str, str]]],
    ) -> None:
        load = self.loads[member_id]
        load.standby.add(task)
        self._process_total[load.process_id] += 1
        homes[task].add(load.process_id)
        tags[task].update(self._tags[load.process_id])

    def _best_standby(self, homes: set[str], tags: set[tuple[str, str]]) -> str:
        process_id = min(
            (process_id for process_id in self._members_of if process_id not in homes),
            key=lambda process_id: (
                len(tags & self._tags[process_id]),
                self._process_load(process_id),
                process_id,
            ),
        )
        return min(self._members_of[process_id], key=lambda member_id: (self.loads[member_id].total, member_id))

    # -- both

    def _give(self, member_id: str, task: StreamsTask) -> None:
        load = self.loads[member_id]
        load.active.add(task)
        self._extra -= len(load.active) > self._share
        self._process_total[load.process_id] += 1

    def _process_load(self, process_id: str) -> float:
        return self._process_total[process_id] / len(self._members_of[process_id])
