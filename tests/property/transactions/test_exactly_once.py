"""Transactions end to end without sockets, disks or sleeping: many producers, zombies, stops between any two steps.

The coordinator's machine decides, logs are real `Producers` over lists of batches. Records that the coordinator has not
committed are lost in a stop; what was answered was committed. Whatever the interleaving:

- a fenced producer never writes: nothing of an older epoch stands behind something of a newer one in any log;
- a transaction is all or nothing;
- read_committed never sees aborted or open data, and skips nothing that was committed.
"""

from random import Random
from typing import Any

import pytest

from headrace.coordinator.machine import InternalRecord, Outcome
from headrace.model.errors import HeadraceError
from headrace.model.ids import NO_PRODUCER, ProducerIdAndEpoch
from headrace.records.batch import TRANSACTIONAL
from headrace.records.markers import Marker
from headrace.storage.producers import Producers
from headrace.transactions.machine import TransactionMachine, is_exhausted
from headrace.transactions.records import Place
from headrace.transactions.states import DECIDED, TransactionState

IDS = ("a", "b")
PLACES: tuple[Place, ...] = (("t", 0), ("t", 1), ("u", 0))
Value = tuple[str, int]
"""Instance and number of one of its transactions: each value is of one transaction."""


class Log:
    """One partition."""

    def __init__(self) -> None:
        self.producers = Producers()
        self.batches: list[tuple[ProducerIdAndEpoch, Value | Marker]] = []

    def append(self, producer: ProducerIdAndEpoch, value: Value, sequence: int) -> None:
        assert self.producers.check(producer.producer_id, producer.epoch, sequence, 0) is None
        offset = len(self.batches)
        self.producers.record(producer.producer_id, producer.epoch, sequence, 0, offset, TRANSACTIONAL, 0, 0)
        self.batches.append((producer, value))

    def append_marker(self, producer: ProducerIdAndEpoch, marker: Marker) -> None:
        self.producers.check_marker(producer.producer_id, producer.epoch, marker)
        self.producers.end(producer.producer_id, producer.epoch, marker, len(self.batches), 0)
        self.batches.append((producer, marker))

    def committed(self) -> list[Value]:
        """What a read_committed reader sees, up to the last stable offset."""
        seen: dict[int, Value] = {}
        waiting: dict[int, dict[int, Value]] = {}
        for offset, (producer, content) in enumerate(self.batches):
            if not isinstance(content, Marker):
                waiting.setdefault(producer.producer_id, {})[offset] = content
            elif content.committed:
                seen.update(waiting.pop(producer.producer_id, {}))
            else:
                waiting.pop(producer.producer_id, None)
        stable = self.producers.first_unstable_offset(len(self.batches))
        return [value for offset, value in sorted(seen.items()) if stable is None or offset < stable]


class Cluster:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.now_ms = 1_000
        self.machine = TransactionMachine(900_000)
        self.entries: list[InternalRecord] = []
        self.committed_entries = 0
        self.is_upgraded = False
        self.logs = {place: Log() for place in PLACES}
        self.marked: dict[str, set[Place]] = {}
        self.next_id = 0

    def run(self, outcome: Outcome[Any, Any], *, flush: bool = True) -> object:
        for record in outcome.records:
            self.entries += self.machine.encode(record)
            self.machine.apply(record, -1)
        if flush:
            self.committed_entries = len(self.entries)
        return outcome.answer

    def stop(self) -> None:
        """Everything in memory is lost, and so is what was not committed."""
        del self.entries[self.committed_entries :]
        if self.random.random() < 0.5:
            self.compact()
        self.machine = TransactionMachine(900_000)
        for entry in self.entries:
            self.machine.replay(entry, -1)
        self.marked.clear()
        if self.is_upgraded:
            self.machine.use_kafka_format()

    def compact(self) -> None:
        last = {entry.key: at for at, entry in enumerate(self.entries)}
        self.entries = [entry for at, entry in enumerate(self.entries) if last[entry.key] == at and entry.value]
        self.committed_entries = len(self.entries)

    def upgrade(self) -> None:
        """Write Kafka's format from now on, and what is old again, one record at a time."""
        self.is_upgraded = True
        self.machine.use_kafka_format()
        self.run(Outcome(self.machine.old_records(1), None))

    def fresh_id(self) -> int:
        self.next_id += 1
        return self.next_id

    def write_one_marker(self) -> bool:
        """One step of completing some decided transaction."""
        decided = [(tid, t) for tid, t in self.machine.transactions.items() if t.state in DECIDED]
        if not decided:
            return False
        transactional_id, transaction = self.random.choice(decided)
        left = transaction.partitions - self.marked.setdefault(transactional_id, set())
        if not left:
            self.run(self.machine.complete(transactional_id, self.now_ms), flush=self.random.random() < 0.5)
            del self.marked[transactional_id]
            return True
        # The decision is committed before the first marker.
        self.committed_entries = len(self.entries)
        place = self.random.choice(sorted(left))
        producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
        marker = Marker(transaction.state is TransactionState.PREPARE_COMMIT, 0)
        self.logs[place].append_marker(producer, marker)
        self.marked[transactional_id].add(place)
        return True


