"""A group machine whose records are kept, so that another one can be made of them, as after a restart."""

from collections.abc import Iterable

from headrace.coordinator.machine import InternalRecord, Outcome
from headrace.groups.group import Convert, Effects, GroupLimits, Reply
from headrace.groups.machine import GroupMachine
from headrace.groups.records import GroupRecord


class LoggedGroups:
    def __init__(self, limits: GroupLimits) -> None:
        self._limits = limits
        self.log: list[InternalRecord] = []
        self.machine = self.restarted()

    def write(self, records: Iterable[GroupRecord]) -> None:
        for one in records:
            self.log.extend(self.machine.encode(one))
            self.machine.apply(one, -1)

    def apply(self, effects: Effects) -> None:
        """Do what groups want done, and tell those who wait."""
        for effect in effects:
            match effect:
                case Outcome(records, answers):
                    self.write(records)
                    for answer in answers:
                        answer.waiter.resolve(answer.result)
                case Convert(group):
                    self.machine.adopt(group)
                case Reply(waiter, result):
                    waiter.resolve(result)

    def restarted(self) -> GroupMachine:
        machine = GroupMachine(self._limits)
        for one in self.log:
            machine.replay(one, -1)
        machine.loaded(0.0)
        return machine
