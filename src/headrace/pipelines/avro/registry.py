"""Sources of Avro schemas: a schema registry, or files.

    SchemaRegistry("http://registry:8081")            # anything that speaks Confluent's REST protocol
    SchemaFiles.read({7: Path("order-v2.avsc")})      # without a registry: the file of each schema id

    avro_values(schema="order.avsc")                                     # plain Avro, one schema, no ids
    avro_values(schemas={"7": "order-v2.avsc"}, schema="order.avsc")     # ids from files, read as order.avsc
    avro_values(registry="http://registry:8081", subject="orders-value") # ids from the registry, read as the latest

The schema of an id never changes, so each is requested once per process. An unknown id is requested again after a
while, as it may have been registered meanwhile. Every request has a timeout and is tried three times; then
`RegistryUnavailable` is raised, which fails the pipeline and not a single value.
"""

import base64
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from functools import lru_cache
from http.client import HTTPException
from pathlib import Path
from typing import Any

from headrace.model.errors import HeadraceError
from headrace.pipelines.avro.schema import SchemaError
from headrace.pipelines.avro.values import AvroValues, WriterSchema

_ATTEMPTS = 3
_PAUSE_S = 0.2
_UNKNOWN_AGAIN_AFTER_S = 10.0
_MAX_RESPONSE_BYTES = 16 * 1024 * 1024
_MAX_REFERENCES = 200
_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"


class RegistryUnavailable(HeadraceError):
    """A request to the schema registry failed."""


class SchemaRegistry:
    """A schema registry with Confluent's REST protocol. The URL may contain user and password."""

    def __init__(self, url: str, *, timeout_s: float = 10.0) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SchemaError(f"{url!r} is not the address of a schema registry: it begins with http:// or https://")
        self._given_url = url
        self._timeout_s = timeout_s
        host = parts.netloc.rpartition("@")[2]
        self._base = f"{parts.scheme}://{host}{parts.path.rstrip('/')}"
        self._headers = {"Accept": _ACCEPT}
        if parts.username is not None:
            user = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
            self._headers["Authorization"] = "Basic " + base64.b64encode(user.encode()).decode()
        self._known: dict[int, WriterSchema] = {}
        self._unknown_until: dict[int, float] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return _registry, (self._given_url, self._timeout_s)

    def by_id(self, schema_id: int) -> WriterSchema | None:
        """The schema of an id with its references; None if the registry does not have it."""
        if schema_id in self._known:
            return self._known[schema_id]
        now = time.monotonic()
        if now < self._unknown_until.get(schema_id, 0):
            return None
        answer = self._get(f"/schemas/ids/{schema_id}")
        if answer is None:
            self._unknown_until[schema_id] = now + _UNKNOWN_AGAIN_AFTER_S
            return None
        self._known[schema_id] = self._with_references(answer, f"the schema of id {schema_id}")
        return self._known[schema_id]

    def latest(self, subject: str) -> WriterSchema:
        """The newest schema of a subject; `SchemaError` if there is none."""
        answer = self._get(f"/subjects/{urllib.parse.quote(subject, safe='')}/versions/latest")
        if answer is None:
            raise SchemaError(f"the registry at {self._base} has no subject {subject}")
        return self._with_references(answer, f"the newest schema of {subject}")

    def _with_references(self, answer: Mapping[str, Any], what: str) -> WriterSchema:
        """The schema with its references, each before the schemas that use it."""
        found: dict[tuple[str, int], str] = {}
        text = self._collect(answer, what, found)
        return WriterSchema(text, tuple(found.values()))

    def _collect(self, answer: Mapping[str, Any], what: str, found: dict[tuple[str, int], str]) -> str:
        kind = answer.get("schemaType", "AVRO")
        if kind != "AVRO":
            raise SchemaError(f"{what} is of type {kind}, not Avro")
        for each in answer.get("references") or ():
            key = str(each["subject"]), int(each["version"])
            if key in found:
                continue
            if len(found) >= _MAX_REFERENCES:
                raise SchemaError(f"{what} refers to more than {_MAX_REFERENCES} others")
            found[key] = ""
            path = f"/subjects/{urllib.parse.quote(key[0], safe='')}/versions/{key[1]}"
            referred = self._get(path)
            if referred is None:
                raise SchemaError(f"{what} refers to version {key[1]} of {key[0]}, which the registry does not have")
            found[key] = self._collect(referred, f"version {key[1]} of {key[0]}", found)
        text = answer.get("schema")
        if not isinstance(text, str):
            raise RegistryUnavailable(f"the registry at {self._base} answered without a schema for {what}")
        return text

    def _get(self, path: str) -> dict[str, Any] | None:
        """The response; None for 404."""
        reason = ""
        for attempt in range(_ATTEMPTS):
            if attempt:
                time.sleep(_PAUSE_S * attempt)
            try:
                request = urllib.request.Request(self._base + path, headers=self._headers)
                with urllib.request.urlopen(request, timeout=self._timeout_s) as response:
                    answer = json.loads(response.read(_MAX_RESPONSE_BYTES))
                if isinstance(answer, dict):
                    return answer
                reason = "it answered something else than an object"
            except urllib.error.HTTPError as error:
                error.close()
                if error.code == 404:
                    return None
                reason = f"it answered {error.code} {error.reason}"
                if error.code in (401, 403):
                    break
            except (OSError, HTTPException, ValueError) as error:
                reason = str(getattr(error, "reason", error)) or type(error).__name__
        raise RegistryUnavailable(f"the request to the schema registry at {self._base} for {path} failed: {reason}")


