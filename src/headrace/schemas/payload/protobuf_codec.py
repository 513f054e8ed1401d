"""Messages of a .proto file as bytes, by `google.protobuf`. Pure."""

from typing import Any

from google.protobuf.message import DecodeError, EncodeError, Message

from headrace.schemas.payload.errors import InvalidPayload
from headrace.schemas.payload.frames import FIRST_MESSAGE, MessageIndexes
from headrace.schemas.payload.protobuf_pool import MessageClasses
from headrace.schemas.payload.protobuf_values import FieldLimit, fill, value_of
from headrace.schemas.protobuf.resolution import ProtobufSchema


class ProtobufCodec:
    """Encodes and decodes the messages of one file. `google.protobuf` itself limits nesting to 100."""

    type = "PROTOBUF"

    def __init__(self, schema: ProtobufSchema) -> None:
        self._classes = MessageClasses(schema)

    def place(self, name: str | None) -> MessageIndexes:
        return FIRST_MESSAGE if name is None else self._classes.place(name)

    def check(self, body: bytes, indexes: MessageIndexes = FIRST_MESSAGE) -> None:
        self.message(body, indexes)

    def message(self, body: bytes, indexes: MessageIndexes = FIRST_MESSAGE) -> Message:
        """The message itself."""
        made: Message = self._classes.at(indexes)()
        try:
            made.ParseFromString(body)
        except (DecodeError, RecursionError, UnicodeDecodeError) as error:
            name = made.DESCRIPTOR.full_name
            raise InvalidPayload(f"the bytes are not a message {name}: {str(error)[:200]}") from None
        _check_required(made)
        return made

    def decode(self, body: bytes, indexes: MessageIndexes = FIRST_MESSAGE) -> Any:
        return value_of(self.message(body, indexes), FieldLimit(len(body)))

    def encode(self, value: Any, indexes: MessageIndexes = FIRST_MESSAGE) -> bytes:
        made: Message = self._classes.at(indexes)()
        try:
            fill(made, value)
            _check_required(made)
            return bytes(made.SerializeToString())
        except (EncodeError, RecursionError) as error:
            raise InvalidPayload(f"the value cannot be written: {str(error)[:200]}") from None


def _check_required(message: Message) -> None:
    if not message.IsInitialized():
        missing = message.FindInitializationErrors()
        raise InvalidPayload("the field is required", str(missing[0]) if missing else "")
