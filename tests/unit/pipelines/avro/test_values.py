"""Avro values as columns: each value is judged alone, and the reason says what is wrong with it."""

import io
import json
import pickle
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from headrace.pipelines.avro.values import AvroValues
from headrace.pipelines.values.schemas import WriterSchema
from headrace.pipelines.values.types import SchemaError
from headrace.schemas.payload.frames import SchemaKey

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}


class Known:
    """Schemas by id."""

    def __init__(self, **schemas: Any) -> None:
        self.schemas = {int(name.removeprefix("id_")): json.dumps(schema) for name, schema in schemas.items()}

    def by_id(self, schema_id: SchemaKey) -> WriterSchema | None:
        assert isinstance(schema_id, int)
        text = self.schemas.get(schema_id)
        return None if text is None else WriterSchema(text)

    def require(self, ids: Sequence[SchemaKey]) -> None: ...


def written(schema: Any, value: Any, schema_id: int | None = None) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return (b"" if schema_id is None else b"\x00" + schema_id.to_bytes(4, "big")) + out.getvalue()


def read(values: AvroValues, column: Sequence[bytes | None]) -> tuple[list[Any], list[str | None]]:
    found = values.decode(pa.array(column, pa.binary()))
    found.columns.validate(full=True)
    assert found.columns.type == values.arrow
    assert len(found.columns) == len(found.reasons) == len(column)
    return found.columns.to_pylist(), found.reasons.to_pylist()


def test_values_become_columns() -> None:
    orders = [{"id": f"o{n}", "amount": n / 4, "note": None if n % 2 else "x" * n} for n in range(300)]
    values = AvroValues(json.dumps(ORDER))
    assert values.ddl == "`id` STRING, `amount` DOUBLE, `note` STRING"
    assert read(values, [written(ORDER, order) for order in orders]) == (orders, [None] * 300)
    assert read(values, []) == ([], [])


def test_a_wrong_value_gets_a_reason_and_spoils_no_other() -> None:
    good = written(ORDER, {"id": "ü", "amount": 1.5, "note": "n"}, 7)
    order = {"id": "ü", "amount": 1.5, "note": "n"}
    values = AvroValues(json.dumps(ORDER), writers=Known(id_7=ORDER))
    column = [
        good,
        None,
        b"",
        good[:3],
        b"\x01" + good[1:],
        good[:4] + b"\x08" + good[5:],
        good[:-1],
        good + b"?",
        good[:5],
        good[:5] + b"\x04\xff\xfe" + good[8:],
        good[:5] + b"\x03" + good[6:],
        good.replace(b"\x02\x02n", b"\x04\x02n"),
        good,
    ]
    found, reasons = read(values, column)
    assert found == [order, *[None] * 11, order]
    assert reasons == [
        None,
        None,
        "the value is empty",
        "the value does not begin with a schema id (a zero byte and four more)",
        "the value does not begin with a schema id (a zero byte and four more)",
        "there is no schema of id 8",
        "note is cut off",
        "bytes follow the value",
        "id is cut off",
        "id is not UTF-8",
        "id is cut off",
        "note is of none of the types it can have",
        None,
    ]


def test_every_cut_of_a_value_is_noticed() -> None:
    whole = written(ORDER, {"id": "abc", "amount": 1.5, "note": "n"})
    found, reasons = read(AvroValues(json.dumps(ORDER)), [whole[:cut] for cut in range(len(whole))])
    assert found == [None] * len(whole)
    assert None not in reasons


