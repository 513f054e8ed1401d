"""A queue without faults, made of lists: whatever is done with it, the history that its clients write is clean."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from headrace.model.ids import PartitionIndex, TopicName, TopicPartition
from headrace.testing.checkers import HEALED
from headrace.testing.histories import AnyLine, Position, Read, Recorder, read_lines

TOPIC = TopicName("t")
PARTITIONS = 2


@dataclass
class Stored:
    value: str
    is_aborted: bool
    leader_epoch: int


@dataclass
class QueueModel:
    """Clients that do something at random, and are told the truth or nothing."""

    folder: Path
    rng: Random
    now: float = 0.0
    logs: list[list[Stored | None]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])
    """None is an offset without a value: a transaction's marker."""
    positions: dict[tuple[str, int], int] = field(default_factory=dict)
    recorders: dict[str, Recorder] = field(default_factory=dict)
    sent_count: int = 0
    owner_number: int = 0
    committed: dict[int, int] = field(default_factory=dict)
    epochs: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    leaders: list[int] = field(default_factory=lambda: [1] * PARTITIONS)
    changes: list[int] = field(default_factory=lambda: [0] * PARTITIONS)

    def by(self, name: str) -> Recorder:
        if name not in self.recorders:
            self.recorders[name] = Recorder(self.folder / f"{name}.jsonl", name, now=self.tick)
        return self.recorders[name]

    def tick(self) -> float:
        self.now += 1.0
        return self.now

    def run(self, steps: int) -> list[AnyLine]:
        take_over, rest = self.take_over, (self.send, self.send, self.transact, self.poll, self.poll, self.commit)
        take_over()
        for partition in range(PARTITIONS):
            self.elect(partition)
        for _ in range(steps):
            self.rng.choice((take_over, self.rebalance, lambda: self.elect(None), *rest, *rest))()
        self.by("nemesis").note(HEALED)
        self.rebalance()
        for partition in range(PARTITIONS):
            self.by("last").assign([Position(TOPIC, PartitionIndex(partition), 0)])
            while self.poll_one("last", partition):
                pass
        return list(self.lines())

    def lines(self) -> Iterator[AnyLine]:
        for recorder in self.recorders.values():
            recorder.close()
        for name in self.recorders:
            yield from read_lines(self.folder / f"{name}.jsonl")

    def send(self) -> None:
        by = f"producer-{self.rng.randrange(2)}"
        self.send_one(by, self.rng.choice(["acked", "acked", "acked", "stored", "dropped", "refused"]))

    def send_one(self, by: str, fate: str, *, txn: int | None = None, is_aborted: bool = False) -> None:
        record = self.by(by)
        self.sent_count += 1
        value = f"v{self.sent_count}"
        sent = record.send(TOPIC, value, txn=txn)
        partition = self.rng.randrange(PARTITIONS)
        if fate in ("acked", "stored"):
            self.logs[partition].append(Stored(value, is_aborted, self.epochs[partition]))
        if fate == "acked":
            record.ok(sent, partition=partition, offset=len(self.logs[partition]) - 1)
        elif fate == "refused":
            record.failed(sent, "refused")

    def take_over(self) -> None:
        """The transactional id gets a new owner; the former one tries something and is refused."""
        former = f"owner-{self.owner_number}"
        self.owner_number += 1
        record = self.by(f"owner-{self.owner_number}")
        record.ok(record.init("x"))
        if self.owner_number > 1:
            zombie = self.by(former)
            number = zombie.begin("x")
            self.send_one(former, "refused", txn=number)
            zombie.failed(zombie.finish(number, commit=True), "fenced")

    def transact(self) -> None:
        by = f"owner-{self.owner_number}"
        record = self.by(by)
        end = self.rng.choice(["committed", "committed", "maybe committed", "maybe aborted", "aborted", "left"])
        number = record.begin("x")
        for _ in range(self.rng.randint(1, 4)):
            self.send_one(by, "acked", txn=number, is_aborted=not end.endswith("committed"))
        for log in self.logs:
            log.append(None)
        if end != "left":
            finish = record.finish(number, commit=end != "aborted")
            if not end.startswith("maybe"):
                record.ok(finish)

    def poll(self) -> None:
        self.poll_one(f"reader-{self.rng.randrange(2)}", self.rng.randrange(PARTITIONS))

    def poll_one(self, by: str, partition: int) -> bool:
        log, start = self.logs[partition], self.positions.get((by, partition), 0)
        end = min(len(log), start + self.rng.randint(1, 5))
        self.positions[by, partition] = end
        reads = [
            Read(TOPIC, PartitionIndex(partition), offset, stored.value, stored.leader_epoch)
            for offset in range(start, end)
            if (stored := log[offset]) is not None and not stored.is_aborted
        ]
        self.by(by).poll(reads)
        return end < len(log)

    def rebalance(self) -> None:
        member = self.by(f"member-{self.owner_number}")
        member.assign([Position(TOPIC, PartitionIndex(partition)) for partition in range(PARTITIONS)], group="g")
        self.look()

    def commit(self) -> None:
        partition = self.rng.randrange(PARTITIONS)
        offset = self.committed.get(partition, 0) + self.rng.randint(0, 3)
        name = f"member-{self.owner_number}"
        member = self.by(name)
        member.assign([Position(TOPIC, PartitionIndex(partition))], group="g")
        commit = member.commit("g", [Position(TOPIC, PartitionIndex(partition), offset)])
        if self.rng.random() < 0.8:
            self.committed[partition] = offset
            member.ok(commit)
        self.look()

    def look(self) -> None:
        offsets = [Position(TOPIC, PartitionIndex(partition), offset) for partition, offset in self.committed.items()]
        began = self.tick()
        self.by("looker").committed(began, "g", offsets)

    def elect(self, partition: int | None) -> None:
        index = self.rng.randrange(PARTITIONS) if partition is None else partition
        if partition is None:
            self.leaders[index] = self.leaders[index] % 3 + 1
            self.epochs[index] += 1
            self.changes[index] += 1
        self.by("watcher").state(
            TopicPartition(TOPIC, PartitionIndex(index)),
            leader=self.leaders[index],
            leader_epoch=self.epochs[index],
            isr=[1, 2, 3],
            partition_epoch=self.changes[index],
        )
