"""Looks for messages in the partitions of a topic, forwards or backwards, within bounds.

A scan ends when it has `limit` messages, at the end of the partitions, or after `MAX_MESSAGES` records, `MAX_BYTES` of
them when they are decompressed, or `MAX_S` seconds. Its positions say where the next one continues: nothing is skipped
and nothing shown twice. Only committed records are read; those of aborted transactions and control records are left
out. Batches are decoded in a thread, and a few scans run on a broker at a time (`AdminServices.scanning`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from headrace.admin.kafka_requests import FetchedPart, fetch
from headrace.admin.routes import AdminRequest
from headrace.records.fetched import next_offset, read_records
from headrace.records.reader import Record

MAX_MESSAGES = 100_000
MAX_BYTES = 32 * 1024 * 1024
MAX_S = 4.0
_FETCH_BYTES = 512 * 1024
_WINDOW_BYTES = 8 * 1024 * 1024
_LEAST_FETCH_BYTES = 4 * 1024
_FILTERED_WINDOW = 2_000
"""How many offsets a scan backwards reads at a time if most messages may not match."""


@dataclass(frozen=True, slots=True)
class ScanBounds:
    start: int
    end: int


@dataclass(slots=True)
class ScanBudget:
    """What a scan may still read."""

    now_s: Callable[[], float]
    ends_s: float
    left_messages: int = MAX_MESSAGES
    left_bytes: int = MAX_BYTES

    @property
    def is_spent(self) -> bool:
        return self.left_messages <= 0 or self.left_bytes <= 0 or self.now_s() >= self.ends_s

    def note(self, record: Record) -> None:
        self.left_messages -= 1
        self.left_bytes -= size_of(record)


def size_of(record: Record) -> int:
    """The bytes of key and value."""
    return len(record.key or b"") + len(record.value or b"")


def new_budget() -> ScanBudget:
    loop = asyncio.get_running_loop()
    return ScanBudget(loop.time, loop.time() + MAX_S)


Found = tuple[int, Record]
"""A partition and a record of it."""


@dataclass(slots=True)
class Scan:
    """One scan of a topic. `positions` are the next offsets to read, or, backwards, those before which to continue."""

    request: AdminRequest
    topic: str
    bounds: dict[int, ScanBounds]
    positions: dict[int, int]
    matches: Callable[[Record], bool]
    has_filter: bool
    """False if every message matches."""
    budget: ScanBudget = field(default_factory=new_budget)
    scanned: int = 0

    async def _in_turns(
        self, limit: int, read: Callable[[int, int], Awaitable[list[Record]]], has_more: Callable[[int, int], bool]
    ) -> list[Found]:
        """Read an even share of each partition that has more from its position on, until there are enough."""
        found: list[Found] = []
        while len(found) < limit and not self.budget.is_spent:
            active = [index for index, at in self.positions.items() if has_more(index, at)]
            if not active:
                break
            for index in active:
                share = -(-(limit - len(found)) // len(active))
                if share <= 0 or self.budget.is_spent:
                    break
                found += [(index, record) for record in await read(index, share)]
        return found

    # -- forwards

    async def forward(self, limit: int) -> list[Found]:
        """The next messages of each partition, in turns."""
        return await self._in_turns(limit, self._forward_once, lambda index, at: at < self.bounds[index].end)

    async def _forward_once(self, index: int, most: int) -> list[Record]:
        at, end = self.positions[index], self.bounds[index].end
        part = await self._fetch(index, at)
        taken: list[Record] = []

        def take() -> int:
            """The position after the last record that was looked at."""
            for record in read_records(part.records, first_offset=at, end_offset=end, aborted=part.aborted):
                self.scanned += 1
                self.budget.note(record)
                if self.matches(record):
                    taken.append(record)
                if len(taken) >= most or self.budget.is_spent:
                    return record.offset + 1
            return next_offset(part.records, end)

        # Nothing readable follows if no whole batch came: the rest is a transaction that is open.
        self.positions[index] = min(max(await asyncio.to_thread(take), at + 1), end)
        return taken

    # -- backwards

    async def backward(self, limit: int) -> list[Found]:
        """The latest messages before the positions, of all partitions evenly."""
        return await self._in_turns(limit, self._backward_once, lambda index, at: at > self.bounds[index].start)

    async def _backward_once(self, index: int, most: int) -> list[Record]:
        before, start = self.positions[index], self.bounds[index].start
        window = _FILTERED_WINDOW if self.has_filter else most
        while True:
            at = max(start, before - window)
            records = await self._window(index, at, before, is_last_try=window == 1)
            if records is not None:
                break
            window = max(1, window // 8)
        matching = [record for record in records if self.matches(record)]
        taken = matching[-most:]
        self.positions[index] = taken[0].offset if len(taken) < len(matching) else at
        return taken

    async def _window(self, index: int, at: int, before: int, *, is_last_try: bool) -> list[Record] | None:
        """The records from `at` up to `before`; None if they have too many bytes for one window."""
        records: list[Record] = []
        left_bytes = MAX_BYTES if is_last_try else _WINDOW_BYTES
        while at < before:
            part = await self._fetch(index, at)
            decoded = await asyncio.to_thread(_decoded, part, at, before, left_bytes)
            if decoded is None:
                return None if not is_last_try else records
            records += decoded
            left_bytes -= sum(map(size_of, decoded))
            at = max(next_offset(part.records, before), at + 1)
        self.scanned += len(records)
        for record in records:
            self.budget.note(record)
        return records

    async def _fetch(self, index: int, at: int) -> FetchedPart:
        part = await fetch(self.request, self.topic, index, at, max_bytes=_FETCH_BYTES)
        # A partition without readable records at its offsets must not be asked for ever.
        self.budget.left_bytes -= _LEAST_FETCH_BYTES
        return part


def _decoded(part: FetchedPart, first: int, before: int, most_bytes: int) -> list[Record] | None:
    """The records of a part; None if they have more bytes than that. They may be compressed a thousand times."""
    found: list[Record] = []
    for record in read_records(part.records, first_offset=first, end_offset=before, aborted=part.aborted):
        most_bytes -= size_of(record)
        if most_bytes < 0 and found:
            return None
        found.append(record)
    return found


def in_time_order(found: Sequence[Found], *, newest_first: bool) -> list[Found]:
    return sorted(found, key=lambda each: (each[1].timestamp, each[0], each[1].offset), reverse=newest_first)
