"""Schemas that the driver has pinned for a plan, so that all tasks of all queries judge a record in the same way.

Workers never ask the registry. A block with an id that the driver has not judged yet raises `NewSchemaIds`, which fails
the batch before anything of it is written: the driver asks for the schemas, records the answer and plans again. See
`control/source_schemas.py`.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any
from uuid import UUID

from headrace.model.errors import HeadraceError
from headrace.pipelines.values.schemas import WriterSchema
from headrace.schemas.payload.frames import SchemaKey

FAR_ID = 1_000_000
"""An id so far beyond the highest one at the first start is no id, but a value of another format."""
_MAX_IDS_NAMED = 500
_KEY = r"(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d+)"
_NAMED = re.compile(rf"values of the source (\w+) have new schema ids: ({_KEY}(?:, {_KEY})*)")


class NewSchemaIds(HeadraceError):
    """Values have schema ids or GUIDs that the driver has not judged."""

    def __init__(self, source: str, ids: Iterable[SchemaKey]) -> None:
        named = ", ".join(map(str, sorted(ids, key=key_order)[:_MAX_IDS_NAMED]))
        super().__init__(f"values of the source {source} have new schema ids: {named}")


def key_order(key: SchemaKey) -> tuple[bool, int]:
    """Ids before GUIDs."""
    return isinstance(key, UUID), int(key)


def new_ids_in(text: str) -> tuple[str, list[SchemaKey]] | None:
    """The source and the ids that an error of Spark names, if it is of this kind."""
    found = _NAMED.search(text)
    if found is None:
        return None
    return found[1], [UUID(each) if "-" in each else int(each) for each in found[2].split(", ")]


def may_be_known(key: SchemaKey, highest: int) -> bool:
    """Whether the registry is asked for a schema; see `FAR_ID`."""
    return isinstance(key, UUID) or key <= highest


class PinnedSchemas:
    """The schemas of the ids and GUIDs that the driver has judged; None for one that the registry did not have."""

    def __init__(
        self, source: str, schemas: Sequence[tuple[SchemaKey, WriterSchema | None]], highest: int = FAR_ID
    ) -> None:
        """No id above `highest` is ever judged: it must not depend on what is known, or queries would differ."""
        self._source = source
        self._listed = tuple(schemas)
        self._schemas = dict(schemas)
        self._highest = highest

    def __reduce__(self) -> tuple[Any, ...]:
        return _pinned, (self._source, self._listed, self._highest)

    def by_id(self, schema_id: SchemaKey) -> WriterSchema | None:
        return self._schemas.get(schema_id)

    def require(self, ids: Sequence[SchemaKey]) -> None:
        """Raise `NewSchemaIds` if some of them are not judged."""
        fresh = [each for each in ids if each not in self._schemas and may_be_known(each, self._highest)]
        if fresh:
            raise NewSchemaIds(self._source, fresh)


@lru_cache(maxsize=32)
def _pinned(source: str, schemas: tuple[tuple[SchemaKey, WriterSchema | None], ...], highest: int) -> PinnedSchemas:
    """One instance for all tasks of a worker."""
    return PinnedSchemas(source, schemas, highest)
