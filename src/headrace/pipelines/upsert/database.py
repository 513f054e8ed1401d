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
"""Name and query of a row of that table whose batch is the version of the table's layout; without it that is 1."""
_FORMAT = 1


class UpsertError(HeadraceError):
    """The database refused, or the rows do not fit the table. The message never has a password in it."""


class UpsertOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a pipeline's file says about an upsert sink."""

    database: str
    """`postgresql://user@host/name`, `sqlite:///path/to/file`, or `env:NAME` for a variable that holds one of them."""
    table: str
    """The table, `name` or `schema.name`."""
    key: list[str]
    """The columns that a row is known by; the table has a unique constraint over them."""
    order: str | None = None
    """A column that tells which of two rows is the newer one."""
    delete: str | None = None
    """A boolean column: true removes the key."""
    delete_nulls: bool = False
    """A row whose columns other than `key` and `order` are all null removes the key."""
    create: bool = False
    """Make the table if it is not there."""
    name: str = ""
    """Under which name the batches are counted; the table's if empty."""

    def __repr__(self) -> str:
        return f"UpsertOptions(table={self.table!r}, key={self.key!r})"


class UpsertPlan(msgspec.Struct, frozen=True):
    """What is to be done with each batch of one shape."""

    table: str
    columns: tuple[str, ...]
    """What is stored, the key included."""
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
    """One kind of database. Its errors are `UpsertError`s."""

    def apply(
        self, plan: UpsertPlan, owner: tuple[str, str], batch_id: int, rows: Iterable[tuple[bool, Sequence[Any]]]
    ) -> bool:
        """In one transaction: unless the owner's last batch is this one or a later one, change the table and remember
        the batch. Each row comes with whether its key is to be removed. False: nothing was to be done."""
        ...


def check_format(found: Sequence[Any] | None) -> None:
    """`UpsertError` if `FORMAT_ROW` says that a newer Headrace has written the table of batches."""
    if found is not None and found[0] > _FORMAT:
        raise UpsertError(
            f"{BATCHES} was written by a newer Headrace (format {found[0]}, this one reads {_FORMAT}): use that one"
        )


def connect_to(database: str) -> Database:
    """The database that an option names; connections are made for each batch."""
    if database.startswith("env:"):
        name = database.removeprefix("env:")
        found = os.environ.get(name)
        if not found:
            raise UpsertError(f"the environment variable {name}, which is to name a database, is not set")
        database = found
    if database.startswith(("postgresql://", "postgres://")):
        from headrace.pipelines.upsert.postgres import Postgres

        return Postgres(database)
    if database.startswith("sqlite:///"):
        from headrace.pipelines.upsert.sqlite import Sqlite

        return Sqlite(database.removeprefix("sqlite:///"))
    raise UpsertError("`database` is to begin with postgresql://, sqlite:/// or env:")
