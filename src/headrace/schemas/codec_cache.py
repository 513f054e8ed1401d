"""Parsed schemas with their codecs, by id or GUID: made in a worker thread, and cached."""

import asyncio
from collections import OrderedDict
from concurrent.futures import Executor
from typing import NamedTuple

from headrace.schemas.lookup import SchemaLookup
from headrace.schemas.parsed import ParsedSchema, parse_any
from headrace.schemas.payload.codecs import PayloadCodec, codec_of
from headrace.schemas.payload.frames import SchemaKey
from headrace.schemas.resolved import ResolvedSchema

MAX_CODECS = 500
MAX_CODEC_CHARS = 8 * 1024 * 1024
"""The texts of all schemas that have a codec. Parsed, they take some ten times as much memory."""


class SchemaCodec(NamedTuple):
    schema: ParsedSchema
    codec: PayloadCodec
    size_chars: int


class CodecCache:
    def __init__(self, lookup: SchemaLookup, workers: Executor) -> None:
        self._lookup = lookup
        self._workers = workers
        self._codecs: OrderedDict[SchemaKey, SchemaCodec] = OrderedDict()
        self._chars = 0

    async def get(self, key: SchemaKey) -> SchemaCodec | None:
        """The codec of a schema; None if there is no such schema.

        Raises `SchemasUnavailable`, or `InvalidSchema` if values of it cannot be read.
        """
        found = self._codecs.get(key)
        if found is not None:
            self._codecs.move_to_end(key)
            return found
        schema = await self._lookup.schema(key if isinstance(key, int) else str(key))
        if schema is None:
            return None
        made = await asyncio.get_running_loop().run_in_executor(self._workers, _codec, schema)
        if key not in self._codecs:
            self._add(key, made)
        return made

    def _add(self, key: SchemaKey, made: SchemaCodec) -> None:
        self._codecs[key] = made
        self._chars += made.size_chars
        while len(self._codecs) > MAX_CODECS or (self._chars > MAX_CODEC_CHARS and len(self._codecs) > 1):
            _, oldest = self._codecs.popitem(last=False)
            self._chars -= oldest.size_chars


def _codec(schema: ResolvedSchema) -> SchemaCodec:
    parsed = parse_any(schema.type, schema.text, schema.references, is_new=False)
    return SchemaCodec(parsed, codec_of(parsed), schema.size_chars)
