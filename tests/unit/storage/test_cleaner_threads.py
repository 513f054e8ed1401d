"""The cleaner in the background, with threads and a real disk."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.unit.storage.cleaner_bench import COMPACT, Bench, names
from tests.waiting import until_async

from headrace.runtime.disk import OsDisk
from headrace.storage.cleaner import Cleaner


def on_disk(tmp_path: Path) -> Bench:
    folder = tmp_path / "prices-0"
    folder.mkdir()
    return Bench(replace(COMPACT, segment_bytes=20_000), OsDisk(), folder)


def test_appends_and_reads_go_on_while_a_log_is_compacted(tmp_path: Path) -> None:
    bench = on_disk(tmp_path)
    for number in range(3000):
        bench.put((f"key-{number % 100}", f"value-{number}"))
    bench.flush()
    loop_thread = threading.get_ident()
    threads: set[int] = set()

    async def run(work: Callable[[], Any]) -> Any:
        def noted() -> Any:
            threads.add(threading.get_ident())
            return work()

        return await asyncio.to_thread(noted)

    async def main() -> None:
        cleaner = Cleaner(lambda: [bench.log], clock=bench.clock, run=run, backoff_ms=1, threads=2)
        held = bench.log.slice(0, 10_000, bench.log.end_offset, at_least_one=True)
        assert held is not None
        expected = held.file.read(held.position, held.length)
        cleaner.start()
        number = 3000
        while len(bench.log.segments) > 4:
            bench.put((f"key-{number % 100}", f"value-{number}"))
            number += 1
            latest = {record.key: record.value for record in bench.records()}
            assert latest[f"key-{(number - 1) % 100}".encode()] == f"value-{number - 1}".encode()
            assert len(latest) == 100
            assert bench.log.offset_for_time(0) is not None
            await asyncio.sleep(0)
        assert held.file.read(held.position, held.length) == expected
        await cleaner.stop()

    asyncio.run(asyncio.wait_for(main(), 60))
    assert loop_thread not in threads
    before = bench.records()
    bench.reopen()
    assert bench.records() == before


async def is_busy(cleaner: Cleaner) -> None:
    while not cleaner.is_busy:  # noqa: ASYNC110 - there is no event for it, as only tests ask
        await asyncio.sleep(0)


def test_stop_gives_up_work_without_a_trace(tmp_path: Path) -> None:
    bench = on_disk(tmp_path)
    for number in range(1000):
        bench.put((f"key-{number % 10}", "v"))
    bench.roll()
    before = bench.records()

    async def main() -> None:
        cleaner = Cleaner(lambda: [bench.log], clock=bench.clock, io_max_bytes_per_s=1)
        cleaner.start()
        await is_busy(cleaner)
        await asyncio.wait_for(cleaner.stop(), 60)

    asyncio.run(main())
    assert bench.records() == before
    assert not any(name.endswith((".cleaned", ".swap")) for name in names(bench))


def test_a_log_deleted_under_compaction_ends_it(tmp_path: Path) -> None:
    bench = on_disk(tmp_path)
    for number in range(1000):
        bench.put((f"key-{number % 10}", "v"))
    bench.roll()

    async def main() -> None:
        cleaner = Cleaner(lambda: [bench.log], clock=bench.clock, io_max_bytes_per_s=1000)
        work = asyncio.create_task(cleaner.compact(bench.log))
        await is_busy(cleaner)
        bench.log.delete()
        assert await asyncio.wait_for(work, 60) is None

    asyncio.run(main())
    assert not bench.folder.exists()


def test_settings_of_the_cleaner_change_while_it_runs(tmp_path: Path) -> None:
    """It rests for an hour, and is told to rest for a millisecond; then there is one more of it, and then one less."""
    bench = on_disk(tmp_path)
    used: list[str] = []

    async def run(work: Callable[[], Any]) -> Any:
        current = asyncio.current_task()
        assert current is not None
        used.append(current.get_name())
        return work()

    async def main() -> None:
        cleaner = Cleaner(lambda: [bench.log], clock=bench.clock, run=run, backoff_ms=3_600_000)
        cleaner.start()

        def change(**options: int) -> None:
            rates = {"dedupe_buffer_bytes": 1024 * 1024, "io_max_bytes_per_s": 1e12}
            cleaner.reconfigure(**{"backoff_ms": 1, "threads": 1, **rates, **options})  # type: ignore[arg-type]

        async def works(*names: str) -> None:
            used.clear()
            await until_async(lambda: {name for name in used if name.startswith("compaction")} >= set(names))

        await until_async(lambda: used)
        change()
        await works("compaction-0")
        change(threads=2)
        await works("compaction-0", "compaction-1")
        change(threads=1)
        change(threads=2)
        await works("compaction-0", "compaction-1")
        change(threads=1)
        await until_async(lambda: "compaction-1" not in {task.get_name() for task in asyncio.all_tasks()})
        await works("compaction-0")
        await cleaner.stop()

    asyncio.run(asyncio.wait_for(main(), 60))
