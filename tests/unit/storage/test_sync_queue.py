"""Which thread gets which sync: urgent ones first, and one thread wakes up for each."""

from pathlib import Path
from queue import Queue
from threading import Thread
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.waiting import until

from headrace.storage.sync_queue import SyncQueue, SyncWork


def work(topic: str = "orders") -> SyncWork:
    return SyncWork(cast(Any, SimpleNamespace(directory=Path(f"/data/{topic}-0"))), cast(Any, object()))


class Syncer:
    """A thread that takes work and notes it."""

    def __init__(self, queue: SyncQueue, *, urgent_only: bool = False) -> None:
        self._queue = queue
        self._urgent_only = urgent_only
        self.taken: Queue[SyncWork | None] = Queue()
        self._idle_before = len(queue._idle[urgent_only])
        self.thread = Thread(target=self._run)
        self.thread.start()
        self.wait_until_idle()

    def _run(self) -> None:
        while (found := self._queue.get(urgent_only=self._urgent_only)) is not None:
            self.taken.put(found)
        self.taken.put(None)

    def wait_until_idle(self) -> None:
        until(lambda: len(self._queue._idle[self._urgent_only]) > self._idle_before)


@pytest.fixture
def queue() -> SyncQueue:
    return SyncQueue()


def ended(queue: SyncQueue, *syncers: Syncer) -> None:
    for each in syncers:
        queue.end(urgent_only=each._urgent_only)
    for each in syncers:
        each.thread.join(60)
        assert not each.thread.is_alive()


def test_the_thread_that_waited_for_the_shortest_time_gets_the_work(queue: SyncQueue) -> None:
    first, second = Syncer(queue), Syncer(queue)
    for _ in range(3):
        put = work()
        queue.put(put)
        assert second.taken.get(timeout=60) is put
        second.wait_until_idle()
    assert first.taken.empty()
    ended(queue, first, second)


def test_urgent_work_goes_to_the_thread_that_is_there_for_it_and_else_to_any(queue: SyncQueue) -> None:
    any_work, urgent = Syncer(queue), Syncer(queue, urgent_only=True)
    put = work("__consumer_offsets")
    queue.put(put)
    assert urgent.taken.get(timeout=60) is put
    ended(queue, urgent)
    queue.put(put)
    assert any_work.taken.get(timeout=60) is put
    any_work.wait_until_idle()
    ended(queue, any_work)


def test_urgent_work_that_waits_is_first_and_other_work_is_not_for_the_urgent_thread(queue: SyncQueue) -> None:
    first, second, urgent = work(), work(), work("__transaction_state")
    for each in (first, second, urgent):
        queue.put(each)
    queue.end(urgent_only=False)
    queue.end(urgent_only=True)
    assert queue.get(urgent_only=True) is urgent
    assert queue.get(urgent_only=True) is None
    assert [queue.get(urgent_only=False) for _ in range(3)] == [first, second, None], "all is done before the end"
