"""Avro values decoded inside Spark: columns are what Spark takes them for, and bad values come with their reason."""

import io
import json
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import fastavro
import pytest

from headrace.pipelines.formats import values_without_registry
from headrace.pipelines.spec.model import Source

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {
            "name": "address",
            "type": ["null", {"type": "record", "name": "A", "fields": [{"name": "city", "type": "string"}]}],
        },
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "choice", "type": ["null", "string", "double"]},
    ],
}


def written(order: Mapping[str, object]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMA), order)
    return b"\x00\x00\x00\x00\x07" + out.getvalue()


@pytest.mark.timeout(300)
def test_spark_reads_avro_in_blocks(spark: "SparkSession", tmp_path: "Path") -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(SCHEMA))
    source = Source(topic="orders", format="avro", schemas={"7": "order.avsc"})
    values = values_without_registry(source, tmp_path)
    orders = [
        {"id": n, "tags": ["a"] * (n % 3), "counts": {"x": n}, "address": {"city": "Bern"} if n % 2 else None,
         "day": date(2026, 1, 2), "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "price": Decimal("12.50"),
         "choice": (None, "text", 2.5)[n % 3]}
        for n in range(500)
    ]  # fmt: skip
    column = [(n, written(order) if n % 100 else b"\x00bad") for n, order in enumerate(orders)]
    records = spark.createDataFrame([(n, bytearray(value)) for n, value in column], "n INT, value BINARY").repartition(
        2
    )
    found = records.mapInArrow(values.appended, f"n INT, value BINARY, _v {values.spark_type}, _reason STRING")
    same = "_v.at = TIMESTAMP '2026-01-02 03:04:05Z' AS same"
    rows = {row["n"]: row for row in found.selectExpr("n", "_reason", "_v.*", same).collect()}
    assert {n for n, row in rows.items() if row["_reason"]} == {0, 100, 200, 300, 400}
    assert rows[100]["_reason"] == "the value does not begin with a schema id (a zero byte and four more)"
    row = rows[7].asDict(recursive=True)
    assert row == {
        "n": 7, "_reason": None, "id": 7, "tags": ["a"], "counts": {"x": 7}, "address": {"city": "Bern"},
        "day": date(2026, 1, 2), "at": row["at"], "price": Decimal("12.50"),
        "choice": {"member0": "text", "member1": None}, "same": True,
    }  # fmt: skip
