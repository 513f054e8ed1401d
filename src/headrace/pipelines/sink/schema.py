"""The columns that a topic sink accepts, checked when Spark plans the query.

    value      string or binary; null is a tombstone
    key        string or binary; optional, may be null
    topic      string; ignored where the option `topic` is set, required where it is not
    partition  integer; optional, may be null: the key then chooses the partition, as in Java's producer
    headers    array<struct<key: string, value: binary>>; optional, may be null
    timestamp  timestamp; optional, may be null: the time of the write

The source's other columns (`offset`, `timestampType`) are accepted and ignored.
"""

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from headrace.pipelines.sink.rows import WrongRows

_TEXT = (StringType, BinaryType)
_TYPES: dict[str, tuple[tuple[type[DataType], ...], str]] = {
    "value": (_TEXT, "string or binary"),
    "key": (_TEXT, "string or binary"),
    "topic": ((StringType,), "string"),
    "partition": ((IntegerType, LongType, ShortType, ByteType), "int"),
    "timestamp": ((TimestampType, TimestampNTZType), "timestamp"),
}
_IGNORED = ("offset", "timestampType")


def check_schema(schema: StructType, *, has_topic: bool) -> None:
    """Raise `WrongRows` for columns that a topic sink cannot write."""
    fields = {field.name: field.dataType for field in schema.fields}
    if "value" not in fields:
        raise WrongRows(f"the rows have no column value; they have {', '.join(fields) or 'no columns'}")
    if not has_topic and "topic" not in fields:
        raise WrongRows("the rows have no column topic and the option topic is not set: set one of them")
    for name, kind in fields.items():
        if name in _TYPES:
            allowed, words = _TYPES[name]
            if not isinstance(kind, allowed):
                raise WrongRows(f"the column {name} is of type {kind.simpleString()}: cast it to {words}")
        elif name == "headers":
            _check_headers(kind)
        elif name not in _IGNORED:
            raise WrongRows(
                f"a record has no column {name}: put it into value (as with to_json), key or headers, or drop it"
            )


def _check_headers(kind: DataType) -> None:
    if isinstance(kind, ArrayType) and isinstance(kind.elementType, StructType):
        inner = {field.name: field.dataType for field in kind.elementType.fields}
        if (
            set(inner) == {"key", "value"}
            and isinstance(inner["key"], StringType)
            and isinstance(inner["value"], BinaryType)
        ):
            return
    raise WrongRows(
        f"the column headers is of type {kind.simpleString()}: make it array<struct<key:string,value:binary>>"
    )
