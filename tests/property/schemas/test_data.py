"""Data of an old schema is read with a new one whenever BACKWARD allows it: by fastavro, Protobuf and jsonschema."""

import io
import json
from typing import Any

import fastavro
import jsonschema
from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.property.profile import examples
from tests.property.schemas.avro_schemas import avro_pairs, avro_values
from tests.property.schemas.json_schemas import json_pairs, json_values
from tests.property.schemas.proto_schemas import DrawnMessage, proto_pairs, proto_values

from headrace.schemas.parsed import ParsedSchema, incompatibilities, parse_any
from headrace.schemas.protobuf.descriptor_writer import compiled_proto

_SETTINGS = settings(
    max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow]
)


def _is_readable(new: ParsedSchema, old: ParsedSchema) -> bool:
    return not incompatibilities(new, old)


@_SETTINGS
@given(data=st.data())
def test_fastavro_reads_what_backward_allows(data: st.DataObject) -> None:
    old, new = data.draw(avro_pairs())
    if not _is_readable(parse_any("AVRO", json.dumps(new)), parse_any("AVRO", json.dumps(old))):
        return
    value = data.draw(avro_values(old))
    written = io.BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(old), value)
    written.seek(0)
    read = fastavro.schemaless_reader(written, fastavro.parse_schema(old), fastavro.parse_schema(new))
    assert fastavro.validate(read, fastavro.parse_schema(new), raise_errors=False)
    assert written.read() == b""


def _class(drawn: DrawnMessage) -> Any:
    pool = DescriptorPool()
    schema = parse_any("PROTOBUF", drawn.text).content
    pool.Add(descriptor_pb2.FileDescriptorProto.FromString(compiled_proto(schema, "m.proto")))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("p.M"))


@_SETTINGS
@given(data=st.data())
def test_protobuf_reads_what_backward_allows(data: st.DataObject) -> None:
    old, new = data.draw(proto_pairs())
    if not _is_readable(parse_any("PROTOBUF", new.text), parse_any("PROTOBUF", old.text)):
        return
    written = _class(old)(**data.draw(proto_values(old)))
    read = _class(new).FromString(written.SerializeToString())
    after = {each.number: each for each in new.fields}
    for was in old.fields:
        now = after.get(was.number)
        if (
            now is not None
            and (was.type, was.label, was.is_map) == (now.type, now.label, now.is_map)
            and was.type != "N"
        ):
            assert getattr(read, f"{now.name}{now.number}") == getattr(written, f"{was.name}{was.number}")


@_SETTINGS
@given(data=st.data())
def test_values_stay_valid_where_backward_allows_a_json_schema(data: st.DataObject) -> None:
    old, new = data.draw(json_pairs())
    if not _is_readable(parse_any("JSON", json.dumps(new)), parse_any("JSON", json.dumps(old))):
        return
    validators = [jsonschema.Draft7Validator(each) for each in (old, new)]
    for value in data.draw(st.lists(json_values(), max_size=20)):
        if validators[0].is_valid(value):
            assert validators[1].is_valid(value), value
