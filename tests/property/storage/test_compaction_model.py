"""Compaction and retention against a plain list of everything that was ever written, through stops at every step.

What must hold at all times: a reader from the start sees only records that were written, where they were written, and
ends up with the same last value for every key as the list; a tombstone stays as long as it is promised to; and below
the clean offset each key is there once at most.
"""

import contextlib
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import NamedTuple
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.property.profile import examples

from headrace.config.topic import TopicSettings
from headrace.records.batch import check_batch
from headrace.records.builder import build_batch
from headrace.records.compression import Codec
from headrace.records.reader import Record, iter_records
from headrace.runtime.clock import ManualClock
from headrace.storage.batches import read_batches
from headrace.storage.cleaner import Cleaned, Cleaner
from headrace.storage.encryption import LogCipher
from headrace.storage.files import CLEANED, DELETED, SWAP
from headrace.storage.log import Log
from headrace.testing.disks import ModelDisk, PowerLoss, stop_at
from headrace.testing.inline_cleaner import drive, inline
from headrace.testing.logs import DATA_KEYS

FOLDER = Path("/data/prices-0")
RETENTION_MS = 1000
SETTINGS = TopicSettings(
    cleanup_policy=("compact",),
    segment_bytes=700,
    index_interval_bytes=100,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=RETENTION_MS,
    file_delete_delay_ms=0,
)


KEEP_MS = 5000
BOTH = replace(SETTINGS, cleanup_policy=("compact", "delete"), retention_ms=KEEP_MS)


class Written(NamedTuple):
    record: Record
    at_ms: int


class World:
    """A log on a disk in memory, its cleaner, and the list that it is measured against."""

    def __init__(self, settings: TopicSettings = SETTINGS, *, is_encrypted: bool = False) -> None:
        self.settings = settings
        self.cipher = LogCipher(DATA_KEYS, "prices", UUID(int=7), 0, encrypts=True) if is_encrypted else None
        self.clock = ManualClock()
        self.disk = ModelDisk()
        self.disk.make_dir(FOLDER)
        self.written: list[Written] = []
        self.sequence = 0
        self.clean_until = 0
        self.open(recovery_point=0)

    def open(self, *, recovery_point: int) -> None:
        self.log = Log.open(
            FOLDER, self.settings, disk=self.disk, clock=self.clock, clean=False, recovery_point=recovery_point,
            producer_expiry_ms=10**9,
        )  # fmt: skip
        self.log.cipher = self.cipher
        self.cleaner = Cleaner(lambda: [self.log], clock=self.clock, run=inline, dedupe_buffer_bytes=240 * 20)

    def put(self, items: list[tuple[str, str | None]], codec: int = 0, *, idempotent: bool = False) -> None:
        now = self.clock.wall_ms()
        records = [Record(0, now, key.encode(), None if value is None else value.encode()) for key, value in items]
        if idempotent:
            batch = build_batch(records, codec=codec, producer_id=7, producer_epoch=0, base_sequence=self.sequence)
            self.sequence += len(records)
        else:
            batch = build_batch(records, codec=codec)
        base = self.log.append(batch, check_batch(batch), 0).base_offset
        self.written += (Written(record._replace(offset=base + i), now) for i, record in enumerate(records))

    def flush(self) -> None:
        ticket = self.log.begin_flush()
        if ticket is not None:
            ticket.sync()
            self.log.complete_flush(ticket)

    def compact(self) -> Cleaned | None:
        done = drive(self.cleaner.compact_dirtiest())
        if done is not None:
            self.clean_until = done.clean_until
        return done

    def retain(self) -> None:
        """Apply retention, and see that only what is old went."""
        before = self.log.start_offset
        drive(self.cleaner.apply_retention())
        self.log.purge_deleted()
        gone = [entry for entry in self.written if before <= entry.record.offset < self.log.start_offset]
        assert all(entry.at_ms < self.clock.wall_ms() - KEEP_MS for entry in gone)

    def stop_and_open(self, disk: ModelDisk) -> None:
        """Go on with what a stop left of the disk."""
        flushed = self.log.flushed_offset
        self.disk = disk
        self.open(recovery_point=flushed)
        assert self.log.end_offset >= flushed
        # Nobody was promised what was not flushed. Of that, also something in the middle may be gone.
        there = {record.offset for record in self.read()}
        self.written = [e for e in self.written if e.record.offset < flushed or e.record.offset in there]
        self.sequence = 0
        for producer_id, entry in self.log.producers.items():
            assert producer_id == 7
            self.sequence = entry.batches[-1].last_sequence + 1

    def read(self) -> list[Record]:
        found: list[Record] = []
        offset = self.log.start_offset
        while (piece := self.log.slice(offset, 300, self.log.end_offset, at_least_one=True)) is not None:
            for batch in read_batches(piece.file, piece.position, piece.position + piece.length):
                found += iter_records(piece.decrypted(batch.data))
                offset = batch.header.next_offset
        return found

    def check(self) -> None:
        read = self.read()
        kept = [entry for entry in self.written if entry.record.offset >= self.log.start_offset]
        written = {entry.record.offset: entry for entry in kept}
        offsets = [record.offset for record in read]
        assert offsets == sorted(set(offsets))
        for record in read:
            assert record == written[record.offset].record
        assert last_values(read) == last_values(entry.record for entry in kept)
        there = set(offsets)
        latest = {entry.record.key: entry for entry in kept}
        for entry in latest.values():
            if entry.record.value is None and self.clock.wall_ms() < entry.at_ms + RETENTION_MS:
                assert entry.record.offset in there
        clean = [record.key for record in read if record.offset < self.clean_until]
        assert len(clean) == len(set(clean))

    def check_all_is_clean(self) -> None:
        """Compact all there is, and see that nothing superfluous is left of records or files."""
        self.flush()
        self.log.roll()
        self.flush()
        while self.compact() is not None:
            self.check()
        self.check()
        self.clock.advance(RETENTION_MS)
        while self.compact() is not None:
            self.check()
        assert self.clean_until == self.log.end_offset
        kept = (entry.record for entry in self.written if entry.record.offset >= self.log.start_offset)
        assert {record.key: record.value for record in self.read()} == last_values(kept)
        names = self.disk.files(FOLDER)
        assert not [name for name in names if name.endswith((CLEANED, SWAP, DELETED, ".tmp"))]
        assert sum(name.endswith(".log") for name in names) == len(self.log.segments)


