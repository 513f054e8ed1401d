"""Common rules for schemas that are derived from columns. Pure."""

import re

import pyarrow as pa

from headrace.pipelines.values.types import SchemaError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_name(name: str, path: str, kind: str) -> None:
    """Raise `SchemaError` for a column that cannot be a field of Avro or Protobuf."""
    if not _NAME.fullmatch(name):
        raise SchemaError(f"the column {path} cannot be a field of {kind}: rename it with AS, to letters, digits and _")


def record_name(topic: str) -> str:
    """The name of a record or message for the rows of a topic."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", topic)
    return name if _NAME.fullmatch(name) else f"_{name}"


def no_type(path: str, arrow: pa.DataType, kind: str) -> SchemaError:
    if pa.types.is_null(arrow):
        return SchemaError(f"the column {path} has no type: CAST(NULL AS …) gives it one")
    return SchemaError(f"the column {path} is of type {arrow}, which {kind} does not have: cast it")
