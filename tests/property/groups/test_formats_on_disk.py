"""The change of formats on a real log with the real compaction: what a restart finds is what was there before."""

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.property.groups.test_formats import GROUPS, NOW, PARTITIONS, TOPIC, state
from tests.property.profile import examples
from tests.unit.storage.cleaner_bench import DAY, Bench

from headrace.coordinator.machine import InternalRecord
from headrace.groups.group import GroupLimits
from headrace.groups.machine import GroupMachine
from headrace.groups.offsets import OffsetCommit
from headrace.groups.records import GroupRecord
from headrace.records.batch import check_batch
from headrace.records.builder import build_batch
from headrace.records.reader import Record

steps = st.lists(
    st.tuples(
        st.sampled_from(["commit", "commit", "delete", "delete group", "upgrade", "rewrite", "compact", "wait"]),
        st.sampled_from(GROUPS),
        st.sampled_from(PARTITIONS),
    ),
    max_size=60,
)


FORGOTTEN = [(what, "a", 0) for what in ("commit", "upgrade", "delete", "compact", "wait", "compact")]
"""When the second compaction has removed the tombstone of an offset, its old record must be gone, too."""


@settings(max_examples=examples(150), deadline=None)
@example(FORGOTTEN)
@given(steps)
def test_what_a_restart_finds_does_not_depend_on_compaction(steps: list[tuple[str, str, int]]) -> None:
    bench, machine, is_upgraded = Bench(), GroupMachine(GroupLimits()), False

    def write(records: list[GroupRecord]) -> None:
        for record in records:
            batch = build_batch([Record(0, bench.clock.wall_ms(), *entry) for entry in machine.encode(record)])
            bench.log.append(batch, check_batch(batch), 0)
            machine.apply(record, -1)

    for number, (what, group, partition) in enumerate(steps):
        if what == "commit":
            write(list(machine.commit_records(group, [OffsetCommit(TOPIC, partition, number)], NOW).records))
        elif what == "delete" and group in machine.groups:
            write(list(machine.delete_offsets(group, [(TOPIC, partition)]).records))
        elif what == "delete group" and group in machine.groups:
            write(list(machine.delete_group(group).records))
        elif what == "upgrade":
            is_upgraded = True
            machine.use_kafka_format()
        elif what == "rewrite" and is_upgraded:
            write(list(machine.old_records(2)))
        elif what == "compact":
            bench.roll()
            bench.compact()
        elif what == "wait":
            bench.clock.advance(2 * DAY)
    found = GroupMachine(GroupLimits())
    for record in bench.records():
        assert record.key is not None
        found.replay(InternalRecord(record.key, record.value), -1)
    assert {group: one for group, one in state(found).items() if one[2]} == {
        group: one for group, one in state(machine).items() if one[2]
    }
