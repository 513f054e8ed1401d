"""The directory of a broker that did not start."""

from pathlib import Path

import pytest

from headrace.model.errors import StartupError
from headrace.model.ids import BrokerId
from headrace.runtime.disk import OsDisk
from headrace.storage.datadir import DataDir

ZERO = BrokerId(0)


def test_a_directory_that_was_made_for_nothing_is_removed(tmp_path: Path) -> None:
    made = DataDir.acquire(tmp_path / "data", OsDisk(), broker_id=ZERO)
    made.leave_unused()
    made.release()
    assert not (tmp_path / "data").exists()


def test_a_directory_with_a_partition_stays(tmp_path: Path) -> None:
    """Somebody may have been told that something is stored in it."""
    made = DataDir.acquire(tmp_path / "data", OsDisk(), broker_id=ZERO)
    (tmp_path / "data" / "orders-0").mkdir()
    made.leave_unused()
    made.release()
    assert (tmp_path / "data" / "orders-0").is_dir()


def test_a_directory_that_was_there_before_stays(tmp_path: Path) -> None:
    DataDir.acquire(tmp_path / "data", OsDisk(), broker_id=ZERO).release()
    before = sorted((tmp_path / "data").iterdir())
    again = DataDir.acquire(tmp_path / "data", OsDisk(), broker_id=ZERO)
    again.leave_unused()
    again.release()
    assert sorted((tmp_path / "data").iterdir()) == before


def test_a_directory_that_another_broker_marked_in_between_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was made here, and another broker had started and stopped in it before it was locked."""
    path = tmp_path / "data"
    lock = DataDir._lock_or_refuse

    def lock_late(handle: int, where: Path) -> None:
        monkeypatch.setattr(DataDir, "_lock_or_refuse", staticmethod(lock))
        DataDir.acquire(path, OsDisk(), broker_id=BrokerId(7)).release()
        lock(handle, where)

    monkeypatch.setattr(DataDir, "_lock_or_refuse", staticmethod(lock_late))
    with pytest.raises(StartupError, match="belongs to broker 7"):
        DataDir.acquire(path, OsDisk(), broker_id=ZERO)
    assert (path / "meta.properties").exists()
