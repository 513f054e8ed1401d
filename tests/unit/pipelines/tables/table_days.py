"""What tests of tables share: a day in the life of one, and a crash at any step of it."""

import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.pipelines.tables.iceberg import IcebergStore, SyncedFileIO
from headrace.pipelines.tables.parquet import ParquetWriter, merge
from headrace.pipelines.tables.store import ManifestStore, TableFile, TableStore
from headrace.runtime.disk import Disk, OsDisk
from headrace.testing.disks import FaultyDisk, PowerLoss, stop_at

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string())])
Open = Callable[[Disk], TableStore]


def without_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of runs: the order of the steps is what counts here, not that the device is waited for."""
    monkeypatch.setattr(os, "fdatasync", lambda fd: None)
    monkeypatch.setattr(os, "fsync", lambda fd: None)


def opener(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Open:
    def make(disk: Disk) -> TableStore:
        if kind == "manifest":
            return ManifestStore(folder / "table", disk=disk)
        monkeypatch.setattr(SyncedFileIO, "disk", disk)
        return IcebergStore(folder / "table", "cities", disk=disk)

    return make


def new_file(disk: Disk, store: TableStore, name: str, ids: range, city: str = "Bern") -> TableFile:
    folder = f"city={city}"
    writer = ParquetWriter(disk, store.path_for_new(name, folder), SCHEMA)
    try:
        writer.write(pa.table({"id": list(ids), "city": [city] * len(ids)}, schema=SCHEMA))
        return TableFile(name, folder, len(ids), writer.close())
    except BaseException:
        writer.abandon()
        raise


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