def last_values(records: object) -> dict[bytes | None, bytes]:
    """What a reader holds after all records; a key whose last value is null is not held."""
    held: dict[bytes | None, bytes] = {}
    for record in records:  # type: ignore[attr-defined]
        held.pop(record.key, None)
        if record.value is not None:
            held[record.key] = record.value
    return held


keys = st.sampled_from([*"abcdef", "a long key of more than twenty bytes"])
values = st.none() | st.text("xyz", min_size=1, max_size=20)
items = st.lists(st.tuples(keys, values), min_size=1, max_size=6)


class CompactionMachine(RuleBasedStateMachine):
    @initialize(settings=st.sampled_from([SETTINGS, BOTH]), is_encrypted=st.booleans())
    def begin(self, settings: TopicSettings, is_encrypted: bool) -> None:
        self.world = World(settings, is_encrypted=is_encrypted)

    @rule(items=items, codec=st.sampled_from(list(Codec)), idempotent=st.booleans())
    def put(self, items: list[tuple[str, str | None]], codec: Codec, idempotent: bool) -> None:
        self.world.put(items, codec, idempotent=idempotent)

    @rule()
    def roll(self) -> None:
        self.world.log.roll()

    @rule()
    def flush(self) -> None:
        self.world.flush()

    @rule()
    def retain(self) -> None:
        self.world.retain()

    @rule(ms=st.sampled_from([1, RETENTION_MS // 2, RETENTION_MS, KEEP_MS]))
    def wait(self, ms: int) -> None:
        self.world.clock.advance(ms)

    @rule()
    def compact(self) -> None:
        self.world.compact()

    @rule()
    def close_and_open(self) -> None:
        self.world.log.close()
        self.world.stop_and_open(self.world.disk.after_process_kill())

    @rule()
    def kill(self) -> None:
        self.world.stop_and_open(self.world.disk.after_process_kill())

    @rule(seed=st.integers(0, 2**32))
    def lose_power(self, seed: int) -> None:
        self.world.stop_and_open(self.world.disk.after_power_loss(Random(seed)))

    @rule(step=st.integers(1, 60), seed=st.none() | st.integers(0, 2**32))
    def stop_in_compaction(self, step: int, seed: int | None) -> None:
        self.world.disk.hook = stop_at(step)
        with contextlib.suppress(PowerLoss):
            self.world.compact()
        self.world.disk.hook = None
        disk = self.world.disk
        self.world.stop_and_open(disk.after_process_kill() if seed is None else disk.after_power_loss(Random(seed)))

    @precondition(lambda self: len(self.world.written) > 20)
    @rule()
    def clean_all(self) -> None:
        self.world.check_all_is_clean()

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "world"):
            self.world.check()


CompactionMachine.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
TestCompaction = CompactionMachine.TestCase


def eventful_world(*, is_encrypted: bool = False) -> World:
    """Several segments, some clean already, with tombstones whose time has come, and a producer whose records go."""
    world = World(is_encrypted=is_encrypted)
    for number in range(12):
        world.put([(f"key-{number % 5}", f"value-{number}"), ("same", str(number))], idempotent=number < 4)
    world.put([("key-1", None), ("key-2", None)])
    world.log.roll()
    world.flush()
    world.compact()
    for number in range(12):
        world.put([(f"key-{number % 3}", f"again-{number}"), (f"new-{number}", "x"), ("key-4", None)], Codec.LZ4)
    world.log.roll()
    world.flush()
    world.clock.advance(RETENTION_MS)
    world.put([("key-3", "unflushed")])
    return world


def steps_of_compaction(*, is_encrypted: bool = False) -> int:
    world = eventful_world(is_encrypted=is_encrypted)
    before = len(world.disk.steps)
    assert world.compact() is not None
    return len(world.disk.steps) - before


@pytest.mark.parametrize("is_encrypted", [False, True], ids=["plain", "encrypted"])
@pytest.mark.parametrize("kind", ["kill", "power", "power-partial"])
def test_a_stop_at_every_step_of_a_compaction(kind: str, is_encrypted: bool) -> None:
    total = steps_of_compaction(is_encrypted=is_encrypted)
    assert total > 30
    for step in range(1, total + 1):
        for seed in range(4 if kind == "power-partial" and not is_encrypted else 1):
            world = eventful_world(is_encrypted=is_encrypted)
            world.disk.hook = stop_at(step)
            with contextlib.suppress(PowerLoss):
                world.compact()
            if is_encrypted:
                assert not world.disk.contains(b"again-")
            world.disk.hook = None
            if kind == "kill":
                world.stop_and_open(world.disk.after_process_kill())
            else:
                world.stop_and_open(world.disk.after_power_loss(Random(seed) if kind == "power-partial" else None))
            world.clean_until = 0
            world.check()
            expected = 4 * 2
            assert world.sequence == expected, "the producer's sequence is remembered"
            world.check_all_is_clean()


def test_a_failing_disk_at_every_step_leaves_the_log_readable() -> None:
    """An error instead of a stop: the log is as before or as after, goes on, and is so too when opened again."""
    for step in range(1, steps_of_compaction() + 1):
        world = eventful_world()
        steps = 0

        def hook(what: str, path: Path, step: int = step) -> None:
            nonlocal steps
            steps += 1
            if steps == step:
                raise OSError(5, "Input/output error", str(path))

        world.disk.hook = hook
        world.compact()
        world.disk.hook = None
        world.clean_until = 0
        world.check()
        if world.log.failure is None:
            world.put([("key-1", "after")])
            world.flush()
        world.stop_and_open(world.disk.after_process_kill())
        world.check()
        world.check_all_is_clean()
