"""Which columns a sink takes, and where rows go."""

from collections.abc import Sequence
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
types = pytest.importorskip("pyspark.sql.types")

from headrace.client.partitioners import by_key  # noqa: E402
from headrace.pipelines.sink.rows import RowRouter, WrongRows  # noqa: E402
from headrace.pipelines.sink.schema import check_schema  # noqa: E402

COUNTS = {"a": 3, "b": 2}
HEADERS = "array<struct<key:string,value:binary>>"


def _headers(value: Any) -> Any:
    return types.ArrayType(types.StructType().add("key", types.StringType()).add("value", value))


TYPES = {
    "string": types.StringType(),
    "binary": types.BinaryType(),
    "int": types.IntegerType(),
    "bigint": types.LongType(),
    "double": types.DoubleType(),
    "timestamp": types.TimestampType(),
    "map<string,string>": types.MapType(types.StringType(), types.StringType()),
    HEADERS: _headers(types.BinaryType()),
    "array<struct<key:string,value:string>>": _headers(types.StringType()),
}


def schema(**columns: str) -> Any:
    return types.StructType([types.StructField(name, TYPES[kind]) for name, kind in columns.items()])


@pytest.mark.parametrize(
    "columns",
    [
        {"value": "string"},
        {"value": "binary", "key": "string", "partition": "int", "headers": HEADERS, "timestamp": "timestamp"},
        {"value": "binary", "topic": "string", "offset": "bigint", "timestampType": "int", "partition": "bigint"},
    ],
)
def test_columns_that_fit(columns: dict[str, str]) -> None:
    check_schema(schema(**columns), has_topic="topic" not in columns)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"key": "string"}, "no column value"),
        ({"value": "int"}, "column value is of type int: cast it to string or binary"),
        ({"value": "string", "key": "double"}, "column key is of type double"),
        ({"value": "string", "partition": "string"}, "column partition is of type string: cast it to int"),
        ({"value": "string", "topic": "int"}, "column topic is of type int"),
        ({"value": "string", "timestamp": "bigint"}, "column timestamp is of type bigint"),
        ({"value": "string", "headers": "map<string,string>"}, "column headers is of type map<string,string>: make it"),
        ({"value": "string", "headers": "array<struct<key:string,value:string>>"}, "column headers"),
        ({"value": "string", "amount": "int"}, "no column amount"),
    ],
)
def test_columns_that_do_not_fit_are_named(columns: dict[str, str], words: str) -> None:
    with pytest.raises(WrongRows, match=words):
        check_schema(schema(**columns), has_topic=True)


def test_somebody_must_say_where_rows_go() -> None:
    with pytest.raises(WrongRows, match="no column topic and the option topic is not set"):
        check_schema(schema(value="string"), has_topic=False)


def split(option: str | None, **columns: Sequence[object]) -> dict[tuple[str, int], list[object]]:
    router = RowRouter(option, COUNTS.__getitem__)
    return {
        where: rows.column("value").to_pylist() for where, rows in router.split(pa.RecordBatch.from_pydict(columns))
    }


def test_keys_decide_as_in_every_other_client() -> None:
    keys = [f"key-{number}" for number in range(50)]
    found = split("a", key=keys, value=keys)
    expected: dict[tuple[str, int], list[object]] = {}
    for key in keys:
        expected.setdefault(("a", by_key(key.encode(), 3)), []).append(key)
    assert found == expected


def test_topics_and_partitions_by_row() -> None:
    found = split(
        None,
        topic=["a", "b", "a", "b"],
        partition=[2, None, None, 1],
        key=[None, "k", "k", "k"],
        value=[b"1", b"2", b"3", b"4"],
    )
    assert found[("a", 2)][0] == b"1"
    assert [row for (topic, _), rows in found.items() if topic == "b" for row in rows] in ([b"2", b"4"], [b"4", b"2"])
    assert found["b", 1][-1] == b"4"


def test_the_option_goes_before_the_column() -> None:
    assert split("a", topic=["nowhere"], value=[b"1"]) == {("a", 0): [b"1"]}


def test_rows_without_a_key_stay_together_and_move_on() -> None:
    router = RowRouter("a", COUNTS.__getitem__)
    block = pa.RecordBatch.from_pydict({"value": [b"1", b"2"]})
    assert [[where for where, _ in router.split(block)] for _ in range(4)] == [
        [("a", number % 3)] for number in range(4)
    ]


def test_rows_that_cannot_go_anywhere() -> None:
    with pytest.raises(WrongRows, match="column topic is null"):
        split(None, topic=["a", None], value=[b"1", b"2"])
    with pytest.raises(WrongRows, match="column partition of rows for the topic a is wrong: row 0 names partition 7"):
        split("a", partition=[7], value=[b"1"])
