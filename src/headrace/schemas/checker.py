"""Parses and compares schemas apart from the event loop, within limits: a hostile schema costs one request.

Small ones are checked in worker threads, which count their steps. Larger ones go to a process that is ended when it
takes too long, one at a time, for users in turn. Small schemas that were registered are cached as they were parsed,
since each registration is compared with the versions before it.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from copy import copy
from functools import lru_cache
from typing import NamedTuple

from headrace.schemas.check_process import CheckProcess
from headrace.schemas.checks import (
    CheckResult,
    CompareCheck,
    CompileCheck,
    NamedTexts,
    ParseCheck,
    SchemaCheck,
    SchemaText,
    carry_out,
    parse_text,
)
from headrace.schemas.compatibility import CompatibilityLevel, CompatibilityVerdict
from headrace.schemas.errors import InvalidSchema
from headrace.schemas.machine import SchemaMachine
from headrace.schemas.parsed import MAX_BYTES_IN_ALL, MAX_SCHEMA_BYTES, ParsedSchema
from headrace.schemas.stored import SchemaReference, StoredSchema
from headrace.schemas.subjects import context_of, qualified
from headrace.schemas.turns import FairTurns

MAX_REFERENCES = 1000
MAX_REFERENCE_DEPTH = 100
MAX_COMPARED_BYTES = 16 * 1024 * 1024
"""All versions that a schema is compared with; more do not fit into the time of a check."""
MAX_WAITING = 100
"""Large schemas that wait for the process."""
MAX_WAITING_OF_ONE = 10
"""Of these, of one user or address: users take turns, so that one does not wait for all schemas of another."""
SMALL_BYTES = 8 * 1024
"""All texts of a check up to which a thread carries it out: even a hostile one takes a few tenths of a second then."""
_CACHED = 500


class CheckedSchema(NamedTuple):
    """A valid schema."""

    canonical: str
    """The text that is stored: equal for texts that differ in layout only."""
    normalized: str
    """The text that is compared with `normalize`: equal for schemas that mean the same."""


class SchemaChecker:
    def __init__(self, workers: Executor, process: CheckProcess | None = None) -> None:
        self._workers = workers
        self._process = process or CheckProcess()
        self._turns = FairTurns(MAX_WAITING, MAX_WAITING_OF_ONE)
        self._owner = ""
        self._parse_registered = lru_cache(_CACHED)(parse_text)

    def close(self) -> None:
        self._process.close()

    def of(self, owner: str) -> "SchemaChecker":
        """The same checker, for the requests of one user or address."""
        made = copy(self)
        made._owner = owner
        return made

    async def parse(self, machine: SchemaMachine, schema: StoredSchema, *, is_new: bool) -> CheckedSchema:
        """Parse a schema with those that it refers to. Raises `InvalidSchema`."""
        found = await self._run(ParseCheck(_text(machine, schema, is_new=is_new)))
        return CheckedSchema(*found.texts)

    async def compile(self, machine: SchemaMachine, schema: StoredSchema) -> str:
        """A Protobuf schema as a compiled file, in base64."""
        return (await self._run(CompileCheck(_text(machine, schema)))).texts[0]

    async def compare(
        self,
        machine: SchemaMachine,
        level: CompatibilityLevel,
        new: StoredSchema,
        earlier: Sequence[StoredSchema],
        *,
        is_lenient: bool,
    ) -> CompatibilityVerdict:
        """Compare a valid schema with earlier versions, oldest first."""
        if level == "NONE" or not earlier:
            return CompatibilityVerdict(True)
        compared = earlier if level.endswith("_TRANSITIVE") else earlier[-1:]
        texts, size = [], 0
        for each in compared:
            texts.append(_text(machine, each))
            size += texts[-1].size
            _check_compared(size)
            await asyncio.sleep(0)  # each may have a thousand references
        found = await self._run(CompareCheck(level, _text(machine, new), tuple(texts), is_lenient))
        return CompatibilityVerdict(not found.messages, found.messages)

    async def _run(self, check: SchemaCheck) -> CheckResult:
        loop, size = asyncio.get_running_loop(), check.size
        if size <= SMALL_BYTES:
            return await loop.run_in_executor(self._workers, carry_out, check, self._parse)
        _check_compared(size)
        async with self._turns.turn(self._owner):
            return await loop.run_in_executor(self._workers, self._process.run, check)

    def _parse(self, schema: SchemaText) -> ParsedSchema:
        return parse_text(schema) if schema.is_new else self._parse_registered(schema)


def _check_compared(size: int) -> None:
    if size > MAX_COMPARED_BYTES:
        raise InvalidSchema(f"the schema and the versions before it are longer than {MAX_COMPARED_BYTES} bytes")


def _text(machine: SchemaMachine, schema: StoredSchema, *, is_new: bool = False) -> SchemaText:
    if len(schema.schema) > MAX_SCHEMA_BYTES:
        raise InvalidSchema(f"the schema is longer than {MAX_SCHEMA_BYTES} bytes")
    references = referenced_texts(machine, schema.subject, schema.references)
    return SchemaText(schema.schema_type, schema.schema, references, is_new, schema.version)


def referenced_texts(machine: SchemaMachine, subject: str, references: Sequence[SchemaReference]) -> NamedTexts:
    """Names and texts of the schemas that one refers to, and of those that these refer to, each before its users."""
    collected = _CollectedTexts(machine, context_of(subject))
    collected.add(references, 0)
    return tuple(collected.texts.items())


def dead_reference(reference: SchemaReference) -> InvalidSchema:
    return InvalidSchema(
        f"Invalid schema: the reference {reference.name!r} to version {reference.version} of {reference.subject!r} "
        "leads to nothing: register that one first"
    )


class _CollectedTexts:
    def __init__(self, machine: SchemaMachine, context: str) -> None:
        self.texts: dict[str, str] = {}
        self._machine = machine
        self._context = context
        self._chars = 0

    def add(self, references: Sequence[SchemaReference], depth: int) -> None:
        for each in references:
            if each.name in self.texts:
                continue
            if len(self.texts) >= MAX_REFERENCES:
                raise InvalidSchema(f"the schema refers to more than {MAX_REFERENCES} others")
            if depth > MAX_REFERENCE_DEPTH:
                raise InvalidSchema(
                    f"the references lead to others more than {MAX_REFERENCE_DEPTH} times, or in a circle"
                )
            known = self._machine.state(qualified(self._context, each.subject)).versions
            found = known.get(max(known, default=0) if each.version == -1 else each.version)
            if found is None:
                raise dead_reference(each)
            self.add(found.references, depth + 1)
            self.texts[each.name] = found.schema
            self._chars += len(found.schema)
            if self._chars > MAX_BYTES_IN_ALL:
                raise InvalidSchema(f"the schema refers to more than {MAX_BYTES_IN_ALL} bytes of others")
