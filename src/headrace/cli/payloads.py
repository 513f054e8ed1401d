"""Keys and values by their schemas: how `produce --schema` encodes them, and `consume --decode` shows them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from headrace.cli.errors import CommandFailed
from headrace.cli.http_api import discovered_url
from headrace.cli.lines import Header
from headrace.client.errors import ClientError, InvalidMessage, SchemaFailed
from headrace.client.schemas.cache import SchemaCache
from headrace.client.schemas.registry import RegistryCalls
from headrace.client.schemas.serializer import Serializer
from headrace.config.client_connection import resolve_credentials
from headrace.schemas.payload.errors import InvalidPayload, NotFramed
from headrace.schemas.payload.frames import FramedPayload, SchemaKey, frame_of

_PATIENCE_S = 10.0


def schema_cache(bootstrap: str) -> SchemaCache:
    """The schemas of the brokers, at `HEADRACE_HTTP` or at the address that a broker says."""

    def find() -> list[str]:
        given = [each.strip() for each in os.environ.get("HEADRACE_HTTP", "").split(",") if each.strip()]
        return given or [discovered_url(bootstrap)]

    return SchemaCache(RegistryCalls(find, resolve_credentials(), _PATIENCE_S))


class LineEncoder:
    """Encodes the values of messages, which are JSON, by the schema of a subject."""

    def __init__(self, bootstrap: str, subject: str, message: str | None) -> None:
        self._serializer = Serializer(schema_cache(bootstrap), subject, message=message)

    def encode(self, text: bytes | None) -> bytes | None:
        """The bytes of a value; None for a message without one. Raises `CommandFailed`."""
        if text is None:
            return None
        try:
            return self._serializer.encode(msgspec.json.decode(text))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise CommandFailed(f"not JSON: {error}") from None
        except ClientError as error:
            raise CommandFailed(str(error)) from None


@dataclass(frozen=True, slots=True)
class ShownValue:
    """A key or value as it is shown: its JSON, or the stored bytes where it has no schema or does not fit it."""

    data: bytes | None
    schema: SchemaKey | None = None
    error: str | None = None


class LineDecoder:
    """Decodes keys and values by the schemas that they name."""

    def __init__(self, bootstrap: str) -> None:
        self._schemas = schema_cache(bootstrap)

    def value(self, data: bytes | None, headers: Sequence[Header]) -> ShownValue:
        """A value; one that cannot be decoded has the reason. Raises `CommandFailed` if no broker answers."""
        try:
            frame = None if data is None else frame_of(data, headers)
        except NotFramed:
            return ShownValue(data)
        if frame is None:
            return ShownValue(None)
        try:
            return ShownValue(self._json(frame), frame.schema)
        except (InvalidPayload, InvalidMessage, SchemaFailed) as error:
            return ShownValue(data, frame.schema, str(error))
        except ClientError as error:
            raise CommandFailed(str(error)) from None

    def key(self, data: bytes | None, headers: Sequence[Header]) -> bytes | None:
        """A key. One that cannot be decoded is shown as it is: bytes of other formats begin with a zero, too."""
        try:
            return None if data is None else self._json(frame_of(data, headers, is_key=True))
        except (InvalidPayload, SchemaFailed):
            return data
        except ClientError as error:
            raise CommandFailed(str(error)) from None

    def _json(self, frame: FramedPayload) -> bytes:
        codec = self._schemas.codec(frame.schema)
        indexes, body = frame.split(codec.type)
        return msgspec.json.encode(codec.decode(body, indexes))
