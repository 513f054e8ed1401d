"""The decoder of a source's values, by the format and the schemas that its section names. Needs no Spark."""

from pathlib import Path

from headrace.pipelines.avro.values import AvroValues
from headrace.pipelines.json_schema.values import JsonSchemaValues
from headrace.pipelines.protobuf.values import ProtobufValues
from headrace.pipelines.spec.model import Source
from headrace.pipelines.values.framed import FramedValues
from headrace.pipelines.values.schemas import SchemaFiles, SchemaSource, WriterSchema, read_schema
from headrace.pipelines.values.types import SchemaError

KINDS = {"avro": "AVRO", "json-schema": "JSON", "protobuf": "PROTOBUF"}
"""The types of schemas, as registries say, by format."""


def make_values(source: Source, reader: WriterSchema, writers: SchemaSource | None, message: str = "") -> FramedValues:
    """The decoder that reads values as `reader`; without `writers` they are plain. Raises `SchemaError`.

    `message` is that of Protobuf, if the section names none; without it the first of the file.
    """
    kind = KINDS[source.decoded_format]
    if reader.kind != kind:
        raise SchemaError(f"the schema is of type {reader.kind}, and the format of the source is {source.format}")
    if kind == "AVRO":
        return AvroValues(reader.text, references=reader.references, writers=writers)
    if kind == "JSON":
        return JsonSchemaValues(reader.text, references=reader.references, writers=writers)
    name = source.message or message
    return ProtobufValues(reader.text, references=reader.references, message=name, writers=writers)


def values_without_registry(source: Source, folder: Path) -> FramedValues:
    """The decoder of plain values, by `schema`, or of values whose ids have files, by `schemas`."""
    kind = KINDS[source.decoded_format]
    wanted = named_schema(source, folder)
    if not source.schemas:
        assert wanted is not None, "such a source uses a registry"
        return make_values(source, wanted, None)
    if wrong := [key for key in source.schemas if not key.isdecimal()]:
        raise SchemaError(f"{wrong[0]!r} is not the id of a schema: ids are numbers")
    files = SchemaFiles.read({int(key): folder / path for key, path in source.schemas.items()}, kind)
    reader = wanted or files.by_id(max(map(int, source.schemas)))
    assert reader is not None
    return make_values(source, reader, files)


def named_schema(source: Source, folder: Path) -> WriterSchema | None:
    """The schema that a section names to read values with: a file, or the schema itself."""
    if not source.schema:
        return None
    is_text = "{" in source.schema or source.schema.lstrip().startswith(("[", '"'))
    text = source.schema if is_text else read_schema(folder / source.schema)
    return WriterSchema(text, kind=KINDS[source.decoded_format])
