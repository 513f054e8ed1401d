"""Upserts into SQLite: a file with one writer at a time."""

import datetime
import decimal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from headrace.pipelines.upsert.database import BATCHES, Database, Rows, UpsertError, UpsertPlan

_BUSY_TIMEOUT_S = 30.0
_TYPES = {"boolean": "INTEGER", "binary": "BLOB", "float": "REAL", "double": "REAL"}
_INTEGERS = frozenset({"tinyint", "smallint", "int", "bigint"})


class Sqlite(Database[sqlite3.Connection]):
    """A SQLite file. Timestamps are stored as ISO 8601 in UTC: SQLite has no type for them."""

    parameter = "?"

    def __init__(self, path: str) -> None:
        self._path = path

    def make_batches(self, connection: sqlite3.Connection, owner: tuple[str, str]) -> None:
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {BATCHES} "
            "(name TEXT, query TEXT, batch INTEGER NOT NULL, PRIMARY KEY (name, query)) WITHOUT ROWID"
        )

    def execute(self, connection: sqlite3.Connection, statement: str, parameters: tuple[Any, ...]) -> Any:
        return connection.execute(statement, parameters)

    def merge(self, connection: sqlite3.Connection, plan: UpsertPlan, rows: Rows) -> None:
        if plan.create:
            connection.execute(_create(plan))
        _stage(connection, plan, rows)
        for statement in _merge(plan):
            connection.execute(statement)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self._path, timeout=_BUSY_TIMEOUT_S, isolation_level=None)) as database:
                database.execute("PRAGMA journal_mode=WAL")
                # A batch that Spark considers written must survive a power failure.
                database.execute("PRAGMA synchronous=FULL")
                # Takes the write lock: a second driver waits here, and then finds the batch written.
                database.execute("BEGIN IMMEDIATE")
                try:
                    yield database
                except BaseException:
                    database.execute("ROLLBACK")
                    raise
                database.execute("COMMIT")
        except sqlite3.Error as error:
            raise UpsertError(f"SQLite refused the upsert: {error}") from None


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _table(plan: UpsertPlan) -> str:
    return ".".join(map(quoted, plan.table.split(".")))


def _create(plan: UpsertPlan) -> str:
    columns = [f"{quoted(column)} {_type(kind)}" for column, kind in zip(plan.columns, plan.types, strict=True)]
    key = ", ".join(map(quoted, plan.key))
    return f"CREATE TABLE IF NOT EXISTS {_table(plan)} ({', '.join(columns)}, PRIMARY KEY ({key}))"


def _type(kind: str) -> str:
    if kind.startswith("decimal("):
        return "NUMERIC"
    return "INTEGER" if kind in _INTEGERS else _TYPES.get(kind, "TEXT")


def _stage(database: sqlite3.Connection, plan: UpsertPlan, rows: Rows) -> None:
    """Copy the batch, with row numbers, to a temporary table of this connection."""
    columns = ", ".join(map(quoted, plan.columns))
    database.execute(
        f"CREATE TEMP TABLE headrace_stage AS SELECT 0 AS headrace_row, 0 AS headrace_gone, {columns} "
        f"FROM {_table(plan)} WHERE 0"
    )
    marks = ", ".join("?" * (len(plan.columns) + 2))
    database.executemany(
        f"INSERT INTO temp.headrace_stage VALUES ({marks})",
        ((number, gone, *map(_value, row, plan.types)) for number, (gone, row) in enumerate(rows)),
    )


def _merge(plan: UpsertPlan) -> Iterator[str]:
    table, key, columns = (_table(plan), *(", ".join(map(quoted, names)) for names in (plan.key, plan.columns)))
    newest = f"{quoted(plan.order)} DESC NULLS LAST, " if plan.order else ""
    yield (
        "CREATE TEMP TABLE headrace_last AS SELECT * FROM (SELECT *, row_number() OVER "
        f"(PARTITION BY {key} ORDER BY {newest}headrace_row DESC) AS headrace_rank FROM temp.headrace_stage) "
        "WHERE headrace_rank = 1"
    )
    same = " AND ".join(f"stored.{quoted(column)} = fresh.{quoted(column)}" for column in plan.key)
    not_older = ""
    if plan.order:
        order = quoted(plan.order)
        not_older = f" AND (stored.{order} IS NULL OR fresh.{order} IS NULL OR fresh.{order} >= stored.{order})"
    yield (
        f"DELETE FROM {table} AS stored WHERE EXISTS "
        f"(SELECT 1 FROM temp.headrace_last AS fresh WHERE fresh.headrace_gone AND {same}{not_older})"
    )
    update = "DO NOTHING"
    if plan.others:
        update = "DO UPDATE SET " + ", ".join(f"{quoted(column)} = excluded.{quoted(column)}" for column in plan.others)
        if plan.order:
            order = quoted(plan.order)
            update += (
                f" WHERE {table}.{order} IS NULL OR excluded.{order} IS NULL OR excluded.{order} >= {table}.{order}"
            )
    yield (
        f"INSERT INTO {table} ({columns}) SELECT {columns} FROM temp.headrace_last WHERE NOT headrace_gone "
        f"ON CONFLICT ({key}) {update}"
    )


def _value(value: Any, kind: str) -> Any:
    if isinstance(value, datetime.datetime):
        # Spark returns timestamps as local times without a zone, and TIMESTAMP_NTZ unchanged.
        at = value.astimezone(datetime.UTC) if kind == "timestamp" else value
        return at.isoformat(timespec="microseconds")
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    return bytes(value) if isinstance(value, bytearray) else value
