"""Rows that are written by blocks are read by fastavro and google.protobuf, and by ourselves, as they were."""

import io
import json
from datetime import UTC, date, datetime
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipelines.avro.values import AvroValues
from headrace.pipelines.protobuf.encoder import NullItem
from headrace.pipelines.protobuf.values import ProtobufValues
from headrace.pipelines.row_values import RowSchema, RowValues, row_schema
from headrace.pipelines.values.types import SchemaError
from headrace.schemas.parsed import parse_any
from headrace.schemas.payload.codecs import codec_of
from headrace.schemas.payload.frames import read_frame

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
int64s = st.integers(-(2**63), 2**63 - 1) | st.integers(-70, 70)
counts = st.dictionaries(texts, st.integers(-5, 5), max_size=3).map(lambda found: [*found.items()])
matrices = st.lists(st.none() | st.lists(st.none() | st.floats(allow_nan=False), max_size=2), max_size=2)
INNER = pa.struct([("x", pa.int64()), ("y", pa.struct([("z", pa.string())]))])
inners = st.fixed_dictionaries(
    {"x": st.none() | int64s, "y": st.none() | st.fixed_dictionaries({"z": st.none() | texts})}
)
FIELDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "a": (pa.string(), texts),
    "b": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "c": (pa.int64(), int64s),
    "d": (pa.float64(), st.floats(allow_nan=False)),
    "e": (pa.float32(), st.floats(width=32, allow_nan=False)),
    "f": (pa.bool_(), st.booleans()),
    "g": (pa.binary(), st.binary(max_size=5)),
    "h": (pa.timestamp("us", "UTC"), st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))),
    "i": (INNER, inners),
    "j": (pa.list_(pa.string()), st.lists(texts, max_size=3)),
    "k": (pa.list_(pa.int64()), st.lists(int64s, max_size=3)),
    "l": (pa.list_(INNER), st.lists(inners, max_size=3)),
    "m": (
        pa.map_(pa.string(), pa.int32()),
        st.dictionaries(texts, st.integers(-5, 5), max_size=3).map(lambda d: [*d.items()]),
    ),
    "n": (pa.int8(), st.integers(-128, 127)),
}
MORE: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "o": (pa.date32(), st.dates(date(1900, 1, 1), date(2100, 1, 1))),
    "p": (pa.decimal128(10, 2), st.decimals(-(10**7), 10**7, places=2)),
    "q": (pa.list_(pa.list_(pa.float64())), matrices),
    "r": (pa.timestamp("us"), st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1))),
}


def columns(fields: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]]) -> pa.DataType:
    return pa.struct([(name, kind) for name, (kind, _) in fields.items()])


def rows(fields: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]]) -> st.SearchStrategy[list[dict[str, Any]]]:
    row = st.fixed_dictionaries({name: st.none() | values for name, (_, values) in fields.items()})
    return st.lists(row, min_size=1, max_size=5)


def encoded(schema: RowSchema, column: pa.Array) -> list[bytes]:
    made = schema.with_id(7).encode(column)
    made.validate(full=True)
    return [each.as_py() for each in made]


AVRO = row_schema("avro", columns(FIELDS | MORE), "my-topic", None)


@given(rows(FIELDS | MORE), st.integers(0, 2))
def test_avro(made: list[dict[str, Any]], skipped: int) -> None:
    column = pa.array([made[0]] * skipped + made, columns(FIELDS | MORE)).slice(skipped)
    values = [read_frame(each).body for each in encoded(AVRO, column)]
    assert AvroValues(AVRO.schema.text).decode(pa.array(values)).columns.to_pylist() == column.to_pylist()
    schema = fastavro.parse_schema(json.loads(AVRO.schema.text))
    read: Any = [fastavro.schemaless_reader(io.BytesIO(each), schema, None) for each in values]
    assert [row["c"] for row in read] == [row["c"] for row in made]
    assert [row["l"] for row in read] == [row["l"] for row in made]
    assert [row["p"] for row in read] == [row["p"] for row in made]


PROTOBUF = row_schema("protobuf", columns(FIELDS), "my-topic", None)
CODEC = codec_of(parse_any("PROTOBUF", PROTOBUF.schema.text))


@given(rows(FIELDS), st.integers(0, 2))
def test_protobuf(made: list[dict[str, Any]], skipped: int) -> None:
    column = pa.array([made[0]] * skipped + made, columns(FIELDS)).slice(skipped)
    frames = [read_frame(each).split("PROTOBUF") for each in encoded(PROTOBUF, column)]
    read = ProtobufValues(PROTOBUF.schema.text).decode(pa.array([body for _, body in frames]))
    assert read.reasons.to_pylist() == [None] * len(made)
    # A list that is null is empty to Protobuf.
    wanted = [{**row, **{name: row[name] or [] for name in "jklm"}} for row in column.to_pylist()]
    assert [_sorted(row) for row in read.columns.to_pylist()] == [_sorted(row) for row in wanted]
    for indexes, body in frames:
        CODEC.check(body, indexes)


def _sorted(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "m": sorted(row["m"])}


def test_what_protobuf_cannot_express_is_said() -> None:
    kind = pa.struct([("tags", pa.list_(pa.string()))])
    values: RowValues = row_schema("protobuf", kind, "t", None).with_id(1)
    with pytest.raises(NullItem, match="the column tags has a null item"):
        values.encode(pa.array([{"tags": ["a", None]}], kind))
    with pytest.raises(SchemaError, match=r"tags\[\] is an array or a map in another one"):
        row_schema("protobuf", pa.struct([("tags", pa.list_(pa.list_(pa.string())))]), "t", None)


@pytest.mark.parametrize("kind", ["avro", "protobuf"])
def test_columns_that_cannot_be_fields(kind: str) -> None:
    with pytest.raises(SchemaError, match="the column a b cannot be a field"):
        row_schema(kind, pa.struct([("a b", pa.string())]), "t", None)
    with pytest.raises(SchemaError, match="the column x has no type"):
        row_schema(kind, pa.struct([("x", pa.null())]), "t", None)
