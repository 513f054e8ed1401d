"""`client.schemas`: register schemas, and make serializers."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from headrace.client.keywords import checks_keywords
from headrace.client.message import Message
from headrace.client.schemas.cache import RegisteredSchema, SchemaCache
from headrace.client.schemas.derived import derived_schema
from headrace.client.schemas.reader import ValueReader
from headrace.client.schemas.serializer import SchemaFormat, Serializer

Reference = tuple[str, str, int]
"""The name by which a schema refers to another, and the subject and version of that."""


@checks_keywords
class Schemas:
    """The schemas of the brokers' registry. `client.schemas` is one; it needs no address of its own.

    ```python
    from dataclasses import dataclass


    @dataclass
    class Order:
        id: int
        item: str = "tea"


    schema = client.schemas.register("orders-value", Order)
    print(schema.version, client.schemas.latest("orders-value").text)
    ```
    """

    def __init__(self, schemas: SchemaCache) -> None:
        self._schemas = schemas

    def register(
        self,
        subject: str,
        schema: Any,
        *,
        format: str = "avro",
        references: Iterable[Reference] = (),
    ) -> RegisteredSchema:
        """Register a schema as the next version of a subject; one that it has already is not registered again.

        `schema` is a text, the path of a file, or a type, from which it is derived. `format` is `"avro"`,
        `"json-schema"` or `"protobuf"`. Raises `SchemaFailed` if it is not valid, or breaks earlier versions.
        """
        return self._schemas.register(subject, *schema_text(schema, format), references)

    def latest(self, subject: str) -> RegisteredSchema:
        """The latest version of a subject, not older than a minute. Raises `SchemaFailed` if there is none."""
        return self._schemas.version(subject)

    def serializer(
        self,
        subject: str,
        *,
        version: int | None = None,
        message: str | None = None,
        format: SchemaFormat = "avro",
        in_header: bool = False,
    ) -> Serializer:
        """A serializer for `Client.publish(schema=…)`, where the name of the subject alone does not say enough.

        - `version`: of the subject; by default the latest.
        - `message`: of a .proto file with several, by its name; by default the first.
        - `format`: of the schema that is derived from the type of the first value if the subject has none: `"avro"` or
          `"json-schema"`.
        - `in_header`: the GUID of the schema is in the header `__value_schema_id` (the wire format v1); by default its
          id is before the value (v0).
        """
        return Serializer(self._schemas, subject, version=version, message=message, format=format, in_header=in_header)

    def decode(self, message: Message, type: Any = dict) -> Any:
        """The value of a message by its schema, as a type. Raises `InvalidMessage`."""
        return ValueReader(self._schemas, type).read(message.payload, message.headers)

    def decode_key(self, message: Message, type: Any = dict) -> Any:
        """The key of a message by its schema, as a type; None if it has none. Raises `InvalidMessage`."""
        return ValueReader(self._schemas, type).read(message.key, message.headers, is_key=True)


def schema_text(schema: Any, form: str) -> tuple[str, str]:
    """The type of a schema in the registry, and its text."""
    if isinstance(schema, Path):
        schema = schema.read_text()
    if not isinstance(schema, str):
        return derived_schema(schema, form)
    known = {"avro": "AVRO", "json-schema": "JSON", "protobuf": "PROTOBUF"}
    if form not in known:
        raise ValueError(f"format must be one of {', '.join(known)}, not {form!r}")
    return known[form], schema
