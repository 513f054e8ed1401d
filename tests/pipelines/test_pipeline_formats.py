"""How values of each format are read, and what of them does not fit."""

import json
import sqlite3
import struct
from collections.abc import Mapping
from io import BytesIO
from typing import Any

import pytest

from headrace.pipelines.spec.model import Source

from .running import Pipelines, Write

pytestmark = pytest.mark.timeout(600)

Rows = list[tuple[bytes | None, str | None, dict[str, object] | None]]


def read(spark, source: Source, *values: bytes | None) -> Rows:
    """Each value with its reason, or with its columns."""
    from headrace.pipelines import decode as decoding

    records = spark.createDataFrame(
        [(None, value, "t", 0, at, None, 0) for at, value in enumerate(values)], decoding.RECORD_SCHEMA
    )
    decoded = decoding.decoded(records, source)
    reasons = {row["offset"]: row["_reason"] for row in decoded.collect()}
    good = {
        row["_offset"]: {name: value for name, value in row.asDict().items() if not name.startswith("_")}
        for row in decoding.rows(decoded, source, "skip").collect()
    }
    return [(value, reasons.get(at), good.get(at)) for at, value in enumerate(values)]


def test_json(spark):
    source = Source(topic="t", schema="id INT, at TIMESTAMP, tags ARRAY<STRING>, inner STRUCT<a: INT>")
    assert read(
        spark,
        source,
        b'{"id": 1, "tags": ["x"], "more": 5}\n',
        b"{}",
        b'{"id": 1.5}',
        b'{"at": "yesterday"}',
        b'{"inner": {"a": "b"}}',
        b'{"id": 1} and more',
        b"null",
        None,
    ) == [
        (b'{"id": 1, "tags": ["x"], "more": 5}\n', None, {"id": 1, "at": None, "tags": ["x"], "inner": None}),
        (b"{}", None, {"id": None, "at": None, "tags": None, "inner": None}),
        (b'{"id": 1.5}', "id is not INT", None),
        (b'{"at": "yesterday"}', "at is not TIMESTAMP", None),
        (b'{"inner": {"a": "b"}}', "inner is not STRUCT<A:INT>", None),
        (b'{"id": 1} and more', "something follows the JSON object", None),
        (b"null", "the value is not a JSON object, or is cut off", None),
        (None, "there is no value (a tombstone)", None),
    ]


def test_csv(spark):
    source = Source(topic="t", format="csv", schema="id INT, name STRING", options={"csv.sep": ";"})
    assert read(spark, source, b"1;Ada", b"x;Bob", b"3;Eve;more", b"") == [
        (b"1;Ada", None, {"id": 1, "name": "Ada"}),
        (b"x;Bob", "the value does not fit the schema", None),
        (b"3;Eve;more", "the value does not fit the schema", None),
        (b"", "the value is empty", None),
    ]


def test_text_and_tombstones(spark):
    assert read(spark, Source(topic="t", format="text", tombstones="keep"), b"hi", b"", b"\xff", None) == [
        (b"hi", None, {"value": "hi"}),
        (b"", None, {"value": ""}),
        (b"\xff", "the value is not UTF-8", None),
        (None, None, {"value": None}),
    ]
    assert read(spark, Source(topic="t", format="text", tombstones="drop"), b"hi", None) == [
        (b"hi", None, {"value": "hi"}),
        (None, None, None),
    ]


def test_rows_on_the_terminal(spark, capsys):
    from headrace.pipelines.run.console import ConsoleSink

    ConsoleSink("shown", rows=2).write(spark.createDataFrame([(1, "a"), (2, "b"), (3, "c")], "n INT, s STRING"), 7)
    assert capsys.readouterr().out == '{"n":1,"s":"a"}\n{"n":2,"s":"b"}\n… more rows in batch 7 of shown\n'


def framed(schema_id: int, schema: Mapping[str, Any], row: Mapping[str, object]) -> bytes:
    import fastavro

    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(dict(schema)), row)
    return struct.pack(">bI", 0, schema_id) + out.getvalue()


def test_avro_into_a_table_and_a_database(spark, tmp_path, cluster, new_topic, write: Write):
    pipelines = Pipelines(spark, tmp_path, cluster)
    topic = new_topic(prefix="avro")
    old = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
    new = {**old, "fields": [*old["fields"], {"name": "amount", "type": "double", "default": 0.5}]}
    (tmp_path / "1.avsc").write_text(json.dumps(old))
    (tmp_path / "2.avsc").write_text(json.dumps(new))
    whole = framed(2, new, {"id": "b", "amount": 2.0})
    bad = {
        framed(9, old, {"id": "z"}): "there is no schema of id 9",
        b"": "the value is empty",
        None: "there is no value (a tombstone)",
    }
    write(topic, framed(1, old, {"id": "a"}), whole, whole[:-3], *bad, framed(2, new, {"id": "a", "amount": 7.0}))
    book = pipelines.run(
        "avro",
        f"""
        [source]
        topic = "{topic}"
        format = "avro"
        schemas = {{ 1 = "1.avsc", 2 = "2.avsc" }}
        [transform]
        sql = "SELECT id, amount, _offset AS at FROM source"
        [sinks.lake]
        table = "lake.orders"
        [sinks.current]
        database = "sqlite:///{tmp_path / "shop.db"}"
        table = "orders"
        key = "id"
        order = "at"
        create = true
        """,
    )
    assert (book.bad, book.dead_letters) == (4, 4)
    letters = {each.payload: each.header("headrace-reason") for each in pipelines.messages(f"{topic}.dlq")}
    assert {value: letters[value] for value in bad} == bad
    assert len(letters) == 4
    table = spark.read.parquet(str(tmp_path / "lake" / "orders" / "data"))
    assert sorted(map(tuple, table.collect())) == [("a", 0.5, 0), ("a", 7.0, 6), ("b", 2.0, 1)]
    with sqlite3.connect(tmp_path / "shop.db") as database:
        assert database.execute("SELECT id, amount FROM orders ORDER BY id").fetchall() == [("a", 7.0), ("b", 2.0)]
    database.close()
