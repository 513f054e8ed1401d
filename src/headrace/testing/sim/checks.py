"""The invariants of a simulated cluster, checked at every step under any fault.

The numbers are those of the anomalies that each check excludes:

- 1 lost write, 5 inconsistent offset: records that any leader has committed are the truth from then on. Every later
  leader has all of them when its epoch begins, every in-sync replica has them (on disk, with flush.policy=ack), and no
  high watermark ever covers anything else.
- 4 duplicate, 6 poll skip, 7 reordered send: each value is read at one offset; a consumer reads every offset once and
  in order; a producer's values are in the order of its sends.
- 3 aborted read, 8 torn transaction: a read_committed consumer sees nothing of an aborted or open transaction, and in
  the end all or nothing of each.
- 10 unclean election: leaders come from the previous ISR.
- 11 zombie leader: one leader per epoch, no state is overwritten by an older one, an acknowledgement with acks=all is
  of committed records, and a broker whose lease has expired acknowledges nothing that only it has.
- 14 divergence: replicas are byte for byte equal below the high watermark.
- 2 unseen: at the end, after healing, everything acknowledged is read.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from headrace.cluster import layout
from headrace.cluster.image_changes import apply_changes, image_from
from headrace.cluster.store import Change, Revision, Snapshot
from headrace.model.ids import NO_LEADER, BrokerId
from headrace.model.image import ClusterImage, PartitionState
from headrace.records.batch import iter_headers, read_header
from headrace.records.reader import Record, iter_records
from headrace.replication.partition import Partition
from headrace.storage.log import Log
from headrace.testing.sim.clients import ACKS_ALL, Observer, Place, SimRead, SimSend, SimTransaction, TransactionPhase

_EMPTY_IMAGE = ClusterImage("", NO_LEADER, {}, {}, {}, {}, 0)


class Violation(AssertionError):
    """An invariant does not hold."""


class Watched(Protocol):
    """A broker as the checks see it."""

    broker_id: BrokerId

    @property
    def is_up(self) -> bool: ...

    @property
    def lease_epoch(self) -> int:
        """The broker epoch that it assumes to have; -1 if none."""
        ...

    def hosted(self) -> Iterable[Partition]:
        """The partitions it hosts; empty if it is down."""
        ...


class CheckedBatch(NamedTuple):
    base_offset: int
    next_offset: int
    data: bytes


class Truth:
    """The committed records of one partition. There is no compaction here, so offsets have no gaps."""

    def __init__(self) -> None:
        self.end = 0
        self.batches: dict[int, CheckedBatch] = {}
        self.values: dict[int, bytes] = {}
        self.offset_of: dict[bytes, int] = {}
        self.markers: set[int] = set()
        """The offsets of transaction markers, which have no client value."""
        self.leaders: dict[int, int] = {}
        """The leader of each epoch."""
        self.end_by_epoch: dict[int, int] = {}
        """The end of the committed records after the last commit by each epoch's leader."""

    def end_before(self, epoch: int) -> int:
        """The end of the records committed before this epoch: its leader must have them from the start."""
        return max((end for added, end in self.end_by_epoch.items() if added < epoch), default=0)

    def values_at(self, offset: int, count: int) -> tuple[bytes | None, ...]:
        return tuple(self.values.get(at) for at in range(offset, offset + count))


class SeenPartition(NamedTuple):
    """The last observed state of a partition on a broker."""

    partition: Partition
    high_watermark: int
    leader_epoch: int
    is_leader: bool


def batches_of(log: Log, start: int, end: int) -> Iterator[CheckedBatch]:
    """The batches of a log between two offsets."""
    offset = start
    while offset < end:
        cut = log.slice(offset, 1 << 20, end, at_least_one=True)
        if cut is None:
            return
        data = bytes(cut.file.read(cut.position, cut.length))
        before = offset
        for at, header in iter_headers(data):
            if header.base_offset >= end:
                return
            if header.next_offset > offset:
                yield CheckedBatch(header.base_offset, header.next_offset, data[at : at + header.size])
                offset = header.next_offset
        if offset == before:
            return


