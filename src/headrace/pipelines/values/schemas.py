"""Schemas that values were written with, and where they are found."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from headrace.pipelines.values.types import SchemaError
from headrace.schemas.payload.frames import SchemaKey


class WriterSchema(NamedTuple):
    """The schema that values were written with."""

    text: str
    references: tuple[tuple[str, str], ...] = ()
    """Schemas that `text` uses: their names and texts, each before those that use it."""
    kind: str = "AVRO"
    """AVRO, JSON or PROTOBUF, as registries say."""


class SchemaSource(Protocol):
    """Finds schemas by id or GUID. It is pickled with a decoder, and hashable."""

    def by_id(self, schema_id: SchemaKey) -> WriterSchema | None:
        """The schema of an id or a GUID; None if there is none."""

    def require(self, ids: Sequence[SchemaKey]) -> None:
        """Called with all ids of a block before it is decoded."""


class SchemaFiles:
    """Schemas in files, by their ids. Read on the driver, so that workers do not need the files."""

    def __init__(self, schemas: Mapping[int, WriterSchema]) -> None:
        self._schemas = dict(schemas)

    @classmethod
    def read(cls, paths: Mapping[int, Path], kind: str = "AVRO") -> "SchemaFiles":
        return cls({schema_id: WriterSchema(read_schema(path), kind=kind) for schema_id, path in paths.items()})

    def __reduce__(self) -> tuple[Any, ...]:
        return _files, (tuple(self._schemas.items()),)

    def by_id(self, schema_id: SchemaKey) -> WriterSchema | None:
        return self._schemas.get(schema_id) if isinstance(schema_id, int) else None

    def require(self, ids: Sequence[SchemaKey]) -> None:
        """Nothing to do: an id without a file has no schema."""


@lru_cache(maxsize=32)
def _files(schemas: tuple[tuple[int, WriterSchema], ...]) -> SchemaFiles:
    return SchemaFiles(dict(schemas))


def key_text(key: SchemaKey) -> str:
    """How texts name the key of a schema."""
    return f"id {key}" if isinstance(key, int) else f"GUID {key}"


def read_schema(path: Path) -> str:
    """The text of a schema file; `SchemaError` if it cannot be read."""
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SchemaError(f"the schema {path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
