"""Which schema a source is read with, decided by the driver and stored; and the versions that sinks register."""

import json
import logging
from pathlib import Path
from typing import Any, ClassVar
from uuid import UUID

import pyarrow as pa
import pytest

from headrace.pipelines.control.sink_schemas import SinkSchemas
from headrace.pipelines.control.source_schemas import MAX_IDS, SourceSchemas, registry_for
from headrace.pipelines.errors import PipelineError
from headrace.pipelines.spec.file import SpecFile
from headrace.pipelines.spec.model import Spec
from headrace.pipelines.values.pinned import FAR_ID, NewSchemaIds
from headrace.pipelines.values.registry import RegistryUnavailable, SchemaRegistry
from headrace.pipelines.values.schemas import WriterSchema
from headrace.pipelines.values.types import SchemaError
from headrace.records.schema import HEADERS
from headrace.schemas.payload.frames import VALUE_HEADER, SchemaKey, header_value, prefix
from headrace.wire import Cluster

ID = {"name": "id", "type": "string"}
AMOUNT = {"name": "amount", "type": "double", "default": 0.5}
OTHER = {"name": "id", "type": "long"}


class Place:
    """A pipeline that reads one topic, and the registry of its broker."""

    def __init__(self, folder: Path, cluster: Cluster, topic: str) -> None:
        self._folder = folder
        self._bootstrap = cluster.bootstrap
        self.topic = topic
        self.format = "avro"
        self.registry: SchemaRegistry = registry_for(self.spec(), self.spec().sources["source"])

    def spec(self, keys: str = "", sink: str = "") -> Spec:
        file = self._folder / "one.toml"
        file.write_text(
            f'[source]\ntopic = "{self.topic}"\nformat = "{self.format}"\n{keys}\n[sink]\ntopic = "out"\n{sink}'
        )
        return SpecFile(file, {}, bootstrap=self._bootstrap).spec

    def schemas(self, keys: str = "") -> SourceSchemas:
        return SourceSchemas(self.spec(keys), self._folder / "checkpoint" / "schemas.json")

    def register_text(self, text: str, kind: str) -> int:
        return self.registry.register(f"{self.topic}-value", WriterSchema(text, kind=kind))

    def register(self, *fields: dict[str, Any]) -> int:
        """Register a version whose id no other test has: equal schemas have one."""
        record = {"type": "record", "name": self.topic.replace("-", "_"), "fields": list(fields)}
        return self.registry.register(f"{self.topic}-value", WriterSchema(json.dumps(record)))


@pytest.fixture
def place(tmp_path: Path, cluster: Cluster, new_topic: Any) -> Place:
    return Place(tmp_path, cluster, new_topic(prefix="decided"))


def columns(schemas: SourceSchemas) -> str:
    values = schemas.values("source")
    assert values is not None
    return values.ddl


def reasons(schemas: SourceSchemas, *values: bytes) -> list[str | None]:
    decoder = schemas.values("source")
    assert decoder is not None
    found: list[str | None] = decoder.decode(pa.array(values)).reasons.to_pylist()
    return found


def test_a_newer_version_is_taken_when_a_record_of_it_arrives(place: Place) -> None:
    first = place.register(ID)
    running = place.schemas()
    assert columns(running) == "`id` STRING"
    second = place.register(ID, AMOUNT)
    assert columns(running) == "`id` STRING", "no record has it yet"
    running.learn("source", [second])
    assert columns(running) == columns(place.schemas()) == "`id` STRING, `amount` DOUBLE"
    assert columns(place.schemas("version = 1")) == "`id` STRING"
    assert reasons(running, prefix(first) + b"\x02a") == [None]


def test_at_the_next_start_the_newest_version_is_taken(place: Place) -> None:
    place.register(ID)
    columns(place.schemas())
    place.register(ID, AMOUNT)
    assert columns(place.schemas()) == "`id` STRING, `amount` DOUBLE"


