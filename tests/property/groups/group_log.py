"""The log of a group machine: what it writes, compacted at will, and what a restart makes of it."""

from collections.abc import Iterable

from headrace.coordinator.machine import InternalRecord
from headrace.groups.machine import GroupMachine
from headrace.groups.records import Key, Value


class GroupLog:
    def __init__(self) -> None:
        self.batches: list[list[InternalRecord]] = []
        """What is written together: it is there as a whole, or not."""
        self._is_upgraded = False

    def __len__(self) -> int:
        return len(self.batches)

    def write(self, machine: GroupMachine, records: Iterable[tuple[Key, Value | None]]) -> int:
        for record in records:
            self.batches.append(list(machine.encode(record)))
            machine.apply(record, -1)
        return len(self.batches)

    def cut(self, length: int) -> None:
        del self.batches[length:]

    def load(self, machine: GroupMachine) -> None:
        for batch in self.batches:
            for entry in batch:
                machine.replay(entry, -1)
        if self._is_upgraded:
            machine.use_kafka_format()

    def upgrade(self, machine: GroupMachine, rewrites: int) -> None:
        """Raise the feature level, and write some of what is old again."""
        self._is_upgraded = True
        machine.use_kafka_format()
        self.write(machine, machine.old_records(rewrites))

    def compact(self, until: int, *, drops_tombstones: bool) -> None:
        """Keep the last record of each key among the first batches."""
        clean = self.batches[:until]
        last = {entry.key: (at, nth) for at, batch in enumerate(clean) for nth, entry in enumerate(batch)}
        self.batches[:until] = [
            [
                entry
                for nth, entry in enumerate(batch)
                if last[entry.key] == (at, nth) and not (entry.value is None and drops_tombstones)
            ]
            for at, batch in enumerate(clean)
        ]
