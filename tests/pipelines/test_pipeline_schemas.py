"""Pipelines with schemas of the broker's registry: each format as source and sink, new versions while they run."""

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest

from headrace.pipelines.control.progress import RunProgress
from headrace.pipelines.control.source_schemas import registry_for
from headrace.pipelines.errors import SpecError
from headrace.pipelines.run.preview import preview
from headrace.pipelines.run.runner import Runner
from headrace.pipelines.run.validate import validate
from headrace.pipelines.spec.model import Source
from headrace.pipelines.values.registry import SchemaRegistry, VersionedSchema
from headrace.pipelines.values.schemas import WriterSchema
from headrace.schemas.parsed import parse_any
from headrace.schemas.payload.codecs import codec_of
from headrace.schemas.payload.frames import FIRST_MESSAGE, VALUE_HEADER, header_value, prefix, read_frame

from .running import Pipelines, Write

pytestmark = pytest.mark.timeout(600)

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


def text_of(kind: str, number: int) -> WriterSchema:
    if kind == "protobuf":
        return WriterSchema(proto_version(number), kind="PROTOBUF")
    made = avro_version(number) if kind == "avro" else json_version(number)
    return WriterSchema(json.dumps(made), kind="AVRO" if kind == "avro" else "JSON")


def framed(kind: str, number: int, schema_id: int, row: Mapping[str, Any]) -> bytes:
    schema = text_of(kind, number)
    indexes = FIRST_MESSAGE if kind == "protobuf" else None
    return prefix(schema_id, indexes) + codec_of(parse_any(schema.kind, schema.text)).encode(row)


@pytest.fixture
def registry(pipelines: Pipelines) -> SchemaRegistry:
    spec = pipelines.file("any", '[source]\ntopic = "a"\nformat = "raw"\n[sink]\ntopic = "b"').spec
    return registry_for(spec, Source(topic="a"))


@pytest.fixture
def pipelines(spark, tmp_path, cluster) -> Pipelines:
    return Pipelines(spark, tmp_path, cluster)


KINDS = ("avro", "protobuf", "json-schema")
EXPECTED: dict[str, list[tuple[Any, ...]]] = {
    "avro": [("a", 0.5, "-"), ("b", 2.0, "-"), ("c", 3.0, "now")],
    "protobuf": [("a", 0.0, None), ("b", 2.0, None), ("c", 3.0, "now")],
    "json-schema": [("a", None, None), ("b", 2.0, None), ("c", 3.0, "now")],
}
ROWS: list[dict[str, Any]] = [{"id": "a"}, {"id": "b", "amount": 2.0}, {"id": "c", "amount": 3.0, "note": "now"}]


def test_values_of_three_versions_and_their_dead_letters(pipelines, spark, registry, new_topic, write: Write):
    other = registry.register("something-else", text_of("json-schema", 1))
    topics: dict[str, str] = {}
    bad: dict[bytes, str] = {}
    for kind in KINDS:
        topic = topics[kind] = new_topic(prefix=kind)
        ids = [registry.register(f"{topic}-value", text_of(kind, number)) for number in (1, 2, 3)]
        good = [framed(kind, number, ids[number - 1], row) for number, row in enumerate(ROWS, 1)]
        # An id that the registry may have lets both queries start again: one source of them is enough.
        unknown = 65536 if kind == "avro" else 2**31
        mine = {
            prefix(unknown) + good[0][5:]: f"there is no schema of id {unknown}",
            good[2][:-1]: "truncated" if kind == "json-schema" else "note is cut off",
            b"plain " + kind.encode(): "the value does not begin with a schema id",
        }
        if kind == "avro":
            mine[prefix(other) + good[0][5:]] = f"the schema of id {other} cannot be used"
            # The third of the wire format v1: without a prefix, and its schema is named in a header.
            guid = UUID(registry._call("GET", f"/subjects/{topic}-value/versions/3")["guid"])
            body = good.pop()[5:]
            write(topic, body, headers=[(VALUE_HEADER, header_value(guid))])
            write(topic, body + b"!", headers=[(VALUE_HEADER, header_value(UUID(int=5)))])
            bad[body + b"!"] = f"there is no schema of GUID {UUID(int=5)}"
        write(topic, *good, *mine)
        bad |= mine
    sections = "".join(f'[sources.{kind[:4]}]\ntopic = "{topics[kind]}"\nformat = "{kind}"\n' for kind in KINDS)
    selects = " UNION ALL ".join(f"SELECT '{kind}' AS kind, id, amount, note FROM {kind[:4]}" for kind in KINDS)
    book = pipelines.run("versions", f'{sections}[transform]\nsql = "{selects}"\n[sink]\ntable = "rows"\n')

    assert (book.bad, book.dead_letters) == (11, 11)
    letters = [each for topic in topics.values() for each in pipelines.messages(f"{topic}.dlq")]
    reasons = {each.payload: each.header("headrace-reason") or "" for each in letters}
    assert reasons.keys() == bad.keys()
    assert {value: reason in reasons[value] for value, reason in bad.items()} == dict.fromkeys(bad, True), reasons
    table = spark.read.parquet(str(pipelines.folder / "rows" / "data"))
    assert sorted(map(tuple, table.collect()), key=str) == sorted(
        ((kind, *row) for kind in KINDS for row in EXPECTED[kind]), key=str
    )


