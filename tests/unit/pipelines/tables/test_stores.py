"""Both kinds of table: what a commit promises, and what is left after a crash at any step."""

import itertools
from contextlib import closing
from pathlib import Path

import pytest

from headrace.pipelines.tables.iceberg import IcebergStore
from headrace.pipelines.tables.store import ManifestStore, TableError, TableFile, TableState, TableStore, table_lock
from headrace.runtime.clock import ManualClock, SystemClock
from headrace.runtime.disk import OsDisk
from headrace.testing.disks import FaultyDisk

from .table_days import SCHEMA, WANTED, Open, a_day, committed_ids, crash_at_steps, new_file, opener, without_syncs


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    without_syncs(monkeypatch)


@pytest.fixture(params=["manifest", "iceberg"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Open:
    return opener(request.param, tmp_path, monkeypatch)


def test_a_day_without_a_crash(open_store: Open) -> None:
    with closing(open_store(OsDisk())) as store:
        assert store.state() == TableState()
        a_day(OsDisk(), store)
        assert committed_ids(store) == WANTED["4"]
        assert {file.name for file in store.state().files} == {"hr-3.parquet", "hr-4.parquet"}
    with closing(open_store(OsDisk())) as again:
        assert again.state().properties == {"done": "4"}
        assert again.recover() == []


def test_a_crash_at_any_step_loses_nothing_and_doubles_nothing(
    open_store: Open, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """pyiceberg takes half a second for a day, so only some steps are tried; all of them under `make faults`."""
    plain = "manifest" in request.node.name
    crash_at_steps(open_store, tmp_path, itertools.count(1, 1 if plain else 37), plain=plain)


def test_files_are_on_the_device_before_a_commit_names_them(tmp_path: Path) -> None:
    steps: list[tuple[str, str]] = []
    disk = FaultyDisk(OsDisk(), lambda step, path: steps.append((step, path.name)))
    store = ManifestStore(tmp_path / "table", disk=disk)
    a_day(disk, store)
    for number in (1, 2, 3, 4):
        commit = steps.index(("write", f"{number:020d}.json"))
        written = max(at for at, step in enumerate(steps[:commit]) if step == ("write", f"hr-{number}.parquet"))
        synced = steps.index(("sync", f"hr-{number}.parquet"), written)
        assert synced < steps.index(("sync-dir", "files"), synced) < commit


@pytest.mark.parametrize("kind", ["manifest", "iceberg"])
def test_removed_files_stay_for_a_while_and_then_go(kind: str, tmp_path: Path) -> None:
    disk, clock = OsDisk(), ManualClock(SystemClock().wall_ms())
    store: TableStore = ManifestStore(tmp_path / "t", clock=clock, keep_removed_ms=60_000)
    if kind == "iceberg":
        store = IcebergStore(tmp_path / "t", "t", clock=clock, keep_removed_ms=60_000)
    with closing(store):
        store.recover()
        store.prepare(SCHEMA, [])
        files = [new_file(disk, store, f"hr-{number}.parquet", range(3)) for number in range(4)]
        state = store.commit(store.state(), add=[files[0]], remove=[], properties={})
        # pyiceberg takes the time of its snapshots from the system.
        if kind == "manifest":
            clock.advance(3_600_000)
        state = store.commit(state, add=[files[1]], remove=[files[0].name], properties={})
        assert store.path(files[0]).exists()
        if kind == "manifest":
            assert [path.name for path in (store.root / "data" / "city=Bern").iterdir()] == [files[1].name]
        clock.advance(3_600_000)
        state = store.commit(state, add=[files[2]], remove=[files[1].name], properties={})
        store.commit(state, add=[files[3]], remove=[files[2].name], properties={})
        assert not store.path(files[0]).exists()
        assert store.path(files[3]).exists()


def test_two_writers_at_once_are_refused(tmp_path: Path) -> None:
    refused = pytest.raises(TableError, match="archiver of orders, process")
    with table_lock(tmp_path, "the archiver of orders"), refused, table_lock(tmp_path, "another"):
        pass
    with table_lock(tmp_path, "another"):
        pass


def test_a_commit_on_an_old_state_is_refused(open_store: Open) -> None:
    with closing(open_store(OsDisk())) as store:
        a_day(OsDisk(), store)
        stale = TableState(1, (TableFile("hr-1.parquet", "city=Bern", 5, 1),), {})
        added = new_file(OsDisk(), store, "hr-9.parquet", range(3))
        with pytest.raises(TableError, match="another writer"):
            store.commit(stale, add=[added], remove=["hr-1.parquet"], properties={})
        assert committed_ids(store) == WANTED["4"]
