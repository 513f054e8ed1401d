"""`client.schemas` of the client for asyncio."""

from collections.abc import Iterable
from typing import Any

from headrace.client.keywords import checks_keywords
from headrace.client.message import Message
from headrace.client.schemas.cache import RegisteredSchema
from headrace.client.schemas.schemas import Reference
from headrace.client.schemas.schemas import Schemas as SyncSchemas
from headrace.client.schemas.serializer import SchemaFormat, Serializer
from headrace.client.threads import DaemonThreads, result_of


@checks_keywords
class Schemas:
    """The schemas of the brokers' registry, for asyncio: the methods of `headrace.Schemas`, awaited.

    ```python
    from headrace.aio import Client

    async with Client("localhost:9092") as client:
        await client.schemas.register("orders-value", '{"type": "record", "name": "Order", "fields": []}')
        print((await client.schemas.latest("orders-value")).version)
    ```
    """

    def __init__(self, schemas: SyncSchemas, threads: DaemonThreads) -> None:
        self._schemas = schemas
        self._threads = threads

    async def register(
        self, subject: str, schema: Any, *, format: str = "avro", references: Iterable[Reference] = ()
    ) -> RegisteredSchema:
        """Register a schema as the next version of a subject, see `headrace.Schemas.register`."""
        register = self._schemas.register
        return await result_of(self._threads.submit(register, subject, schema, format=format, references=references))

    async def latest(self, subject: str) -> RegisteredSchema:
        """The latest version of a subject, not older than a minute. Raises `SchemaFailed` if there is none."""
        return await result_of(self._threads.submit(self._schemas.latest, subject))

    def serializer(
        self,
        subject: str,
        *,
        version: int | None = None,
        message: str | None = None,
        format: SchemaFormat = "avro",
        in_header: bool = False,
    ) -> Serializer:
        """A serializer for `Client.publish(schema=…)`, see `headrace.Schemas.serializer`."""
        return self._schemas.serializer(subject, version=version, message=message, format=format, in_header=in_header)

    async def decode(self, message: Message, type: Any = dict) -> Any:
        """The value of a message by its schema, as a type. Raises `InvalidMessage`."""
        return await result_of(self._threads.submit(self._schemas.decode, message, type))

    async def decode_key(self, message: Message, type: Any = dict) -> Any:
        """The key of a message by its schema, as a type; None if it has none. Raises `InvalidMessage`."""
        return await result_of(self._threads.submit(self._schemas.decode_key, message, type))
