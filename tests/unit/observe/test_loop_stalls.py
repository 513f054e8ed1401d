"""The finder of what holds up the event loop."""

import asyncio
import gc
import logging
import sys
import threading
import time
from collections.abc import Callable

import pytest

from headrace.observe.loop_stalls import BLOCKED, COLLECTION, RUNNING, SCHEDULER, Stall, StallFinder

THRESHOLD_MS = 20
MS = 1_000_000

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the clocks of threads are Linux's")


def _sleep_in_the_loop() -> None:
    time.sleep(0.2)


def _collect_in_the_loop() -> None:
    garbage = [[] for _ in range(200_000)]  # type: ignore[var-annotated]
    began = time.monotonic()
    while time.monotonic() < began + 0.2:
        gc.collect()
    del garbage


def found_while(work: Callable[[], None], caplog: pytest.LogCaptureFixture) -> tuple[StallFinder, list[str]]:
    """The finder, and what it logged about `work`: again and again, since a busy machine adds stalls of its own."""
    finder = StallFinder()

    def seen() -> list[str]:
        return [text for text in caplog.messages if work.__name__ in text]

    async def body() -> None:
        loop = asyncio.get_running_loop()
        finder.set_threshold(THRESHOLD_MS, loop)
        try:
            while not seen():
                work()
                await asyncio.sleep(0.05)
        finally:
            finder.close()

    with caplog.at_level(logging.DEBUG, logger="headrace.observe.loop_stalls"):
        asyncio.run(body())
    return finder, seen()


def test_a_callback_that_waits_is_named(caplog: pytest.LogCaptureFixture) -> None:
    finder, (line, *_) = found_while(_sleep_in_the_loop, caplog)
    assert "in _sleep_in_the_loop (test_loop_stalls.py:" in line
    assert sum(finder.counts.values()) > 0
    assert sum(finder.times_ns.values()) >= THRESHOLD_MS * MS


def test_the_time_of_collections_is_told_apart(caplog: pytest.LogCaptureFixture) -> None:
    _, (line, *_) = found_while(_collect_in_the_loop, caplog)
    assert "collection 0.0 ms" not in line


@pytest.mark.parametrize(
    ("collection_ms", "running_ms", "scheduler_ms", "cause"),
    [(8, 1, 1, COLLECTION), (1, 8, 1, RUNNING), (1, 1, 8, SCHEDULER), (1, 1, 1, BLOCKED), (0, 0, 0, BLOCKED)],
)
def test_the_cause_is_where_most_of_the_time_has_gone(
    collection_ms: int, running_ms: int, scheduler_ms: int, cause: str
) -> None:
    stall = Stall(10 * MS, collection_ms * MS, running_ms * MS, scheduler_ms * MS, "append (disk.py:1)", {})
    assert stall.cause == cause
    assert f"held up for 10.0 ms ({cause}: " in str(stall)
    assert str(stall).endswith("in append (disk.py:1)")


def test_other_threads_that_ran_meanwhile_are_named() -> None:
    stall = Stall(10 * MS, 0, 0, 0, "", {"preload": 9 * MS})
    assert str(stall).endswith("blocked 10.0 ms; other threads: preload 9.0 ms) in the loop itself")


def test_it_ends_with_the_setting_and_at_a_stop_at_any_moment() -> None:
    def is_watching() -> bool:
        return any(thread.name == "stall-finder" for thread in threading.enumerate())

    async def body() -> None:
        loop, callbacks = asyncio.get_running_loop(), len(gc.callbacks)
        finder = StallFinder()
        finder.set_threshold(0, loop)
        assert not is_watching()
        for number in range(50):
            finder.set_threshold(1, loop)
            assert is_watching()
            # The finder asks once in a millisecond, and the loop may answer or not before it is stopped.
            await asyncio.sleep(0.0001 * number)
            finder.set_threshold(0, loop)
            assert not is_watching()
        assert len(gc.callbacks) == callbacks
        finder.close()
        finder.set_threshold(1, loop)
        assert not is_watching()

    asyncio.run(body())
