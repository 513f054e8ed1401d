"""Reads ahead for consumers that read old data in order.

A consumer is a reader of a partition's log from its second fetch of what the page cache lacks, if that begins where the
one before ended. While the disk is quiet (`storage/between_syncs.py`) up to `AHEAD_BYTES` after each of its fetches are
read in a worker thread, so that the disk goes on while bytes are sent, and the next fetch is answered from the page
cache. What such a reader has been sent leaves the page cache if it was not there before and no other reader is behind.

While logs are synced nothing is read ahead, and fetches are read by small pieces. Readers are few, and forgotten at the
end of the log, with their connection, and when they have read nothing for a while: each has a file open.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from headrace.kafka.cold_reads import ColdRead, ColdReads
from headrace.kafka.fetch_reads import PartitionSlice
from headrace.records.batch import HEADER_SIZE
from headrace.replication.partition import Partition
from headrace.storage.ordered_file import OrderedFile, ReadTo
from headrace.storage.slice import Slice

if TYPE_CHECKING:
    from headrace.kafka.dispatch import Peer

READERS_MAX = 64
AHEAD_BYTES = 4 * 1024 * 1024
"""How far ahead of each reader is read: page cache that may be filled for nothing, by all readers 256 MiB."""
IDLE_S = 10.0


class OrderedReader:
    """A connection that reads a partition's log; in order from its second slice on."""

    __slots__ = (
        "begin",
        "end",
        "file",
        "is_at_end",
        "is_in_order",
        "partition",
        "peer",
        "read",
        "read_to",
        "used_s",
    )

    def __init__(self, peer: "Peer", partition: Partition) -> None:
        self.peer = peer
        self.partition = partition
        self.begin = self.end = 0
        """Of the last slice that was asked for."""
        self.file: OrderedFile
        self.read_to = 0
        """The end of what was read ahead."""
        self.is_in_order = False
        self.read: ColdRead | None = None
        """What is being read ahead, or waits for a thread."""
        self.is_at_end = False
        """Whether the end of the file was read."""
        self.used_s = 0.0

    def begin_at(self, cut: Slice) -> None:
        self.file = OrderedFile(cut.file)
        self.begin, self.end = cut.position, cut.position + cut.length
        self.read_to = 0
        self.is_in_order = self.is_at_end = False

    def go_on(self, cut: Slice) -> None:
        """Take the next slice. In order are also the next segment, and a slice that is asked for again."""
        file, was_in_order = cut.file, self.is_in_order
        if self.file.source is not file:
            follows = cut.position == 0 or (
                file.path == self.file.source.path and self.begin <= cut.position <= self.end
            )
            self.begin_at(cut)
            self.is_in_order = follows
        elif self.begin <= cut.position <= self.end:
            self.is_in_order = was_in_order or cut.position > self.begin
            self.begin, self.end = cut.position, cut.position + cut.length
        else:
            self.begin_at(cut)

    def has_next_header(self) -> bool:
        """Whether the page cache has the header after the slice."""
        return self.file.source.is_cached(self.end, HEADER_SIZE)


