"""The Protobuf schema that columns have."""

import pyarrow as pa
import pytest

from headrace.pipelines.protobuf.encoder import encode_protobuf, protobuf_schema
from headrace.pipelines.protobuf.values import ProtobufValues
from headrace.pipelines.values.schemas import WriterSchema
from headrace.pipelines.values.types import SchemaError
from headrace.schemas.parsed import parse_any
from headrace.schemas.payload.codecs import codec_of

ONE = pa.struct([("x", pa.int64())])


def check(columns: pa.DataType, previous: WriterSchema | None) -> WriterSchema:
    """Descriptors of google.protobuf can be made of the schema, and rows are read as they were written."""
    schema, message = protobuf_schema(columns, "orders", previous)
    row = {each.name: {"x": place} for place, each in enumerate(columns)}
    written = encode_protobuf(pa.array([row], columns), message)
    codec_of(parse_any("PROTOBUF", schema.text)).decode(written[0].as_py())
    found = ProtobufValues(schema.text).decode(written)
    assert found.columns.to_pylist() == [row]
    return schema


def test_messages_of_columns_have_names_of_their_own_in_all_versions() -> None:
    """A field and a message in one message cannot have one name; nor can two messages."""
    columns = pa.struct([(name, ONE) for name in ("Order", "a_b", "A_b", "_1a", "_")])
    first = check(columns, None)
    for name in ("Order_ Order = 1", "AB a_b = 2", "AB_ A_b = 3", "Struct1a _1a = 4", "Struct _ = 5"):
        assert f"optional {name};" in first.text
    other_order = check(pa.struct([columns.field(place) for place in (2, 1, 0, 4, 3)]), first)
    assert sorted(other_order.text.splitlines()) == sorted(first.text.splitlines())


def test_columns_with_one_name_in_json_are_refused() -> None:
    """As google.protobuf does: no client could read the schema."""
    with pytest.raises(SchemaError, match="a_b and aB are one name"):
        protobuf_schema(pa.struct([("a_b", pa.int64()), ("aB", pa.int64())]), "orders", None)
