"""Reads that wait for the disk: those of followers do not wait for consumers of old data."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from headrace.kafka.cold_reads import ColdReads
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


def test_a_piece_waits_for_the_end_of_a_sync() -> None:
    between_syncs, went_on = threading.Event(), threading.Event()
    waits: list[float] = []

    class Gate(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            assert timeout is not None, "a wait without a bound might never end"
            waits.append(timeout)
            return between_syncs.wait(60)

    def read() -> None:
        ColdReads(workers, 2, Gate()).give_way()
        went_on.set()

    with ThreadPoolExecutor(1) as workers:
        future = workers.submit(read)
        until(lambda: waits or future.done(), "the wait for the sync")
        assert not went_on.is_set()
        between_syncs.set()
        future.result(60)
    assert went_on.is_set()


def test_pieces_go_on_while_syncs_never_end() -> None:
    """Else a broker that is always syncing would never answer a consumer of old data."""
    between_syncs = threading.Event()
    with ThreadPoolExecutor(1) as workers:
        reads = ColdReads(workers, 2, between_syncs)

        def read() -> int:
            for _ in range(20):
                reads.give_way()
            return 20

        try:
            assert workers.submit(read).result(30) == 20
        finally:
            between_syncs.set()


def test_without_syncs_nothing_waits() -> None:
    with ThreadPoolExecutor(1) as workers:
        ColdReads(workers, 2).give_way()
        between_syncs = threading.Event()
        between_syncs.set()
        ColdReads(workers, 2, between_syncs).give_way()
