"""Reads the values of messages as a type: by the schema that a message names, or as JSON if it names none."""

from collections.abc import Iterable
from typing import Any

from headrace.client.errors import InvalidMessage
from headrace.client.message import Header
from headrace.client.schemas.cache import SchemaCache
from headrace.client.schemas.values import as_type, is_protobuf, of_json
from headrace.schemas.payload.errors import InvalidPayload
from headrace.schemas.payload.frames import KEY_HEADER, VALUE_HEADER, FramedPayload, frame_of

_MAX_MAGIC = 1
"""No text of JSON begins with such a byte."""


class ValueReader:
    """Reads values as one type. Thread-safe."""

    def __init__(self, schemas: SchemaCache, kind: Any) -> None:
        self._schemas = schemas
        self._kind = kind

    def read(self, data: bytes | None, headers: Iterable[Header] = (), *, is_key: bool = False) -> Any:
        """The value; None for a tombstone. Raises `InvalidMessage`; `SchemaFailed` if its schema is not registered."""
        if data is None:
            return None
        try:
            frame = _frame(data, tuple(headers), is_key)
            if frame is not None:
                return self._by_schema(frame)
            return self._message(data) if is_protobuf(self._kind) else of_json(data, self._kind)
        except InvalidPayload as error:
            raise InvalidMessage(str(error)) from None

    def _by_schema(self, frame: FramedPayload) -> Any:
        codec = self._schemas.codec(frame.schema)
        indexes, body = frame.split(codec.type)
        if is_protobuf(self._kind):
            if codec.type != "PROTOBUF":
                raise InvalidPayload(f"the value is of the type {codec.type}, not a message of Protobuf")
            codec.check(body, indexes)
            return self._message(body)
        return as_type(codec.decode(body, indexes), self._kind)

    def _message(self, body: bytes) -> Any:
        try:
            return self._kind.FromString(body)
        except Exception as error:
            # `DecodeError` of a library that is not imported here.
            raise InvalidPayload(f"the value is no {self._kind.__name__}: {error}") from None


def _frame(data: bytes, headers: tuple[Header, ...], is_key: bool) -> FramedPayload | None:
    """The frame of a value; None if it has none, and is JSON or else not readable."""
    own = KEY_HEADER if is_key else VALUE_HEADER
    has_header = any(name == own for name, _ in headers)
    if not has_header and (not data or data[0] > _MAX_MAGIC):
        return None
    return frame_of(data, headers, is_key=is_key)
