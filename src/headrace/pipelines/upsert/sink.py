"""The upsert sink: applies micro-batches by key to a table of PostgreSQL or SQLite, exactly once.

    sink = UpsertSink(UpsertOptions(database="postgresql://etl@db/shop", table="public.customers", key=["id"],
                                    order="changed_at", delete="is_deleted", create=True))
    query = stream.writeStream.outputMode("update").foreachBatch(sink.write).start()

Guarantees:

- A batch is one transaction of the database. Its id is stored in the same transaction (table `headrace_batches`, by
  `name` and the id of the query), so a repeated batch, after a crash anywhere, changes nothing.
- Of several rows with one key in a batch, the one with the greatest `order` is applied; without `order`, or among
  equals, the last one. With `order`, a row that is older than the stored one is ignored.
- A row whose `delete` column is true deletes the row of its key; the column itself is not stored. With `delete_nulls`,
  so does a row with null in all columns but key and order.
- Names are quoted, values are parameters. The value of `database` is never logged and never part of an error.

Rows pass through the driver, one Spark partition at a time. Lists, maps and structs are stored as JSON.
"""

import datetime
import decimal
import json
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, StructType

from headrace.pipelines.foreach_batch import run_without_writing, running_query_id
from headrace.pipelines.upsert.database import UpsertError, UpsertOptions, UpsertPlan, connect_to

_NESTED = frozenset({"array", "map", "struct", "variant"})


class UpsertSink:
    """A `foreachBatch` writer; see the module."""

    def __init__(self, options: UpsertOptions) -> None:
        if not options.key:
            raise UpsertError(f"the upsert into {options.table} needs a key: the columns that identify a row")
        self._options = options
        self._database = connect_to(options.database)

    def write(self, df: DataFrame, batch_id: int, query_id: str | None = None) -> bool:
        """Apply a batch to the table; False if it was already applied. Batches are identified by `query_id`, by default
        that of the running query, and `batch_id`."""
        options = self._options
        plan = plan_for(options, df.schema)
        owner = (options.name or options.table, running_query_id(df) if query_id is None else query_id)
        is_new = self._database.apply(plan, owner, batch_id, _rows(df, plan, options))
        if not is_new:
            run_without_writing(df)
        return is_new


def plan_for(options: UpsertOptions, schema: StructType) -> UpsertPlan:
    """Check the options against the rows' columns."""
    names = schema.fieldNames()
    for role, wanted in (("key", options.key), ("order", [options.order]), ("delete", [options.delete])):
        for column in wanted:
            if column is not None and column not in names:
                raise UpsertError(
                    f"the upsert into {options.table} names {column} as its {role}, and the rows have "
                    f"only {', '.join(names)}"
                )
    if options.delete is not None and schema[options.delete].dataType.typeName() != "boolean":
        raise UpsertError(f"the column {options.delete}, which marks rows to delete, must be a boolean")
    stored = [field for field in schema.fields if field.name != options.delete]
    for field in stored:
        if field.name in options.key and _is_nested(field.dataType):
            raise UpsertError(f"the key column {field.name} is {field.dataType.simpleString()}; a key is a plain value")
    return UpsertPlan(
        table=options.table,
        columns=tuple(field.name for field in stored),
        types=tuple("json" if _is_nested(field.dataType) else field.dataType.simpleString() for field in stored),
        key=tuple(options.key),
        order=options.order,
        create=options.create,
    )


def _is_nested(kind: DataType) -> bool:
    return kind.typeName() in _NESTED


def _rows(df: DataFrame, plan: UpsertPlan, options: UpsertOptions) -> Iterator[tuple[bool, Sequence[Any]]]:
    names = df.schema.fieldNames()
    at = [names.index(column) for column in plan.columns]
    marker = None if options.delete is None else names.index(options.delete)
    telling = [names.index(column) for column in plan.others if column != plan.order]
    keys = [names.index(column) for column in plan.key]
    nested = [kind == "json" for kind in plan.types]
    for row in df.toLocalIterator(prefetchPartitions=True):
        if any(row[index] is None for index in keys):
            raise UpsertError(f"a row for {plan.table} has no value in its key ({', '.join(plan.key)})")
        gone = bool(marker is not None and row[marker]) or (
            options.delete_nulls and all(row[index] is None for index in telling)
        )
        yield gone, [_json(row[index]) if as_json else row[index] for index, as_json in zip(at, nested, strict=True)]


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(_plain(value), ensure_ascii=False)


def _plain(value: Any) -> Any:
    if hasattr(value, "asDict"):
        return {name: _plain(each) for name, each in value.asDict().items()}
    if hasattr(value, "toPython"):
        return _plain(value.toPython())
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, bytes | bytearray):
        return value.hex()
    return value
