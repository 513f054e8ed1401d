"""How a member of a streams group gets from the tasks it has to those it shall have (KIP-1071). Pure.

The phases are those of consumer groups (`reconciliation.py`): a member that has to give up something stays at its epoch
until it says that it has, and then goes on to that of the target, with as much of it as is free.

An active task is free while no other member has it, be it that it has yet to give it up. Members of one process share a
directory for state, so that nothing of a task is given to one of them while another one of them has the task in any
role.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from headrace.groups.reconciliation import Phase
from headrace.groups.streams_records import StreamsCurrentValue, StreamsMemberValue
from headrace.groups.streams_tasks import NO_TASKS, StreamsTask, TaskSet, restored_tasks, stored_tasks

IsFree = Callable[[StreamsTask], bool]


@dataclass(frozen=True, slots=True)
class StreamsMember:
    member_id: str
    about: StreamsMemberValue = field(default_factory=StreamsMemberValue)
    epoch: int = 0
    previous_epoch: int = 0
    """Where it was before: it is still listened to with that, since it may have missed our answer."""
    phase: Phase = Phase.STABLE
    assigned: TaskSet = NO_TASKS
    revoking: TaskSet = NO_TASKS
    since: Mapping[StreamsTask, int] = field(default_factory=dict)
    """At which epoch it got each active task that it has. Nobody else has had the task since."""

    @property
    def holds(self) -> TaskSet:
        """What it has, also if it has yet to give it up."""
        return self.assigned | self.revoking

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
            phase=Phase(value.phase),
            assigned=TaskSet(restored_tasks(value.active), restored_tasks(value.standby)),
            revoking=TaskSet(restored_tasks(value.revoking_active), restored_tasks(value.revoking_standby)),
            since={task: epoch for epoch, tasks in value.since for task in restored_tasks(tasks)},
        )

    def with_tasks(self, epoch: int, phase: Phase, assigned: TaskSet, revoking: TaskSet) -> "StreamsMember":
        """The member at an epoch, with these tasks; what it did not have before, it has since that epoch."""
        return replace(
            self,
            epoch=epoch,
            previous_epoch=self.epoch,
            phase=phase,
            assigned=assigned,
            revoking=revoking,
            since={task: self.since.get(task, epoch) for task in assigned.active | revoking.active},
        )


def reconcile_tasks(
    member: StreamsMember,
    target_epoch: int,
    target: TaskSet,
    owned: TaskSet | None,
    is_free_active: IsFree,
    is_free_standby: IsFree,
) -> StreamsMember:
    """The member one step further. `owned` is what it says it has, or None if it does not say.

    The two predicates tell whether other members leave room for an active task, and for a standby.
    """
    if member.phase is Phase.STABLE and member.epoch == target_epoch:
        return member
    epoch = member.epoch
    if member.phase is Phase.UNREVOKED:
        if owned is None or owned & member.revoking:
            return member
        epoch += 1
    keeps = member.assigned & target
    revoking = member.assigned - target
    if revoking and (owned is None or owned & revoking):
        return member.with_tasks(epoch, Phase.UNREVOKED, keeps, revoking)
    missing = target - keeps
    available = TaskSet(
        frozenset(filter(is_free_active, missing.active)), frozenset(filter(is_free_standby, missing.standby))
    )
    phase = Phase.STABLE if available == missing else Phase.UNRELEASED
    if phase is member.phase and not available and epoch == target_epoch and not member.revoking and not revoking:
        return member
    return member.with_tasks(target_epoch, phase, keeps | available, NO_TASKS)