@lru_cache(maxsize=32)
def _registry(url: str, timeout_s: float) -> SchemaRegistry:
    """One instance for all tasks of a worker, which shares its cache."""
    return SchemaRegistry(url, timeout_s=timeout_s)


class SchemaFiles:
    """Schemas in files, by their ids. Read on the driver, so that workers do not need the files."""

    def __init__(self, schemas: Mapping[int, WriterSchema]) -> None:
        self._schemas = dict(schemas)

    @classmethod
    def read(cls, paths: Mapping[int, Path]) -> "SchemaFiles":
        return cls({schema_id: WriterSchema(read_schema(path)) for schema_id, path in paths.items()})

    def __reduce__(self) -> tuple[Any, ...]:
        return _files, (tuple(self._schemas.items()),)

    def by_id(self, schema_id: int) -> WriterSchema | None:
        return self._schemas.get(schema_id)


@lru_cache(maxsize=32)
def _files(schemas: tuple[tuple[int, WriterSchema], ...]) -> SchemaFiles:
    return SchemaFiles(dict(schemas))


def read_schema(path: Path) -> str:
    """The text of a schema file; `SchemaError` if it cannot be read."""
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SchemaError(f"the schema {path} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def avro_values(
    *,
    schema: str | None = None,
    schemas: Mapping[str, str] | None = None,
    registry: str | None = None,
    subject: str | None = None,
    folder: Path = Path(),
) -> AvroValues:
    """The decoder for a source's Avro values, from the keys of its section; `SchemaError`, `RegistryUnavailable`.

    `schema` is a file, or the schema itself: the reader's schema. Without it, that is the newest schema of `subject`,
    or the one with the highest id in `schemas`. Paths are relative to `folder`. Without `schemas` and `registry`,
    values are plain Avro without a schema id.
    """
    wanted = WriterSchema(_text(schema, folder)) if schema else None
    if registry is not None:
        source = SchemaRegistry(registry)
        if wanted is None and subject is None:
            raise SchemaError("a registry needs a subject, such as orders-value, or a schema to read values as")
        wanted = wanted or source.latest(str(subject))
        return AvroValues(wanted.text, references=wanted.references, writers=source)
    if schemas:
        if wrong := [key for key in schemas if not key.isdecimal()]:
            raise SchemaError(f"{wrong[0]!r} is not the id of a schema: ids are numbers")
        files = SchemaFiles.read({int(key): folder / path for key, path in schemas.items()})
        wanted = wanted or files.by_id(max(map(int, schemas)))
        assert wanted is not None
        return AvroValues(wanted.text, writers=files)
    if wanted is None:
        raise SchemaError("Avro needs a schema: a file, the files of ids, or a registry with a subject")
    return AvroValues(wanted.text)


def _text(schema: str, folder: Path) -> str:
    return schema if schema.lstrip().startswith(("{", "[", '"')) else read_schema(folder / schema)
