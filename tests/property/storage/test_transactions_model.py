"""Transactions in a log against the plain model: what is open, what is aborted, what a consumer keeps."""

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.property.profile import examples
from tests.property.storage.transaction_model import Batch, batches_of, consumed, open_and_aborted, visible

from headrace.testing.disks import ModelDisk
from headrace.testing.logs import LogBench

PRODUCERS = st.integers(1, 4)


class TransactionsMachine(RuleBasedStateMachine):
    """`model` is every batch of the log, those that retention has removed included."""

    @initialize()
    def start(self) -> None:
        self.disk = ModelDisk()
        self.bench = LogBench(self.disk)
        self.model: list[Batch] = []
        self.sequences: dict[int, int] = {}

    @rule(producer=PRODUCERS, count=st.integers(1, 3), size=st.integers(0, 200))
    def write(self, producer: int, count: int, size: int) -> None:
        values = [b"x" * size] * count
        entry = self.bench.log.producers.get(producer)
        sequence = entry.batches[-1].last_sequence + 1 if entry is not None and entry.batches else 0
        result = self.bench.append(*values, producer=producer, sequence=sequence, transactional=True)
        self.model.append(Batch(producer, result.base_offset, result.last_offset, "data"))

    @rule(producer=PRODUCERS)
    def write_as_a_coordinator(self, producer: int) -> None:
        result = self.bench.append(b"offset", producer=producer, transactional=True)
        self.model.append(Batch(producer, result.base_offset, result.last_offset, "data"))

    @rule()
    def write_plain(self) -> None:
        result = self.bench.append(b"plain")
        self.model.append(Batch(-1, result.base_offset, result.last_offset, "plain"))

    @rule(producer=PRODUCERS, committed=st.booleans())
    def end(self, producer: int, committed: bool) -> None:
        result = self.bench.end_transaction(producer, committed=committed)
        kind = "commit" if committed else "abort"
        self.model.append(Batch(producer, result.base_offset, result.last_offset, kind))

    @rule()
    def roll(self) -> None:
        self.bench.log.roll()

    @rule()
    def flush(self) -> None:
        self.bench.flush()

    @rule()
    def checkpoint(self) -> None:
        self.bench.checkpoint()

    @rule(back=st.integers(1, 8))
    def truncate(self, back: int) -> None:
        log = self.bench.log
        log.truncate_to(max(log.start_offset, log.end_offset - back))
        self.model = [batch for batch in self.model if batch.last_offset < log.end_offset]

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        log = self.bench.log
        log.advance_start(log.start_offset + int(share * (log.end_offset - log.start_offset)))

    @rule()
    def restart_cleanly(self) -> None:
        self.bench = self.bench.reopen_cleanly()
        assert self.bench.manager.was_clean

    @rule()
    def kill(self) -> None:
        self.disk = self.disk.after_process_kill()
        self.bench = self.bench.reopen(self.disk)

    @rule(seed=st.integers(0, 1000))
    def lose_power(self, seed: int) -> None:
        flushed = self.bench.log.flushed_offset
        self.disk = self.disk.after_power_loss(Random(seed))
        self.bench = self.bench.reopen(self.disk)
        there = set(batches_of(self.bench.log))
        self.model = [batch for batch in self.model if batch.last_offset < flushed or batch in there]

    @rule(cut=st.integers(1, 33))
    def damage_the_index(self, cut: int) -> None:
        self.bench.manager.stop()
        for name, size in self.disk.files(self.bench.folder).items():
            if name.endswith(".txnindex"):
                self.disk.open(self.bench.folder / name).truncate(size - cut)
        self.bench = self.bench.reopen(self.disk)

    @invariant()
    def agrees_with_the_model(self) -> None:
        log = self.bench.log
        # What retention has removed of a transaction may be remembered, or not.
        first = log.segments[0].base_offset
        opened, aborted = open_and_aborted(batch for batch in self.model if batch.last_offset >= first)
        found = {pid: entry.first_offset for pid, entry in log.producers.items() if entry.first_offset >= 0}
        assert {pid for pid, offset in found.items() if offset >= first} <= opened.keys() <= found.keys()
        assert all(found[pid] == offset or found[pid] < first for pid, offset in opened.items())
        assert log.producers.first_open_offset == min(found.values(), default=None)
        ended = {(entry.producer_id, entry.last_offset): entry.first_offset for entry in log.aborted}
        wanted = {(pid, marker): offset for pid, offset, marker in aborted}
        assert {key for key, offset in ended.items() if offset >= first} <= wanted.keys() <= ended.keys()
        assert all(ended[key] == offset or ended[key] < first for key, offset in wanted.items())

    @invariant()
    def consumers_see_what_was_committed(self) -> None:
        log = self.bench.log
        first_open = log.producers.first_open_offset
        stable = log.end_offset if first_open is None else first_open
        there = batches_of(log)
        expected = visible(self.model) & {
            offset for batch in there for offset in range(batch.first_offset, batch.last_offset + 1) if offset < stable
        }
        for step in (1, 3, 100):
            assert consumed(there, log, stable, step) == expected


TestTransactions = TransactionsMachine.TestCase
TestTransactions.settings = settings(max_examples=examples(120), stateful_step_count=30, deadline=None)
