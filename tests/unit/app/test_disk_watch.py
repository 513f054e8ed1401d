"""Watching the room on the disk."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.app import disk_watch
from headrace.quotas.disk_pressure import DiskPressure
from headrace.runtime.volume import VolumeSize
from tests.waiting import until_async

SETTINGS = SimpleNamespace(disk_slow_below_bytes=100, disk_refuse_below_bytes=10)


def test_a_disk_that_does_not_answer_is_a_line_in_the_log_and_not_one_each_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looks = 0

    def look(_: Path) -> VolumeSize:
        nonlocal looks
        looks += 1
        if looks != 10:
            raise OSError("stale file handle")
        return VolumeSize(1 << 30, 1 << 29)

    monkeypatch.setattr(disk_watch, "_LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(disk_watch, "volume_size", look)
    quotas: Any = SimpleNamespace(disk=DiskPressure(), disk_changed=lambda: None)
    metadata: Any = SimpleNamespace(settings=SETTINGS)

    async def test() -> None:
        with ThreadPoolExecutor(1) as workers:
            watch = asyncio.create_task(disk_watch.watch_disk(Path("data"), quotas, metadata, workers))
            await until_async(lambda: looks >= 18)
            watch.cancel()
            await asyncio.wait((watch,))

    asyncio.run(test())
    assert len(caplog.messages) == 2, "once, and once more after it had answered"
