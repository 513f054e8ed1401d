"""Upserts as a database sees them: options, the plan for a batch, and the base of each kind of database.

The number of the last batch is stored in the table `headrace_batches`, by the sink's name and the id of the query, in
the transaction that changes the rows. Needs no Spark.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar

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


Rows = Iterable[tuple[bool, Sequence[Any]]]
"""Rows, each with whether its key is to be deleted."""
DatabaseConnection = TypeVar("DatabaseConnection")


class Database(ABC, Generic[DatabaseConnection]):
    """A kind of database. Its errors are `UpsertError`s."""

    parameter: str
    """The mark of a parameter in a statement."""

    def apply(self, plan: UpsertPlan, owner: tuple[str, str], batch_id: int, rows: Rows) -> bool:
        """Write a batch and its id in one transaction, unless the owner's last batch is this one or a later one.

        Returns False if the batch was already written."""
        mark = self.parameter
        with self.transaction() as connection:
            self.make_batches(connection, owner)
            batch_of = f"SELECT batch FROM {BATCHES} WHERE name = {mark} AND query = {mark}"
            check_format(self.execute(connection, batch_of, FORMAT_ROW).fetchone())
            last = self.execute(connection, batch_of, owner).fetchone()
            if last is not None and last[0] >= batch_id:
                return False
            self.merge(connection, plan, rows)
            self.execute(
                connection,
                f"INSERT INTO {BATCHES} VALUES ({mark}, {mark}, {mark}) "
                "ON CONFLICT (name, query) DO UPDATE SET batch = excluded.batch",
                (*owner, batch_id),
            )
            return True

    @abstractmethod
    def transaction(self) -> AbstractContextManager[DatabaseConnection]:
        """Connect and begin a transaction, which is committed at the end unless there is an error."""

    @abstractmethod
    def make_batches(self, connection: DatabaseConnection, owner: tuple[str, str]) -> None:
        """Create the table of batches if it does not exist. Other drivers of the owner's query wait from here on."""

    @abstractmethod
    def execute(self, connection: DatabaseConnection, statement: str, parameters: tuple[Any, ...]) -> Any:
        """Execute a statement; returns a cursor."""

    @abstractmethod
    def merge(self, connection: DatabaseConnection, plan: UpsertPlan, rows: Rows) -> None:
        """Upsert and delete rows, after creating the table if the plan says so."""


def check_format(found: Sequence[Any] | None) -> None:
    """Raise `UpsertError` if a newer Headrace has written the table of batches."""
    if found is not None and found[0] > _FORMAT:
        raise UpsertError(
            f"{BATCHES} was written by a newer Headrace (format {found[0]}, this one reads {_FORMAT}): use that one"
        )


def connect_to(database: str) -> Database[Any]:
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
