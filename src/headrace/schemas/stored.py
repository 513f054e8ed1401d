"""The records of `_schemas`, in the format of Confluent's registry: each can read the topic of the other. Pure.

    key                                                                value
    {"keytype":"SCHEMA","subject":S,"version":N,"magic":1}             `StoredSchema`; a tombstone deletes it for good
    {"keytype":"CONFIG","subject":S,"magic":0}                         `StoredConfig`; without a subject the global one
    {"keytype":"MODE","subject":S,"magic":0}                           `StoredMode`; without a subject the global one
    {"keytype":"DELETE_SUBJECT","subject":S,"magic":0}                 versions up to this one are deleted softly
    {"keytype":"CLEAR_SUBJECT","subject":S,"magic":0}                  the deleted versions are deleted for good
    {"keytype":"NOOP","magic":0}                                       `StoredHighestIds`; nothing to other registries
    {"keytype":"NOOP","subject":S,"magic":0}                           `LinkNote`; nothing to other registries

Keys are compared as bytes by compaction: the order of their fields is a part of the format.
"""

from typing import Any

import msgspec

from headrace.coordinator.machine import InternalRecord


class SchemaReference(msgspec.Struct, frozen=True, omit_defaults=True):
    """A schema that another one uses under a name."""

    name: str
    subject: str
    version: int


class StoredSchema(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    subject: str
    version: int
    id: int
    schema: str
    md5: str | None = None
    schema_type: str = "AVRO"
    references: list[SchemaReference] = []
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = None
    schema_tags: Any = None
    deleted: bool = False


class StoredConfig(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    subject: str | None = None
    alias: str | None = None
    normalize: bool | None = None
    validate_fields: bool | None = None
    compatibility_level: str | None = None
    compatibility_policy: str | None = None
    compatibility_group: str | None = None
    default_metadata: dict[str, Any] | None = None
    override_metadata: dict[str, Any] | None = None
    default_rule_set: dict[str, Any] | None = None
    override_rule_set: dict[str, Any] | None = None


class StoredMode(msgspec.Struct, frozen=True, omit_defaults=True):
    mode: str
    subject: str | None = None


class StoredDeletion(msgspec.Struct, frozen=True, omit_defaults=True):
    subject: str
    version: int = 0


class StoredHighestIds(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The highest id of each context, so that an id is not used again after its schema was deleted for good."""

    highest_ids: dict[str, int] = {}


class LinkNote(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Notes what a link to another cluster has brought: what it has not brought it never changes or removes.

    The note of a subject is about its versions and its settings. That of a context (`:.NAME:`, or an empty subject for
    the default one) is about its settings, and says whether the link holds the context: then ids come over the link,
    and none is given out here.
    """

    link: str
    """The id of the link."""
    name: str
    """The name of the link, for messages."""
    versions: tuple[int, ...] = ()
    config: StoredConfig | None = None
    """The settings that the link has set: they belong to it as long as they are these."""
    mode: str | None = None
    is_held: bool = False
    source: str = ""
    """Of a context that is held: the id of the source's topic."""


class SchemaKey(msgspec.Struct, frozen=True, omit_defaults=True):
    """Any key; fields that it does not have are left out."""

    keytype: str
    subject: str | None = None
    version: int | None = None
    magic: int | None = None


_encode = msgspec.json.Encoder().encode
_decode_key = msgspec.json.Decoder(SchemaKey).decode


def read_key(data: bytes) -> SchemaKey:
    return _decode_key(data)


def schema_record(schema: StoredSchema) -> InternalRecord:
    return InternalRecord(_schema_key(schema.subject, schema.version), _encode(schema))


def schema_tombstone(subject: str, version: int) -> InternalRecord:
    return InternalRecord(_schema_key(subject, version), None)


def config_record(subject: str | None, config: StoredConfig | None) -> InternalRecord:
    return InternalRecord(_encode(SchemaKey("CONFIG", subject, magic=0)), None if config is None else _encode(config))


def mode_record(subject: str | None, mode: StoredMode | None) -> InternalRecord:
    return InternalRecord(_encode(SchemaKey("MODE", subject, magic=0)), None if mode is None else _encode(mode))


def deletion_record(subject: str, version: int) -> InternalRecord:
    key = SchemaKey("DELETE_SUBJECT", subject, magic=0)
    return InternalRecord(_encode(key), _encode(StoredDeletion(subject, version)))


def highest_ids_record(ids: dict[str, int]) -> InternalRecord:
    return InternalRecord(_encode(SchemaKey("NOOP", magic=0)), _encode(StoredHighestIds(ids)))


def link_note_record(scope: str, note: LinkNote | None) -> InternalRecord:
    return InternalRecord(_encode(SchemaKey("NOOP", scope, magic=0)), None if note is None else _encode(note))


def _schema_key(subject: str, version: int) -> bytes:
    return _encode(SchemaKey("SCHEMA", subject, version, 1))
