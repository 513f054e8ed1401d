"""Schema evolution of tables: the columns of a table after a batch."""

from pyspark.sql.types import DataType, DecimalType, StructField, StructType

from headrace.pipelines.tables.store import TableError

_WIDER = {
    "tinyint": ("smallint", "int", "bigint"),
    "smallint": ("int", "bigint"),
    "int": ("bigint", "double"),
    "float": ("double",),
}


def evolve(table: StructType, rows: StructType, name: str) -> StructType:
    """The table's schema after a batch: its columns, then the new ones, which are null in older rows.

    A column that the batch lacks is null in its rows. A narrower type is widened to the table's. Any other difference
    would change stored data and raises `TableError`.
    """
    known = {field.name: field for field in table.fields}
    folded = {field.name.casefold(): field.name for field in table.fields}
    fields = list(table.fields)
    for field in rows.fields:
        there = known.get(field.name)
        if there is not None:
            if not _fits(field.dataType, there.dataType):
                raise TableError(
                    f"the column {field.name} is {there.dataType.simpleString()} in the table {name} and "
                    f"{field.dataType.simpleString()} in the rows: cast it, or write to another table"
                )
        elif field.name.casefold() in folded:
            raise TableError(
                f"the rows have a column {field.name} and the table {name} one named "
                f"{folded[field.name.casefold()]}: Spark cannot tell them apart"
            )
        else:
            fields.append(StructField(field.name, field.dataType, nullable=True))
    return StructType(fields)


def nullable(schema: StructType) -> StructType:
    """The same columns, all nullable."""
    return StructType([StructField(field.name, field.dataType, nullable=True) for field in schema.fields])


def _fits(rows: DataType, table: DataType) -> bool:
    if _plain(rows) == _plain(table) or table.simpleString() in _WIDER.get(rows.simpleString(), ()):
        return True
    if isinstance(rows, DecimalType) and isinstance(table, DecimalType):
        return rows.scale <= table.scale and rows.precision - rows.scale <= table.precision - table.scale
    return False


def _plain(kind: DataType) -> str:
    """The type as text, without the nullability of its parts."""
    return kind.simpleString()
