"""What a table is called in its Iceberg catalog, and catalogs that are not in the table's directory."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.utils.config import Config

from headrace.pipelines.archive.archiver import ArchiveOptions, Archiver
from headrace.pipelines.archive.layout import read_archive
from headrace.pipelines.run.rows import table_options
from headrace.pipelines.spec.model import Sink
from headrace.pipelines.tables.iceberg import IcebergStore
from headrace.pipelines.tables.sink import TableOptions, open_store
from headrace.pipelines.tables.store import TableError, TableFile, TableStore
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.runtime.disk import OsDisk
from headrace.wire import Cluster

from .rest_catalog import rest_catalog

SCHEMA = pa.schema([pa.field("city", pa.string()), pa.field("amount", pa.int64())])


def options(folder: Path, **given: object) -> TableOptions:
    """Of a sink as a pipeline's file has it."""
    return table_options(Sink(format="iceberg", **given), folder)  # type: ignore[arg-type]


def add(store: TableStore, name: str, *amounts: int) -> None:
    store.prepare(SCHEMA, [("city", "identity")])
    path = store.path_for_new(f"hr-{name}.parquet", "")
    rows = [{"city": "Basel", "amount": amount} for amount in amounts]
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), path)
    file = TableFile(path.name, "", len(rows), path.stat().st_size)
    store.commit(store.state(), add=[file], remove=[], properties={"batches": name})


def amounts(catalog: SqlCatalog, name: str) -> list[int]:
    return sorted(row["amount"] for row in catalog.load_table(name).scan().to_arrow().to_pylist())


@pytest.mark.parametrize(
    ("table", "name"),
    [("lake.revenue", "lake.revenue"), ("revenue", "headrace.revenue"), ("eu.lake.per-day", "eu_lake.per-day")],
)
def test_a_table_is_called_in_the_catalog_as_it_is_in_the_file(tmp_path: Path, table: str, name: str):
    with closing(open_store(options(tmp_path, table=table), OsDisk())) as store:
        add(store, "1", 3, 4)
    folder = tmp_path.joinpath(*table.split("."))
    catalog = SqlCatalog("headrace", uri=f"sqlite:///{folder}/catalog.db")
    assert amounts(catalog, name) == [3, 4]
    catalog.engine.dispose()
    with closing(open_store(options(tmp_path, table=table), OsDisk())) as store:
        assert store.state().properties == {"batches": "1"}
    with pytest.raises(TableError, match=f"has the Iceberg table {name}, not other.table: use another directory"):
        open_store(options(tmp_path, path=str(folder), table="other.table"), OsDisk())


def test_a_table_of_an_earlier_version_keeps_its_name_and_its_rows(tmp_path: Path):
    with closing(IcebergStore(tmp_path / "lake" / "revenue", "lake_revenue")) as store:
        add(store, "1", 1)
    with closing(open_store(options(tmp_path, table="lake.revenue"), OsDisk())) as store:
        assert store.state().properties == {"batches": "1"}
        add(store, "2", 2)
    catalog = SqlCatalog("headrace", uri=f"sqlite:///{tmp_path}/lake/revenue/catalog.db")
    assert amounts(catalog, "headrace.lake_revenue") == [1, 2]
    catalog.engine.dispose()


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    with rest_catalog(tmp_path) as address:
        yield address


def test_a_table_in_a_rest_catalog(tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch):
    wanted = options(tmp_path, table="lake.revenue", options={"catalog": address})
    with closing(open_store(wanted, OsDisk())) as store:
        assert store.recover() == []
        add(store, "1", 3)
        stray = store.path_for_new("hr-stray.parquet", "")
        stray.write_bytes(b"of a crash")
    assert not (tmp_path / "lake" / "revenue" / "catalog.db").exists()
    with closing(open_store(wanted, OsDisk())) as store:
        assert store.recover() == ["hr-stray.parquet"]
        assert store.state().properties == {"batches": "1"}
        add(store, "2", 4)
    # Any reader finds it by its name.
    catalog = load_catalog("any", type="rest", uri=address)
    table = catalog.load_table("lake.revenue")
    assert sorted(row["amount"] for row in table.scan().to_arrow().to_pylist()) == [3, 4]

    # By a name that pyiceberg knows: another name for the directory's catalog is refused, all others are fine.
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", address)
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__TYPE", "rest")
    # pyiceberg reads its configuration when it is imported.
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    by_name = options(tmp_path, table="lake.costs", options={"catalog": "prod"})
    with closing(open_store(by_name, OsDisk())) as store:
        add(store, "1", 9)
    assert sorted(catalog.list_tables("lake")) == [("lake", "costs"), ("lake", "revenue")]

    # What a directory belongs to is noted: no other catalog would know its files, and they would be taken for strays.
    with pytest.raises(TableError, match=f"is the table lake.revenue of the catalog {address}: name both"):
        open_store(options(tmp_path, table="lake.revenue"), OsDisk())
    with pytest.raises(TableError, match='set format = "iceberg"'):
        open_store(TableOptions(path=str(tmp_path / "lake" / "revenue")), OsDisk())
    elsewhere = options(tmp_path, table="lake.revenue", path="other", options={"catalog": address})
    with pytest.raises(TableError, match=r"of the catalog is at file://.*revenue, not at"):
        open_store(elsewhere, OsDisk())

    note = tmp_path / "lake" / "revenue" / "_headrace" / "catalog.json"
    note.write_text(note.read_text().replace('"format":1', '"format":2'))
    with pytest.raises(TableError, match=r"was written by a newer Headrace \(format 2, this one reads 1\)"):
        open_store(wanted, OsDisk())

    # A table that somebody drops from the catalog keeps its files.
    catalog_files = sorted((tmp_path / "lake" / "costs" / "data").iterdir())
    server = SqlCatalog("server", uri=f"sqlite:///{tmp_path / 'server.db'}")
    server.drop_table("lake.costs")
    server.engine.dispose()
    with closing(open_store(by_name, OsDisk())) as store:
        assert store.recover() == []
    assert sorted((tmp_path / "lake" / "costs" / "data").iterdir()) == catalog_files


def test_a_catalog_that_does_not_answer_is_a_sentence(tmp_path: Path):
    wanted = options(tmp_path, table="lake.revenue", options={"catalog": "http://127.0.0.1:1"})
    with pytest.raises(TableError, match=r"the Iceberg catalog http://127.0.0.1:1 cannot be used: .*refused"):
        open_store(wanted, OsDisk())
    unknown = options(tmp_path, table="lake.revenue", options={"catalog": "nobody-knows"})
    with pytest.raises(TableError, match="the Iceberg catalog nobody-knows cannot be used"):
        open_store(unknown, OsDisk())


def test_an_archive_in_a_rest_catalog_under_a_name_of_its_own(tmp_path: Path, address: str, headrace_session_broker):
    with Cluster(headrace_session_broker.bootstrap) as cluster:
        cluster.create_topic("named.archive", partitions=1)
        cluster.produce({("named.archive", 0): build_batch([Record(0, 1_700_000_000_000, None, b"x")] * 3)})
        wanted = ArchiveOptions(
            topic="named.archive", path=str(tmp_path / "a"), iceberg=True, table="raw.orders", catalog=address
        )
        with Archiver(cluster, wanted) as archiver:
            archiver.run_once()
    assert load_catalog("any", type="rest", uri=address).load_table("raw.orders").scan().to_arrow().num_rows == 3
    view = read_archive(tmp_path / "a")
    assert (view.topic, view.offsets) == ("named.archive", {0: 3})
