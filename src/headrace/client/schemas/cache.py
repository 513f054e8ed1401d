"""Schemas that a client has looked up, with their codecs. Thread-safe and bounded."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from uuid import UUID

from headrace.client.errors import SchemaFailed
from headrace.client.schemas.registry import RegistryCalls, quoted
from headrace.schemas.payload.frames import SchemaKey

if TYPE_CHECKING:
    from headrace.schemas.payload.codecs import PayloadCodec

_CACHED = 1_000
LATEST_S = 60.0
"""How long the latest version of a subject is used before it is looked up again."""
_MAX_REFERENCES = 1_000
_MAX_REFERENCE_DEPTH = 100
_NOT_FOUND = frozenset({40401, 40402})
_SCHEMA_NOT_FOUND = 40403

KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of the registry.

    ```python
    schema = client.schemas.register("orders-value", '{"type": "record", "name": "Order", "fields": []}')
    print(schema.id, schema.version, schema.type)
    ```
    """

    id: int
    guid: str
    subject: str
    version: int
    type: str
    """AVRO, JSON or PROTOBUF."""
    text: str


class _Recent(Generic[KeyT, ValueT]):
    """The values that were used last."""

    def __init__(self, make: Callable[[KeyT], ValueT]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._values: OrderedDict[KeyT, ValueT] = OrderedDict()

    def get(self, key: KeyT) -> ValueT:
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        made = self._make(key)
        self.put(key, made)
        return made

    def put(self, key: KeyT, value: ValueT) -> None:
        with self._lock:
            self._values[key] = value
            if len(self._values) > _CACHED:
                self._values.popitem(last=False)

    def forget(self, key: KeyT) -> None:
        with self._lock:
            self._values.pop(key, None)


class SchemaCache:
    """Looks up schemas by id, GUID, or subject and version."""

    def __init__(self, calls: RegistryCalls) -> None:
        self.calls = calls
        self._codecs: _Recent[SchemaKey, PayloadCodec] = _Recent(self._look_up)
        self._versions: _Recent[tuple[str, str], tuple[float, RegisteredSchema]] = _Recent(self._ask_version)

    def codec(self, key: SchemaKey) -> "PayloadCodec":
        """The codec of a schema by its id or GUID. Raises `SchemaFailed` if there is none."""
        return self._codecs.get(key)

    def version(self, subject: str, version: int | None = None) -> RegisteredSchema:
        """A version of a subject, by default the latest. Raises `SchemaFailed` if there is none."""
        key = (subject, "latest" if version is None else str(version))
        asked_at_s, found = self._versions.get(key)
        if version is None and time.monotonic() - asked_at_s > LATEST_S:
            asked = self._ask_version(key)
            self._versions.put(key, asked)
            return asked[1]
        return found

    def register(
        self, subject: str, schema_type: str, text: str, references: Iterable[tuple[str, str, int]] = ()
    ) -> RegisteredSchema:
        names = [{"name": name, "subject": other, "version": version} for name, other, version in references]
        body: dict[str, Any] = {"schema": text, "schemaType": schema_type, "references": names}
        found = self.calls.call("POST", f"/subjects/{quoted(subject)}/versions", body)
        self._versions.forget((subject, "latest"))
        return self.version(subject, found["version"])

    def _ask_version(self, key: tuple[str, str]) -> tuple[float, RegisteredSchema]:
        subject, version = key
        try:
            found = self.calls.call("GET", f"/subjects/{quoted(subject)}/versions/{version}")
        except SchemaFailed as error:
            if error.code not in _NOT_FOUND:
                raise
            raise SchemaFailed(
                f"{error}: register its schema with `headrace schema register {subject} FILE`, or "
                f"client.schemas.register({subject!r}, …)",
                code=error.code,
            ) from None
        schema_type = found.get("schemaType", "AVRO")
        made = RegisteredSchema(
            found["id"], found.get("guid") or "", found["subject"], found["version"], schema_type, found["schema"]
        )
        return time.monotonic(), made

    def _look_up(self, key: SchemaKey) -> "PayloadCodec":
        path = f"/schemas/guids/{key}" if isinstance(key, UUID) else f"/schemas/ids/{key}"
        try:
            found = self.calls.call("GET", path)
        except SchemaFailed as error:
            if error.code != _SCHEMA_NOT_FOUND:
                raise
            raise SchemaFailed(
                f"the message was written with the schema {key}, which is not in the registry", code=error.code
            ) from None
        return self._made(found.get("schemaType", "AVRO"), found["schema"], found.get("references") or [])

    def _made(self, schema_type: str, text: str, references: list[dict[str, Any]]) -> "PayloadCodec":
        # Only here: the libraries of schemas take longer to load than the rest of the client.
        from headrace.schemas.errors import SchemaFault
        from headrace.schemas.parsed import parse_any
        from headrace.schemas.payload.codecs import codec_of

        texts: dict[str, str] = {}
        self._collect(references, texts, 0)
        try:
            return codec_of(parse_any(schema_type, text, list(texts.items()), is_new=False), allows_any_pattern=True)
        except SchemaFault as error:
            raise SchemaFailed(f"the schema cannot be used: {error}", code=error.code) from None

    def _collect(self, references: list[dict[str, Any]], found: dict[str, str], depth: int) -> None:
        """Names and texts of schemas that one refers to, each before its users."""
        for each in references:
            if each["name"] in found:
                continue
            if len(found) >= _MAX_REFERENCES:
                raise SchemaFailed(f"the schema refers to more than {_MAX_REFERENCES} others", code=42201)
            if depth > _MAX_REFERENCE_DEPTH:
                text = f"the references lead to others more than {_MAX_REFERENCE_DEPTH} times, or in a circle"
                raise SchemaFailed(text, code=42201)
            path = f"/subjects/{quoted(each['subject'])}/versions/{each['version']}?deleted=true"
            other = self.calls.call("GET", path)
            self._collect(other.get("references") or [], found, depth + 1)
            found[each["name"]] = other["schema"]
