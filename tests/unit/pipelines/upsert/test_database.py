"""Upserts against a real SQLite file and a real PostgreSQL server, without Spark."""

import datetime
import itertools
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.pipelines.upsert.database import Database, UpsertError, UpsertOptions, UpsertPlan, connect_to

Query = Callable[[str], list[tuple[Any, ...]]]
Row = tuple[bool, Sequence[Any]]

OWNER = ("orders", "q1")
_numbers = itertools.count(1)


def plan(table: str, order: str | None = None, *, create: bool = True) -> UpsertPlan:
    return UpsertPlan(table, ("id", "city", "at"), ("bigint", "string", "bigint"), ("id",), order, create)


def kept(*rows: tuple[Any, ...]) -> list[Row]:
    return [(False, row) for row in rows]


def gone(*rows: tuple[Any, ...]) -> list[Row]:
    return [(True, row) for row in rows]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/shop.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
def database(url: str) -> Database[Any]:
    return connect_to(url)


@pytest.fixture
def table() -> str:
    return f"orders_{next(_numbers)}"


@pytest.fixture
def query(url: str) -> Query:
    def run(text: str) -> list[tuple[Any, ...]]:
        if url.startswith("sqlite"):
            with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
                return connection.execute(text).fetchall()
        with psycopg.connect(url) as server:
            cursor = server.execute(text)
            return cursor.fetchall() if cursor.description else []

    return run


def test_rows_are_inserted_then_updated_then_removed(database: Database[Any], table: str, query: Query) -> None:
    owner = (table, "q")
    assert database.apply(plan(table), owner, 0, kept((1, "Bern", 5), (2, "Basel", 5)))
    assert database.apply(plan(table), owner, 1, kept((2, "Genf", 6), (3, "Chur", 6)) + gone((1, None, None)))
    assert query(f"SELECT * FROM {table} ORDER BY id") == [(2, "Genf", 6), (3, "Chur", 6)]


def test_a_batch_that_comes_again_changes_nothing(database: Database[Any], table: str, query: Query) -> None:
    owner = (table, "q")
    assert database.apply(plan(table), owner, 7, kept((1, "Bern", 5)))
    assert not database.apply(plan(table), owner, 7, kept((1, "Genf", 6)))
    assert not database.apply(plan(table), owner, 6, kept((1, "Genf", 6)))
    assert query(f"SELECT city FROM {table}") == [("Bern",)]
    # A query with a checkpoint of its own counts anew.
    assert database.apply(plan(table), (table, "other"), 0, kept((1, "Chur", 6)))
    assert query(f"SELECT city FROM {table}") == [("Chur",)]


def test_a_batch_that_fails_in_the_middle_leaves_no_trace(database: Database[Any], table: str, query: Query) -> None:
    owner = (table, "q")
    database.apply(plan(table), owner, 0, kept((1, "Bern", 5)))

    def rows() -> Iterator[Row]:
        yield from kept((1, "Genf", 6))
        raise UpsertError("the machine of a task went away")

    with pytest.raises(UpsertError, match="went away"):
        database.apply(plan(table), owner, 1, rows())
    assert query(f"SELECT city FROM {table}") == [("Bern",)]
    assert database.apply(plan(table), owner, 1, kept((1, "Chur", 6)))
    assert query(f"SELECT city FROM {table}") == [("Chur",)]


def test_the_last_row_of_a_key_counts(database: Database[Any], table: str, query: Query) -> None:
    database.apply(plan(table), (table, ""), 0, kept((1, "Bern", 9), (1, "Genf", 2), (2, "Chur", 1)) + gone((2, "", 1)))
    assert query(f"SELECT id, city FROM {table}") == [(1, "Genf")]


