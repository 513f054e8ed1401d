"""The checks of a cluster whose topic is a mirror, was one, or becomes one: what it may commit, and what it may drop.

- A mirror topic commits the batches of its source, byte for byte, and acknowledges no producer before its promotion.
- A former source that is reversed is truncated once. From the moment at which the record of its topic says that
  everything is set aside, its truth is that of the new source. At this moment both histories are the same below the
  parting, nothing is committed past the end that was fixed, and each committed record between the two is committed in
  the divergent topic (invariant 95), with the earlier records of a transaction that was committed between the two. The
  figures that users get are those of the log.
- Replicas that are not truncated yet have the former history, and do not count for the new one.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from headrace.cluster.store import Change, Revision
from headrace.mirror.divergence import OFFSET_HEADER, PARTITION_HEADER, TOPIC_HEADER
from headrace.model.ids import TopicName
from headrace.model.image import PartitionState
from headrace.model.links import DIVERGENT_SUFFIX, Mirror, MirrorState, Parting
from headrace.records.batch import read_header
from headrace.records.markers import Marker, read_control
from headrace.records.reader import Record, iter_records
from headrace.replication.partition import Partition
from headrace.testing.sim.checks import CheckedBatch, Checks, SeenPartition, Truth, Violation, Watched
from headrace.testing.sim.clients import Place, SimSend, TransactionPhase


class LinkedChecks(Checks):
    """Checks of one of two linked clusters; the topic may be reversed once."""

    def __init__(self, topic: str) -> None:
        self._divergent = topic + DIVERGENT_SUFFIX
        super().__init__([topic, self._divergent])
        self._topic = topic
        self.other: LinkedChecks | None = None
        """Of the cluster that its topic mirrors, or is mirrored by."""
        self.on_reversed: list[Callable[[], None]] = []
        """Called when the topic was reversed: clients read another history from now on."""
        self.reversed: Mirror | None = None
        """The record of the topic when everything was set aside; None before."""
        self._former: dict[Place, Truth] = {}
        """What was committed before the topic was reversed."""
        self._untruncated: set[tuple[int, Place]] = set()
        """Replicas that had the former history when they were seen last."""
        self._aside: dict[Place, dict[int, set[bytes]]] = {}
        """The committed records of the divergent topic: values by the offsets that their headers name."""
        self.counts |= {"mirrored batches": 0, "failovers": 0, "promotions": 0, "reversals": 0, "set aside": 0}

    @property
    def mirror(self) -> Mirror | None:
        """The record of the mirror topic; None before it exists."""
        topic = self.image.topics.get(TopicName(self._topic))
        return None if topic is None else self.image.mirrors.get(topic.topic_id)

    @property
    def is_promoted(self) -> bool:
        return self.mirror is not None and not self.mirror.is_read_only

    @property
    def is_same(self) -> bool:
        """True if both clusters have committed the same."""
        assert self.other is not None
        places = [place for place in (*self.truths, *self.other.truths) if place[0] == self._topic]
        return all(self.truth(place).batches == self.other.truth(place).batches for place in places)

    @property
    def is_truncated(self) -> bool:
        """True if every replica of a reversed topic is on a broker that is up, and none has the former history."""
        hosted = {
            (broker.broker_id, int(each.index)): each
            for broker in self.brokers.values()
            for each in broker.hosted()
            if each.topic == self._topic
        }
        wanted = [
            (int(member), index)
            for index, state in enumerate(self.image.topics[TopicName(self._topic)].partitions)
            for member in state.replicas
        ]
        return all(key in hosted and not self._has_former((self._topic, key[1]), hosted[key]) for key in wanted)

    # Mirroring

    def acked(self, send: SimSend, broker_id: int) -> None:
        mirror = self.mirror
        if mirror is not None and mirror.is_read_only and mirror.state is not MirrorState.REVERSING:
            raise Violation(f"11: broker {broker_id} acknowledged {send.values[0]!r} in a mirror topic: {mirror}")
        super().acked(send, broker_id)

    def _add_to_truth(self, who: str, place: Place, partition: Partition, truth: Truth) -> None:
        before = truth.end
        super()._add_to_truth(who, place, partition, truth)
        mirror = self.mirror
        if mirror is None or place[0] != self._topic or mirror.state is MirrorState.REVERSING:
            return
        assert self.other is not None
        source = self.other.truth(place)
        for batch in (truth.batches[base] for base in truth.batches if base >= before):
            if 0 <= mirror.promoted_epoch <= read_header(batch.data).leader_epoch:
                continue
            self.counts["mirrored batches"] += 1
            if source.batches.get(batch.base_offset) != batch:
                raise Violation(f"5, 14: the mirrored batch at {batch.base_offset} is not that of the source: {who}")

    def _add_record(self, who: str, place: Place, truth: Truth, record: Record) -> None:
        if place[0] != self._divergent:
            super()._add_record(who, place, truth, record)
            return
        headers = dict(record.headers)
        named = headers.get(TOPIC_HEADER), headers.get(PARTITION_HEADER)
        if named != (self._topic.encode(), str(place[1]).encode()):
            raise Violation(f"95: a record that was set aside names {named}: {who}")
        assert record.value is not None
        offset = int(headers.get(OFFSET_HEADER) or b"-1")
        self._aside.setdefault((self._topic, place[1]), {}).setdefault(offset, set()).add(record.value)
        truth.values[record.offset] = record.value

    # The reversal

    def committed_in_store(self, revision: Revision, changes: tuple[Change, ...]) -> None:
        before = self.mirror
        super().committed_in_store(revision, changes)
        now = self.mirror
        was_reversing = before is not None and before.state is MirrorState.REVERSING
        if was_reversing and now is not None and now.state is MirrorState.MIRRORING:
            self._reverse(now)

    def _reverse(self, mirror: Mirror) -> None:
        """Check that the log may be truncated. What is committed from now on is compared with the new source."""
        if not mirror.source_cluster_id:
            raise Violation(f"the record does not say which cluster the records of {self._topic} come from: {mirror}")
        self._untruncated.update(key for key in self._seen if key[1][0] == self._topic)
        for index in range(len(self.image.topics[TopicName(self._topic)].partitions)):
            place, parting = (self._topic, index), mirror.parting(index)
            if parting is None:
                raise Violation(f"95: {place} was reversed, and has no parting: {mirror}")
            truth = self._former[place] = self.truth(place)
            self._check_parting(place, parting, truth)
            self._check_set_aside(place, parting, truth)
            self.truths[place] = truth_below(truth, parting.offset)
            self.counts["set aside"] += parting.set_aside
        self.counts["reversals"] += 1
        self.reversed = mirror
        for callback in self.on_reversed:
            callback()

    def _check_parting(self, place: Place, parting: Parting, truth: Truth) -> None:
        assert self.other is not None
        source = self.other.truth(place)
        if truth.end != parting.end:
            raise Violation(f"95: {truth.end} records of {place} are committed, the end was fixed at {parting.end}")
        for base, batch in truth.batches.items():
            is_common = source.batches.get(base) == batch
            if is_common != (base < parting.offset):
                raise Violation(
                    f"95: the histories of {place} part at {parting.offset} according to the record, and the batch at "
                    f"{base} is {'also' if is_common else 'not'} committed at the new source"
                )

    def _check_set_aside(self, place: Place, parting: Parting, truth: Truth) -> None:
        expected = outcome_of(truth.batches.values(), parting.offset)
        found = self._aside.get(place, {})
        for offset, value in expected.committed.items():
            if found.get(offset) != {value}:
                raise Violation(
                    f"1, 95: {value!r} was committed at {offset} of {place}, the histories part at {parting.offset}, "
                    f"and set aside is {found.get(offset)}"
                )
        if more := found.keys() - expected.committed.keys():
            raise Violation(f"95: {sorted(more)} of {place} were set aside, and are no committed records of it")
        figures = parting.set_aside, parting.aborted, parting.undecided
        if figures != (len(expected.committed), expected.aborted, expected.undecided):
            raise Violation(f"95: {parting} has other figures than the log of {place}: {expected}")

    # Replicas after the reversal

    def _has_former(self, place: Place, partition: Partition) -> bool:
        """True for a replica with records that its topic has dropped, or will."""
        parting = None if self.reversed is None or place[0] != self._topic else self.reversed.parting(place[1])
        if parting is None or self.reversed is None:
            return False
        log = partition.log
        return log.end_offset > parting.offset and log.epochs.latest < self.reversed.source_promoted_epoch

    def _check_partition(self, broker: Watched, place: Place, partition: Partition, seen: SeenPartition | None) -> None:
        key = broker.broker_id, place
        if self._has_former(place, partition):
            self._untruncated.add(key)
            former, log = self._former[place], partition.log
            who = f"broker {broker.broker_id}, {partition} before it is truncated"
            self._compare(who, log, former, log.start_offset, min(partition.high_watermark, former.end))
            return
        if key in self._untruncated:
            self._untruncated.discard(key)
            seen = None
        super()._check_partition(broker, place, partition, seen)

    def _check_in_sync(self, place: Place, state: PartitionState) -> None:
        super()._check_in_sync(place, state)
        parting = None if self.reversed is None or place[0] != self._topic else self.reversed.parting(place[1])
        if parting is None or self.truth(place).end <= parting.offset:
            return
        for member in state.isr:
            broker = self.brokers.get(member)
            for partition in () if broker is None or not broker.is_up else broker.hosted():
                if (partition.topic, partition.index) == place and self._has_former(place, partition):
                    raise Violation(f"1: broker {member} is in sync with {partition} before it is truncated")

    # At the end

    def check_end(self, brokers: Mapping[int, Watched]) -> None:
        if self.reversed is None:
            super().check_end(brokers)
            return
        for send in self.acked_sends:
            assert send.offset is not None
            for at, value in enumerate(send.values, send.offset):
                if not self._is_retained(send.place, at, value):
                    raise Violation(f"1, 95: {value!r} was acknowledged at {at}, and is neither there nor set aside")
        self._check_outcomes()
        for place, parting in ((place, self.reversed.parting(place[1])) for place in self._former):
            assert parting is not None
            self._check_set_aside(place, parting, self._former[place])
        for place, truth in self.truths.items():
            if place[0] == self._topic:
                self._check_order(place, truth)
            self._check_replicas(place, truth, brokers)

    def _is_retained(self, place: Place, offset: int, value: bytes) -> bool:
        return self.truth(place).values.get(offset) == value or self._aside.get(place, {}).get(offset) == {value}

    def _check_outcomes(self) -> None:
        """A committed transaction is retained, unless it was reported as undecided; an aborted one is not set aside."""
        assert self.reversed is not None
        undecided = {each.partition for each in self.reversed.partings if each.undecided}
        aside = {value for offsets in self._aside.values() for values in offsets.values() for value in values}
        for transaction in dict.fromkeys(self._transaction_of.values()):
            for place, values in transaction.values.items():
                lost = [value for value in values if value not in self.truth(place).offset_of and value not in aside]
                if transaction.state is TransactionPhase.COMMITTED and lost and place[1] not in undecided:
                    raise Violation(f"2, 95: {lost} of the committed transaction {transaction.name} are lost")
                if transaction.state is TransactionPhase.ABORTED and not aside.isdisjoint(values):
                    raise Violation(f"3, 95: the transaction {transaction.name} was aborted, and set aside")


class DecidedRecords(NamedTuple):
    """What became of the records of a log that another history from an offset on does not have."""

    committed: dict[int, bytes]
    """Values by their offsets. Those before the offset are of transactions that were committed after it."""
    aborted: int
    undecided: int


def outcome_of(batches: Iterable[CheckedBatch], start: int) -> DecidedRecords:
    """Read a whole log, and tell the records from `start` on apart. Batches are in the order of their offsets."""
    committed: dict[int, bytes] = {}
    opened: dict[int, dict[int, bytes]] = {}
    aborted = 0
    for batch in batches:
        header = read_header(batch.data)
        if header.is_control:
            marker = read_control(batch.data, header)
            records = opened.pop(header.producer_id, {}) if isinstance(marker, Marker) else {}
            if isinstance(marker, Marker) and marker.committed:
                if batch.base_offset >= start:
                    committed |= records
            else:
                aborted += sum(offset >= start for offset in records)
            continue
        found = {record.offset: record.value for record in iter_records(batch.data) if record.value is not None}
        if header.is_transactional:
            opened.setdefault(header.producer_id, {}).update(found)
        elif batch.base_offset >= start:
            committed |= found
    undecided = sum(offset >= start for records in opened.values() for offset in records)
    return DecidedRecords(committed, aborted, undecided)


def truth_below(truth: Truth, end: int) -> Truth:
    """The truth without what comes at or after an offset, where a batch starts."""
    below = Truth()
    below.end = min(truth.end, end)
    below.batches = {base: batch for base, batch in truth.batches.items() if base < end}
    below.values = {offset: value for offset, value in truth.values.items() if offset < end}
    below.offset_of = {value: offset for value, offset in truth.offset_of.items() if offset < end}
    below.markers = {offset for offset in truth.markers if offset < end}
    below.leaders = dict(truth.leaders)
    below.end_by_epoch = {epoch: min(at, end) for epoch, at in truth.end_by_epoch.items()}
    return below
