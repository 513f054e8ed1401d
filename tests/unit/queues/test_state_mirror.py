"""The stored state of a mirrored queue: written by the leader of the mirror, and by nobody after a takeover."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import msgspec
import pytest

from headrace.coordinator.machine import InternalRecord
from headrace.model.errors import NotLeader, QueueUnavailable, StaleQueueLeader
from headrace.queues.engine.stored import ACKED, HEAD, HELD, AckedValue, HeadValue, LeaseRecord, entry
from headrace.queues.state_machine import QueueStateMachine
from headrace.queues.state_mirror import StateMirror


class Store:
    """A shard of `__queue_state` without its log."""

    def __init__(self) -> None:
        self.machine = QueueStateMachine()
        self.fails = 0

    def _apply(self, records: Sequence[InternalRecord]) -> None:
        for record in records:
            self.machine.replay(record, -1)

    async def open(self, queue: str, epoch: int) -> int:
        outcome = self.machine.open(queue, epoch)
        self._apply(outcome.records)
        return outcome.answer

    async def read(self, queue: str, term: int) -> list[InternalRecord]:
        return [InternalRecord(key, value) for key, value in self.machine.read(queue, term, 0).entries]

    async def write(self, queue: str, term: int, entries: Sequence[InternalRecord]) -> None:
        self._apply(self.machine.write(queue, term, entries).records)
        if self.fails:
            self.fails -= 1
            raise QueueUnavailable("the outcome is unknown")

    async def forget(self, queue: str) -> None: ...


class Setup:
    def __init__(self) -> None:
        self.store = Store()
        self.is_mirror = True
        self.partition = SimpleNamespace(topic_id=uuid4(), index=0, leader_epoch=3, high_watermark=100)
        self.mirror = StateMirror(self.store, cast(Any, self.partition), ThreadPoolExecutor(1))

    @property
    def name(self) -> str:
        return f"{self.partition.topic_id.hex}:0:"

    def save(self, entries: Sequence[InternalRecord], end: int = 100) -> None:
        wanted = {key: value for key, value in entries if value is not None}
        asyncio.run(self.mirror.save(wanted, end, lambda: self.is_mirror))

    def cut(self, end: int) -> None:
        asyncio.run(self.mirror.cut(end, lambda: True))

    def stored(self) -> dict[bytes, bytes]:
        known = self.store.machine._queues.get(self.name)
        return {} if known is None else dict(known.entries)


def acked(*numbers: int) -> InternalRecord:
    bits = sum(1 << number for number in numbers)
    return entry(ACKED, 0, AckedValue(bits.to_bytes((bits.bit_length() + 7) // 8, "little")))


def held(offset: int) -> InternalRecord:
    return entry(HELD, offset, LeaseRecord(2, True, 5, 1, 1))


def test_the_state_is_that_of_the_source_below_the_end() -> None:
    setup = Setup()
    setup.save([acked(1, 2), held(3), held(60)], end=50)
    assert setup.stored() == dict([acked(1, 2), held(3)])
    setup.save([acked(1, 2, 3, 70)], end=50)
    assert setup.stored() == dict([acked(1, 2, 3)])


def test_after_a_takeover_nothing_is_written() -> None:
    setup = Setup()
    setup.save([acked(1)])
    asyncio.run(setup.store.open(setup.name, 103))  # The host of the queue.
    with pytest.raises(StaleQueueLeader):
        setup.save([acked(1, 2)])
    with pytest.raises(StaleQueueLeader):
        setup.save([acked(1, 2)])
    assert setup.stored() == dict([acked(1)])
    setup.partition.leader_epoch, setup.is_mirror = 103, False
    with pytest.raises(NotLeader):
        setup.save([acked(1, 2)])
    assert setup.stored() == dict([acked(1)])


def test_a_write_of_unknown_outcome_is_read_again() -> None:
    setup = Setup()
    setup.save([acked(1)])
    setup.store.fails = 1
    with pytest.raises(QueueUnavailable):
        setup.save([acked(1, 2), held(9)])
    setup.save([acked(1, 2, 9)])
    assert setup.stored() == dict([acked(1, 2, 9)])


def test_a_former_home_forgets_what_it_had_begun_but_not_the_numbers_of_its_pages() -> None:
    setup = Setup()
    term = asyncio.run(setup.store.open(setup.name, 2))
    carry, move, purged = b"!carry:dead-letters", b"!move:7", b"!purged"
    page = [57, [57, "failed", [[3, b"", 1, "busy"]], ""]]
    own = [
        InternalRecord(carry, msgspec.msgpack.encode(page)),
        InternalRecord(move, b"x"),
        InternalRecord(purged, b"1 a"),
    ]
    head = entry(HEAD, 0, HeadValue(80))
    asyncio.run(setup.store.write(setup.name, term, [*own, acked(1, 60), held(70), head]))
    setup.cut(50)
    left = setup.stored()
    assert msgspec.msgpack.decode(left.pop(carry)) == [57, None]
    assert left == dict([acked(1), entry(HEAD, 0, HeadValue(50))])
    setup.save([acked(1, 2)])
    assert carry in setup.stored()
