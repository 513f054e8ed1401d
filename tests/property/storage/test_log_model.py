"""A log against a plain list: whatever is done to it, it reads back as the list does."""

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.property.profile import examples

from headrace.model.errors import OffsetOutOfRange
from headrace.records.batch import read_header
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.testing.disks import ModelDisk
from headrace.testing.logs import LogBench

PRODUCER = 77


class LogMachine(RuleBasedStateMachine):
    """`model` is the list of (offset, timestamp, value); `batches` are the batches' base offsets."""

    @initialize()
    def start(self) -> None:
        self.disk = ModelDisk()
        self.bench = LogBench(self.disk)
        self.model: list[tuple[int, int, bytes]] = []
        self.batches: list[int] = []
        self.start_offset = 0
        self.end_offset = 0
        self.flushed = 0
        self.count = 0

    def value(self, size: int) -> bytes:
        self.count += 1
        return f"{self.count}:".encode().ljust(size, b".")

    @rule(
        sizes=st.lists(st.integers(0, 150), min_size=1, max_size=4),
        times=st.lists(st.integers(0, 50), min_size=4, max_size=4),
    )
    def append(self, sizes: list[int], times: list[int]) -> None:
        values = [self.value(size) for size in sizes]
        base = self.bench.clock.wall_ms()
        records = [Record(0, base + time, None, value) for time, value in zip(times, values, strict=False)]
        batch = build_batch(records)
        result = self.bench.log.append(batch, read_header(batch), 0)
        assert (result.base_offset, result.last_offset) == (self.end_offset, self.end_offset + len(values) - 1)
        self.batches.append(self.end_offset)
        for record in records:
            self.model.append((self.end_offset, record.timestamp, record.value or b""))
            self.end_offset += 1

    @rule(gap=st.integers(0, 3), sizes=st.lists(st.integers(0, 100), min_size=1, max_size=3))
    def append_replicated(self, gap: int, sizes: list[int]) -> None:
        base = self.end_offset + gap
        records = [Record(0, self.bench.clock.wall_ms(), None, self.value(size)) for size in sizes]
        batch = build_batch(records, base_offset=base, leader_epoch=0)
        assert self.bench.log.append_replicated(batch) == base + len(sizes)
        self.batches.append(base)
        self.model += [(base + i, record.timestamp, record.value or b"") for i, record in enumerate(records)]
        self.end_offset = base + len(sizes)

    @rule(ms=st.integers(1, 1000))
    def time_passes(self, ms: int) -> None:
        self.bench.clock.advance(ms)

    @rule()
    def roll(self) -> None:
        self.bench.log.roll()

    @rule()
    def flush(self) -> None:
        self.bench.flush()
        self.flushed = self.end_offset

    @rule()
    def checkpoint(self) -> None:
        self.bench.checkpoint()

    @precondition(lambda self: self.end_offset > self.start_offset)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start_offset, self.end_offset))
        self.bench.log.truncate_to(offset)
        cut = max((base for base in self.batches if base <= offset), default=offset)
        inside_batch = any(cut <= at and offset <= at for at, _, _ in self.model if at < self._next_batch(cut))
        limit = cut if inside_batch and cut < offset else offset
        kept = max((at + 1 for at, _, _ in self.model if at < limit), default=0)
        assert kept <= self.bench.log.end_offset <= limit
        self.end_offset = self.bench.log.end_offset
        self.batches = [base for base in self.batches if base < self.end_offset]
        self.model = [row for row in self.model if row[0] < self.end_offset]
        self.start_offset = min(self.start_offset, self.end_offset)
        self.flushed = min(self.flushed, self.end_offset)

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        self.start_offset = data.draw(st.integers(self.start_offset, self.end_offset))
        self.bench.log.advance_start(self.start_offset)
        self.model = [row for row in self.model if row[0] >= self.start_offset]

    @rule()
    def start_over(self) -> None:
        if self.count % 5 == 0:
            self.end_offset += 10
            self.bench.log.truncate_fully_and_start_at(self.end_offset)
            self.model, self.batches = [], []
            self.start_offset = self.flushed = self.end_offset

    @rule()
    def restart_cleanly(self) -> None:
        self.bench = self.bench.reopen_cleanly()
        assert self.bench.manager.was_clean
        self.flushed = self.end_offset

    @rule()
    def kill(self) -> None:
        self.disk = self.disk.after_process_kill()
        self.bench = self.bench.reopen(self.disk)
        self.flushed = self.end_offset

    @rule()
    def lose_indexes(self) -> None:
        """Whatever happens to caches while the broker is down does not show."""
        self.bench.manager.stop()
        for name in list(self.disk.files(self.bench.folder)):
            path = self.bench.folder / name
            if name.endswith((".index", ".timeindex", ".snapshot")) or name == "leader-epoch-checkpoint":
                if self.count % 2:
                    self.disk.unlink(path)
                else:
                    self.disk.open(path).truncate(self.disk.files(self.bench.folder)[name] // 2 | 1)
        self.bench = self.bench.reopen(self.disk)
        self.flushed = self.end_offset

    @rule(seed=st.integers(0, 1000))
    def lose_power(self, seed: int) -> None:
        self.disk = self.disk.after_power_loss(Random(seed))
        self.bench = self.bench.reopen(self.disk)
        log = self.bench.log
        assert log.end_offset >= self.flushed
        found = [(record.offset, record.timestamp, record.value) for record in self.bench.records()]
        durable = [row for row in self.model if row[0] < self.flushed]
        assert [row for row in found if row[0] < self.flushed] == durable
        left = set(self.model)
        assert all(row in left for row in found)
        self.model = found  # type: ignore[assignment]
        headers = [header for segment in log.segments for _, header in segment.headers()]
        self.batches = [header.base_offset for header in headers]
        self.start_offset, self.end_offset, self.flushed = log.start_offset, log.end_offset, log.end_offset

    # What holds always

    @invariant()
    def reads_back(self) -> None:
        log = self.bench.log
        assert (log.start_offset, log.end_offset) == (self.start_offset, self.end_offset)
        assert log.flushed_offset >= self.flushed
        assert [(record.offset, record.timestamp, record.value) for record in self.bench.records()] == self.model
        assert log.size_bytes == sum(segment.size for segment in log.segments)
        files = {name: size for name, size in self.disk.files(self.bench.folder).items() if name.endswith(".log")}
        assert sum(files.values()) == log.size_bytes

    @invariant()
    def reads_from_anywhere_up_to_anywhere(self) -> None:
        random = Random(self.count)
        log = self.bench.log
        for _ in range(3):
            offset = random.randint(self.start_offset, self.end_offset)
            below = random.randint(self.start_offset, self.end_offset)
            max_bytes = random.choice((1, 100, 500, 10_000))
            for at_least_one in (True, False):
                part = log.slice(offset, max_bytes, below, at_least_one=at_least_one)
                first = max((b for b in self.batches if b <= offset), default=None)
                if first is None or not any(
                    row[0] >= offset and row[0] < self._next_batch(first) for row in self.model
                ):
                    first = min((b for b in self.batches if b >= offset), default=None)
                if first is None or first >= below or offset >= below:
                    assert part is None
                    continue
                if part is None:
                    assert not at_least_one
                    continue
                assert part.first_batch_offset == first
                header = read_header(part.file.read(part.position, 61))
                assert header.base_offset == first
                assert header.size <= part.length <= max(max_bytes, header.size if at_least_one else 0)
        for wrong in (self.start_offset - 1, self.end_offset + 1):
            try:
                log.slice(wrong, 100, self.end_offset, at_least_one=True)
            except OffsetOutOfRange:
                continue
            raise AssertionError(f"offset {wrong} was found in {log}")

    def _next_batch(self, base: int) -> int:
        return min((b for b in self.batches if b > base), default=self.end_offset)

    @invariant()
    def finds_by_time(self) -> None:
        log = self.bench.log
        for timestamp in {row[1] for row in self.model[:: max(1, len(self.model) // 3)]} | {0, 2**60}:
            for asked in (timestamp, timestamp + 1):
                expected = next((row[:2] for row in self.model if row[1] >= asked), None)
                found = log.offset_for_time(asked)
                assert (found and (found.offset, found.timestamp)) == expected
        newest = max((row[1] for row in self.model), default=None)
        expected = next((row[:2] for row in self.model if row[1] == newest), None)
        latest = log.max_timestamp()
        assert (latest and (latest.offset, latest.timestamp)) == expected


TestLog = LogMachine.TestCase
TestLog.settings = settings(max_examples=examples(150), stateful_step_count=30, deadline=None)
