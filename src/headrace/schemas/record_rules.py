"""How the keys and values of a topic are checked by their schemas, record by record. Pure.

`used_schemas` finds the schemas of a batch, `subject_for` says which subject each must belong to, and `record_problems`
what is wrong with each record.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from headrace.config.topic import TopicSettings
from headrace.model.errors import InvalidRecord
from headrace.records.batch import BatchHeader
from headrace.records.field_starts import START_BYTES, distinct_starts
from headrace.records.reader import fields_in
from headrace.schemas.parsed import ParsedSchema
from headrace.schemas.payload.codecs import PayloadCodec
from headrace.schemas.payload.errors import InvalidPayload, NotFramed
from headrace.schemas.payload.frames import (
    FIRST_MESSAGE,
    KEY_HEADER,
    VALUE_HEADER,
    FramedPayload,
    MessageIndexes,
    SchemaKey,
    frame_of,
)
from headrace.schemas.protobuf.syntax import ProtoMessage

PAYLOAD_CPU_S = 5.0
"""The CPU time that checking the values of one batch may take, until the end of a record."""
MAX_VALUE_BYTES = 4 * 1024 * 1024
"""Of a key or value whose payload is checked: one takes a few seconds at the most, and a few kilobytes may decompress
to a hundred megabytes."""
MAX_RECORDS = 1_000_000
"""Of one batch: reading so many takes a second or two."""
MAX_PROBLEMS = 1_000
"""After so many records that do not fit, the others of a batch are not looked at: a few kilobytes decompress to
millions of records."""
MAX_USED = 1_000
"""Different schemas and places of messages in one batch."""

_KEY_HEADER, _VALUE_HEADER = KEY_HEADER.encode(), VALUE_HEADER.encode()

UsedSchema = tuple[SchemaKey, MessageIndexes]
"""A schema, and for Protobuf the place of the message, if the subject depends on it."""
RecordProblem = tuple[int, str]
"""The index of a record in its batch, and what is wrong with it."""


class SchemaRule(NamedTuple):
    """How the keys or the values of a topic are checked."""

    topic: str
    is_key: bool
    checks_payload: bool
    strategy: str
    topic_subject: str | None
    """The subject of every schema of the topic; None if it depends on the schema."""

    @property
    def part(self) -> str:
        return "key" if self.is_key else "value"

    def subject_for(self, schema: ParsedSchema, indexes: MessageIndexes) -> str:
        """The subject that a schema must belong to. Raises `InvalidPayload` if it has no name to find it by."""
        if self.topic_subject is not None:
            return self.topic_subject
        name = record_name(schema, indexes)
        if not name:
            raise InvalidPayload(f"its schema has no name, which {self.strategy} needs")
        return f"{self.topic}-{name}" if self.strategy == "TopicRecordNameStrategy" else name


def rules_of(topic: str, settings: TopicSettings) -> tuple[SchemaRule, ...]:
    """The rules of a topic, for its keys first."""
    rules = (
        (True, settings.key_schema_validation, settings.key_subject_name_strategy),
        (False, settings.value_schema_validation, settings.value_subject_name_strategy),
    )
    return tuple(
        SchemaRule(topic, is_key, mode == "payload", strategy, _topic_subject(topic, is_key, strategy))
        for is_key, mode, strategy in rules
        if mode != "off"
    )


def _topic_subject(topic: str, is_key: bool, strategy: str) -> str | None:
    return f"{topic}-{'key' if is_key else 'value'}" if strategy == "TopicNameStrategy" else None


def record_name(schema: ParsedSchema, indexes: MessageIndexes) -> str:
    """The name of a record, as name strategies have it: a full name, or the title of a JSON Schema; empty without."""
    match schema.type:
        case "AVRO":
            return str(schema.content.root.name)
        case "JSON":
            value = schema.content.value
            return str(value.get("title", "")) if isinstance(value, dict) else ""
    file = schema.content.file
    messages: list[ProtoMessage] = file.messages
    names = [file.package] if file.package else []
    for index in indexes:
        if not 0 <= index < len(messages):
            raise InvalidPayload(f"its schema has no message at {list(indexes)}")
        names.append(messages[index].name)
        messages = messages[index].messages
    return ".".join(names)


def check_count(header: BatchHeader) -> None:
    """Raise `InvalidRecord` if a batch has too many records to read them all."""
    if header.record_count > MAX_RECORDS:
        raise InvalidRecord(f"the batch has {header.record_count} records: send at most {MAX_RECORDS} at a time")


def ids_in(data: bytes, header: BatchHeader, rule: SchemaRule, patience: int | None = None) -> set[int] | None:
    """The ids of all schemas of a batch, in one quick pass; None if it has to be read record by record.

    None also if more than `patience` records differ so much that they take longer.
    """
    is_key = rule.is_key
    unless = _KEY_HEADER if is_key else _VALUE_HEADER
    starts = distinct_starts(data, header, is_key=is_key, unless=unless, patience=patience)
    if starts is None:
        return None
    ids: set[int] = set()
    for start in starts:
        if len(start) < START_BYTES or start[0]:
            return None
        ids.add(int.from_bytes(start[1:]))
    return ids


class UsedSchemas(NamedTuple):
    """The schemas of a batch, each once, and whether each record has one."""

    schemas: frozenset[UsedSchema]
    is_whole: bool


def used_schemas(data: bytes, header: BatchHeader, rule: SchemaRule) -> UsedSchemas:
    """Find the schemas of a batch, up to where `record_problems` ends for too many records without one.

    Raises `InvalidRecord` if the batch is malformed, or has more than `MAX_USED`.
    """
    ids = ids_in(data, header, rule) if rule.topic_subject is not None else None
    if ids is not None:
        return UsedSchemas(frozenset((each, FIRST_MESSAGE) for each in ids), True)
    found: set[UsedSchema] = set()
    unframed = 0
    for _, frame in _frames(data, header, rule):
        if isinstance(frame, str):
            unframed += 1
            if unframed == MAX_PROBLEMS:
                break
        else:
            found.add((frame.schema, _indexes(frame) if rule.topic_subject is None else FIRST_MESSAGE))
            if len(found) > MAX_USED:
                raise InvalidRecord(f"the batch has more than {MAX_USED} different schemas: send fewer at a time")
    return UsedSchemas(frozenset(found), not unframed)


def record_problems(
    data: bytes,
    header: BatchHeader,
    rule: SchemaRule,
    refused: Mapping[UsedSchema, str],
    codecs: Mapping[SchemaKey, PayloadCodec],
    cpu_s: Callable[[], float],
) -> list[RecordProblem]:
    """What is wrong with each record: it has no schema, one of the refused ones, or a value that does not fit it.

    `refused` has the reason for each schema; values are checked if the rule says so, by `codecs`. `cpu_s` returns the
    CPU time of this thread. There are at most `MAX_PROBLEMS`.
    """
    problems: list[RecordProblem] = []
    until_s = cpu_s() + PAYLOAD_CPU_S
    for index, frame in _frames(data, header, rule):
        problem = frame if isinstance(frame, str) else _problem(frame, rule, refused, codecs)
        if problem is not None:
            problems.append((index, f"{rule.part}: {problem}"))
            if len(problems) == MAX_PROBLEMS:
                break
        if rule.checks_payload and cpu_s() > until_s:
            problems.append((index, f"checking the batch takes longer than {PAYLOAD_CPU_S:g} s: send smaller batches"))
            break
    return problems


def _problem(
    frame: FramedPayload,
    rule: SchemaRule,
    refused: Mapping[UsedSchema, str],
    codecs: Mapping[SchemaKey, PayloadCodec],
) -> str | None:
    if refused:
        indexes = _indexes(frame) if rule.topic_subject is None else FIRST_MESSAGE
        if (reason := refused.get((frame.schema, indexes))) is not None:
            return reason
    if rule.checks_payload:
        codec = codecs[frame.schema]
        if len(frame.body) > MAX_VALUE_BYTES:
            return f"it has {len(frame.body)} bytes; up to {MAX_VALUE_BYTES} are checked"
        try:
            place, body = frame.split(codec.type)
            codec.check(body, place)
        except InvalidPayload as error:
            return str(error)
    return None


def _frames(data: bytes, header: BatchHeader, rule: SchemaRule) -> Iterator[tuple[int, FramedPayload | str]]:
    """The schema and value of each record by its index, or why it has none. Nulls are left out: they need none."""
    for index, (_, _, key, value, headers) in enumerate(fields_in(data, header)):
        field = key if rule.is_key else value
        if field is not None:
            try:
                yield index, frame_of(field, headers, is_key=rule.is_key)
            except NotFramed as error:
                yield index, str(error)


def _indexes(frame: FramedPayload) -> MessageIndexes:
    """The place of the message, if it is one of Protobuf; for other types it means nothing."""
    try:
        return frame.split("PROTOBUF")[0]
    except InvalidPayload:
        return FIRST_MESSAGE
