"""A log that begins in the format of 0.1 and goes on in Kafka's: whatever compaction does, the same is found in it.

Invariant 61: a record of the old format never comes back once something was written for its key in Kafka's.
"""

from collections.abc import Iterable
from typing import NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.property.profile import examples

from headrace.coordinator.machine import InternalRecord
from headrace.groups.classic import ClassicGroup
from headrace.groups.consumer import ConsumerGroup
from headrace.groups.consumer_records import ConsumerValue, MemberKey, SubscriptionValue, TargetKey
from headrace.groups.group import GroupLimits, Now
from headrace.groups.machine import GroupMachine
from headrace.groups.offsets import Committer, OffsetCommit
from headrace.groups.records import ClassicValue, GroupKey, Key, Value
from headrace.groups.share import ShareGroup
from headrace.groups.share_records import ShareMemberValue, ShareTargetValue, ShareValue

GROUPS = ("a", "b")
TOPIC = "t"
PARTITIONS = (0, 1)
PRODUCERS = (7, 8)
NOW = Now(0.0, 1_000)

State = dict[str, tuple[str, int, dict[int, int]]]
"""Of each group its kind, its generation or epoch, and its offsets."""


class Batch(NamedTuple):
    """Entries that are in the log together, or a marker that ends a producer's transaction."""

    producer_id: int
    entries: tuple[InternalRecord, ...] = ()
    ends: bool | None = None
    """Whether a marker commits; None for a batch that is no marker."""


class Shard:
    """A machine and its log, as the runtime connects them."""

    def __init__(self) -> None:
        self.log: list[Batch] = []
        self.open: set[int] = set()
        self.is_upgraded = False
        self.offset = 0
        self.machine = self.loaded(self.log)

    def write(self, records: Iterable[tuple[Key, Value | None]]) -> None:
        for record in records:
            self.log.append(Batch(-1, tuple(self.machine.encode(record))))
            self.machine.apply(record, -1)

    def commit(self, group: str, partition: int, producer_id: int) -> None:
        self.offset += 1
        records = self.machine.commit_records(group, [OffsetCommit(TOPIC, partition, self.offset)], NOW).records
        if producer_id < 0:
            self.write(records)
            return
        self.open.add(producer_id)
        encoded = [entry for record in records for entry in self.machine.encode_in_transaction(record)]
        self.log.append(Batch(producer_id, tuple(encoded)))
        for record in records:
            self.machine.apply(record, producer_id)

    def end(self, producer_id: int, *, committed: bool) -> None:
        if producer_id in self.open:
            self.open.discard(producer_id)
            self.log.append(Batch(producer_id, ends=committed))
            self.machine.replay_end(producer_id, committed=committed)

    def upgrade(self) -> None:
        self.is_upgraded = True
        self.machine.use_kafka_format()

    def loaded(self, log: Iterable[Batch]) -> GroupMachine:
        machine = GroupMachine(GroupLimits())
        for batch in log:
            for entry in batch.entries:
                machine.replay(entry, batch.producer_id)
            if batch.ends is not None:
                machine.replay_end(batch.producer_id, committed=batch.ends)
        machine.loaded(0.0)
        if self.is_upgraded:
            machine.use_kafka_format()
        return machine


def state(machine: GroupMachine) -> State:
    found: State = {}
    for name, group in machine.groups.items():
        assert isinstance(group, ClassicGroup | ConsumerGroup)
        number = group.generation if isinstance(group, ClassicGroup) else group.epoch
        offsets = {partition: value.offset for (_, partition), value in machine.offsets.of_group(name)}
        found[name] = (group.kind, number, offsets)
    return found


def compacted(log: list[Batch], until: int, *, drops_tombstones: bool) -> list[Batch]:
    """What is left of the first batches, of which none is of a transaction that is open."""
    fates: dict[int, list[bool]] = {producer_id: [] for producer_id in PRODUCERS}
    for batch in log:
        if batch.ends is not None:
            fates[batch.producer_id].append(batch.ends)
    counts: list[bool] = []
    for at, batch in enumerate(log):
        if batch.producer_id >= 0 and batch.ends is None and not fates[batch.producer_id]:
            until = min(until, at)
            counts.append(False)
        else:
            counts.append(batch.producer_id < 0 or (batch.ends is None and fates[batch.producer_id][0]))
        if batch.ends is not None:
            fates[batch.producer_id].pop(0)
    last = {
        entry.key: (at, nth)
        for at, batch in enumerate(log[:until])
        if counts[at]
        for nth, entry in enumerate(batch.entries)
    }
    left = []
    for at, batch in enumerate(log[:until]):
        kept = tuple(
            entry
            for nth, entry in enumerate(batch.entries)
            if counts[at] and last[entry.key] == (at, nth) and not (entry.value is None and drops_tombstones)
        )
        if kept or batch.ends is not None:
            left.append(batch._replace(entries=kept))
    return left + log[until:]


