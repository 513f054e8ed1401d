"""The registry of a link's source cluster, rebuilt from the records of its topic. Pure.

The source may be anyone's: what cannot be read is left out and counted, and the whole is bounded.
"""

import msgspec

from headrace.coordinator.machine import InternalRecord
from headrace.model.errors import CorruptBatch, SourceUnavailable
from headrace.schemas.digest import digest_of
from headrace.schemas.errors import InvalidSubject
from headrace.schemas.machine import MAX_NUMBER, MODES, SchemaMachine
from headrace.schemas.parsed import MAX_SCHEMA_BYTES, SCHEMA_TYPES
from headrace.schemas.stored import StoredConfig, StoredSchema
from headrace.schemas.subjects import DEFAULT_CONTEXT, check_subject, context_of, name_of, qualified

MAX_VERSIONS = 50_000
"""Of a source, with its settings. Their copy is in the memory of one broker."""
MAX_STORED_BYTES = 64 * 1024 * 1024
MAX_VALUE_BYTES = 2 * 1024 * 1024
MAX_KEY_BYTES = 16 * 1024
MAX_REFERENCES = 1_000
_SHOWN_CHARS = 200


class SourceRegistry:
    """The state of the source's registry, as far as its topic was read."""

    def __init__(self) -> None:
        self.machine = SchemaMachine()
        self._sizes: dict[bytes, int] = {}
        """The bytes of each record that is part of the state, by key."""
        self._size = 0
        self.unreadable = ""
        """Why a record could not be read, the first one; empty if all could."""
        self.unreadable_count = 0

    def replay(self, key: bytes | None, value: bytes | None) -> None:
        """Apply a record. Raises `SourceUnavailable` if there are too many, or they are too large in all."""
        if key is None or not key:
            return
        if len(key) > MAX_KEY_BYTES or (value is not None and len(value) > MAX_VALUE_BYTES):
            self._note_unreadable(f"a record of {len(key) + len(value or b''):,} bytes is too long")
            return
        self._size += (0 if value is None else len(value)) - self._sizes.pop(key, 0)
        if value is not None:
            self._sizes[key] = len(value)
        if len(self._sizes) > MAX_VERSIONS or self._size > MAX_STORED_BYTES:
            raise SourceUnavailable(
                f"the registry of the source has more than {MAX_VERSIONS:,} versions and settings, or "
                f"{MAX_STORED_BYTES // 2**20} MiB of them: a link copies no part of it"
            )
        try:
            self.machine.replay(InternalRecord(key, value), -1)
        except (CorruptBatch, msgspec.MsgspecError, UnicodeDecodeError) as error:
            self._note_unreadable(str(error))

    def _note_unreadable(self, why: str) -> None:
        self.unreadable_count += 1
        self.unreadable = self.unreadable or why[:_SHOWN_CHARS]


class LinkNames:
    """What the subjects of a source are called here.

    Without a prefix they are as they are at the source. With one they have it, as the topics do, and are in contexts of
    their own, which are named for the link: `:.eu:eu.orders-value` for `orders-value`, `:.eu.x:eu.orders-value` for
    `:.x:orders-value`. Ids are those of a context, so they never clash with ids that are given out here.
    """

    def __init__(self, link: str, prefix: str) -> None:
        self._prefix = prefix
        self._root = f".{link}" if prefix else ""

    @property
    def is_renamed(self) -> bool:
        return bool(self._prefix)

    def context(self, source: str) -> str:
        """The context here for one of the source."""
        if not self._root:
            return source
        return self._root if source == DEFAULT_CONTEXT else self._root + source

    def source_context(self, local: str) -> str:
        """The context of the source for one here that the link has filled."""
        return local.removeprefix(self._root) or DEFAULT_CONTEXT

    def subject(self, source: str) -> str:
        """A subject with its context. One without a name is none, and stays without."""
        if not self._root or not name_of(source):
            return source
        return qualified(self.context(context_of(source)), self._prefix + name_of(source))

    def within_context(self, source: str) -> str:
        """A subject as the references and aliases of its context name it."""
        return self.subject(source) if source.startswith(":.") else self._prefix + source

    def scope(self, source: str | None) -> str | None:
        """Where the settings of a scope of the source are here; those of all subjects are of the link's context."""
        if not self._root:
            return source
        if source is None:
            return f":{self._root}:"
        return self.subject(source) if name_of(source) else f":{self.context(context_of(source))}:"


def local_version(schema: StoredSchema, names: LinkNames) -> StoredSchema:
    """A version of the source as it is here, with the GUID that it has there.

    Raises `ValueError` with the reason if it cannot be stored.
    """
    subject = names.subject(schema.subject)
    what = f"version {schema.version} of {schema.subject[:_SHOWN_CHARS]}"
    try:
        check_subject(subject)
    except InvalidSubject as error:
        raise ValueError(str(error)) from None
    if not (0 < schema.id <= MAX_NUMBER and 0 < schema.version <= MAX_NUMBER):
        raise ValueError(f"{what} has the id {schema.id}: ids and versions are from 1 to {MAX_NUMBER}")
    if schema.schema_type not in SCHEMA_TYPES:
        raise ValueError(f"{what} is of the type {schema.schema_type[:40]!r}, which there is not here")
    if len(schema.schema) > MAX_SCHEMA_BYTES or len(schema.references) > MAX_REFERENCES:
        raise ValueError(f"{what} is longer than {MAX_SCHEMA_BYTES} bytes, or has too many references")
    references = [
        msgspec.structs.replace(each, subject=names.within_context(each.subject)) for each in schema.references
    ]
    return msgspec.structs.replace(schema, subject=subject, references=references, md5=digest_of(schema))


def local_config(config: StoredConfig, scope: str | None, names: LinkNames) -> StoredConfig:
    alias = names.within_context(config.alias) if config.alias else config.alias
    return msgspec.structs.replace(config, subject=scope, alias=alias)


def local_mode(mode: str | None) -> str | None:
    """A mode of the source as it is here; None for one that there is not here."""
    return mode if mode in MODES else None
