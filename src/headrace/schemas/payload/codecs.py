"""One interface over the codecs of the three types. The libraries are imported with the first codec of a type. Pure."""

from typing import Any, Protocol

from headrace.schemas.errors import InvalidSchema
from headrace.schemas.parsed import ParsedSchema
from headrace.schemas.payload.frames import FIRST_MESSAGE, MessageIndexes


class PayloadCodec(Protocol):
    """Encodes, decodes and checks values of one schema. Every method raises `InvalidPayload`.

    `indexes` is the place of the message in its file, for Protobuf.
    """

    type: str

    def place(self, name: str | None) -> MessageIndexes:
        """The place of a message in its file by its name, for Protobuf; without a name, of the first."""
        ...

    def check(self, body: bytes, indexes: MessageIndexes = FIRST_MESSAGE) -> None:
        """Raise unless the bytes are a value of the schema."""
        ...

    def decode(self, body: bytes, indexes: MessageIndexes = FIRST_MESSAGE) -> Any:
        """The value, of dicts, lists and scalars."""
        ...

    def encode(self, value: Any, indexes: MessageIndexes = FIRST_MESSAGE) -> bytes:
        """The bytes of a value: as `decode` returns it, or as JSON has it."""
        ...


def codec_of(
    schema: ParsedSchema, reader: ParsedSchema | None = None, *, allows_any_pattern: bool = False
) -> PayloadCodec:
    """A codec for a parsed schema. Raises `InvalidSchema` where the libraries do not support it.

    `reader` is the schema that Avro values are decoded to; the other types need none. `allows_any_pattern` lets the
    patterns of a JSON Schema that RE2 does not support be run by `re`, which may take forever: never in a broker.
    """
    match schema.type:
        case "AVRO":
            from headrace.schemas.payload.avro_codec import AvroCodec

            if reader is not None and reader.type != "AVRO":
                raise InvalidSchema(f"values of an Avro schema cannot be read with one of the type {reader.type}")
            return AvroCodec(schema.content, None if reader is None else reader.content)
        case "JSON":
            from headrace.schemas.payload.json_codec import JsonSchemaCodec

            return JsonSchemaCodec(schema.content, allows_any_pattern=allows_any_pattern)
    from headrace.schemas.payload.protobuf_codec import ProtobufCodec

    return ProtobufCodec(schema.content)
