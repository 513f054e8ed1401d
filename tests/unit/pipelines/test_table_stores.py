"""Both kinds of table: what a commit promises, and what is left after a crash at any step."""

import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.pipelines.iceberg_store import IcebergStore, SyncedFileIO
from headrace.pipelines.parquet_file import ParquetWriter, merge
from headrace.pipelines.table_store import ManifestStore, TableError, TableFile, TableState, TableStore, locked
from headrace.runtime.clock import ManualClock, SystemClock
from headrace.runtime.disk import Disk, OsDisk
from headrace.testing.disks import FaultyDisk, PowerLoss, stop_at

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string())])
Open = Callable[[Disk], TableStore]


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of runs: the order of the steps is what counts here, not that the device is waited for."""
    monkeypatch.setattr(os, "fdatasync", lambda fd: None)
    monkeypatch.setattr(os, "fsync", lambda fd: None)


@pytest.fixture(params=["manifest", "iceberg"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Open:
    def make(disk: Disk) -> TableStore:
        if request.param == "manifest":
            return ManifestStore(tmp_path / "table", disk=disk)
        monkeypatch.setattr(SyncedFileIO, "disk", disk)
        return IcebergStore(tmp_path / "table", "cities", disk=disk)

    return make


def new_file(disk: Disk, store: TableStore, name: str, ids: range, city: str = "Bern") -> TableFile:
    folder = f"city={city}"
    writer = ParquetWriter(disk, store.path_for_new(name, folder), SCHEMA)
    writer.write(pa.table({"id": list(ids), "city": [city] * len(ids)}, schema=SCHEMA))
    return TableFile(name, folder, len(ids), writer.close())


def committed_ids(store: TableStore) -> list[int]:
    """By what the store says: who goes by the manifest or the catalog."""
    paths = [store.path(file) for file in store.state().files]
    return sorted(itertools.chain.from_iterable(pq.ParquetFile(path).read()["id"].to_pylist() for path in paths))


def plain_ids(store: TableStore) -> list[int]:
    """By listing the directory, as readers that know nothing of us do."""
    files = (store.root / "data").rglob("*.parquet")
    return sorted(itertools.chain.from_iterable(pq.ParquetFile(path).read()["id"].to_pylist() for path in files))


def a_day(disk: Disk, store: TableStore) -> None:
    """Two commits, then one that merges their files, then one more. Each goes on from what is there."""
    store.recover()
    store.prepare(SCHEMA, [("city", "identity")])
    for number in (1, 2):
        if int(store.state().properties.get("done", 0)) < number:
            added = new_file(disk, store, f"hr-{number}.parquet", range(number * 10, number * 10 + 5))
            store.commit(store.state(), add=[added], remove=[], properties={"done": str(number)})
    state = store.state()
    if int(state.properties["done"]) < 3:
        old = sorted(state.files, key=lambda file: file.name)
        target = store.path_for_new("hr-3.parquet", "city=Bern")
        rows, size_bytes = merge(disk, [store.path(file) for file in old], target, SCHEMA)
        merged = TableFile("hr-3.parquet", "city=Bern", rows, size_bytes)
        store.commit(state, add=[merged], remove=[file.name for file in old], properties={"done": "3"})
    if int(store.state().properties["done"]) < 4:
        added = new_file(disk, store, "hr-4.parquet", range(40, 45), "Genf")
        store.commit(store.state(), add=[added], remove=[], properties={"done": "4"})


WANTED = {
    "0": [],
    "1": [*range(10, 15)],
    "2": [*range(10, 15), *range(20, 25)],
    "3": [*range(10, 15), *range(20, 25)],
    "4": [*range(10, 15), *range(20, 25), *range(40, 45)],
}


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


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("open_store", ["iceberg"], indirect=True)
def test_a_crash_at_each_step_of_iceberg(open_store: Open, tmp_path: Path) -> None:
    crash_at_steps(open_store, tmp_path, itertools.count(1), plain=False)


def crash_at_steps(open_store: Open, tmp_path: Path, steps: Iterator[int], *, plain: bool) -> None:
    for step in steps:
        disk = FaultyDisk(OsDisk(), stop_at(step))
        crashed = False
        try:
            with closing(open_store(disk)) as store:
                a_day(disk, store)
        except PowerLoss:
            crashed = True
        with closing(open_store(OsDisk())) as store:
            state = store.state()
            wanted = WANTED[state.properties.get("done", "0")]
            assert committed_ids(store) == wanted
            if plain:
                # Late for the last commit, perhaps; never more than what was committed, and nothing twice.
                assert not Counter(plain_ids(store)) - Counter(wanted)
            store.recover()
            assert committed_ids(store) == wanted
            if plain:
                assert plain_ids(store) == wanted
            a_day(OsDisk(), store)
            assert committed_ids(store) == WANTED["4"]
            assert store.recover() == []
            if plain:
                assert plain_ids(store) == WANTED["4"]
        if not crashed:
            assert step > 20
            return
        (tmp_path / "table").rename(tmp_path / f"table-{step}")


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
    with locked(tmp_path, "the archiver of orders"), refused, locked(tmp_path, "another"):
        pass
    with locked(tmp_path, "another"):
        pass


def test_a_commit_on_an_old_state_is_refused(open_store: Open) -> None:
    with closing(open_store(OsDisk())) as store:
        a_day(OsDisk(), store)
        stale = TableState(1, (TableFile("hr-1.parquet", "city=Bern", 5, 1),), {})
        added = new_file(OsDisk(), store, "hr-9.parquet", range(3))
        with pytest.raises(TableError, match="another writer"):
            store.commit(stale, add=[added], remove=["hr-1.parquet"], properties={})
        assert committed_ids(store) == WANTED["4"]