def test_each_format_as_sink_is_read_by_its_schema(pipelines, spark, registry, new_topic, write: Write):
    topic = new_topic()
    write(topic, *[json.dumps({"id": each, "n": len(each), "tags": [each]}).encode() for each in ("a", "bb", "")])
    outs = {kind: new_topic(prefix=f"out-{kind}") for kind in KINDS}
    sinks = "".join(
        f'[sinks.{kind[:4]}]\ntopic = "{outs[kind]}"\nformat = "{kind}"\nkey = "id"\nheaders = {{ v = "n" }}\n'
        for kind in KINDS
    )
    source = (
        f'[source]\ntopic = "{topic}"\nschema = "id STRING, n INT, tags ARRAY<STRING>"\n[errors]\non_error = "skip"\n'
    )
    pipelines.run("sinks", source + sinks)
    expected = [{"id": each, "n": len(each), "tags": [each]} for each in ("", "a", "bb")]
    for kind, out in outs.items():
        newest = registry.latest(f"{out}-value")
        assert newest.version == 1
        messages = pipelines.messages(out)
        assert sorted((decoded(newest, each.payload) for each in messages), key=str) == expected, kind
        assert {(each.key, each.header("v")) for each in messages} == {(b"", "0"), (b"a", "1"), (b"bb", "2")}

    other = f"{source}[transform]\nsql = \"SELECT named_struct('a', 1) AS id FROM source\"\n{sinks}"
    with pytest.raises(SpecError, match=f"cannot be the next version of {outs['avro']}-value.*headrace schema config"):
        pipelines.run("other", other)
    assert registry.latest(f"{outs['avro']}-value").version == 1


def decoded(schema: VersionedSchema, value: bytes | None) -> Any:
    """The value by the codecs of the SDK."""
    frame = read_frame(value or b"")
    assert frame.schema == schema.id
    indexes, body = frame.split(schema.schema.kind)
    return codec_of(parse_any(schema.schema.kind, schema.schema.text)).decode(body, indexes)


def test_validate_and_preview_have_the_columns_of_the_registry(pipelines, spark, registry, new_topic, write: Write):
    topic = new_topic(prefix="looked-at")
    second = registry.register(f"{topic}-value", text_of("protobuf", 2))
    write(topic, framed("protobuf", 2, second, ROWS[1]), prefix(second + 5000, FIRST_MESSAGE))
    sink = '[sink]\ntopic = "nowhere"\nformat = "avro"\n'
    file = pipelines.file("looked-at", f'[source]\ntopic = "{topic}"\nformat = "protobuf"\n{sink}')
    [query, _] = validate(spark, file).queries
    assert query.columns == {"id": "string", "amount": "double"}
    shown = preview(spark, file, {"source": pipelines.messages(topic)}, 5)
    assert shown.sinks["sink"].rows == [{"id": "b", "amount": 2.0}]
    assert [reason for _, reason in shown.samples["source"]] == [f"there is no schema of id {second + 5000}"]
    assert registry.find("nowhere-value") is None, "neither registers a schema"


def test_new_columns_appear_while_a_pipeline_runs(pipelines, spark, registry, new_topic, write: Write):
    topic, out = new_topic(prefix="live"), new_topic(prefix="live-out")
    first = registry.register(f"{topic}-value", text_of("avro", 1))
    write(topic, framed("avro", 1, first, ROWS[0]))
    text = f'[source]\ntopic = "{topic}"\nformat = "avro"\n[sink]\ntopic = "{out}"\nformat = "json-schema"\n'
    ids = [first]

    def look(book: RunProgress) -> None:
        if book.rows_out == 1 and len(ids) == 1:
            ids.append(second := registry.register(f"{topic}-value", text_of("avro", 2)))
            values = framed("avro", 2, second, ROWS[1]), prefix(second + 5000) + b"x", framed("avro", 1, first, ROWS[0])
            write(topic, *values)
        elif (book.rows_out, book.dead_letters) == (3, 1):
            runner.stop()

    runner = Runner(spark, pipelines.file("live", text), pipelines.state("live"), on_progress=look)
    runner.run()
    versions = {each.id: each for each in registry.versions(f"{out}-value")}
    assert [each.version for each in versions.values()] == [1, 2]
    payloads = [each.payload or b"" for each in pipelines.messages(out)]
    rows = [decoded(versions[int.from_bytes(each[1:5], "big")], each) for each in payloads]
    assert rows == [{"id": "a"}, {"id": "b", "amount": 2.0}, {"id": "a", "amount": 0.5}]
    assert "no schema of id" in (pipelines.messages(f"{topic}.dlq")[0].header("headrace-reason") or "")
