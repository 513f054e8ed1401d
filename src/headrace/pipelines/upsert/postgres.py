"""Upserts into PostgreSQL: COPY to a temporary table, then one INSERT … ON CONFLICT DO UPDATE."""

import datetime
import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql

from headrace.pipelines.upsert.database import BATCHES, Database, Rows, UpsertError, UpsertPlan

_CONNECT_TIMEOUT_S = 15
_TYPES = {
    "tinyint": "smallint",
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "float": "real",
    "double": "double precision",
    "boolean": "boolean",
    "binary": "bytea",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
    "json": "jsonb",
}

_Connection = psycopg.Connection[tuple[Any, ...]]


class Postgres(Database[_Connection]):
    """A PostgreSQL database, by its URL."""

    parameter = "%s"

    def __init__(self, url: str) -> None:
        self._url = url

    def make_batches(self, connection: _Connection, owner: tuple[str, str]) -> None:
        # A second driver of the same query (a stale one that still runs, say) waits here.
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_lock_number(owner[0]),))
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {BATCHES} "
            "(name text, query text, batch bigint NOT NULL, PRIMARY KEY (name, query))"
        )

    def execute(self, connection: _Connection, statement: str, parameters: tuple[Any, ...]) -> Any:
        return connection.execute(statement, parameters)

    def merge(self, connection: _Connection, plan: UpsertPlan, rows: Rows) -> None:
        if plan.create:
            connection.execute(_create(plan))
        _stage(connection, plan, rows)
        for statement in _merge(plan):
            connection.execute(statement)

    @contextmanager
    def transaction(self) -> Iterator[_Connection]:
        try:
            psycopg.conninfo.conninfo_to_dict(self._url)
        except psycopg.Error:
            # Its message quotes the URL, which may contain a password.
            raise UpsertError("`database` is not a PostgreSQL URL: postgresql://user@host:5432/name") from None
        try:
            with psycopg.connect(self._url, connect_timeout=_CONNECT_TIMEOUT_S) as database:
                yield database
        except psycopg.errors.InvalidColumnReference:
            raise UpsertError(
                "PostgreSQL finds no unique constraint over the key's columns: add a primary key"
            ) from None
        except psycopg.Error as error:
            raise UpsertError(f"PostgreSQL refused the upsert: {' '.join(str(error).split())}") from None


def _lock_number(name: str) -> int:
    return int.from_bytes(hashlib.sha256(f"headrace upsert {name}".encode()).digest()[:8], "big", signed=True)


def _table(plan: UpsertPlan) -> sql.Identifier:
    return sql.Identifier(*plan.table.split("."))


def _names(columns: Iterable[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, columns))


def _create(plan: UpsertPlan) -> sql.Composed:
    columns = sql.SQL(", ").join(
        sql.SQL("{} {}").format(sql.Identifier(column), sql.SQL(_type(kind)))
        for column, kind in zip(plan.columns, plan.types, strict=True)
    )
    return sql.SQL("CREATE TABLE IF NOT EXISTS {} ({}, PRIMARY KEY ({}))").format(
        _table(plan), columns, _names(plan.key)
    )


def _type(kind: str) -> Any:
    # Only names of Spark types come here; decimal(p,s) is the same in both.
    return kind if kind.startswith("decimal(") else _TYPES.get(kind, "text")


def _stage(database: _Connection, plan: UpsertPlan, rows: Rows) -> None:
    """Copy the batch, with row numbers, to a temporary table that is dropped with the transaction."""
    database.execute(
        sql.SQL(
            "CREATE TEMP TABLE headrace_stage ON COMMIT DROP AS "
            "SELECT 0::bigint AS headrace_row, false AS headrace_gone, {} FROM {} LIMIT 0"
        ).format(_names(plan.columns), _table(plan))
    )
    naive = [kind == "timestamp" for kind in plan.types]
    with database.cursor() as cursor, cursor.copy("COPY headrace_stage FROM STDIN") as copy:
        for number, (gone, row) in enumerate(rows):
            values = [_value(value) if local else value for value, local in zip(row, naive, strict=True)]
            copy.write_row((number, gone, *values))


def _value(value: datetime.datetime | None) -> datetime.datetime | None:
    # Spark returns timestamps as local times without a zone.
    return None if value is None else value.astimezone(datetime.UTC)


def _merge(plan: UpsertPlan) -> Iterator[sql.Composed]:
    key, columns = _names(plan.key), _names(plan.columns)
    newest = sql.SQL("{} DESC NULLS LAST, ").format(sql.Identifier(plan.order)) if plan.order else sql.SQL("")
    yield sql.SQL(
        "CREATE TEMP TABLE headrace_last ON COMMIT DROP AS "
        "SELECT DISTINCT ON ({}) * FROM headrace_stage ORDER BY {}, {}headrace_row DESC"
    ).format(key, key, newest)
    same = sql.SQL(" AND ").join(
        sql.SQL("stored.{0} = fresh.{0}").format(sql.Identifier(column)) for column in plan.key
    )
    yield sql.SQL("DELETE FROM {} AS stored USING headrace_last AS fresh WHERE fresh.headrace_gone AND {}{}").format(
        _table(plan), same, _not_older(plan, "fresh", " AND ")
    )
    update: sql.Composable = sql.SQL("DO NOTHING")
    if plan.others:
        settings = sql.SQL(", ").join(
            sql.SQL("{0} = excluded.{0}").format(sql.Identifier(column)) for column in plan.others
        )
        update = sql.SQL("DO UPDATE SET {}{}").format(settings, _not_older(plan, "excluded", " WHERE "))
    yield sql.SQL(
        "INSERT INTO {} AS stored ({}) SELECT {} FROM headrace_last WHERE NOT headrace_gone ON CONFLICT ({}) {}"
    ).format(_table(plan), columns, columns, key, update)


def _not_older(plan: UpsertPlan, fresh: str, before: str) -> sql.Composable:
    if plan.order is None:
        return sql.SQL("")
    return sql.SQL(
        "{before}(stored.{order} IS NULL OR {fresh}.{order} IS NULL OR {fresh}.{order} >= stored.{order})"
    ).format(
        before=sql.SQL(before),
        order=sql.Identifier(plan.order),
        fresh=sql.SQL(fresh),
    )
