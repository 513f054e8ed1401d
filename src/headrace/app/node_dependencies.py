"""What is injected into a broker: the outside world in production, models of it in the simulation."""

from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from random import Random
from threading import Event
from uuid import UUID, uuid4

from headrace.mirror.link_transport import LinkTransport
from headrace.model.links import Link
from headrace.replication.transport import Transport
from headrace.runtime import time_slice
from headrace.runtime.clock import Clock
from headrace.runtime.disk import Disk
from headrace.storage.flusher import Flusher
from headrace.storage.log import Log


@dataclass(frozen=True, slots=True)
class NodeDependencies:
    """The injected clock, disk, network, threads and randomness of a broker."""

    clock: Clock
    disk: Disk
    workers: Executor
    """For blocking work: opening logs, cold reads, checkpoints."""
    make_pool: Callable[[int, str], Executor]
    """Makes an executor with this many threads and this name; the caller shuts it down."""
    make_flusher: Callable[[Callable[[Log, BaseException], None]], Flusher]
    """Makes a flusher that calls this when a log's disk fails."""
    transport: Transport
    random: Random
    new_uuid: Callable[[], UUID] = uuid4
    link_transport: Callable[[Link, str], Transport] = LinkTransport
    """Makes the connections to the source cluster of a link, whose files are in this folder."""


def thread_pool(threads: int, name: str) -> ThreadPoolExecutor:
    """Threads for blocking work. What they compute may take long, and the event loop does not wait for it."""
    return ThreadPoolExecutor(threads, thread_name_prefix=name, initializer=time_slice.reset)


def started_thread_pool(threads: int, name: str) -> ThreadPoolExecutor:
    """The same with all threads started: who submits the first work waits for a new thread, on a busy machine for
    milliseconds, and that would be the event loop."""
    pool, done = thread_pool(threads, name), Event()
    # A pool starts a thread for each work that finds none idle.
    for _ in range(threads):
        pool.submit(done.wait)
    done.set()
    return pool