def test_a_version_that_cannot_read_what_is_there_is_not_taken(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    first = place.register(ID)
    running = place.schemas()
    columns(running)
    place.registry._call("PUT", f"/config/{place.topic}-value", {"compatibility": "NONE"})
    second = place.register(OTHER)
    with caplog.at_level(logging.WARNING):
        running.learn("source", [second])
    assert "is not read with version 2" in caplog.text
    assert columns(running) == columns(place.schemas()) == "`id` STRING"
    found = reasons(running, prefix(first) + b"\x02a", prefix(second) + b"\x02")
    assert found == [
        None,
        f"the schema of id {second} cannot be used: id was written as long and cannot be read as string",
    ]


def test_behind_a_version_that_is_not_taken_the_one_before_is(place: Place) -> None:
    first = place.register(ID)
    running = place.schemas()
    columns(running)
    place.registry._call("PUT", f"/config/{place.topic}-value", {"compatibility": "NONE"})
    second = place.register(ID, AMOUNT)
    third = place.register(OTHER)
    running.learn("source", [second])
    assert columns(running) == columns(place.schemas()) == "`id` STRING, `amount` DOUBLE"
    running.learn("source", [third])
    assert columns(running) == "`id` STRING, `amount` DOUBLE"
    values = prefix(first) + b"\x02a", prefix(second) + b"\x02a" + bytes(8), prefix(third) + b"\x02"
    assert [each is None for each in reasons(running, *values)] == [True, True, False]


def test_an_unknown_id_stays_unknown(place: Place) -> None:
    """Otherwise the query of the dead letters could accept what the sink's has left out."""
    highest = place.register(ID)
    running = place.schemas()
    running.learn("source", [highest + 1])
    assert place.register(ID, AMOUNT) == highest + 1
    for schemas in (running, place.schemas()):
        assert reasons(schemas, prefix(highest + 1) + b"\x02a") == [f"there is no schema of id {highest + 1}"]


def test_guids_in_headers_are_decided_about_once(place: Place) -> None:
    place.register(ID)
    guid = UUID(place.registry._call("GET", f"/subjects/{place.topic}-value/versions/1")["guid"])
    unknown = UUID(int=5)
    running = place.schemas()

    def judged(schemas: SourceSchemas) -> list[str | None]:
        decoder = schemas.values("source")
        assert decoder is not None
        named = [[{"key": VALUE_HEADER, "value": header_value(each)}] for each in (guid, unknown)]
        found: list[str | None] = decoder.decode(pa.array([b"\x02a"] * 2), pa.array(named, HEADERS)).reasons.to_pylist()
        return found

    with pytest.raises(NewSchemaIds, match=f"new schema ids: {unknown}, {guid}"):
        judged(running)
    running.learn("source", [guid, unknown])
    for schemas in (running, place.schemas()):
        assert judged(schemas) == [None, f"there is no schema of GUID {unknown}"]


def test_a_registry_that_is_behind_is_asked_again(place: Place) -> None:
    schema_id = place.register(ID)

    class Behind(SchemaRegistry):
        asked: ClassVar[list[SchemaKey]] = []

        def by_id(self, schema_id: SchemaKey) -> WriterSchema | None:
            self.asked.append(schema_id)
            return None if self.asked.count(schema_id) == 1 else super().by_id(schema_id)

    spec = place.spec(f"subject = 'none-{place.topic}'\nschema = '\"string\"'")
    running = SourceSchemas(spec, None, lambda _: Behind(place.registry.address))
    running.learn("source", [schema_id, schema_id + 1])
    assert Behind.asked == [schema_id, schema_id + 1] * 2
    found = reasons(running, prefix(schema_id) + b"\x02a", prefix(schema_id + 1) + b"\x02a")
    assert "cannot be used" in str(found[0]), "it is a record, and found"
    assert found[1] == f"there is no schema of id {schema_id + 1}"


def test_an_id_too_far_away_stays_so(place: Place) -> None:
    """What is too far must not depend on the ids that one query has met and another has not."""
    highest = place.register(ID)
    running = place.schemas()
    far = highest + FAR_ID + 1
    assert reasons(running, prefix(far) + b"\x02a") == [f"there is no schema of id {far}"]
    running.learn("source", [highest + 5, far])
    for schemas in (running, place.schemas()):
        assert reasons(schemas, prefix(far) + b"\x02a") == [f"there is no schema of id {far}"]
        with pytest.raises(NewSchemaIds):
            reasons(schemas, prefix(far - 1) + b"\x02a")


def test_the_ids_of_a_registry_that_starts_high_are_asked_for(place: Place) -> None:
    """Those of Confluent Cloud begin at 100001, and the subject may be another than that of the topic."""
    place.register(ID)
    with pytest.raises(NewSchemaIds):
        reasons(place.schemas(f"subject = 'none-{place.topic}'\nschema = '\"string\"'"), prefix(100_001) + b"\x02a")


def test_a_message_that_is_put_before_the_one_that_is_read_changes_nothing(place: Place) -> None:
    place.format = "protobuf"
    order = "message Order { string id = 1; }"
    first = place.register_text(f'syntax = "proto3"; package {place.topic.replace("-", "_")}; {order}', "PROTOBUF")
    running = place.schemas()
    assert columns(running) == "`id` STRING"
    newer = f"message Header {{ int32 size = 1; }} {order.replace('}', 'int32 count = 2; }')}"
    second = place.register_text(f'syntax = "proto3"; package {place.topic.replace("-", "_")}; {newer}', "PROTOBUF")
    running.learn("source", [second])
    for schemas in (running, place.schemas()):
        assert columns(schemas) == "`id` STRING, `count` INT"
        assert reasons(schemas, prefix(first, (0,)) + b"\x0a\x01a", prefix(second, (1,)) + b"\x10\x01") == [None] * 2


def test_dead_letters_because_of_a_schema_stay_dead_letters(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """A query that is behind would accept what another has left out."""
    place.format = "json-schema"
    place.registry._call("PUT", f"/config/{place.topic}-value", {"compatibility": "NONE"})

    def register(kind: str) -> int:
        node = {"type": kind} if kind else {}
        text = {"title": place.topic, "type": "object", "properties": {"a": node}}
        return place.register_text(json.dumps(text), "JSON")

    register("integer")
    running = place.schemas()
    columns(running)
    running.learn("source", [register("boolean")])
    assert columns(running) == "`a` BIGINT"
    third = register("")
    with caplog.at_level(logging.WARNING):
        running.learn("source", [third])
    assert "are dead letters already" in caplog.text
    assert columns(running) == columns(place.schemas()) == "`a` BIGINT"
    assert columns(place.schemas("version = 3")) == "`a` STRING"


def test_a_damaged_file_is_named(place: Place) -> None:
    place.register(ID)
    columns(place.schemas())
    file = place._folder / "checkpoint" / "schemas.json"
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(PipelineError, match=r"schemas.json is damaged .*: restore it, or start from scratch"):
        columns(place.schemas())


def test_without_the_registry_a_pipeline_goes_on_with_what_it_knows(place: Place) -> None:
    place.register(ID)
    columns(place.schemas())

    def gone(_: Any) -> SchemaRegistry:
        raise RegistryUnavailable("gone")

    spec, file = place.spec(), place._folder / "checkpoint" / "schemas.json"
    assert columns(SourceSchemas(spec, file, gone)) == "`id` STRING"
    with pytest.raises(RegistryUnavailable):
        SourceSchemas(spec, None, gone).values("source")


def test_ids_are_bounded_and_a_missing_subject_is_said(place: Place) -> None:
    with pytest.raises(SchemaError, match=f"has no subject {place.topic}-value: register"):
        place.schemas().values("source")
    place.register(ID)
    with pytest.raises(PipelineError, match="more than 1000 schema ids"):
        place.schemas().learn("source", range(MAX_IDS + 1))
    (place._folder / "checkpoint" / "schemas.json").write_text('{"format": 2, "sources": {}}')
    with pytest.raises(PipelineError, match="newer Headrace"):
        place.schemas().values("source")


@pytest.mark.parametrize("kind", ["avro", "protobuf", "json-schema"])
def test_a_sink_registers_each_set_of_columns_once(kind: str, place: Place) -> None:
    spec = place.spec(sink=f'format = "{kind}"\nsubject = "{place.topic}-{kind}"')
    sink, subject = spec.sinks["sink"], f"{place.topic}-{kind}"
    one, two = ("a", pa.int64()), ("b", pa.list_(pa.string()))

    def register(*columns: tuple[str, pa.DataType]) -> bytes:
        return SinkSchemas(spec, registers=True).values(sink, pa.struct(columns)).prefix

    assert register(one) == register(one)
    assert register(one) != register(one, two)
    register(two)
    register(two, one, ("c", pa.bool_()))
    newest = place.registry.latest(subject)
    assert newest.version == (3 if kind == "json-schema" else 4)
    if kind == "protobuf":
        assert "= 2;" in newest.schema.text.split("repeated string b")[1][:6], "the number of a field is its own"
        assert "reserved 1" in newest.schema.text, "the number of a field that was gone is not used again"
    with pytest.raises(SchemaError, match=f"cannot be the next version of {subject}"):
        register(("a", pa.struct([("x", pa.int64())])), two, ("c", pa.int64()))