class Checks(Observer):
    """Checks the store, the brokers and the clients against the invariants."""

    def __init__(self, topics: Iterable[str]) -> None:
        self.topics = frozenset(topics)
        self.brokers: Mapping[int, Watched] = {}
        self.image = _EMPTY_IMAGE
        self.truths: dict[Place, Truth] = {}
        self.acked_sends: list[SimSend] = []
        self._seen: dict[tuple[int, Place], SeenPartition] = {}
        self._positions: dict[tuple[str, Place], int] = {}
        self._partition_epochs: dict[str, int] = {}
        """By the key of a partition's state in the store."""
        self._transaction_of: dict[bytes, SimTransaction] = {}
        self._read_committed: set[bytes] = set()
        self.counts = {"commits": 0, "elections": 0, "acks": 0, "reads": 0, "isr changes": 0, "transactions": 0}
        self.counts["messages"] = 0
        """Messages of queues that were received."""

    def truth(self, place: Place) -> Truth:
        found = self.truths.get(place)
        if found is None:
            found = self.truths[place] = Truth()
        return found

    # The store

    def committed_in_store(self, revision: Revision, changes: tuple[Change, ...]) -> None:
        """Check the partition states in a committed transaction against the previous ones."""
        for change in changes:
            if change.key.startswith(layout.PARTITIONS):
                self._check_written(change)
        before = self.image
        after = image_from(Snapshot({}, revision), "sim", None) if before is _EMPTY_IMAGE else before
        self.image = after = apply_changes(after, changes)
        for name, topic in after.topics.items():
            known = before.topics.get(name)
            if topic is known or name not in self.topics:
                continue
            for index, state in enumerate(topic.partitions):
                old = known.partitions[index] if known is not None and index < len(known.partitions) else None
                if state is not old:
                    self._check_state((name, index), old, state)

    def _check_written(self, change: Change) -> None:
        """A written state has a higher partition epoch: writers compare the state that they decided from."""
        if change.value is None:
            self._partition_epochs.pop(change.key, None)
            return
        state = layout.decode_partition(change.key, change.value)
        epoch = self._partition_epochs.get(change.key, -1)
        if state.partition_epoch <= epoch:
            raise Violation(f"11: {change.key} is at partition epoch {epoch}, and was overwritten by {state}")
        self._partition_epochs[change.key] = state.partition_epoch

    def _check_state(self, place: Place, old: PartitionState | None, new: PartitionState) -> None:
        what = f"{place[0]}-{place[1]}: {old} -> {new}"
        if not set(new.isr) <= set(new.replicas):
            raise Violation(f"a broker in the ISR is not a replica: {what}")
        if not new.isr:
            raise Violation(f"the ISR is empty: {what}")
        if new.leader != NO_LEADER and new.leader not in new.isr:
            raise Violation(f"10: the leader is not in sync: {what}")
        if old is None:
            return
        if new.partition_epoch <= old.partition_epoch:
            raise Violation(f"a state was replaced by an older one: {what}")
        if new.leader_epoch < old.leader_epoch:
            raise Violation(f"a leader epoch went back: {what}")
        if new.leader != old.leader and new.leader_epoch == old.leader_epoch and new.leader != NO_LEADER:
            raise Violation(f"11: a new leader in the same epoch: {what}")
        if new.leader_epoch > old.leader_epoch and new.leader != NO_LEADER:
            self.counts["elections"] += 1
            if new.leader not in old.isr:
                raise Violation(f"10: a leader was elected from outside the in-sync set: {what}")
        if set(new.isr) != set(old.isr):
            self.counts["isr changes"] += 1
            self._check_in_sync(place, new)

    def state_of(self, place: Place) -> PartitionState | None:
        topic = self.image.topics.get(place[0])  # type: ignore[call-overload]
        return None if topic is None else topic.partitions[place[1]]

    # Brokers

    def stepped(self, broker: Watched) -> None:
        """Check the partitions that changed in a broker's step."""
        for partition in broker.hosted():
            if partition.topic not in self.topics:
                continue
            place = (str(partition.topic), int(partition.index))
            key = (broker.broker_id, place)
            seen = self._seen.get(key)
            now = SeenPartition(partition, partition.high_watermark, partition.leader_epoch, partition.is_leader)
            if now == seen:
                continue
            self._seen[key] = now
            if seen is not None and seen.partition is not partition:
                seen = None
            self._check_partition(broker, place, partition, seen)

    def _check_partition(self, broker: Watched, place: Place, partition: Partition, seen: SeenPartition | None) -> None:
        truth = self.truth(place)
        who = f"broker {broker.broker_id}, {partition} at epoch {partition.leader_epoch}"
        is_new_leader = partition.is_leader and (
            seen is None or not seen.is_leader or seen.leader_epoch != partition.leader_epoch
        )
        if is_new_leader:
            self._check_new_leader(who, broker, place, partition, truth)
        start = 0 if seen is None else seen.high_watermark
        leads_on = partition.is_leader and not is_new_leader
        if leads_on and partition.high_watermark < start:
            raise Violation(f"5: the high watermark went back from {start} to {partition.high_watermark}: {who}")
        if partition.high_watermark > partition.log.end_offset:
            raise Violation(f"the high watermark is past the end of the log: {who}")
        if partition.high_watermark > start:
            # A leader that was cut off gets several changes at once: one that lets it commit, and then the election of
            # its successor. The records that it committed in its epoch are committed all the same.
            was_leader = seen is not None and seen.is_leader and seen.leader_epoch == partition.leader_epoch
            may_commit = partition.is_leader or was_leader
            first = max(start, partition.log.start_offset)
            self._check_committed(who, place, partition, truth, first, may_commit=may_commit)

    def _check_new_leader(self, who: str, broker: Watched, place: Place, partition: Partition, truth: Truth) -> None:
        leader = truth.leaders.setdefault(partition.leader_epoch, broker.broker_id)
        if leader != broker.broker_id:
            raise Violation(f"11: broker {leader} has led this epoch already: {who}")
        committed = truth.end_before(partition.leader_epoch)
        if partition.log.end_offset < committed:
            raise Violation(
                f"1: a leader begins with a log up to {partition.log.end_offset}, {committed} is committed: {who}"
            )
        self._compare(who, partition.log, truth, partition.log.start_offset, committed)

    def _check_committed(
        self, who: str, place: Place, partition: Partition, truth: Truth, start: int, *, may_commit: bool
    ) -> None:
        """Compare the records below an advanced high watermark with the truth, or add them to it."""
        end = partition.high_watermark
        if not may_commit and end > truth.end:
            raise Violation(f"5: a follower's high watermark is {end}, no leader's was above {truth.end}: {who}")
        known = min(end, truth.end)
        if start < known:
            self._compare(who, partition.log, truth, start, known)
        if end > truth.end:
            self._add_to_truth(who, place, partition, truth)
            state = self.state_of(place)
            if state is not None:
                self._check_in_sync(place, state)

    def _add_to_truth(self, who: str, place: Place, partition: Partition, truth: Truth) -> None:
        self.counts["commits"] += 1
        for batch in batches_of(partition.log, truth.end, partition.high_watermark):
            if batch.base_offset < truth.end or batch.next_offset > partition.high_watermark:
                raise Violation(f"5: the batch at {batch.base_offset} is not whole: {who}")
            if batch.base_offset > truth.end:
                raise Violation(f"5: the log has nothing at {truth.end}, before {batch.base_offset}: {who}")
            truth.batches[batch.base_offset] = batch
            truth.end = batch.next_offset
            for record in iter_records(batch.data):
                assert record.value is not None
                if read_header(batch.data).is_control:
                    truth.values[record.offset] = record.value
                    truth.markers.add(record.offset)
                    continue
                self._add_record(who, place, truth, record)
        truth.end_by_epoch[partition.leader_epoch] = truth.end
        if truth.end != partition.high_watermark:
            raise Violation(f"5: the log has nothing at {truth.end}, below {partition.high_watermark}: {who}")

    def _add_record(self, who: str, place: Place, truth: Truth, record: Record) -> None:
        assert record.value is not None
        if record.value in truth.offset_of:
            raise Violation(
                f"4: {record.value!r} was committed at {truth.offset_of[record.value]} "
                f"and again at {record.offset}: {who}"
            )
        truth.offset_of[record.value] = record.offset
        truth.values[record.offset] = record.value

    def _compare(self, who: str, log: Log, truth: Truth, start: int, end: int) -> None:
        offset = start
        for batch in batches_of(log, start, end):
            if truth.batches.get(batch.base_offset) != batch:
                raise Violation(f"5, 14: the batch at {batch.base_offset} is not the one that was committed: {who}")
            if batch.base_offset > offset:
                raise Violation(f"1: nothing is there at {offset}, before {batch.base_offset}: {who}")
            offset = batch.next_offset
        if offset < end:
            raise Violation(f"1: nothing is there at {offset}, up to {end} is committed: {who}")

    def _check_in_sync(self, place: Place, state: PartitionState) -> None:
        """Every in-sync replica, which may be elected, has every committed record."""
        truth = self.truth(place)
        for member in state.isr:
            broker = self.brokers.get(member)
            if broker is None or not broker.is_up:
                continue
            for partition in broker.hosted():
                if (partition.topic, partition.index) != place:
                    continue
                log = partition.log
                has = log.flushed_offset if partition.settings.flushes_before_ack else log.end_offset
                if has < truth.end:
                    raise Violation(
                        f"1: broker {member} is in sync with {has} records of {partition}, {truth.end} are committed"
                    )

    # Clients

    def acked(self, send: SimSend, broker_id: int) -> None:
        self.counts["acks"] += 1
        assert send.offset is not None
        if send.acks != ACKS_ALL:
            return
        self.acked_sends.append(send)
        truth = self.truth(send.place)
        if truth.values_at(send.offset, len(send.values)) != send.values:
            raise Violation(
                f"11: broker {broker_id} acknowledged {send.values[0]!r} at {send.offset} of {send.place}, "
                f"committed is {truth.values.get(send.offset)!r}, and all below {truth.end}"
            )

    def leadership(self, place: Place) -> tuple[int, int]:
        state = self.state_of(place)
        return (-1, -1) if state is None else (state.leader, state.leader_epoch)

    def forgotten(self, send: SimSend, broker_id: int) -> None:
        raise Violation(
            f"4: broker {broker_id} does not know the batches of {send.producer} before sequence {send.sequence} "
            f"of {send.place}, which were acknowledged"
        )

    def read(self, read: SimRead) -> None:
        self.counts["reads"] += 1
        truth = self.truth(read.place)
        key = (read.consumer, read.place)
        expected = self._positions.get(key, 0)
        if read.offset != expected:
            raise Violation(f"6: {read.consumer} read offset {read.offset} of {read.place} after {expected - 1}")
        self._positions[key] = read.offset + 1
        if truth.values.get(read.offset) != read.value:
            raise Violation(
                f"5: {read.consumer} read {read.value!r} at {read.offset} of {read.place}, not committed so"
            )

    def wrote(self, transaction: SimTransaction, values: Sequence[bytes]) -> None:
        for value in values:
            self._transaction_of[value] = transaction

    def ended(self, transaction: SimTransaction) -> None:
        self.counts["transactions"] += 1
        if transaction.state is TransactionPhase.ABORTED:
            for value in (value for values in transaction.values.values() for value in values):
                if value in self._read_committed:
                    raise Violation(f"3: {value!r} of the aborted transaction {transaction.name} was read before")

    def read_committed(self, read: SimRead) -> None:
        truth = self.truth(read.place)
        key = (read.consumer, read.place)
        if read.offset < self._positions.get(key, 0):
            raise Violation(f"6: {read.consumer} read offset {read.offset} of {read.place} a second time")
        self._positions[key] = read.offset + 1
        if truth.values.get(read.offset) != read.value:
            raise Violation(
                f"5: {read.consumer} read {read.value!r} at {read.offset} of {read.place}, not committed so"
            )
        self._read_committed.add(read.value)
        transaction = self._transaction_of.get(read.value)
        if transaction is not None and transaction.state in (TransactionPhase.ABORTED, TransactionPhase.OPEN):
            raise Violation(
                f"3: {read.value!r} was read, its transaction {transaction.name} is {transaction.state.value}"
            )

    def answered_alone(self, broker: Watched, place: Place, offset: int) -> None:
        """Check an acknowledgement that did not wait for other replicas (acks=1)."""
        known = self.image.brokers.get(broker.broker_id)
        if known is not None and known.is_alive and known.epoch == broker.lease_epoch:
            return
        state = self.state_of(place)
        if state is None or state.isr == (broker.broker_id,):
            return  # No other broker can be elected: nothing that only this one has can be lost.
        if self.truth(place).end <= offset:
            raise Violation(
                f"11: broker {broker.broker_id} acknowledged offset {offset} of {place} for itself, "
                f"its lease has ended (it has epoch {broker.lease_epoch}, the store knows {known})"
            )

    # At the end

    def check_end(self, brokers: Mapping[int, Watched]) -> None:
        """Check the final state, after everything is healed, idle and read to the end."""
        for send in self.acked_sends:
            truth = self.truth(send.place)
            assert send.offset is not None
            if truth.values_at(send.offset, len(send.values)) != send.values:
                raise Violation(f"1, 2: {send.values[0]!r} was acknowledged and is not there")
        for transaction in dict.fromkeys(self._transaction_of.values()):
            self._check_whole(transaction)
        for place, truth in self.truths.items():
            self._check_order(place, truth)
            self._check_replicas(place, truth, brokers)

    def _check_whole(self, transaction: SimTransaction) -> None:
        """A transaction is read completely or not at all."""
        values = [value for several in transaction.values.values() for value in several]
        seen = [value for value in values if value in self._read_committed]
        if transaction.state is TransactionPhase.COMMITTED and len(seen) < len(values):
            raise Violation(
                f"2: the transaction {transaction.name} was committed, {len(seen)} of {len(values)} were read"
            )
        if seen and len(seen) < len(values):
            raise Violation(f"8: of the transaction {transaction.name} {len(seen)} of {len(values)} values were read")

    def _check_order(self, place: Place, truth: Truth) -> None:
        last: dict[bytes, int] = {}
        for offset, value in sorted(truth.values.items()):
            if offset in truth.markers:
                continue
            producer, _, number = value.rstrip(b".").rpartition(b"/")
            if int(number) <= last.get(producer, -1):
                raise Violation(f"7: {value!r} of {place} comes after number {last[producer]} of its producer")
            last[producer] = int(number)

    def _check_replicas(self, place: Place, truth: Truth, brokers: Mapping[int, Watched]) -> None:
        state = self.state_of(place)
        assert state is not None
        for broker_id in state.replicas:
            for partition in brokers[broker_id].hosted():
                if (partition.topic, partition.index) == place:
                    who = f"broker {broker_id}, {partition}"
                    if partition.high_watermark != truth.end or partition.log.end_offset != truth.end:
                        raise Violation(
                            f"2: {truth.end} records are committed, but the log ends at {partition.log.end_offset} "
                            f"with high watermark {partition.high_watermark}: {who}"
                        )
                    self._compare(who, partition.log, truth, partition.log.start_offset, truth.end)
                    break
            else:
                raise Violation(f"2: broker {broker_id} does not host {place}")
