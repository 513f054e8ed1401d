"""Upserts as a database sees them: options, the plan for a batch, and the port that each kind of database implements.

The number of the last batch is stored in the table `headrace_batches`, by the sink's name and the id of the query, in
the transaction that changes the rows. Needs no Spark.
"""

import os
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import msgspec

from headrace.model.errors import HeadraceError

BATCHES = "headrace_batches"
FORMAT_ROW = ("headrace:format", "")
"""Name and query of the row whose batch is the version of the table's layout; 1 without such a row."""
_FORMAT = 1


class UpsertError(HeadraceError):
    """The database refused a batch, or the rows do not match the table. The message never contains a password."""


class UpsertOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of an upsert sink."""

    database: str
    """`postgresql://user@host/name`, `sqlite:///path/to/file`, or `env:NAME` for a variable that holds one of them."""
    table: str
    """The table, `name` or `schema.name`."""
    key: list[str]
    """The key columns; the table has a unique constraint over them."""
    order: str | None = None
    """A column that orders rows with the same key: the greatest is the newest."""
    delete: str | None = None
    """A boolean column: true deletes the row of the key."""
    delete_nulls: bool = False
    """A row whose columns other than `key` and `order` are all null deletes the row of the key."""
    create: bool = False
    """Create the table if it does not exist."""
    name: str = ""
    """The name under which batch ids are stored; the table's if empty."""

    def __repr__(self) -> str:
        return f"UpsertOptions(table={self.table!r}, key={self.key!r})"


class UpsertPlan(msgspec.Struct, frozen=True):
    """How batches with these columns are written."""

    table: str
    columns: tuple[str, ...]
    """The stored columns, including the key."""
    types: tuple[str, ...]
    """Spark's simple names of the columns' types: `string`, `bigint`, `decimal(10,2)` …"""
    key: tuple[str, ...]
    order: str | None
    create: bool

    @property
    def others(self) -> tuple[str, ...]:
        """The columns that an update sets."""
        return tuple(column for column in self.columns if column not in self.key)


class Database(Protocol):
    """A kind of database. Its errors are `UpsertError`s."""

    def apply(
        self, plan: UpsertPlan, owner: tuple[str, str], batch_id: int, rows: Iterable[tuple[bool, Sequence[Any]]]
    ) -> bool:
        """Write a batch and its id in one transaction, unless the owner's last batch is this one or a later one.

        Each row comes with whether its key is to be deleted. Returns False if the batch was already written."""
        ...


def check_format(found: Sequence[Any] | None) -> None:
    """Raise `UpsertError` if a newer Headrace has written the table of batches."""
    if found is not None and found[0] > _FORMAT:
        raise UpsertError(
            f"{BATCHES} was written by a newer Headrace (format {found[0]}, this one reads {_FORMAT}): use that one"
        )


def connect_to(database: str) -> Database:
    """The database of the option `database`; it connects for each batch."""
    if database.startswith("env:"):
        name = database.removeprefix("env:")
        found = os.environ.get(name)
        if not found:
            raise UpsertError(f"the environment variable {name}, which should have the database's URL, is not set")
        database = found
    if database.startswith(("postgresql://", "postgres://")):
        from headrace.pipelines.upsert.postgres import Postgres

        return Postgres(database)
    if database.startswith("sqlite:///"):
        from headrace.pipelines.upsert.sqlite import Sqlite

        return Sqlite(database.removeprefix("sqlite:///"))
    raise UpsertError("`database` must begin with postgresql://, sqlite:/// or env:")