def test_values_of_several_schemas_are_read_as_the_readers() -> None:
    old = {
        **ORDER,
        "fields": [
            {"name": "amount", "type": "int"},
            {"name": "gone", "type": {"type": "array", "items": "string"}},
            {"name": "number", "type": "bytes"},
        ],
    }
    reader = {
        **ORDER,
        "fields": [
            {"name": "id", "type": "string", "aliases": ["number"]},
            {"name": "amount", "type": "double"},
            {"name": "tags", "type": {"type": "map", "values": "long"}, "default": {"a": 1}},
            {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}, "default": "B"},
            {"name": "raw", "type": ["bytes", "null"], "default": "\u00ff"},
            {
                "name": "inner",
                "type": {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int", "default": 4}]},
                "default": {},
            },
        ],
    }
    filled = {"tags": [("a", 1)], "kind": "B", "raw": b"\xff", "inner": {"x": 4}}
    unfit = {**ORDER, "fields": [{"name": "id", "type": "string"}]}
    values = AvroValues(json.dumps(reader), writers=Known(id_1=old, id_2=ORDER, id_3=unfit))
    column = [
        written(ORDER, {"id": "a", "amount": 1.0, "note": None}, 2),
        written(old, {"amount": 5, "gone": ["x", "y"], "number": b"n"}, 1),
        written(unfit, {"id": "z"}, 3),
        written(ORDER, {"id": "b", "amount": 2.0, "note": "q"}, 2),
    ]
    found, reasons = read(values, column)
    assert found == [
        {"id": "a", "amount": 1.0} | filled,
        {"id": "n", "amount": 5.0} | filled,
        None,
        {"id": "b", "amount": 2.0} | filled,
    ]
    assert reasons[2] is not None
    assert "id 3" in reasons[2]
    assert "amount" in reasons[2]
    assert reasons[0] is reasons[1] is reasons[3] is None


def test_a_null_that_the_reader_does_not_take_is_a_reason() -> None:
    reader = {**ORDER, "fields": [*ORDER["fields"][:2], {"name": "note", "type": "string"}]}
    values = AvroValues(json.dumps(reader), writers=Known(id_1=ORDER))
    column = [written(ORDER, {"id": "a", "amount": 1.0, "note": note}, 1) for note in ("x", None)]
    assert read(values, column) == ([{"id": "a", "amount": 1.0, "note": "x"}, None], [None, "note is null"])


def test_symbols_that_the_reader_does_not_know() -> None:
    def kinds(*symbols: str, **more: str) -> Any:
        return {"type": "enum", "name": "Kind", "symbols": list(symbols), **more}

    column = [written(kinds("A", "B", "C"), kind, 1) for kind in "ABC"]
    values = AvroValues(json.dumps(kinds("C", "A")), writers=Known(id_1=kinds("A", "B", "C")))
    assert read(values, column) == (
        [{"value": "A"}, None, {"value": "C"}],
        [None, "value is none of its symbols", None],
    )
    values = AvroValues(json.dumps(kinds("C", "A", default="C")), writers=Known(id_1=kinds("A", "B", "C")))
    assert read(values, column)[0] == [{"value": "A"}, {"value": "C"}, {"value": "C"}]


def test_long_arrays_are_read_too() -> None:
    """A few rows with very many items are read one by one; with many rows, item by item."""
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "n", "type": "int"},
            {"name": "texts", "type": {"type": "array", "items": "string"}},
            {"name": "counts", "type": {"type": "map", "values": ["null", "long"]}},
        ],
    }
    rows: list[dict[str, Any]] = [
        {"n": n, "texts": ["t"] * (5_000 if n == 3 else n % 5), "counts": {f"k{i}": i or None for i in range(n % 200)}}
        for n in range(200)
    ]
    column = [written(schema, row) for row in rows]
    column[150] = column[150][:-3]
    column[3] += b"?"
    found, reasons = read(AvroValues(json.dumps(schema)), column)
    assert {row for row, reason in enumerate(reasons) if reason} == {3, 150}
    for row, (made, got) in enumerate(zip(rows, found, strict=True)):
        assert got == (None if row in (3, 150) else made | {"counts": list(made["counts"].items())})


@pytest.mark.parametrize("count", [2**40, -(2**63), 2**62])
def test_a_count_of_items_that_are_not_there_takes_no_memory(count: int) -> None:
    values = AvroValues(json.dumps({"type": "array", "items": "long"}))
    found, [reason] = read(values, [written("long", count) + b"\x02\x02\x00"])
    assert found == [None]
    assert reason == "value is cut off"


