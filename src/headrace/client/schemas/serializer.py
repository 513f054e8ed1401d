"""Values of one subject as the bytes of messages, and back."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from headrace.client.errors import InvalidMessage, SchemaFailed
from headrace.client.keywords import checks_keywords
from headrace.client.message import Header
from headrace.client.outgoing import Outgoing, PayloadEncoder, pairs
from headrace.client.schemas.cache import RegisteredSchema, SchemaCache
from headrace.client.schemas.derived import derived_schema, is_typed
from headrace.client.schemas.reader import ValueReader
from headrace.client.schemas.values import as_plain, is_protobuf
from headrace.schemas.payload.errors import InvalidPayload
from headrace.schemas.payload.frames import (
    FIRST_MESSAGE,
    KEY_HEADER,
    VALUE_HEADER,
    MessageIndexes,
    header_value,
    prefix,
)

if TYPE_CHECKING:
    from headrace.schemas.payload.codecs import PayloadCodec

SchemaFormat = Literal["avro", "json-schema"]
_SUBJECT_NOT_FOUND = 40401


@checks_keywords
class Serializer:
    """Encodes values by the schema of a subject, and decodes them by the schema that they name. Thread-safe.

    ```python
    client.schemas.register("orders-value", '{"type": "record", "name": "Order", "fields": []}')
    orders = client.schemas.serializer("orders-value", in_header=True)
    client.publish("orders", {}, schema=orders)
    ```

    `Client.schemas.serializer` makes it.
    """

    def __init__(
        self,
        schemas: SchemaCache,
        subject: str,
        *,
        version: int | None = None,
        message: str | None = None,
        format: SchemaFormat = "avro",
        in_header: bool = False,
    ) -> None:
        self._schemas = schemas
        self.subject = subject
        self._version = version
        self._message = message
        self._format = format
        self._in_header = in_header
        self._reader = ValueReader(schemas, Any)

    def encode(self, value: Any, headers: list[Header] | None = None, *, is_key: bool = False) -> bytes | None:
        """The bytes of a value; None for None. If the schema is named in a header, it is added to `headers`.

        `is_key` says that it is the key of a message, which has a header of its own. Raises `InvalidMessage` for a
        value that does not fit, and `SchemaFailed` if there is no schema.
        """
        if value is None:
            return None
        schema = self._schema_for(value)
        codec = self._schemas.codec(schema.id)
        try:
            place = self._place(codec, value)
            body = codec.encode(as_plain(value), place or FIRST_MESSAGE)
        except InvalidPayload as error:
            raise InvalidMessage(
                f"the value does not fit version {schema.version} of {self.subject}: {error}"
            ) from None
        if not self._in_header:
            return prefix(schema.id, place) + body
        if headers is None:
            raise ValueError("the schema is named in a header: give encode a list of headers to add it to")
        headers.append((KEY_HEADER if is_key else VALUE_HEADER, header_value(UUID(schema.guid), place)))
        return body

    def decode(self, data: bytes | None, headers: Iterable[Header] = (), *, is_key: bool = False) -> Any:
        """The value of bytes, by the schema that they or the headers name. Raises `InvalidMessage`."""
        return self._reader.read(data, headers, is_key=is_key)

    def _schema_for(self, value: Any) -> RegisteredSchema:
        """The schema of the subject. If the subject has none yet, that of the value's type is registered."""
        try:
            return self._schemas.version(self.subject, self._version)
        except SchemaFailed as error:
            is_chosen = self._version is not None or self._message is not None
            if error.code != _SUBJECT_NOT_FOUND or is_chosen or not is_typed(value):
                raise
        return self._schemas.register(self.subject, *derived_schema(type(value), self._format))

    def _place(self, codec: "PayloadCodec", value: Any) -> MessageIndexes | None:
        """The place of the message in its file; None for other types than Protobuf."""
        if codec.type != "PROTOBUF":
            if is_protobuf(value):
                raise InvalidPayload(f"the schema is of the type {codec.type}, and the value a message of Protobuf")
            return None
        name = value.DESCRIPTOR.full_name if is_protobuf(value) else self._message
        return codec.place(name)


def framed(outgoing: Outgoing, schemas: SchemaCache) -> Outgoing:
    """The message with its payload and key encoded by their schemas; without schemas, as it is."""
    if outgoing.schema is None and outgoing.key_schema is None:
        return outgoing
    headers, payload, key = pairs(outgoing.headers), outgoing.payload, outgoing.key
    if outgoing.schema is not None:
        payload = _encoder(outgoing.schema, schemas).encode(payload, headers)
    if outgoing.key_schema is not None:
        key = _encoder(outgoing.key_schema, schemas).encode(key, headers, is_key=True)
    return replace(outgoing, payload=payload, key=key, headers=headers, schema=None, key_schema=None)


def _encoder(chosen: str | PayloadEncoder, schemas: SchemaCache) -> PayloadEncoder:
    return Serializer(schemas, chosen) if isinstance(chosen, str) else chosen
