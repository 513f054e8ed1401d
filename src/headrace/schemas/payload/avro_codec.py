"""Values of an Avro schema as bytes, by `fastavro`. Pure."""

import io
import json
from typing import Any

import fastavro

from headrace.schemas.avro.canonical import canonical_avro
from headrace.schemas.avro.types import AvroSchema
from headrace.schemas.errors import InvalidSchema
from headrace.schemas.payload.avro_bytes import byte_check
from headrace.schemas.payload.avro_values import value_fit
from headrace.schemas.payload.errors import InvalidPayload
from headrace.schemas.payload.frames import FIRST_MESSAGE, MessageIndexes


class AvroCodec:
    """Encodes and decodes values of one schema, without a header.

    Records are dicts; logical types are Python's date, time, datetime, Decimal and UUID.
    """

    type = "AVRO"

    def __init__(self, schema: AvroSchema, reader: AvroSchema | None = None) -> None:
        """`reader`, if given, is the schema that values are decoded to, by Avro's schema resolution."""
        self._writer = _parsed(schema)
        self._reader = None if reader is None else _parsed(reader)
        self._check = byte_check(schema)
        self._fit = value_fit(schema.root)

    def place(self, name: str | None) -> MessageIndexes:
        return FIRST_MESSAGE

    def check(self, body: bytes, indexes: MessageIndexes = FIRST_MESSAGE) -> None:
        self._check(body)

    def decode(self, body: bytes, indexes: MessageIndexes = FIRST_MESSAGE) -> Any:
        self._check(body)
        try:
            return fastavro.schemaless_reader(io.BytesIO(body), self._writer, self._reader)
        except Exception as error:
            # A value that the reader's schema or Python's types have no place for, such as the year 10000.
            raise InvalidPayload(f"the value cannot be read: {str(error)[:300] or type(error).__name__}") from error

    def encode(self, value: Any, indexes: MessageIndexes = FIRST_MESSAGE) -> bytes:
        out = io.BytesIO()
        try:
            fastavro.schemaless_writer(out, self._writer, self._fit(value))
        except InvalidPayload:
            raise
        except RecursionError:
            raise InvalidPayload("the value is nested too deep") from None
        except Exception as error:
            raise InvalidPayload(f"the value cannot be written: {str(error)[:300]}") from error
        return out.getvalue()


def _parsed(schema: AvroSchema) -> Any:
    """The schema for `fastavro`, with the types of other schemas written out in it."""
    try:
        return fastavro.parse_schema(json.loads(canonical_avro(AvroSchema(schema.root))))
    except Exception as error:
        raise InvalidSchema(f"messages of this schema cannot be read: {str(error)[:300]}") from error