class Instance:
    """One instance of a client. It never learns that it was replaced but by being refused."""

    def __init__(self, cluster: Cluster, name: str, transactional_id: str, *, bumps: bool) -> None:
        self.cluster = cluster
        self.name = name
        self.transactional_id = transactional_id
        self.bumps = bumps
        self.producer: ProducerIdAndEpoch | None = None
        self.number = 0
        self.sequences: dict[Place, int] = {}
        self.written: set[tuple[Place, Value]] = set()
        self.added: set[Place] = set()
        self.ending: bool | None = None
        self.is_dead = False
        self.expected: dict[Value, set[Place]] = {}
        """Transactions that were answered as committed, with where they wrote."""
        self.aborted: set[Value] = set()
        self.unsure: dict[Value, set[Place]] = {}

    @property
    def value(self) -> Value:
        return (self.name, self.number)

    def step(self) -> None:
        cluster = self.cluster
        try:
            if self.producer is None:
                self._init()
            elif self.ending is not None:
                self._end()
            elif self.cluster.random.random() < 0.25 and self.written:
                self.ending = cluster.random.random() < 0.6
            else:
                self._write(cluster.random.choice(PLACES))
        except HeadraceError as error:
            if type(error).__name__ != "ConcurrentTransactions":
                self.is_dead = True
                self._give_up()

    def _init(self) -> None:
        cluster = self.cluster
        outcome = cluster.machine.init(self.transactional_id, 5_000, NO_PRODUCER, cluster.fresh_id(), cluster.now_ms)
        answer = cluster.run(outcome)
        if isinstance(answer, ProducerIdAndEpoch):
            self.producer = answer

    def _write(self, place: Place) -> None:
        cluster, producer = self.cluster, self.producer
        assert producer is not None
        log = cluster.logs[place]
        sequence = self.sequences.get(place, 0)
        log.producers.check(producer.producer_id, producer.epoch, sequence, 0)
        is_missing = self.bumps or (place not in self.added and cluster.random.random() < 0.9)
        if is_missing and not log.producers.is_open(*producer):
            cluster.run(cluster.machine.add(self.transactional_id, producer, [place], cluster.now_ms))
            self.added.add(place)
            if cluster.random.random() < 0.3:
                return  # others may do something between adding and writing
        cluster.machine.verify(self.transactional_id, producer, place)
        log.append(producer, self.value, sequence)
        self.sequences[place] = sequence + 1
        self.written.add((place, self.value))

    def _end(self) -> None:
        cluster, producer = self.cluster, self.producer
        assert producer is not None
        assert self.ending is not None
        fresh = cluster.fresh_id() if is_exhausted(producer.epoch) else -1
        self.unsure[self.value] = {place for place, _ in self.written} if self.ending else set()
        outcome = cluster.machine.end(
            self.transactional_id,
            producer,
            committed=self.ending,
            bumps_epoch=self.bumps,
            fresh_producer_id=fresh,
            now_ms=cluster.now_ms,
        )
        is_lost = cluster.random.random() < 0.2
        answer = cluster.run(outcome, flush=not is_lost or cluster.random.random() < 0.5)
        if is_lost:
            return  # the answer does not arrive, and the client asks again
        assert isinstance(answer, ProducerIdAndEpoch)
        places = self.unsure.pop(self.value)
        if self.ending:
            self.expected[self.value] = places
        else:
            self.aborted.add(self.value)
        if answer != producer:
            self.sequences.clear()
        self.producer = answer
        self.number += 1
        self.ending = None
        self.written.clear()
        self.added.clear()

    def _give_up(self) -> None:
        if self.value not in self.unsure:
            self.aborted.add(self.value)


@pytest.mark.parametrize("seed", range(150))
def test_whatever_happens_transactions_are_all_or_nothing(seed: int) -> None:
    random = Random(seed)
    cluster = Cluster(random)
    instances: list[Instance] = []
    for step in range(400):
        does = ("client", "new", "marker", "stop", "time", "upgrade")
        match random.choices(does, weights=(60, 2, 30, 3, 3, 1))[0]:
            case "client":
                alive = [one for one in instances if not one.is_dead]
                if alive:
                    random.choice(alive).step()
            case "new":
                name = random.choice(IDS)
                instances.append(Instance(cluster, f"{name}{step}", name, bumps=random.random() < 0.5))
            case "marker":
                cluster.write_one_marker()
            case "stop":
                cluster.stop()
            case "upgrade":
                cluster.upgrade()
            case "time":
                cluster.now_ms += random.choice((10, 6_000))
                for transactional_id in IDS:
                    cluster.run(cluster.machine.abort_overdue(transactional_id, cluster.now_ms))
        check_fencing(cluster)
        if step % 40 == 0:
            check_visible(cluster, instances, settled=False)
    cluster.now_ms += 10_000
    cluster.stop()
    for transactional_id in IDS:
        cluster.run(cluster.machine.abort_overdue(transactional_id, cluster.now_ms))
    while cluster.write_one_marker():
        pass
    assert all(log.producers.first_open_offset is None for log in cluster.logs.values()), "nothing hangs"
    check_visible(cluster, instances, settled=True)


def check_fencing(cluster: Cluster) -> None:
    for log in cluster.logs.values():
        epochs: dict[int, int] = {}
        for producer, _ in log.batches:
            assert producer.epoch >= epochs.get(producer.producer_id, 0), "a fenced producer wrote"
            epochs[producer.producer_id] = producer.epoch


def check_visible(cluster: Cluster, instances: list[Instance], *, settled: bool) -> None:
    seen: dict[Value, set[Place]] = {}
    for place, log in cluster.logs.items():
        for value in log.committed():
            seen.setdefault(value, set()).add(place)
    for instance in instances:
        mine = {value: places for value, places in seen.items() if value[0] == instance.name}
        assert not mine.keys() & instance.aborted, "aborted data is seen"
        allowed = instance.expected.keys() | instance.unsure.keys()
        assert mine.keys() <= allowed, "open data is seen"
        if not settled:
            continue
        for value, places in instance.expected.items():
            assert mine.get(value) == places, "committed data is missing"
        for value, places in instance.unsure.items():
            assert mine.get(value) in (None, places), "a transaction is torn"
