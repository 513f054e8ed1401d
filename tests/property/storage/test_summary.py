"""A log that is opened by its summary is the log that reading it would give, whatever was done before."""

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from tests.property.profile import examples
from tests.property.storage.log_view import to_be_read, view

from headrace.storage.checkpoints import CLEAN_STOP
from headrace.testing.disks import ModelDisk
from headrace.testing.logs import LogBench

PRODUCERS = st.sampled_from((1, 2, 3))


class SummaryMachine(RuleBasedStateMachine):
    """The broker is killed, loses power or stops, and at each start both ways of opening are compared."""

    @initialize()
    def start(self) -> None:
        self.disk = ModelDisk()
        self.bench = LogBench(self.disk)
        self.epoch = 0

    @rule(producer=PRODUCERS, transactional=st.booleans(), size=st.integers(0, 300))
    def append(self, producer: int, transactional: bool, size: int) -> None:
        entry = self.bench.log.producers.get(producer)
        sequence = entry.batches[-1].last_sequence + 1 if entry is not None and entry.batches else 0
        self.bench.append(
            b"v" * size, producer=producer, sequence=sequence, transactional=transactional, epoch=self.epoch
        )

    @rule(producer=PRODUCERS, committed=st.booleans())
    def end(self, producer: int, committed: bool) -> None:
        self.bench.end_transaction(producer, committed=committed, epoch=self.epoch)

    @rule()
    def new_epoch(self) -> None:
        self.epoch += 1

    @rule(ms=st.integers(1, 100))
    def time_passes(self, ms: int) -> None:
        self.bench.clock.advance(ms)

    @rule()
    def roll(self) -> None:
        self.bench.log.roll()

    @rule()
    def flush(self) -> None:
        self.bench.flush()

    @rule()
    def checkpoint(self) -> None:
        self.bench.checkpoint()

    @rule()
    def checkpoint_when_idle(self) -> None:
        self.bench.flush()
        self.bench.checkpoint()

    @rule()
    def checkpoint_without_a_new_summary(self) -> None:
        self.bench.manager.write_checkpoints()

    @rule(back=st.integers(1, 8))
    def truncate(self, back: int) -> None:
        log = self.bench.log
        log.truncate_to(max(log.start_offset, log.end_offset - back))

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        log = self.bench.log
        log.advance_start(log.start_offset + int(share * (log.end_offset - log.start_offset)))

    @rule(is_idle=st.booleans(), is_marked_clean=st.booleans())
    def kill(self, is_idle: bool, is_marked_clean: bool) -> None:
        """Also with the mark of a clean stop that is left from an earlier time."""
        if is_idle:
            self.checkpoint_when_idle()
        disk = self.disk.after_process_kill()
        if is_idle and is_marked_clean:
            disk.write_atomic(disk.root / CLEAN_STOP, b"{}")
        self.restart(disk)

    @rule()
    def stop(self) -> None:
        self.bench.manager.stop()
        self.restart(self.disk.after_process_kill())

    @rule(seed=st.integers(0, 1000), in_the_same_boot=st.booleans())
    def lose_power(self, seed: int, in_the_same_boot: bool) -> None:
        """In the same boot: the volume is lost, and comes back with what was synced."""
        disk = self.disk.after_power_loss(Random(seed))
        if in_the_same_boot:
            disk.boots = self.disk.boots
        self.restart(disk)

    def restart(self, disk: ModelDisk) -> None:
        read = self.bench.reopen(to_be_read(disk))
        self.disk = disk
        self.bench = self.bench.reopen(disk)
        assert read.log.summary is None
        found, expected = view(self.bench), view(read)
        # What is remembered of producers whose records are gone is no part of the log.
        first = read.log.segments[0].base_offset
        for known in (found, expected):
            known["producers"] = {
                pid: (epoch, [b for b in batches if b.base_offset >= first], opened)
                for pid, (epoch, batches, opened) in known["producers"].items()
                if any(b.base_offset >= first for b in batches)
            }
        assert found == expected


TestSummaries = SummaryMachine.TestCase
TestSummaries.settings = settings(max_examples=examples(250), stateful_step_count=30, deadline=None)
