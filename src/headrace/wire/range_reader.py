"""Reads a range of offsets of one partition in pieces, and prefetches the next piece while one is processed.

Offsets that compaction or transaction markers left empty are skipped; deleted offsets, or a log that ends early, raise
`OffsetGone`.
"""

import time
from collections.abc import Iterator

from kio.schema.errors import ErrorCode

from headrace.protocol.fetch_response import FetchedRecords
from headrace.records.batch import iter_headers
from headrace.wire.errors import OffsetGone
from headrace.wire.fetch import READ_COMMITTED, receive_fetch, send_fetch
from headrace.wire.router import LeaderRouter, Partition

_WAIT_MS = 500
"""The maximum wait of a fetch without data, which is rare: the range existed when it was planned."""


def follow(
    router: LeaderRouter, partition: Partition, start: int, end: int, *, max_bytes: int, isolation: int, reuse: bool
) -> Iterator[FetchedRecords]:
    """Record batches with every record from `start` up to, not including, `end`. The router must have no other user."""
    range_ = _Range(router, partition, start, end, max_bytes, isolation)
    try:
        while range_.offset < end:
            found = router.patiently(range_.next)
            if found is not None:
                yield found
                if reuse:
                    range_.take_back(found)
    finally:
        range_.abandon()


class _Range:
    def __init__(
        self, router: LeaderRouter, partition: Partition, start: int, end: int, max_bytes: int, isolation: int
    ) -> None:
        self.offset = start
        self._router = router
        self._partition = partition
        self._end = end
        self._max_bytes = max_bytes
        self._isolation = isolation
        self._has_asked = False
        self._is_waiting = False
        self._short_since_s: float | None = None

    def next(self) -> FetchedRecords | None:
        """The next piece, or None if this fetch brought nothing."""
        with self._router.using(self._router.leader(self._partition)) as connection:
            if not self._has_asked or not connection.in_flight:
                self._ask()
            self._has_asked = False
            found = receive_fetch(connection, self._partition, self.offset)
            after = self.offset
            for _, header in iter_headers(found.records):
                after = max(after, header.next_offset)
            if after == self.offset:
                self._nothing(found)
                return None
            self.offset, self._is_waiting, self._short_since_s = after, False, None
            if after < self._end:
                self._ask()
            return found

    def take_back(self, found: FetchedRecords) -> None:
        with self._router.using(self._router.leader(self._partition)) as connection:
            connection.take_back(found.records)

    def abandon(self) -> None:
        """Close the connection if a fetch is in flight: its response will not be read."""
        if self._has_asked:
            self._router.close()

    def _ask(self) -> None:
        with self._router.using(self._router.leader(self._partition)) as connection:
            send_fetch(
                connection,
                self._partition,
                self.offset,
                max_bytes=self._max_bytes,
                max_wait_ms=_WAIT_MS if self._is_waiting else 0,
                min_bytes=1,
                isolation=self._isolation,
            )
        self._has_asked = True

    def _nothing(self, found: FetchedRecords) -> None:
        """Handle a fetch without a whole batch: either no batch is left up to the log end, or the log is shorter."""
        last = found.last_stable_offset if self._isolation == READ_COMMITTED else found.high_watermark
        topic, index = self._partition
        if not self._is_waiting:
            self._is_waiting = True
        elif last >= self._end:
            self.offset = self._end
        elif self._short_since_s is None:
            self._short_since_s = time.monotonic()
        elif time.monotonic() - self._short_since_s > self._router.timeouts.patience_s:
            raise OffsetGone(
                f"{topic}-{index} ends at offset {last}, before the offset {self._end} that was to be read",
                ErrorCode.offset_out_of_range,
            )
