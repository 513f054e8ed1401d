"""The process: processor, memory, files, the event loop, and which version of which broker it is.

`process_*` are the names of Prometheus' own client libraries.
"""

import asyncio
import platform
from collections.abc import Iterable
from concurrent.futures import Executor

from headrace.monitor.scrape import Collector
from headrace.observe.families import MetricFamily, counter, gauge, histogram, info
from headrace.observe.loop_lag import LoopLag
from headrace.observe.loop_stalls import CAUSES, StallFinder
from headrace.runtime.usage import process_usage
from headrace.version import version

CPU = counter("process_cpu_seconds_total", "Processor time of the broker, user and system.")
RESIDENT = gauge("process_resident_memory_bytes", "Memory of the broker that is in RAM.")
VIRTUAL = gauge("process_virtual_memory_bytes", "Address space of the broker.")
STARTED = gauge("process_start_time_seconds", "When the broker was started, in seconds since 1970.")
FILES = gauge("process_open_fds", "Open files and sockets.")
MAX_FILES = gauge("process_max_fds", "How many files and sockets may be open.")
THREADS = gauge("process_threads", "Threads of the broker.")
LAG = histogram(
    "headrace_event_loop_lag_seconds", "By how much a timer, ten times a second, was late: how busy the loop is."
)
STALLS = counter(
    "headrace_event_loop_stalls_total", "Times the event loop was held up for event.loop.stall.ms.", "cause"
)
STALL_TIME = counter("headrace_event_loop_stall_seconds_total", "How long it was held up in them.", "cause")
BUILD = info("headrace_build_info", "The version of this broker and of its Python.", "version", "python")
BROKER = info("headrace_broker_info", "This broker and its cluster.", "broker_id", "rack", "cluster_id")
METRICS = (CPU, RESIDENT, VIRTUAL, STARTED, FILES, MAX_FILES, THREADS, LAG, STALLS, STALL_TIME, BUILD, BROKER)


def process_collector(
    lag: LoopLag, stalls: StallFinder, workers: Executor, broker_id: int, rack: str, cluster_id: str
) -> Collector:
    build = BUILD.label_text(version(), platform.python_version())
    broker = BROKER.label_text(broker_id, rack, cluster_id)

    async def collect() -> Iterable[MetricFamily]:
        usage = await asyncio.get_running_loop().run_in_executor(workers, process_usage)
        return (
            CPU.single(usage.cpu_s),
            RESIDENT.single(usage.resident_bytes),
            VIRTUAL.single(usage.virtual_bytes),
            STARTED.single(usage.started_at_s),
            FILES.single(usage.open_files),
            MAX_FILES.single(usage.max_open_files),
            THREADS.single(usage.threads),
            LAG.single(lag.lateness),
            STALLS.family([(STALLS.label_text(cause), stalls.counts[cause]) for cause in CAUSES]),
            STALL_TIME.family([(STALL_TIME.label_text(cause), stalls.times_ns[cause] / 1e9) for cause in CAUSES]),
            BUILD.family([(build, 1)]),
            BROKER.family([(broker, 1)]),
        )

    return collect
