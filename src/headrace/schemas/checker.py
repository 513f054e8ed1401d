"""Parses and compares schemas in worker threads, within limits: a hostile schema costs one request, never the loop.

Parsed schemas are cached, since each registration is compared with the versions before it.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Executor

from headrace.schemas.compatibility import (
    CompatibilityLevel,
    CompatibilityVerdict,
    VersionToCompare,
    check_compatibility,
)
from headrace.schemas.errors import InvalidSchema
from headrace.schemas.machine import SchemaMachine
from headrace.schemas.parsed import ParsedSchema, parse_any
from headrace.schemas.stored import SchemaReference, StoredSchema
from headrace.schemas.subjects import context_of, qualified

MAX_REFERENCES = 1000
_CACHED = 500

NamedTexts = tuple[tuple[str, str], ...]


class SchemaChecker:
    def __init__(self, workers: Executor) -> None:
        self._workers = workers
        self._cache: OrderedDict[tuple[str, str, NamedTexts], ParsedSchema] = OrderedDict()

    async def parse(self, machine: SchemaMachine, schema: StoredSchema, *, is_new: bool) -> ParsedSchema:
        """Parse a schema with those that it refers to. Raises `InvalidSchema`."""
        texts = referenced_texts(machine, schema.subject, schema.references)
        key = (schema.schema_type, schema.schema, texts)
        known = self._cache.get(key)
        if known is not None:
            self._cache.move_to_end(key)
            return known
        loop = asyncio.get_running_loop()
        parsed = await loop.run_in_executor(
            self._workers, lambda: parse_any(schema.schema_type, schema.schema, texts, is_new=is_new)
        )
        if not is_new:
            self._cache[key] = parsed
            if len(self._cache) > _CACHED:
                self._cache.popitem(last=False)
        return parsed

    async def compare(
        self,
        machine: SchemaMachine,
        level: CompatibilityLevel,
        new: ParsedSchema,
        earlier: Sequence[StoredSchema],
        *,
        is_lenient: bool,
    ) -> CompatibilityVerdict:
        """Compare a schema with earlier versions, oldest first."""
        if level == "NONE" or not earlier:
            return CompatibilityVerdict(True)
        compared = earlier if level.endswith("_TRANSITIVE") else earlier[-1:]
        parsed = [
            VersionToCompare(each.version, await self.parse(machine, each, is_new=False), each.schema)
            for each in compared
        ]
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._workers, lambda: check_compatibility(level, new, parsed, is_lenient=is_lenient)
        )


def referenced_texts(machine: SchemaMachine, subject: str, references: Sequence[SchemaReference]) -> NamedTexts:
    """Names and texts of the schemas that one refers to, and of those that these refer to, each before its users."""
    found: dict[str, str] = {}
    _collect(machine, context_of(subject), references, found, 0)
    return tuple(found.items())


def _collect(
    machine: SchemaMachine, context: str, references: Sequence[SchemaReference], found: dict[str, str], depth: int
) -> None:
    for each in references:
        if each.name in found:
            continue
        if len(found) >= MAX_REFERENCES or depth > MAX_REFERENCES:
            raise InvalidSchema(f"the schema refers to more than {MAX_REFERENCES} others")
        known = machine.versions(qualified(context, each.subject), deleted=True)
        version = max(known, default=0) if each.version == -1 else each.version
        if version not in known:
            raise InvalidSchema(
                f"Invalid schema: the reference {each.name!r} to version {each.version} of {each.subject!r} leads to "
                "nothing: register that one first"
            )
        _collect(machine, context, known[version].references, found, depth + 1)
        found[each.name] = known[version].schema
