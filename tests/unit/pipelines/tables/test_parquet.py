"""A file that is written as a stream: durable when it is closed, and nothing that a finalizer waits for."""

import gc
from pathlib import Path

import pytest

from headrace.pipelines.tables.parquet import DiskStream
from headrace.testing.disks import ModelDisk, PowerLoss, stop_at

PATH = Path("/data/a.parquet")


def test_what_was_written_is_durable_when_it_is_closed() -> None:
    disk = ModelDisk()
    with DiskStream(disk, PATH) as stream:
        stream.write(b"rows")
    disk.sync_dir(PATH.parent)
    assert disk.after_power_loss().read_bytes(PATH) == b"rows"


def test_a_stream_that_an_error_left_open_is_not_synced_by_the_garbage_collector() -> None:
    disk = ModelDisk()
    steps: list[str] = []
    disk.hook = lambda step, path: steps.append(step)
    stream = DiskStream(disk, PATH)
    stream.write(b"rows")
    del stream
    gc.collect()
    assert "write" in steps
    assert "sync" not in steps


@pytest.mark.parametrize("step", [1, 2])
def test_a_file_that_cannot_be_made_leaves_no_second_error(step: int) -> None:
    """The test fails if the finalizer of the half-made stream raises: pytest counts that as an error."""
    disk = ModelDisk()
    disk.hook = stop_at(step)
    with pytest.raises(PowerLoss):
        DiskStream(disk, PATH)
    gc.collect()
