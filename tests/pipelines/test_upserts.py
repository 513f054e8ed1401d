"""Upserts from a real Spark: rows reach the database with their types, deletes and order."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession
from tests.unit.pipelines import postgres

from headrace.pipelines.upsert.database import UpsertError, UpsertOptions
from headrace.pipelines.upsert.sink import UpsertSink

# The first query of a session takes long on a busy machine.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def postgres_url() -> Iterator[str]:
    if postgres.binaries() is None:
        pytest.skip("there is no PostgreSQL in /usr/lib/postgresql; on Debian: apt-get install postgresql")
    with postgres.server() as url:
        yield url


def stored(path: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute(query).fetchall()


def test_a_change_stream_becomes_a_table(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    options = UpsertOptions(
        database=f"sqlite:///{path}", table="customers", key=["id"], order="at", delete="gone", create=True
    )
    schema = "id BIGINT, name STRING, tags ARRAY<STRING>, at INT, gone BOOLEAN"
    sink = UpsertSink(options)
    first = [(1, "Ann", ["a"], 1, False), (1, "Anna", None, 2, False), (2, "Bob", [], 1, False)]
    assert sink.write(spark.createDataFrame(first, schema), 0, "q")
    assert not sink.write(spark.createDataFrame(first, schema), 0, "q")
    assert sink.write(spark.createDataFrame([(2, None, None, 5, True), (1, "late", None, 1, None)], schema), 1, "q")
    assert stored(path, "SELECT id, name, tags, at FROM customers") == [(1, "Anna", None, 2)]


def test_a_row_with_nothing_but_its_key_removes_it(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    sink = UpsertSink(
        UpsertOptions(database=f"sqlite:///{path}", table="t", key=["id"], delete_nulls=True, create=True)
    )
    sink.write(spark.createDataFrame([(1, "a"), (2, "b")], "id INT, name STRING"), 0)
    sink.write(spark.createDataFrame([(1, None)], "id INT, name STRING"), 1)
    assert stored(path, "SELECT * FROM t") == [(2, "b")]


def test_what_does_not_fit_is_said(spark: SparkSession, tmp_path: Path) -> None:
    def sink(**options: Any) -> UpsertSink:
        return UpsertSink(UpsertOptions(database=f"sqlite:///{tmp_path}/x.db", table="t", create=True, **options))

    rows = spark.createDataFrame([(None, "a")], "id INT, name STRING")
    with pytest.raises(UpsertError, match="names number as its key, and the rows have only id, name"):
        sink(key=["number"]).write(rows, 0)
    with pytest.raises(UpsertError, match="must be a boolean"):
        sink(key=["id"], delete="name").write(rows, 0)
    with pytest.raises(UpsertError, match="no value in its key"):
        sink(key=["id"]).write(rows, 0)


def test_rows_of_every_type_reach_postgres(spark: SparkSession, postgres_url: str) -> None:
    sink = UpsertSink(UpsertOptions(database=postgres_url, table="public.Orders", key=["id", "shop"], create=True))
    at = datetime(2026, 1, 31, 12, 0, 0, 5, tzinfo=UTC)
    schema = (
        "id BIGINT, shop STRING, at TIMESTAMP, day DATE, price DECIMAL(10,2), rate DOUBLE, ok BOOLEAN, raw BINARY, "
        "lines ARRAY<STRUCT<sku: STRING, n: INT>>, attributes MAP<STRING, STRING>"
    )
    row = (1, "a\tb\\N", at, date(2026, 1, 31), Decimal("9.90"), 0.5, True, b"\x00\\", [("x", 2)], {"k": "v"})
    assert sink.write(spark.createDataFrame([row], schema), 0, "q")
    assert sink.write(spark.createDataFrame([(*row[:4], Decimal("1.00"), *[None] * 5)], schema), 1, "q")
    assert sink.write(spark.createDataFrame([(2, *row[1:])], schema), 2, "q")
    with psycopg.connect(postgres_url) as server:
        first, second = server.execute('SELECT * FROM public."Orders" ORDER BY id').fetchall()
    assert first == (*row[:4], Decimal("1.00"), None, None, None, None, None)
    assert second == (2, *row[1:8], [{"sku": "x", "n": 2}], {"k": "v"})