places = st.tuples(st.sampled_from(GROUPS), st.sampled_from(PARTITIONS))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), places, st.sampled_from((-1, -1, *PRODUCERS))),
        st.tuples(st.just("commit"), places, st.sampled_from((-1, -1, *PRODUCERS))),
        st.tuples(st.just("classic"), places, st.just(0)),
        st.tuples(st.just("consumer"), places, st.just(0)),
        st.tuples(st.just("delete"), places, st.just(0)),
        st.tuples(st.just("delete group"), places, st.just(0)),
        st.tuples(st.just("end"), st.booleans(), st.sampled_from(PRODUCERS)),
        st.tuples(st.just("upgrade"), st.none(), st.just(0)),
        st.tuples(st.just("rewrite"), st.none(), st.integers(1, 3)),
        st.tuples(st.just("compact"), st.booleans(), st.integers(0, 40)),
        st.tuples(st.just("crash"), st.none(), st.integers(0, 3)),
    ),
    max_size=40,
)


ABORTED = [
    ("commit", ("a", 0), -1),
    ("upgrade", None, 0),
    ("commit", ("b", 0), -1),
    ("commit", ("a", 0), 7),
    ("end", False, 7),
    ("delete", ("a", 0), 0),
    ("compact", True, 40),
]
"""The old offset would come back if the transaction that was aborted had counted as its replacement."""
CONVERTED = [
    ("upgrade", None, 0),
    ("classic", ("a", 0), 0),
    ("consumer", ("a", 0), 0),
    ("delete group", ("a", 0), 0),
    ("compact", True, 40),
]
"""The classic group would come back if the record of the consumer group had not replaced its own."""
UNDECIDED = [
    ("commit", ("a", 0), -1),
    ("upgrade", None, 0),
    ("commit", ("b", 0), -1),
    ("commit", ("a", 0), 7),
    ("rewrite", None, 3),
    ("end", True, 7),
]
"""What the transaction committed would be lost if the old offset were written again behind it."""


@settings(max_examples=examples(300), deadline=None)
@example(ABORTED)
@example(CONVERTED)
@example(UNDECIDED)
@given(steps)
def test_what_is_found_does_not_depend_on_the_format(steps: list[tuple[str, object, int]]) -> None:
    shard, never_upgraded = Shard(), Shard()
    for what, how, number in steps:
        if what == "crash":
            continue
        _do(shard, what, how, number)
        if what not in ("upgrade", "rewrite", "compact"):
            _do(never_upgraded, what, how, number)
        # A deleted group that had nothing is one that compaction forgot.
        assert _recorded(state(shard.machine)) == _recorded(state(never_upgraded.machine)), what


@settings(max_examples=examples(600), deadline=None)
@example(ABORTED, 60, 60, True)
@example(CONVERTED, 60, 60, True)
@given(steps, st.integers(0, 60), st.integers(0, 60), st.booleans())
def test_what_is_found_does_not_depend_on_compaction(
    steps: list[tuple[str, object, int]], until: int, length: int, drops: bool
) -> None:
    shard = Shard()
    for step in steps:
        _do(shard, *step)
        assert state(shard.loaded(shard.log)) == state(shard.machine), step
    # A follower may have any part of the log when it becomes the leader, and may have compacted any part of that.
    part = shard.log[:length]
    once = compacted(part, until, drops_tombstones=drops)
    assert _recorded(state(shard.loaded(once))) == _recorded(state(shard.loaded(part)))
    assert shard.loaded(once).has_old_records <= shard.loaded(part).has_old_records


