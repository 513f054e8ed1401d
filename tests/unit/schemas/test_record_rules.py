"""How records are checked by their schemas: limits, and subjects by the names of records."""

from itertools import count
from typing import Any

import pytest

from headrace.config.topic import topic_settings
from headrace.model.errors import InvalidRecord
from headrace.records.batch import HEADER_SIZE, BatchHeader, read_header
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.schemas.parsed import parse_any
from headrace.schemas.payload.codecs import codec_of
from headrace.schemas.payload.errors import InvalidPayload
from headrace.schemas.payload.frames import FIRST_MESSAGE, MessageIndexes
from headrace.schemas.record_rules import (
    MAX_PROBLEMS,
    MAX_RECORDS,
    MAX_USED,
    MAX_VALUE_BYTES,
    PAYLOAD_CPU_S,
    SchemaRule,
    check_count,
    record_name,
    record_problems,
    rules_of,
    used_schemas,
)

PROTO = 'syntax = "proto3"; package shop; message A { message B { message C {} } } message D {}'


def rule(**settings: str) -> SchemaRule:
    (made,) = rules_of("t", topic_settings({name.replace("_", "."): text for name, text in settings.items()}))
    return made


def section(*values: bytes | None, keys: bytes | None = None) -> tuple[bytes, BatchHeader]:
    batch = build_batch([Record(at, 1, keys, value) for at, value in enumerate(values)])
    return batch[HEADER_SIZE:], read_header(batch)


def test_rules_are_those_of_the_settings() -> None:
    both = {"key.schema.validation": "id", "value.schema.validation": "payload"}
    strategy = {"value.subject.name.strategy": "RecordNameStrategy"}
    assert rules_of("t", topic_settings({})) == ()
    assert rules_of("t", topic_settings({**both, **strategy})) == (
        SchemaRule("t", True, False, "TopicNameStrategy", "t-key"),
        SchemaRule("t", False, True, "RecordNameStrategy", None),
    )


@pytest.mark.parametrize(
    ("type_", "text", "indexes", "name"),
    [
        ("AVRO", '{"type":"record","name":"R","namespace":"a.b","fields":[]}', FIRST_MESSAGE, "a.b.R"),
        ("AVRO", '"string"', FIRST_MESSAGE, ""),
        ("JSON", '{"title":"T"}', FIRST_MESSAGE, "T"),
        ("JSON", "true", FIRST_MESSAGE, ""),
        ("PROTOBUF", PROTO, FIRST_MESSAGE, "shop.A"),
        ("PROTOBUF", PROTO, (0, 0, 0), "shop.A.B.C"),
        ("PROTOBUF", PROTO, (1,), "shop.D"),
    ],
)
def test_the_name_of_a_record(type_: str, text: str, indexes: MessageIndexes, name: str) -> None:
    assert record_name(parse_any(type_, text), indexes) == name


@pytest.mark.parametrize("indexes", [(2,), (0, 1), (-1,), (1, 0)])
def test_a_message_that_the_file_does_not_have(indexes: MessageIndexes) -> None:
    with pytest.raises(InvalidPayload, match="no message at"):
        record_name(parse_any("PROTOBUF", PROTO), indexes)


def test_schemas_are_found_once_and_nulls_have_none() -> None:
    data, header = section(b"\0\0\0\0\1a", None, b"\0\0\0\0\2", b"\0\0\0\0\1")
    found = used_schemas(data, header, rule(value_schema_validation="id"))
    assert found == ({(1, FIRST_MESSAGE), (2, FIRST_MESSAGE)}, True)
    assert used_schemas(data, header, rule(key_schema_validation="id")) == (frozenset(), True)
    data, header = section(b"\0\0\0\0\1a", b"text")
    assert used_schemas(data, header, rule(value_schema_validation="id")) == ({(1, FIRST_MESSAGE)}, False)


def test_checking_payloads_ends_when_its_time_is_over() -> None:
    codec = codec_of(parse_any("AVRO", '"string"'))
    data, header = section(*[b"\0\0\0\0\1\2a"] * 100)
    clock = count(0, PAYLOAD_CPU_S / 9.5)
    checked: dict[Any, Any] = {1: codec}
    problems = record_problems(data, header, rule(value_schema_validation="payload"), {}, checked, lambda: next(clock))
    assert problems == [(9, "checking the batch takes longer than 5 s: send smaller batches")]


def test_a_value_that_takes_too_long_to_check_is_refused() -> None:
    codec = codec_of(parse_any("AVRO", '"bytes"'))
    data, header = section(b"\0\0\0\0\1" + bytes(MAX_VALUE_BYTES + 1))
    checked: dict[Any, Any] = {1: codec}
    problems = record_problems(data, header, rule(value_schema_validation="payload"), {}, checked, lambda: 0.0)
    assert problems == [(0, f"value: it has {MAX_VALUE_BYTES + 1} bytes; up to {MAX_VALUE_BYTES} are checked")]


def test_a_batch_of_too_many_records_is_not_read() -> None:
    _, header = section(b"a")
    check_count(header._replace(record_count=MAX_RECORDS))
    with pytest.raises(InvalidRecord, match="send at most"):
        check_count(header._replace(record_count=MAX_RECORDS + 1))


def test_of_many_records_that_do_not_fit_only_so_many_are_looked_at() -> None:
    """A few kilobytes decompress to millions of records: their problems would not fit in memory."""
    data, header = section(b"\0\0\0\0\1a", *[b"text"] * MAX_PROBLEMS * 2, b"\0\0\0\0\2")
    ids = rule(value_schema_validation="id")
    assert used_schemas(data, header, ids) == ({(1, FIRST_MESSAGE)}, False)
    problems = record_problems(data, header, ids, {}, {}, lambda: 0.0)
    assert [index for index, _ in problems] == [*range(1, MAX_PROBLEMS + 1)]


@pytest.mark.parametrize("strategy", ["TopicNameStrategy", "RecordNameStrategy"])
def test_a_batch_with_too_many_schemas_is_not_read_to_its_end(strategy: str) -> None:
    data, header = section(*[b"\0" + number.to_bytes(4) for number in range(MAX_USED + 1)], b"damaged")
    with pytest.raises(InvalidRecord, match="more than 1000 different schemas"):
        used_schemas(data, header, rule(value_schema_validation="id", value_subject_name_strategy=strategy))
