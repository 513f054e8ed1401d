"""Consumers that read old data in order have it read ahead: few of them, not too far, and not while logs are synced."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from headrace.kafka.cold_reads import ColdReads
from headrace.kafka.dispatch import Peer
from headrace.kafka.fetch_reads import PartitionSlice
from headrace.kafka.fetch_sessions import PartitionKey
from headrace.kafka.ordered_reads import AHEAD_BYTES, IDLE_S, READERS_MAX, OrderedReads
from headrace.model.image import Endpoint
from headrace.storage.between_syncs import BUSY_SYNCS, BetweenSyncs
from headrace.storage.ordered_file import BLOCK_BYTES
from headrace.storage.slice import Slice
from tests.waiting import until_async

MIB = 1 << 20
END_OFFSET = 1_000_000


class File:
    """A segment, of which nothing is in the page cache but what was read."""

    def __init__(self, size: int = 1000 * MIB, path: str = "segment") -> None:
        self.path = Path(path)
        self.size_bytes = size
        self.read_to = 0
        self.dropped: list[int] = []
        self.on_read: Callable[[], None] = lambda: None

    def size(self) -> int:
        return self.size_bytes

    def reopened_in_order(self) -> "File":
        return self

    def bring_in(self, position: int, length: int) -> int:
        self.on_read()
        got = max(0, min(length, self.size_bytes - position))
        self.read_to = position + got
        return got

    def is_cached(self, position: int, length: int) -> bool:
        return position + length <= self.read_to

    def has_any_cached(self, position: int, length: int) -> bool:
        return position < self.read_to

    def drop_cached(self, position: int, length: int) -> None:
        self.dropped.append(position)


class Log:
    """A partition whose last committed offset is before `END_OFFSET`."""

    def __init__(self) -> None:
        self.replica = SimpleNamespace(last_stable_offset=END_OFFSET)


class Bench:
    def __init__(self, workers: ThreadPoolExecutor) -> None:
        self.now_s = 0.0
        self.between_syncs = BetweenSyncs(lambda: self.now_s)
        self.cold_reads = ColdReads(workers, 2, self.between_syncs)
        self.reads = OrderedReads(self.cold_reads, lambda: self.now_s)
        self.peer = self.new_peer()
        self.partition: Any = Log()
        self.file = File()

    @staticmethod
    def new_peer() -> Peer:
        return Peer("client", Endpoint("h", 1))

    def found(self, position: int, **changes: Any) -> list[PartitionSlice]:
        cut = Slice(
            **{
                "file": self.file,
                "position": position,
                "length": MIB,
                "first_batch_offset": position,
                "is_closed": True,
                **changes,
            }
        )
        part: Any = None
        return [PartitionSlice(PartitionKey("orders", 0), self.partition, part, cut)]

    def miss(self, position: int, *, peer: Peer | None = None, **changes: Any) -> bool:
        """A fetch of what the page cache lacks, up to its end; True if it is read in order."""
        readers = self.reads.follow(peer or self.peer, self.found(position, **changes))
        self.reads.read_on(readers)
        return readers != [None]

    def hit(self, position: int, **changes: Any) -> bool:
        """A fetch of what the page cache has; True if it is answered at once."""
        return self.reads.answers_at_once(self.peer, self.found(position, **changes))

    async def read(self) -> None:
        """Wait for all that is being read ahead."""
        await until_async(lambda: all(each.read is None for each in (self.peer.ordered_reads or {}).values()))


def run(scenario: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        with ThreadPoolExecutor(2) as workers:
            await scenario(Bench(workers))

    asyncio.run(main())


def test_from_the_second_slice_on_it_is_read_ahead() -> None:
    async def scenario(bench: Bench) -> None:
        assert not bench.miss(0)
        await bench.read()
        assert bench.file.read_to == 0, "it may be the only fetch"
        assert bench.miss(MIB)
        await bench.read()
        assert bench.file.read_to == 2 * MIB + AHEAD_BYTES
        for number in range(2, 50):
            assert bench.hit(number * MIB)
            await bench.read()
            assert number * MIB + AHEAD_BYTES // 2 < bench.file.read_to <= (number + 1) * MIB + AHEAD_BYTES

    run(scenario)


def test_a_batch_that_was_cut_off_is_asked_for_again() -> None:
    async def scenario(bench: Bench) -> None:
        bench.miss(0)
        assert bench.miss(MIB - 5000)
        assert bench.miss(MIB - 5000), "once more, and nothing is read in between"

    run(scenario)


def test_fetches_that_do_not_follow_each_other_are_not_read_ahead() -> None:
    async def scenario(bench: Bench) -> None:
        for position in (0, 5 * MIB, 3 * MIB, 3 * MIB, 100 * MIB):
            assert not bench.miss(position)
        await bench.read()
        assert bench.file.read_to == 0
        assert not bench.miss(101 * MIB, peer=bench.new_peer()), "another connection"

    run(scenario)


def test_a_consumer_goes_on_in_the_next_segment() -> None:
    async def scenario(bench: Bench) -> None:
        bench.miss(0)
        bench.miss(MIB)
        await bench.read()
        bench.file = File(path="next segment")
        assert bench.miss(0)
        await bench.read()
        assert bench.file.read_to == MIB + AHEAD_BYTES
        bench.file = File(path="a segment in between")
        assert not bench.miss(7 * MIB)

    run(scenario)


def test_it_goes_on_with_another_handle_of_the_same_file() -> None:
    """The segment was closed, or too many files were open."""

    async def scenario(bench: Bench) -> None:
        bench.miss(0)
        bench.file = File()
        assert bench.miss(MIB)
        await bench.read()
        assert bench.file.read_to == 2 * MIB + AHEAD_BYTES

    run(scenario)


def test_at_the_end_of_a_segment_nothing_more_is_read() -> None:
    async def scenario(bench: Bench) -> None:
        bench.file.size_bytes = 3 * MIB
        bench.miss(0)
        bench.miss(MIB)
        await bench.read()
        bench.file.on_read = lambda: bench.file.dropped.append(-1)
        assert not bench.hit(2 * MIB), "where the next slice begins is not in this file"
        assert bench.miss(2 * MIB)
        await bench.read()
        assert bench.file.dropped == []

    run(scenario)


def test_it_is_forgotten_when_it_has_caught_up() -> None:
    async def scenario(bench: Bench) -> None:
        bench.miss(0)
        bench.miss(MIB)
        await bench.read()
        assert bench.hit(2 * MIB, is_closed=False, end_offset=END_OFFSET - 1)
        assert len(bench.reads) == 1
        await bench.read()
        assert bench.hit(3 * MIB, is_closed=False, end_offset=END_OFFSET)
        assert len(bench.reads) == 0
        assert not bench.peer.ordered_reads
        assert not bench.peer.on_closed
        assert not bench.miss(4 * MIB, is_closed=False, end_offset=END_OFFSET)
        assert len(bench.reads) == 0

    run(scenario)


def test_nothing_is_read_ahead_while_logs_are_synced() -> None:
    async def scenario(bench: Bench) -> None:
        bench.miss(0)
        bench.between_syncs.note_begun()
        assert bench.miss(MIB)
        await bench.read()
        assert bench.file.read_to == 0
        bench.between_syncs.note_idle()
        bench.miss(2 * MIB)
        await bench.read()
        assert bench.file.read_to == 3 * MIB + AHEAD_BYTES
        for _ in range(BUSY_SYNCS):
            bench.between_syncs.note_begun()
            bench.between_syncs.note_idle()
        assert bench.hit(6 * MIB - 4096)
        await bench.read()
        assert bench.file.read_to == 3 * MIB + AHEAD_BYTES, "syncs are frequent"

    run(scenario)


def test_reading_ahead_stops_when_a_sync_begins() -> None:
    async def scenario(bench: Bench) -> None:
        bench.miss(0)
        bench.file.on_read = bench.between_syncs.note_begun
        assert bench.miss(MIB)
        await bench.read()
        assert bench.file.read_to == 3 * MIB, "after the piece that was being read"
        bench.file.on_read = lambda: None
        bench.between_syncs.note_idle()
        assert not bench.hit(2 * MIB), "the event loop would wait for the next header"
        assert bench.miss(2 * MIB)
        await bench.read()
        assert bench.file.read_to == 3 * MIB + AHEAD_BYTES

    run(scenario)


def test_readers_are_few_and_forgotten_when_idle() -> None:
    async def scenario(bench: Bench) -> None:
        peers = [bench.new_peer() for _ in range(READERS_MAX + 10)]
        for peer in peers:
            bench.miss(0, peer=peer)
        assert len(bench.reads) == READERS_MAX
        assert sum(len(peer.ordered_reads or ()) for peer in peers) == READERS_MAX
        bench.now_s += IDLE_S / 2
        assert bench.miss(MIB, peer=peers[7])
        bench.now_s += IDLE_S / 2
        bench.reads.forget_idle(bench.now_s)
        assert len(bench.reads) == 1
        assert [bool(peer.ordered_reads) for peer in peers].index(True) == 7

    run(scenario)


def test_they_are_forgotten_with_their_connection() -> None:
    async def scenario(bench: Bench) -> None:
        for number in range(3):
            bench.partition = Log()
            bench.miss(number)
        (closed,) = bench.peer.on_closed.values()
        closed()
        assert len(bench.reads) == 0

    run(scenario)


def test_what_waits_for_a_thread_is_not_read_for_a_client_that_is_gone() -> None:
    async def scenario(bench: Bench) -> None:
        gate = threading.Event()
        bench.cold_reads.run(lambda: gate.wait(60), lambda _: None, is_follower=False)
        bench.miss(0)
        bench.miss(MIB)
        (closed,) = bench.peer.on_closed.values()
        closed()
        gate.set()
        ended: list[asyncio.Future[Any]] = []
        bench.cold_reads.run(lambda: None, ended.append, is_follower=False)
        await until_async(lambda: bool(ended))
        assert bench.file.read_to == 0

    run(scenario)


def test_a_disk_error_ends_reading_ahead() -> None:
    def fail() -> None:
        raise OSError("played")

    async def scenario(bench: Bench) -> None:
        bench.miss(0)
        bench.file.on_read = fail
        bench.miss(MIB)
        await until_async(lambda: not bench.peer.ordered_reads)
        assert len(bench.reads) == 0
        assert not bench.miss(2 * MIB), "it begins again"

    run(scenario)


def test_what_was_sent_leaves_the_page_cache_when_no_other_reader_is_behind() -> None:
    async def scenario(bench: Bench) -> None:
        slow, step = bench.new_peer(), AHEAD_BYTES
        bench.miss(0, peer=slow)
        for position in range(0, 5 * BLOCK_BYTES, step):
            bench.miss(position, length=step)
            await bench.read()
        assert bench.file.dropped == []
        (closed,) = slow.on_closed.values()
        closed()
        bench.miss(5 * BLOCK_BYTES, length=step)
        await bench.read()
        assert bench.file.dropped == [number * BLOCK_BYTES for number in range(1, 5)], "of the first it is not known"

    run(scenario)