def test_logical_types_are_sparks() -> None:
    fields: dict[str, dict[str, Any]] = {
        "day": {"type": "int", "logicalType": "date"},
        "ms": {"type": "long", "logicalType": "timestamp-millis"},
        "us": {"type": "long", "logicalType": "timestamp-micros"},
        "local": {"type": "long", "logicalType": "local-timestamp-millis"},
        "price": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        "fixed": {"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "precision": 5, "scale": 1},
        "uid": {"type": "string", "logicalType": "uuid"},
        "clock": {"type": "int", "logicalType": "time-millis"},
    }
    schema = {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}
    values = AvroValues(json.dumps(schema))
    assert values.spark_type == (
        "STRUCT<`day`: DATE, `ms`: TIMESTAMP, `us`: TIMESTAMP, `local`: TIMESTAMP_NTZ, `price`: DECIMAL(9, 2), "
        "`fixed`: DECIMAL(5, 1), `uid`: STRING, `clock`: INT>"
    )
    raw = {
        **schema,
        "fields": [
            {"name": name, "type": {key: part for key, part in kind.items() if key != "logicalType"}}
            for name, kind in fields.items()
        ],
    }
    value = {
        "day": 1,
        "ms": 2,
        "us": 3,
        "local": 4,
        "price": b"\xff",
        "fixed": b"\x00\x00\x01\x00",
        "uid": "u",
        "clock": 9,
    }
    column = [written(raw, value), written(raw, value | {"price": b"\x7f" * 8}), written(raw, value | {"ms": 2**60})]
    found = values.decode(pa.array(column))
    [row, *others] = found.columns.to_pylist()
    assert others == [None, None]
    assert found.reasons.to_pylist() == [None, "price has more than 9 digits", "ms is a time too far away"]
    assert (row["price"], row["fixed"]) == (Decimal("-0.01"), Decimal("25.6"))
    assert row["ms"].isoformat() == "1970-01-01T00:00:00.002000+00:00"
    assert row["us"].isoformat() == "1970-01-01T00:00:00.000003+00:00"
    assert row["local"].isoformat() == "1970-01-01T00:00:00.004000"


def test_unions_of_several_types_are_structs() -> None:
    schema = ["null", "long", "string"]
    values = AvroValues(json.dumps(schema))
    assert values.ddl == "`value` STRUCT<`member0`: BIGINT, `member1`: STRING>"
    found, _ = read(values, [written(schema, each) for each in (None, 5, "x")])
    assert found == [
        {"value": None},
        {"value": {"member0": 5, "member1": None}},
        {"value": {"member0": None, "member1": "x"}},
    ]
    wide = AvroValues(json.dumps(["int", "null", "long"]))
    assert wide.ddl == "`value` BIGINT"
    assert read(wide, [written(["int", "null", "long"], each) for each in (1, 2**40, None)])[0] == [
        {"value": 1},
        {"value": 2**40},
        {"value": None},
    ]


def test_schemas_that_cannot_be_used_say_why() -> None:
    node = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
    for schema, reason in (
        (node, "contains itself"),
        ({"type": "record", "name": "R"}, "record without what it needs"),
        ({"type": "record", "name": "R", "fields": [{"name": "x", "type": "Other"}]}, "uses a type Other"),
        ({"type": "array", "items": "null"}, "take no bytes"),
    ):
        with pytest.raises(SchemaError, match=reason):
            AvroValues(json.dumps(schema))
    with pytest.raises(SchemaError, match="not JSON"):
        AvroValues("{")


def test_named_types_are_found_by_their_names_and_in_references() -> None:
    address = {"type": "record", "name": "Address", "namespace": "shop", "fields": [{"name": "city", "type": "string"}]}
    person = {
        "type": "record",
        "name": "Person",
        "namespace": "shop",
        "fields": [
            {"name": "home", "type": "Address"},
            {"name": "work", "type": ["null", "shop.Address"]},
        ],
    }
    values = AvroValues(json.dumps(person), references=(("address", json.dumps(address)),))
    assert values.ddl == "`home` STRUCT<`city`: STRING>, `work` STRUCT<`city`: STRING>"
    assert read(values, [b"\x02a\x02\x02b"])[0] == [{"home": {"city": "a"}, "work": {"city": "b"}}]


def test_it_goes_to_workers_and_adds_two_columns_to_each_block() -> None:
    values = pickle.loads(pickle.dumps(AvroValues(json.dumps(ORDER), writers=Known(id_7=ORDER))))
    order = {"id": "a", "amount": 1.0, "note": None}
    block = pa.RecordBatch.from_pydict({"offset": [1, 2], "value": [written(ORDER, order, 7), b"?"]})
    [found] = values.appended(iter([block]))
    assert found.schema.names == ["offset", "value", "_v", "_reason"]
    assert found.column("_v").to_pylist() == [order, None]
    assert found.column("_reason")[0].as_py() is None
    assert values.decode(block.column("value").slice(1)).columns.to_pylist() == [None]
