"""The types of Arrow that decoded values have, by their names in Spark. Pure."""

import pyarrow as pa

from headrace.model.errors import HeadraceError


class SchemaError(HeadraceError):
    """A schema that cannot be used."""


def spark_type(arrow: pa.DataType) -> str:
    """Spark's name for an Arrow type."""
    if pa.types.is_struct(arrow):
        return f"STRUCT<{', '.join(f'`{each.name}`: {spark_type(each.type)}' for each in arrow)}>"
    if pa.types.is_list(arrow):
        return f"ARRAY<{spark_type(arrow.value_type)}>"
    if pa.types.is_map(arrow):
        return f"MAP<{spark_type(arrow.key_type)}, {spark_type(arrow.item_type)}>"
    if pa.types.is_decimal(arrow):
        return f"DECIMAL({arrow.precision}, {arrow.scale})"
    if pa.types.is_timestamp(arrow):
        return "TIMESTAMP" if arrow.tz else "TIMESTAMP_NTZ"
    return _SPARK_NAMES[arrow]


_SPARK_NAMES = {
    pa.null(): "VOID",
    pa.bool_(): "BOOLEAN",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.binary(): "BINARY",
    pa.string(): "STRING",
    pa.date32(): "DATE",
}
