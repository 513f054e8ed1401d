"""The state of a mirrored queue after a takeover (invariant 96): whatever was received, deleted and sent at the source,
and however much of its log and of its state was copied, no message is lost, here or there."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.profile import examples
from tests.unit.queues.engines import Driven

from headrace.config.queue import QueueSettings
from headrace.coordinator.machine import InternalRecord
from headrace.model.errors import CorruptBatch, NotInFlight
from headrace.queues.engine.mirrored_state import below, changes_between, check
from headrace.queues.engine.stored import (
    ACKED,
    CHUNK,
    INDEX,
    AckedValue,
    IndexValue,
    NarrowIndexValue,
    TimesValue,
    entry,
)

KINDS = {
    "standard": QueueSettings(type="standard", visibility_timeout_ms=30_000),
    "delayed": QueueSettings(type="standard", visibility_timeout_ms=30_000, delay_ms=5_000),
    "fifo": QueueSettings(type="fifo", visibility_timeout_ms=30_000),
}
FAR_MS = 3_600_000


def worked(kind: str, seed: int, turns: int) -> Driven:
    """A queue that was used for a while, with chunks of its index that are complete and others that are not."""
    random = Random(seed)
    home = Driven(KINDS[kind])
    if random.random() < 0.5:
        # So that what follows is at the border of a chunk.
        home.send(CHUNK - random.randrange(30), group=b"old" if kind == "fifo" else None)
        for offset in home.receive(random.randrange(0, CHUNK)):
            home.acknowledge(offset)
    for _ in range(turns):
        use(home, random, kind)
    return home


def use(home: Driven, random: Random, kind: str) -> None:
    now_ms = home.now_ms
    match random.randrange(6):
        case 0 | 1:
            what = {
                "priority": random.choice([4, 4, 7]),
                "due_ms": random.choice([None, None, now_ms + 60_000]),
                "group": random.choice([b"a", b"b"]) if kind == "fifo" else None,
            }
            home.send(random.randrange(1, 12), **what)
        case 2:
            for lease in home.engine.receive(random.randrange(1, 9), now_ms):
                if random.random() < 0.6:
                    home.acknowledge(lease.offset, lease.attempt)
        case 3:
            for offset, held in list(home.engine._inventory.leases.held.items()):
                try:
                    if random.random() < 0.3:
                        home.nack(offset, held.attempt, random.choice([0, 2_000]))
                except NotInFlight:
                    pass
        case 4:
            home.wait(random.choice([10, 1_000, 40_000]))
        case 5:
            home.keep()
            if random.random() < 0.3:
                home.engine._indexer.save_open(now_ms)
                home.keep()


def taken_over(home: Driven, entries: dict[bytes, bytes], end: int) -> Driven:
    """The mirror of a queue that has the log below `end`, and goes on from these entries."""
    here = Driven(home.settings, now_ms=home.now_ms)
    here.log, here.kept, here.log_start = home.log[:end], dict(entries), min(home.log_start, end)
    here.restart()
    return here


def acked_of(queue: Driven, end: int) -> set[int]:
    return {offset for offset in range(end) if queue.engine.look(offset) is None}


def drained(queue: Driven) -> list[int]:
    """All messages, each as it becomes available."""
    seen: list[int] = []
    for _ in range(6):
        queue.wait(FAR_MS // 6)
        while leases := queue.engine.receive(1_000, queue.now_ms):
            for lease in leases:
                queue.acknowledge(lease.offset, lease.attempt)
                seen.append(lease.offset)
    return seen


@pytest.mark.parametrize("kind", sorted(KINDS))
@settings(max_examples=examples(12), deadline=None)
@given(seed=st.integers(0, 2**32), turns=st.integers(1, 60), behind=st.integers(0, 40))
def test_nothing_is_lost_and_only_what_was_deleted_is_deleted(kind: str, seed: int, turns: int, behind: int) -> None:
    home = worked(kind, seed, turns)
    home.keep()
    end = max(0, len(home.log) - behind)
    for key, value in home.kept.items():
        check(key, value)
    entries = below(home.kept, end)
    here = taken_over(home, entries, end)
    there = taken_over(home, home.kept, len(home.log))  # The queue at home after a restart.
    assert acked_of(here, end) == acked_of(there, end), "the same messages are deleted"
    for offset in range(end):
        assert here.engine.look(offset) == there.engine.look(offset), "attempts, deadlines and delays are the same"
    here.send(30, group=b"new" if kind == "fifo" else None)
    wanted = sorted(set(range(len(here.log))) - acked_of(here, len(here.log)))
    assert all(offset in wanted for offset in range(end, end + 30)), "new messages are none of those deleted there"
    seen = drained(here)
    assert sorted(seen) == wanted
    if kind == "fifo":
        for group in (b"a", b"b", b"new", b"old"):
            of_group = [offset for offset in seen if here.log[offset].group == group]
            assert of_group == sorted(of_group)


@settings(max_examples=examples(12), deadline=None)
@given(seed=st.integers(0, 2**32), turns=st.integers(1, 40), more=st.integers(1, 30), cut=st.floats(0, 1))
def test_an_interrupted_copy_acks_nothing_that_is_not_acked(seed: int, turns: int, more: int, cut: float) -> None:
    home = worked("standard", seed, turns)
    home.keep()
    before = below(home.kept, len(home.log))
    random = Random(seed + 1)
    for _ in range(more):
        use(home, random, "standard")
    home.keep()
    end = len(home.log)
    after = below(home.kept, end)
    changes = changes_between(before, after)
    stored = dict(before)
    for key, value in changes[: int(cut * len(changes))]:
        if value is None:
            del stored[key]
        else:
            stored[key] = value
    here, there = taken_over(home, stored, end), taken_over(home, home.kept, end)
    assert acked_of(here, end) <= acked_of(there, end)
    assert sorted(drained(here)) == sorted(set(range(end)) - acked_of(taken_over(home, stored, end), end))
    for key, value in changes[int(cut * len(changes)) :]:
        if value is None:
            stored.pop(key, None)
        else:
            stored[key] = value
    assert stored == after


def test_entries_that_no_broker_writes_are_refused() -> None:
    bad = [
        entry(INDEX, 3, IndexValue(end=5 * CHUNK)),
        entry(INDEX, 0, IndexValue(end=4, members=b"x" * 10)),
        entry(INDEX, 0, IndexValue(end=4, members=b"\x07\x00" * CHUNK)),
        entry(INDEX, 0, NarrowIndexValue(end=4, delayed=TimesValue(0, memoryview(b"1234"), memoryview(b""), 0))),
        entry(INDEX, 0, NarrowIndexValue(end=4, expiring=TimesValue(0, memoryview(b"1234"), memoryview(b""), 3))),
        entry(INDEX, 0, NarrowIndexValue(end=4, level_planes=[bytes(CHUNK)])),
        entry(ACKED, 0, AckedValue(b"\xff" * (CHUNK // 8 + 1))),
        InternalRecord(b"z" + bytes(8), b"\x90"),
        InternalRecord(b"h", b"\x90"),
    ]
    for each in bad:
        assert each.value is not None
        with pytest.raises(CorruptBatch):
            check(each.key, each.value)
