"""Pipelines with schemas of the broker's registry: each format as source and sink, new versions while they run."""

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from headrace.pipelines.control.source_schemas import registry_for
from headrace.pipelines.protobuf.schema import parse_protobuf
from headrace.pipelines.spec.model import Source
from headrace.pipelines.values.registry import SchemaRegistry
from headrace.pipelines.values.schemas import WriterSchema
from headrace.schemas.protobuf.descriptor_writer import serialized_proto

from .running import Pipelines, Write
from .test_pipeline_formats import framed as framed_avro

pytestmark = pytest.mark.timeout(600)

Encode = Callable[[int, Mapping[str, Any]], bytes]
FIELDS = ("id", "amount", "note")
"""Version n has the first n."""


def avro_version(number: int) -> dict[str, Any]:
    fields = [
        {"name": "id", "type": "string"},
        {"name": "amount", "type": "double", "default": 0.5},
        {"name": "note", "type": "string", "default": "-"},
    ][:number]
    return {"type": "record", "name": "Order", "fields": fields}


def proto_version(number: int) -> str:
    kinds = ("string id = 1;", "double amount = 2;", "optional string note = 3;")
    return f'syntax = "proto3"; package shop; message Order {{ {" ".join(kinds[:number])} }}'


def json_version(number: int) -> dict[str, Any]:
    kinds = {"id": "string", "amount": "number", "note": "string"}
    properties = {each: {"type": kinds[each]} for each in FIELDS[:number]}
    return {"type": "object", "properties": properties, "required": ["id"], "additionalProperties": False}


def proto_class(text: str) -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto()
    file.ParseFromString(base64.b64decode(serialized_proto(parse_protobuf(text))))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def text_of(kind: str, number: int) -> WriterSchema:
    if kind == "protobuf":
        return WriterSchema(proto_version(number), kind="PROTOBUF")
    made = avro_version(number) if kind == "avro" else json_version(number)
    return WriterSchema(json.dumps(made), kind="AVRO" if kind == "avro" else "JSON")


def framed(kind: str, number: int, schema_id: int, row: Mapping[str, Any]) -> bytes:
    if kind == "avro":
        return framed_avro(schema_id, avro_version(number), row)
    prefix = b"\x00" + schema_id.to_bytes(4, "big")
    if kind == "json-schema":
        return prefix + json.dumps(row).encode()
    return prefix + b"\x00" + proto_class(proto_version(number))(**row).SerializeToString()


@pytest.fixture
def registry(pipelines: Pipelines) -> SchemaRegistry:
    spec = pipelines.file("any", '[source]\ntopic = "a"\nformat = "raw"\n[sink]\ntopic = "b"').spec
    return registry_for(spec, Source(topic="a"))


@pytest.fixture
def pipelines(spark, tmp_path, cluster) -> Pipelines:
    return Pipelines(spark, tmp_path, cluster)


EXPECTED = {
    "avro": [("a", 0.5, "-"), ("b", 2.0, "-"), ("c", 3.0, "now")],
    "protobuf": [("a", 0.0, None), ("b", 2.0, None), ("c", 3.0, "now")],
    "json-schema": [("a", None, None), ("b", 2.0, None), ("c", 3.0, "now")],
}
ROWS: list[dict[str, Any]] = [{"id": "a"}, {"id": "b", "amount": 2.0}, {"id": "c", "amount": 3.0, "note": "now"}]


@pytest.mark.parametrize("kind", ["avro", "protobuf", "json-schema"])
def test_values_of_three_versions_and_dead_letters(kind, spark, pipelines, registry, new_topic, write: Write):
    topic = new_topic(prefix=kind)
    ids = [registry.register(f"{topic}-value", text_of(kind, number)) for number in (1, 2, 3)]
    good = [framed(kind, number, ids[number - 1], row) for number, row in enumerate(ROWS, 1)]
    other = registry.register(f"{topic}-other", WriterSchema('"string"'))
    bad = {
        b"\x00\x00\x01\x00\x00" + good[0][5:]: "there is no schema of id 65536",
        good[2][:-1]: "cut off",
        b"\x00" + other.to_bytes(4, "big") + good[0][5:]: "cannot be used",
        b"plain": "does not begin with a schema id",
    }
    write(topic, *good, *bad)
    book = pipelines.run(
        "versions",
        f"""
        [source]
        topic = "{topic}"
        format = "{kind}"
        [transform]
        sql = "SELECT id, amount, note FROM source"
        [sink]
        table = "rows"
        """,
    )
    assert (book.bad, book.dead_letters) == (4, 4)
    letters = {each.payload: each.header("headrace-reason") or "" for each in pipelines.messages(f"{topic}.dlq")}
    assert {value: reason in letters[value] for value, reason in bad.items()} == dict.fromkeys(bad, True), letters
    table = spark.read.parquet(str(pipelines.folder / "rows" / "data"))
    assert sorted(map(tuple, table.collect())) == EXPECTED[kind]