class OrderedReads:
    """Belongs to the event loop that calls it."""

    __slots__ = ("_now_s", "_readers", "_reads", "_sweep")

    def __init__(self, reads: ColdReads, now_s: Callable[[], float] = monotonic) -> None:
        self._reads = reads
        self._now_s = now_s
        self._readers: dict[OrderedReader, None] = {}
        """Those that were used last are last."""
        self._sweep: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._readers)

    def follow(self, peer: "Peer", found: Sequence[PartitionSlice]) -> list[OrderedReader | None]:
        """Take note of the slices of a consumer's fetch, of which the page cache lacks some.

        Returns the readers of those that are read in order.
        """
        return [self._follow(peer, item, begins=True) for item in found]

    def answers_at_once(self, peer: "Peer", found: Sequence[PartitionSlice]) -> bool:
        """Take note of the slices of a consumer's fetch, all in the page cache, and go on with reading ahead.

        False if it lacks what comes next: the event loop would wait for the disk when it locates the next slice.
        """
        readers = [self._follow(peer, item, begins=False) for item in found]
        if not all(reader is None or reader.has_next_header() for reader in readers):
            return False
        self.read_on(readers)
        return True

    def read_on(self, readers: Sequence[OrderedReader | None]) -> None:
        """Read ahead of these readers, unless enough was, or the disk is to be left to syncs."""
        if self._reads.is_disk_quiet():
            for reader in readers:
                if reader is not None and reader in self._readers:
                    self._read_on(reader)

    def _follow(self, peer: "Peer", item: PartitionSlice, *, begins: bool) -> OrderedReader | None:
        cut, partition = item.slice, item.partition
        if cut is None or partition is None:
            return None
        reader = None if peer.ordered_reads is None else peer.ordered_reads.get(partition)
        if reader is None and not begins:
            return None
        if 0 <= partition.replica.last_stable_offset <= cut.end_offset:
            # It has caught up: the page cache has what comes next.
            if reader is not None:
                self._forget(reader)
            return None
        now_s = self._now_s()
        if reader is not None:
            reader.go_on(cut)
            del self._readers[reader]
        else:
            self.forget_idle(now_s)
            if len(self._readers) >= READERS_MAX:
                return None
            reader = self._begin(peer, partition, cut)
        reader.used_s = now_s
        self._readers[reader] = None
        return reader if reader.is_in_order else None

    def _begin(self, peer: "Peer", partition: Partition, cut: Slice) -> OrderedReader:
        if peer.ordered_reads is None:
            peer.ordered_reads = {}
        reader = peer.ordered_reads[partition] = OrderedReader(peer, partition)
        reader.begin_at(cut)
        peer.on_closed[self] = partial(self._closed, peer)
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(IDLE_S, self._swept)
        return reader

    def _read_on(self, reader: OrderedReader) -> None:
        begin = max(reader.read_to, reader.end)
        end = reader.end + AHEAD_BYTES
        if reader.read is not None or reader.is_at_end or end - begin < AHEAD_BYTES // 2:
            return
        file, drop_before = reader.file, self._sent_before(reader)

        def work() -> ReadTo:
            file.drop_before(drop_before)
            return file.read_on(begin, end, self._reads.may_read_ahead)

        def done(read: asyncio.Future[ReadTo]) -> None:
            reader.read = None
            if read.cancelled() or read.exception() is not None:
                # The fetch that needs these bytes is answered with the error.
                self._forget(reader)
            elif reader.file is file:
                reader.read_to, reader.is_at_end = read.result()

        reader.read = self._reads.run_ahead(work, done)

    def _sent_before(self, reader: OrderedReader) -> int:
        """The position before which no known reader needs the file."""
        path = reader.file.source.path
        return min(
            (each.begin for each in self._readers if each.file.source.path == path),
            default=reader.begin,
        )

    def forget_idle(self, now_s: float) -> None:
        """Forget the readers that have read nothing for `IDLE_S`."""
        while self._readers and now_s - (oldest := next(iter(self._readers))).used_s >= IDLE_S:
            self._forget(oldest)

    def _swept(self) -> None:
        self.forget_idle(self._now_s())
        self._sweep = asyncio.get_running_loop().call_later(IDLE_S, self._swept) if self._readers else None

    def _closed(self, peer: "Peer") -> None:
        for reader in tuple((peer.ordered_reads or {}).values()):
            self._forget(reader)

    def _forget(self, reader: OrderedReader) -> None:
        self._readers.pop(reader, None)
        if reader.read is not None:
            self._reads.leave(reader.read)
        peer = reader.peer
        if peer.ordered_reads is not None and peer.ordered_reads.get(reader.partition) is reader:
            del peer.ordered_reads[reader.partition]
            if not peer.ordered_reads:
                peer.ordered_reads = None
                peer.on_closed.pop(self, None)