def _do(shard: Shard, what: str, how: object, number: int) -> None:
    match what, how:
        case "commit", (str(group), int(partition)):
            shard.commit(group, partition, number)
        case "classic", (str(group), _):
            shard.offset += 1
            value = ClassicValue("consumer", shard.offset, None, None, 1_000, ())
            shard.write([(GroupKey(group), value)])
            shard.machine.adopt(ClassicGroup.from_stored(group, value, GroupLimits()))
        case "consumer", (str(group), _):
            shard.offset += 1
            shard.write([(GroupKey(group), ConsumerValue(shard.offset, shard.offset))])
        case "delete", (str(group), int(partition)) if group in shard.machine.groups:
            shard.write(shard.machine.delete_offsets(group, [(TOPIC, partition)]).records)
        case "delete group", (str(group), _) if group in shard.machine.groups:
            shard.write(shard.machine.delete_group(group).records)
        case "end", bool(committed):
            shard.end(number, committed=committed)
        case "upgrade", _:
            shard.upgrade()
        case "rewrite", _ if shard.is_upgraded:
            before = state(shard.machine)
            shard.write(shard.machine.old_records(number))
            assert _recorded(state(shard.machine)) == _recorded(before)
        case "compact", bool(drops):
            before = _recorded(state(shard.loaded(shard.log)))
            shard.log = compacted(shard.log, number, drops_tombstones=drops)
            shard.machine = shard.loaded(shard.log)
            assert _recorded(state(shard.machine)) == before
        case "crash", _:
            del shard.log[max(0, len(shard.log) - number) :]
            shard.open = _still_open(shard.log)
            shard.machine = shard.loaded(shard.log)


def _still_open(log: Iterable[Batch]) -> set[int]:
    found: set[int] = set()
    for batch in log:
        if batch.ends is None and batch.producer_id >= 0:
            found.add(batch.producer_id)
        elif batch.ends is not None:
            found.discard(batch.producer_id)
    return found


def _recorded(found: State) -> State:
    """Without groups that have nothing: compaction forgets that there were offsets."""
    return {group: (kind, number, offsets) for group, (kind, number, offsets) in found.items() if number or offsets}


def test_in_the_end_nothing_old_is_left() -> None:
    shard = Shard()
    for partition in PARTITIONS:
        shard.commit("a", partition, -1)
    shard.commit("b", 0, 7)
    shard.upgrade()
    shard.write(shard.machine.old_records(10))
    assert shard.machine.has_old_records, "a transaction may still change it"
    shard.end(7, committed=True)
    shard.write(shard.machine.old_records(10))
    assert not shard.machine.has_old_records
    log = compacted(shard.log, 100, drops_tombstones=True)
    keys = [entry.key for batch in log for entry in batch.entries]
    assert [key for key in keys if key[0] != 0] == [b"\x91\xa6format"]
    assert len(keys) == 4
    assert state(shard.loaded(log)) == {"a": ("classic", 0, {0: 1, 1: 2}), "b": ("classic", 0, {0: 3})}


def test_members_that_are_still_old_outlast_the_compaction_of_what_became_of_their_group() -> None:
    """Compaction leaves the tombstone of the group's old record, and none of the records that took its place before."""
    shard = Shard()
    shard.write([(GroupKey("a"), ConsumerValue(1, 1)), (MemberKey("a", "m"), SubscriptionValue(client_id="c"))])
    shard.upgrade()
    shard.write([(GroupKey("a"), ConsumerValue(2, 2)), (GroupKey("a"), ConsumerValue(3, 3))])
    group = shard.loaded(compacted(shard.log, 100, drops_tombstones=False)).of_kind("a", ConsumerGroup)
    assert (group.epoch, [member.member_id for member in group.members]) == (3, ["m"])


def test_a_member_of_a_share_group_that_left_stays_away() -> None:
    """Also while the record of the group itself, which tells its kind, is in the old format."""
    shard = Shard()
    shard.write([(GroupKey("a"), ShareValue(1, 1)), (MemberKey("a", "m"), ShareMemberValue(1))])
    shard.upgrade()
    shard.write([(MemberKey("a", "m"), ShareMemberValue(2)), (TargetKey("a", "m"), ShareTargetValue(()))])
    shard.machine = shard.loaded(shard.log)
    shard.write([(MemberKey("a", "m"), None), (TargetKey("a", "m"), None)])
    group = shard.loaded(compacted(shard.log, 100, drops_tombstones=True)).of_kind("a", ShareGroup)
    assert (group.members, group.targets) == ({}, {})


def test_a_log_that_was_never_old_has_no_marker() -> None:
    shard = Shard()
    shard.upgrade()
    shard.commit("a", 0, -1)
    shard.commit("a", 0, 7)
    shard.write(shard.machine.commit("b", Committer(), [OffsetCommit(TOPIC, 0, 9)], NOW).records)
    assert all(entry.key[0] == 0 for batch in shard.log for entry in batch.entries)
