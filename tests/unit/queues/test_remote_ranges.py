"""Ranges of messages at a broker that does not lead the queue: it calls the leader with receipts."""

import asyncio
from collections.abc import Sequence
from uuid import UUID

import pytest

from headrace.model.errors import HeadraceError, InvalidReceipt, NotInFlight
from headrace.queues.api import Failures, RangeAcks
from headrace.queues.host.receipts import Receipts
from headrace.queues.remote import RemoteQueue

TOPIC = UUID(int=5)


class _Remote(RemoteQueue):
    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    async def acknowledge(self, receipts: Sequence[str], *, any_receipt: bool) -> Failures:
        read = [Receipts(TOPIC).read(text) for text in receipts]
        self.asked += read
        failed: list[HeadraceError | None] = [NotInFlight("again") if each.offset == 3 else None for each in read]
        return failed


def test_ranges_are_acknowledged_by_their_receipts() -> None:
    queue = _Remote()
    failures = asyncio.run(queue.acknowledge_ranges(RangeAcks(str(TOPIC), [(2, 4, 1), (9, 9, 7)])))
    assert queue.asked == [(2, 1), (3, 1), (4, 1), (9, 7)]
    assert [offset for offset, _ in failures] == [3]


def test_a_topic_id_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidReceipt):
        asyncio.run(_Remote().acknowledge_ranges(RangeAcks("x", [(2, 4, 1)])))
