"""Reads that wait for the disk: those of followers do not wait for consumers of old data."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from headrace.kafka.cold_reads import ColdReads
from headrace.storage.between_syncs import BUSY_SYNCS, BetweenSyncs
from headrace.storage.slice import PIECE_BYTES
from tests.waiting import until, until_async


def test_consumers_use_half_of_the_threads_and_followers_need_not_wait() -> None:
    async def test() -> None:
        gate, begun, ended = threading.Event(), [], []

        def work(name: str) -> str:
            begun.append(name)
            gate.wait(60)
            return name

        def done(future: asyncio.Future[Any]) -> None:
            ended.append(future.result())

        with ThreadPoolExecutor(4) as workers:
            reads = ColdReads(workers, 4)
            for number in range(5):
                reads.run(lambda number=number: work(f"consumer {number}"), done, is_follower=False)  # type: ignore[misc]
            reads.run(lambda: work("follower"), done, is_follower=True)
            await until_async(lambda: len(begun) == 3)
            assert set(begun) == {"consumer 0", "consumer 1", "follower"}
            assert reads.waiting_count == 3
            gate.set()
            await until_async(lambda: len(ended) == 6)
            assert begun[3:] == ["consumer 2", "consumer 3", "consumer 4"]

    asyncio.run(test())


def test_a_failed_read_gives_its_place_to_the_next() -> None:
    async def test() -> None:
        errors: list[BaseException | None] = []

        def fail() -> None:
            raise OSError("played")

        with ThreadPoolExecutor(1) as workers:
            reads = ColdReads(workers, 1)
            for _ in range(3):
                reads.run(fail, lambda future: errors.append(future.exception()), is_follower=False)
            await until_async(lambda: len(errors) == 3)
        assert all(isinstance(error, OSError) for error in errors)

    asyncio.run(test())


def test_a_read_that_has_not_begun_can_leave_the_line() -> None:
    async def test() -> None:
        gate, begun = threading.Event(), []

        def work(number: int) -> None:
            begun.append(number)
            gate.wait(60)

        ended: list[asyncio.Future[Any]] = []
        with ThreadPoolExecutor(1) as workers:
            reads = ColdReads(workers, 1)
            first, second, third = (
                reads.run(lambda number=number: work(number), ended.append, is_follower=False)  # type: ignore[misc]
                for number in range(3)
            )
            assert first is None, "it has begun"
            assert second is not None
            assert third is not None
            assert reads.leave(second)
            assert not reads.leave(second)
            gate.set()
            await until_async(lambda: len(ended) == 2)
            assert begun == [0, 2]
            assert not reads.leave(third)

    asyncio.run(test())


def test_what_consumers_wait_for_is_read_before_what_is_read_ahead() -> None:
    async def test() -> None:
        gate, begun = threading.Event(), []
        ended: list[asyncio.Future[Any]] = []

        def work(name: str) -> None:
            begun.append(name)
            gate.wait(60)

        with ThreadPoolExecutor(1) as workers:
            reads = ColdReads(workers, 1)
            reads.run(lambda: work("first"), ended.append, is_follower=False)
            reads.run_ahead(lambda: work("ahead"), ended.append)
            assert reads.may_read_ahead()
            reads.run(lambda: work("second"), ended.append, is_follower=False)
            assert not reads.may_read_ahead()
            gate.set()
            await until_async(lambda: len(ended) == 3)
            assert begun == ["first", "second", "ahead"]

    asyncio.run(test())


def test_a_piece_waits_for_the_end_of_a_sync() -> None:
    gate, waits = threading.Event(), []

    class Syncing(BetweenSyncs):
        def wait(self, timeout_s: float) -> bool:
            waits.append(timeout_s)
            return gate.wait(60)

    between_syncs = Syncing()
    between_syncs.note_begun()
    with ThreadPoolExecutor(1) as workers:
        future = workers.submit(ColdReads(workers, 2, between_syncs).give_way)
        until(lambda: waits or future.done(), "the wait for the sync")
        assert not future.done()
        gate.set()
        assert future.result(60) == PIECE_BYTES
    assert len(waits) == 1


def test_pieces_go_on_while_syncs_never_end() -> None:
    """Else a broker that is always syncing would never answer a consumer of old data."""
    between_syncs = BetweenSyncs()
    between_syncs.note_begun()
    with ThreadPoolExecutor(1) as workers:
        reads = ColdReads(workers, 2, between_syncs)
        assert workers.submit(lambda: [reads.give_way() for _ in range(20)]).result(30) == [PIECE_BYTES] * 20
        assert not reads.is_disk_quiet()


def test_pieces_are_larger_where_syncs_are_rare() -> None:
    between_syncs = BetweenSyncs()
    with ThreadPoolExecutor(1) as workers:
        for reads in (ColdReads(workers, 2), ColdReads(workers, 2, between_syncs)):
            assert reads.is_disk_quiet()
            assert reads.give_way() > PIECE_BYTES
        for _ in range(BUSY_SYNCS):
            between_syncs.note_begun()
            between_syncs.note_idle()
        assert not reads.is_disk_quiet()
        assert reads.give_way() == PIECE_BYTES
