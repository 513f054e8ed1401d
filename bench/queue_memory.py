"""What the messages of a queue cost in memory: the engine with what it keeps in `__queue_state`, as on one broker.

queue_memory.py [--messages 10000000] [--only KIND ...] [--json]

Each kind is measured in a process of its own: how much larger it gets by the messages (MB), how much of that is entries
that are kept (on a cluster another broker may have those), and CPU time per message to tell the engine of it, and to
load it from what was kept.
"""

import argparse
import gc
import json
import multiprocessing
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from resource import getpagesize
from typing import NamedTuple

from headrace.config.queue import QueueSettings
from headrace.coordinator.machine import InternalRecord
from headrace.queues.engine.chunk_index import LogMessage
from headrace.queues.engine.engine import Engine
from headrace.queues.state_entries import StateEntries

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
AT_ONCE = 500
STANDARD = QueueSettings(type="standard", retention_ms=400 * DAY_MS)
FIFO = QueueSettings(type="fifo", retention_ms=400 * DAY_MS)

Make = Callable[[Random, int], LogMessage]


def timed(due_ms: int = 0, ttl_ms: int = 0, *, is_ranked: bool = False) -> Make:
    def make(rng: Random, offset: int) -> LogMessage:
        return LogMessage(
            offset,
            NOW_MS,
            rng.randrange(10) if is_ranked else 4,
            NOW_MS + 1 + rng.randrange(due_ms) if due_ms else None,
            NOW_MS + 1 + rng.randrange(ttl_ms) if ttl_ms else None,
        )

    return make


def grouped(count: int) -> Make:
    return lambda rng, offset: LogMessage(offset, NOW_MS, group=b"customer-%d" % rng.randrange(count))


KINDS: dict[str, tuple[QueueSettings, Make | None]] = {
    "plain": (STANDARD, None),
    "priorities": (STANDARD, timed(is_ranked=True)),
    "delays within 15 minutes": (STANDARD, timed(HOUR_MS // 4)),
    "delays within 4 days": (STANDARD, timed(4 * DAY_MS)),
    "delays within a year": (STANDARD, timed(365 * DAY_MS)),
    "ttls within 4 days": (STANDARD, timed(0, 4 * DAY_MS)),
    "delays and ttls": (STANDARD, timed(4 * DAY_MS, 8 * DAY_MS)),
    "delays, ttls, priorities": (STANDARD, timed(4 * DAY_MS, 8 * DAY_MS, is_ranked=True)),
    "fifo, 10 groups": (FIFO, grouped(10)),
    "fifo, 10,000 groups": (FIFO, grouped(10_000)),
    "fifo, 1,000,000 groups": (FIFO, grouped(1_000_000)),
}


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * getpagesize()


def pieces(make: Make, count: int) -> Iterator[list[LogMessage]]:
    rng = Random(7)
    for first in range(0, count, AT_ONCE):
        yield [make(rng, offset) for offset in range(first, min(first + AT_ONCE, count))]


class Cost(NamedTuple):
    mb: float
    stored_mb: float
    index_us: float
    load_us: float


def measure(kind: str, count: int) -> Cost:
    settings, make = KINDS[kind]
    kept = StateEntries()

    def keep(engine: Engine) -> None:
        for key, value in engine.take_changes():
            if value is None:
                kept.pop(key, None)
            else:
                kept[key] = value

    before = resident_bytes()
    engine = Engine(settings, lambda: 0.5)
    spent_s = 0.0
    if make is None:
        for first in range(0, count, AT_ONCE):
            began = time.process_time()
            engine.index_plain(first, min(first + AT_ONCE, count) - 1, NOW_MS, NOW_MS)
            keep(engine)
            spent_s += time.process_time() - began
    else:
        for piece in pieces(make, count):
            began = time.process_time()
            engine.index(piece, NOW_MS)
            keep(engine)
            spent_s += time.process_time() - began
    used = resident_bytes() - before
    kept_bytes = sum(len(key) + kept.stored_bytes(key) + 130 for key in kept)
    del engine
    entries = [InternalRecord(key, value) for key, value in kept.items()]
    before = resident_bytes()
    began = time.process_time()
    loaded = Engine(settings, lambda: 0.5)
    loaded.load(entries)
    load_s = time.process_time() - began
    del entries
    assert loaded.indexed_to >= count - 5000
    return Cost(used / 1e6, kept_bytes / 1e6, spent_s / count * 1e6, load_s / count * 1e6)


def run(kind: str, count: int, as_json: bool) -> None:
    cost = measure(kind, count)
    if as_json:
        print(json.dumps(cost._asdict()), flush=True)
        return
    memory = f"{cost.mb:6.0f} MB, {cost.stored_mb:4.0f} of it kept"
    print(f"{kind:26} {memory}; {cost.index_us:5.2f} µs to index, {cost.load_us:5.2f} µs to load", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--only", nargs="*", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--json", action="store_true", help="a line of JSON for each kind")
    args = parser.parse_args()
    for kind in args.only:
        process = multiprocessing.get_context("spawn").Process(target=run, args=(kind, args.messages, args.json))
        process.start()
        process.join()
        if process.exitcode:
            raise SystemExit(f"{kind}: the measurement failed")


if __name__ == "__main__":
    main()
