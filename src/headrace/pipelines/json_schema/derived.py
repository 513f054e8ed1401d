"""The JSON Schema that rows have, as Spark's `to_json` writes them. Pure.

Objects are closed, since readers of a closed object go on when a property is added, and no property is required. A
property of the subject's newest version that is no column any more stays in the schema, for the same reason.
"""

import json
from typing import Any, Final

import pyarrow as pa

from headrace.pipelines.values.columns_schema import no_type
from headrace.pipelines.values.schemas import WriterSchema

_DIALECT: Final = "http://json-schema.org/draft-07/schema#"
_TYPES: Final[dict[Any, dict[str, str]]] = {
    pa.bool_(): {"type": "boolean"},
    pa.int8(): {"type": "integer"},
    pa.int16(): {"type": "integer"},
    pa.int32(): {"type": "integer"},
    pa.int64(): {"type": "integer"},
    pa.float32(): {"type": "number"},
    pa.float64(): {"type": "number"},
    pa.string(): {"type": "string"},
    pa.binary(): {"type": "string", "contentEncoding": "base64"},
    pa.date32(): {"type": "string", "format": "date"},
}


def json_schema(columns: pa.DataType, previous: WriterSchema | None) -> WriterSchema:
    """The schema of rows with these columns, a struct."""
    made = _object(columns, "")
    if previous is not None and previous.kind == "JSON":
        known = json.loads(previous.text)
        if isinstance(known, dict) and isinstance(known.get("properties"), dict):
            made["properties"] = {**known["properties"], **made["properties"]}
    return WriterSchema(json.dumps({"$schema": _DIALECT, **made}), kind="JSON")


def _object(columns: pa.DataType, path: str) -> dict[str, Any]:
    properties = {each.name: _nullable(each.type, f"{path}.{each.name}".lstrip(".")) for each in columns}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _nullable(arrow: pa.DataType, path: str) -> dict[str, Any]:
    made = _type(arrow, path)
    return {**made, "type": [made["type"], "null"]}


def _type(arrow: pa.DataType, path: str) -> dict[str, Any]:
    if arrow in _TYPES:
        return {**_TYPES[arrow]}
    if pa.types.is_timestamp(arrow):
        return {"type": "string", "format": "date-time"} if arrow.tz else {"type": "string"}
    if pa.types.is_decimal(arrow):
        return {"type": "number"}
    if pa.types.is_struct(arrow):
        return _object(arrow, path)
    if pa.types.is_list(arrow):
        return {"type": "array", "items": _nullable(arrow.value_type, f"{path}[]")}
    if pa.types.is_map(arrow):
        return {"type": "object", "additionalProperties": _nullable(arrow.item_type, f"{path}[]")}
    raise no_type(path, arrow, "JSON Schema")
