"""Threads for calls that may hang: as many as needed, none that keeps a program from ending."""

import subprocess
import sys
import threading
import time

import pytest

from headrace.client.threads import DaemonThreads, within


def test_calls_run_side_by_side_up_to_the_maximum() -> None:
    threads = DaemonThreads(3, "test")
    together = threading.Barrier(3)
    waiting = [threads.submit(together.wait, 30) for _ in range(3)]
    fourth = threads.submit(lambda: "after the others")
    assert sorted(each.result(60) for each in waiting) == [0, 1, 2]
    assert fourth.result(60) == "after the others"
    threads.shutdown()


def test_what_a_call_raises_is_raised_and_the_thread_goes_on() -> None:
    threads = DaemonThreads(1, "test")
    with pytest.raises(ZeroDivisionError):
        threads.submit(lambda: 1 / 0).result(60)
    assert threads.submit(pow, 2, 3).result(60) == 8
    threads.shutdown()
    with pytest.raises(RuntimeError):
        threads.submit(pow, 2, 3)


def test_threads_that_are_let_go_end_at_once_and_others_come_when_needed() -> None:
    threads = DaemonThreads(2, "test")
    first = threads.submit(threading.current_thread).result(60)
    threads.release_idle()
    first.join(60)
    assert not first.is_alive()
    second = threads.submit(threading.current_thread).result(60)
    assert second is not first
    threads.release_idle()
    second.join(60)


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_calls_that_wait_are_made_after_a_shutdown_or_cancelled(is_cancelled: bool) -> None:
    threads = DaemonThreads(1, "test")
    both = threading.Barrier(2)
    first, second = threads.submit(lambda: both.wait(60) + both.wait(60)), threads.submit(pow, 2, 3)
    both.wait(60)
    threads.shutdown(wait=False, cancel_futures=is_cancelled)
    both.wait(60)
    first.result(60)
    assert second.cancelled() if is_cancelled else second.result(60) == 8


def test_a_call_is_not_waited_for_longer_than_told() -> None:
    go = threading.Event()
    with pytest.raises(TimeoutError):
        within(0.01, go.wait, 30)
    go.set()
    assert within(30, pow, 2, 3) == 8


def test_a_call_that_hangs_does_not_keep_the_interpreter() -> None:
    program = """
import threading
from headrace.client.threads import DaemonThreads
DaemonThreads(1, "test").submit(threading.Event().wait)
"""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert time.monotonic() - began < 60
