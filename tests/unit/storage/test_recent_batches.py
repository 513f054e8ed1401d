"""The newest batches of encrypted logs in memory: they are what the log has, and bounded."""

import pytest

from headrace.config.topic import TopicSettings
from headrace.model.errors import TopicShredded
from headrace.records.batch import iter_headers
from headrace.runtime.disk import Buffer
from headrace.security.encryption.data_keys import UnwrappedKeys
from headrace.storage.encryption import LogCipher
from headrace.storage.recent_batches import RecentBatch, RecentBatches, Tail
from headrace.storage.slice import Slice
from headrace.testing.logs import DATA_KEYS, PARTITION, TOPIC_ID, LogBench


class Bench:
    """An encrypted log whose end is being read."""

    def __init__(self, max_bytes: int = 1 << 20) -> None:
        self.recent = RecentBatches(max_bytes)
        self.bench = LogBench(settings=TopicSettings(), keys=DATA_KEYS)
        self.log = self.bench.log
        self.log.cipher = self.cipher(DATA_KEYS)
        self.log.cipher.recent(0, 1)

    def cipher(self, keys: UnwrappedKeys) -> LogCipher:
        return LogCipher(
            keys, PARTITION.topic, TOPIC_ID, PARTITION.partition, encrypts=bool(keys.by_version), recent=self.recent
        )

    def slice(self, offset: int = 0, max_bytes: int = 1 << 20, below: int | None = None) -> Slice:
        end = self.log.end_offset if below is None else below
        cut = self.log.slice(offset, max_bytes, end, at_least_one=True)
        assert cut is not None
        return cut

    def held(self, offset: int = 0) -> bytes | None:
        parts = self.slice(offset).read_recent()
        return None if parts is None else b"".join(parts)

    def from_disk(self, offset: int = 0) -> bytes:
        cut = self.slice(offset)
        return bytes(cut.decrypted(cut.file.read(cut.position, cut.length)))


def joined(parts: list[Buffer]) -> bytes:
    return b"".join(parts)


def test_what_is_held_is_what_is_decrypted() -> None:
    bench = Bench()
    for number in range(300):
        bench.bench.append(b"value %d" % number * (1 + number % 40))
    for offset in (0, 7, 299):
        assert bench.held(offset) == bench.from_disk(offset)


def test_nothing_is_held_until_the_end_is_read() -> None:
    bench = LogBench(keys=DATA_KEYS)
    recent = RecentBatches(1 << 20)
    bench.log.cipher = LogCipher(
        DATA_KEYS, PARTITION.topic, TOPIC_ID, PARTITION.partition, encrypts=True, recent=recent
    )
    bench.append(b"value")
    assert recent.used_bytes == 0


def test_only_what_the_slice_has_is_returned() -> None:
    """Up to the high watermark, and a batch that is cut off is left out, as it is when it is read from the disk."""
    bench = Bench()
    for number in range(4):
        bench.bench.append(b"value %d" % number)
    assert bench.log.cipher is not None
    committed = bench.slice(below=2).read_recent()
    assert committed is not None
    assert [header.base_offset for _, header in iter_headers(joined(committed))] == [0, 1]
    cut = bench.slice()
    parts, length, is_whole = bench.log.cipher.recent(0, cut.length - 1)
    assert (length, is_whole) == (cut.length * 3 // 4, True)
    assert [header.base_offset for _, header in iter_headers(joined(parts))] == [0, 1, 2]


def test_older_batches_are_decrypted_and_newer_ones_follow_from_memory() -> None:
    bench = Bench()
    bench.bench.append(b"before")
    assert bench.log.cipher is not None
    bench.log.cipher.drop_recent()
    bench.bench.append(b"after")
    assert bench.held(0) is None
    assert bench.held(1) == bench.from_disk(1)
    assert joined(bench.slice().read_parts()) == bench.from_disk()


def test_other_batches_at_truncated_offsets_are_what_is_read() -> None:
    """Invariant: what a follower has copied over a truncated end is served, and never what was there before."""
    bench = Bench()
    other = Bench()
    for each in (bench, other):
        each.bench.append(b"first")
    bench.bench.append(b"lost")
    other.bench.append(b"kept")
    copied = other.slice(1)
    bench.log.truncate_to(1)
    bench.log.append_replicated(copied.file.read(copied.position, copied.length))
    assert bench.held(1) is None
    assert joined(bench.slice(1).read_parts()) == other.from_disk(1)


def test_shredded_batches_are_not_served_from_memory() -> None:
    bench = Bench()
    bench.bench.append(b"value")
    before = bench.slice()
    assert bench.log.cipher is not None
    bench.log.cipher.drop_recent()
    bench.log.cipher = bench.cipher(UnwrappedKeys({}, None, "was shredded", is_shredded=True, destroyed=1))
    assert bench.recent.used_bytes == 0
    assert before.read_recent() is None, "nor for a fetch that was under way"
    assert bench.held() is None
    with pytest.raises(TopicShredded):
        bench.slice().read()


def test_a_closed_segment_is_read_from_disk() -> None:
    """Compaction may replace it."""
    bench = Bench()
    bench.bench.append(b"value")
    assert bench.slice()._replace(is_closed=True).read_recent() is None


def test_memory_is_bounded_and_the_oldest_leave_first() -> None:
    recent, tails = RecentBatches(100_000), [dict[int, RecentBatch]() for _ in range(3)]
    for number in range(1000):
        recent.add(tails[number % 3], number, RecentBatch(bytes(1000), 1049, number + 1))
        assert recent.used_bytes <= 100_000
    held = sorted(offset for tail in tails for offset in tail)
    assert held == list(range(1000 - len(held), 1000))
    assert len(held) > 70
    recent.add(tails[0], 1000, RecentBatch(bytes(50_000), 50_049, 1001))
    assert 1000 not in tails[0], "one batch does not displace all others"
    for tail in tails:
        recent.drop(tail)
    assert recent.used_bytes == 0


def test_batches_that_were_dropped_leave_no_trace() -> None:
    recent = RecentBatches(100_000)
    for number in range(10_000):
        tail: Tail = {}
        recent.add(tail, number, RecentBatch(b"x", 50, number + 1))
        recent.drop(tail)
    assert len(recent._added) < 400
