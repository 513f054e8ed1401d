"""The tuning of a broker's process, in a process of its own."""

import subprocess
import sys

import pytest

_CREATE_MANY = """
import gc
from headrace.runtime.process import tune_process

looked_at = [0]

def note(phase, info):
    if phase == "start":
        looked_at.append(sum(len(gc.get_objects(each)) for each in range(info["generation"] + 1)))

tune_process()
gc.callbacks.append(note)
kept = [[] for _ in range(400_000)]
print(len(looked_at), max(looked_at))
"""
LOOKED_AT_MAX = 10_000


def test_a_collection_looks_at_few_objects_while_many_are_created() -> None:
    """A collection holds the event loop: a million objects that thousands of partitions have would be a quarter of a
    second."""
    done = subprocess.run([sys.executable, "-c", _CREATE_MANY], capture_output=True, text=True, check=True, timeout=60)
    collections, most = map(int, done.stdout.split())
    assert collections > 10
    assert most < LOOKED_AT_MAX


_SLICES = """
import ctypes, struct
from concurrent.futures import ThreadPoolExecutor
from headrace.runtime import time_slice
from headrace.runtime.process import tune_process

def slice_ns():
    number = {314: 315, 274: 275}[time_slice._NUMBERS[__import__("platform").machine()]]
    found = ctypes.create_string_buffer(48)
    assert ctypes.CDLL(None).syscall(number, 0, found, 48, 0) == 0
    return struct.unpack("IIQiIQQQ", found.raw)[5]

before = slice_ns()
tune_process()
with ThreadPoolExecutor(1) as inheriting, ThreadPoolExecutor(1, initializer=time_slice.reset) as usual:
    print(before, slice_ns(), inheriting.submit(slice_ns).result(), usual.submit(slice_ns).result())
"""


def test_the_event_loop_asks_for_short_time_slices_and_worker_threads_do_not() -> None:
    done = subprocess.run([sys.executable, "-c", _SLICES], capture_output=True, text=True, check=True, timeout=60)
    before, own, inherited, usual = map(int, done.stdout.split())
    if not before:
        pytest.skip("this kernel has no slices for threads of the usual kind (Linux 6.12)")
    assert own == inherited == 100_000
    assert usual == before > own