def test_with_an_order_the_newest_row_counts_over_batches_too(
    database: Database[Any], table: str, query: Query
) -> None:
    ordered, owner = plan(table, "at"), (table, "")
    database.apply(ordered, owner, 0, kept((1, "Bern", 9), (1, "Genf", 2), (2, "Chur", 4)))
    database.apply(ordered, owner, 1, kept((1, "late", 3)) + gone((2, None, 3)))
    assert query(f"SELECT id, city FROM {table} ORDER BY id") == [(1, "Bern"), (2, "Chur")]
    database.apply(ordered, owner, 2, kept((1, "Basel", 9)) + gone((2, None, 5)))
    assert query(f"SELECT id, city FROM {table} ORDER BY id") == [(1, "Basel")]


def test_names_are_quoted(database: Database[Any], query: Query, table: str) -> None:
    evil = f'{table}"; DROP TABLE headrace_batches; --'
    odd = UpsertPlan(evil, ('i"d', "select"), ("bigint", "string"), ('i"d',), None, True)
    assert database.apply(odd, (evil, "'"), 0, kept((1, "'; DROP TABLE x")))
    assert database.apply(odd, (evil, "'"), 1, kept((1, "b")))
    quoted = evil.replace('"', '""')
    assert query(f'SELECT "select" FROM "{quoted}"') == [("b",)]


def test_a_table_that_is_not_there_is_said(database: Database[Any], table: str) -> None:
    with pytest.raises(UpsertError, match=table):
        database.apply(plan(table, create=False), OWNER, 0, kept((1, "Bern", 5)))


def test_a_table_without_a_key_is_said(database: Database[Any], table: str, query: Query) -> None:
    query(f"CREATE TABLE {table} (id bigint, city text, at bigint)")
    with pytest.raises(UpsertError, match=r"(?i)unique constraint"):
        database.apply(plan(table), (table, ""), 0, kept((1, "Bern", 5)))


def test_types_of_spark_are_kept(database: Database[Any], table: str, query: Query, url: str) -> None:
    kinds = {"id": "int", "at": "timestamp", "day": "date", "ok": "boolean", "raw": "binary", "tags": "json"}
    at = datetime.datetime(2026, 1, 31, 12, 0, 0, 5).astimezone()
    typed = UpsertPlan(table, tuple(kinds), tuple(kinds.values()), ("id",), None, True)
    row = (1, at.replace(tzinfo=None), at.date(), True, bytearray(b"\x00\xff"), '["a"]')
    database.apply(typed, (table, ""), 0, kept(row))
    ((key, found_at, day, ok, raw, tags),) = query(f"SELECT * FROM {table}")
    if url.startswith("sqlite"):
        assert datetime.datetime.fromisoformat(found_at) == at
        assert (key, day, ok, raw, tags) == (1, at.date().isoformat(), 1, b"\x00\xff", '["a"]')
    else:
        assert (key, found_at, day, ok, raw, tags) == (1, at, at.date(), True, b"\x00\xff", ["a"])


def _no_rows() -> Iterable[Row]:
    return []


def test_passwords_are_in_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    options = UpsertOptions(database="postgresql://me:s3cret@127.0.0.1:1/x", table="t", key=["id"])
    assert "s3cret" not in repr(options)
    for url in (
        "postgresql://me:s3cret@127.0.0.1:1/x",
        "postgresql://me:s3cret@[half/x",
        "postgres://me:s3cret@h/x?nonsense=s3cret",
    ):
        with pytest.raises(UpsertError) as refused:
            connect_to(url).apply(plan("t"), OWNER, 0, _no_rows())
        assert "s3cret" not in str(refused.value)
        assert refused.value.__suppress_context__
    monkeypatch.setenv("ORDERS_DB", "mysql://me:s3cret@host")
    with pytest.raises(UpsertError, match="postgresql://") as refused:
        connect_to("env:ORDERS_DB")
    assert "s3cret" not in str(refused.value)
    with pytest.raises(UpsertError, match="NOT_THERE"):
        connect_to("env:NOT_THERE")
