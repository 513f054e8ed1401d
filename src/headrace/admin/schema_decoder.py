"""Decodes keys and values of messages by their schemas, as far as the person may see these.

The schemas of some messages are looked up together, a bounded number of them: the id before a value, or the GUID in a
header, leads to a codec, which is cached, and to a version of a subject that the person may describe. Messages of a
schema that is not known, may not be seen or does not fit are shown as they are.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from contextlib import suppress
from typing import TypeVar
from uuid import UUID

import msgspec

from headrace.admin.payloads import DecodedPayload, Headers
from headrace.cluster.metadata import Metadata
from headrace.model.errors import HeadraceError
from headrace.model.image import SCHEMAS_TOPIC
from headrace.runtime.clock import Clock
from headrace.schemas.codec_cache import CodecCache, SchemaCodec
from headrace.schemas.payload.errors import InvalidPayload
from headrace.schemas.payload.frames import SchemaKey, frame_of
from headrace.schemas.requests import RegistryRequest
from headrace.schemas.service import RegistryService
from headrace.schemas.subjects import DEFAULT_CONTEXT
from headrace.security.security import Security
from headrace.security.subject import Subject

MAX_SCHEMAS = 20
"""Schemas that are looked up for the messages of one answer."""
_KNOWN_MAX = 5_000
_KNOWN_MS = 10_000
"""How long it is used that a person may see a schema."""
_PATIENCE_S = 3.0
_FORMATS = {"AVRO": "avro", "JSON": "json-schema", "PROTOBUF": "protobuf"}
_INDENT = 2

T = TypeVar("T")


class SchemaPlace(msgspec.Struct, frozen=True):
    """A version that has the schema."""

    subject: str
    version: int


class _RegistryId(msgspec.Struct, frozen=True):
    id: int
    context: str = DEFAULT_CONTEXT


class KnownSchema(msgspec.Struct, frozen=True):
    id: int
    place: SchemaPlace
    codec: SchemaCodec


_SeenSchema = tuple[int, tuple[SchemaPlace, ...]]
"""The id of a schema, and the versions with it that a person may see."""


class SchemaDecoder:
    """Decodes messages whose schemas were looked up before."""

    def __init__(self, known: Mapping[SchemaKey, KnownSchema]) -> None:
        self._known = known

    @property
    def knows_any(self) -> bool:
        return bool(self._known)

    def decode(self, data: bytes, headers: Headers, *, is_key: bool) -> DecodedPayload | None:
        """JSON text with the schema; None if the schema is not known or does not fit. Raises nothing."""
        try:
            frame = frame_of(data, headers, is_key=is_key)
            found = self._known.get(frame.schema)
            if found is None:
                return None
            indexes, body = frame.split(found.codec.schema.type)
            value = found.codec.codec.decode(body, indexes)
            # JSON is shown as it was written: numbers keep their digits.
            document = body if found.codec.schema.type == "JSON" else msgspec.json.encode(value, enc_hook=str)
            text = msgspec.json.format(document, indent=_INDENT).decode()
        except (InvalidPayload, msgspec.MsgspecError, TypeError, ValueError, RecursionError):
            return None
        return DecodedPayload(
            text, _FORMATS[found.codec.schema.type], found.id, found.place.subject, found.place.version
        )


class SchemaDecoders:
    """Looks schemas up, and makes decoders of what it found."""

    def __init__(
        self, registry: RegistryService, security: Security, metadata: Metadata, clock: Clock, workers: Executor
    ) -> None:
        self._registry = registry
        self._security = security
        self._decided_by = security.authorizer
        self._metadata = metadata
        self._clock = clock
        self._codecs = CodecCache(registry.lookup, workers)
        self._seen: OrderedDict[tuple[str, str, SchemaKey], tuple[float, _SeenSchema]] = OrderedDict()

    async def decoder(
        self, subject: Subject, topic: str, payloads: Iterable[tuple[bytes | None, Headers, bool]]
    ) -> SchemaDecoder:
        """A decoder for these: key or value, headers of the message, and whether it is the key."""
        if SCHEMAS_TOPIC not in self._metadata.image.topics:
            return SchemaDecoder({})
        wanted = _schemas_in(payloads)
        found = await asyncio.gather(*(self._known(subject, topic, key) for key in wanted))
        return SchemaDecoder({key: each for key, each in zip(wanted, found, strict=True) if each is not None})

    async def _known(self, subject: Subject, topic: str, key: SchemaKey) -> KnownSchema | None:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                seen = await self._places(subject, key)
                codec = None if seen is None else await self._codecs.get(key)
        except (HeadraceError, TimeoutError):
            # The registry is not available, or the schema cannot be used: messages are shown as they are.
            return None
        if seen is None or codec is None:
            return None
        schema_id, places = seen
        own = [each for each in places if each.subject.startswith(f"{topic}-")]
        return KnownSchema(schema_id, (own or places)[-1], codec)

    async def _places(self, subject: Subject, key: SchemaKey) -> _SeenSchema | None:
        """The id of a schema, and the versions with it that the person may see; None if there are none."""
        question, now_ms = (subject.principal, subject.host, key), self._clock.monotonic_ms()
        if self._decided_by is not self._security.authorizer:
            # The ACLs have changed: a revoked permission is gone at once.
            self._seen.clear()
            self._decided_by = self._security.authorizer
        known = self._seen.get(question)
        if known is not None and now_ms < known[0]:
            return known[1]
        found = await self._ask_places(subject, key)
        self._seen.pop(question, None)
        if found is not None:
            self._seen[question] = now_ms + _KNOWN_MS, found
        if len(self._seen) > _KNOWN_MAX:
            self._seen.popitem(last=False)
        return found

    async def _ask_places(self, subject: Subject, key: SchemaKey) -> _SeenSchema | None:
        context = DEFAULT_CONTEXT
        if isinstance(key, UUID):
            ids = await self._ask(subject, ("schemas", "guids", str(key), "ids"), list[_RegistryId])
            if not ids:
                return None
            key, context = ids[0].id, ids[0].context
        path = ("contexts", context, "schemas", "ids", str(key), "versions")
        places = await self._ask(subject, path, list[SchemaPlace])
        return (key, tuple(places)) if places else None

    async def _ask(self, subject: Subject, parts: tuple[str, ...], kind: type[T]) -> T | None:
        request = RegistryRequest("GET", parts, {"deleted": "true"})
        answer = await self._registry.answer(request, subject.principal, subject.host)
        return msgspec.json.decode(answer.body, type=kind) if answer.status == 200 else None


def _schemas_in(payloads: Iterable[tuple[bytes | None, Headers, bool]]) -> list[SchemaKey]:
    """The first schemas that these name."""
    found: dict[SchemaKey, None] = {}
    for data, headers, is_key in payloads:
        if data:
            with suppress(InvalidPayload):
                found[frame_of(data, headers, is_key=is_key).schema] = None
        if len(found) >= MAX_SCHEMAS:
            break
    return [*found]
