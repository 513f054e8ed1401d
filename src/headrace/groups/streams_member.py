"""A member of a streams group (KIP-1071). Pure.

An active task is free while no other member has it, including members that have yet to revoke it. Members of one
process share a state directory: a task is not assigned to one of them, in any role, while another of them has it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from headrace.groups.epoch_members import LEFT_FOR_NOW, EpochMember, MemberPhase
from headrace.groups.streams_records import StreamsCurrentValue, StreamsMemberValue
from headrace.groups.streams_tasks import NO_TASKS, StreamsTask, TaskSet, restored_tasks, stored_tasks


@dataclass(frozen=True, slots=True)
class StreamsMember(EpochMember[StreamsMemberValue, TaskSet]):
    about: StreamsMemberValue = field(default_factory=StreamsMemberValue)
    assigned: TaskSet = NO_TASKS
    revoking: TaskSet = NO_TASKS
    since: Mapping[StreamsTask, int] = field(default_factory=dict)
    """The epoch at which it got each active task that it has. No other member has had the task since."""

    def current(self) -> StreamsCurrentValue:
        return StreamsCurrentValue(
            self.epoch,
            self.previous_epoch,
            self.phase.value,
            stored_tasks(self.assigned.active),
            stored_tasks(self.assigned.standby),
            stored_tasks(self.revoking.active),
            stored_tasks(self.revoking.standby),
            tuple(
                (epoch, stored_tasks(frozenset(task for task, at in self.since.items() if at == epoch)))
                for epoch in sorted(set(self.since.values()))
            ),
        )

    def with_current(self, value: StreamsCurrentValue) -> "StreamsMember":
        return replace(
            self,
            epoch=value.epoch,
            previous_epoch=value.previous_epoch,
            phase=MemberPhase(value.phase),
            assigned=TaskSet(restored_tasks(value.active), restored_tasks(value.standby)),
            revoking=TaskSet(restored_tasks(value.revoking_active), restored_tasks(value.revoking_standby)),
            since={task: epoch for epoch, tasks in value.since for task in restored_tasks(tasks)},
        )

    def left_for_now(self) -> "StreamsMember":
        return self.at(LEFT_FOR_NOW, MemberPhase.STABLE, self.assigned, NO_TASKS)

    def at(self, epoch: int, phase: MemberPhase, assigned: TaskSet, revoking: TaskSet) -> "StreamsMember":
        """Return the member at an epoch, with these tasks; `since` of new active tasks is that epoch."""
        return replace(
            self,
            epoch=epoch,
            previous_epoch=self.epoch,
            phase=phase,
            assigned=assigned,
            revoking=revoking,
            since={task: self.since.get(task, epoch) for task in assigned.active | revoking.active},
        )
