"""`headrace.aio.Client`: the SDK for asyncio. See `headrace.client.aio`."""

from headrace.client.aio import Client, Stream, Transaction
from headrace.client.aio_topics import Topics
from headrace.client.queue.aio import Queue, QueueMessage, Redrive
from headrace.client.schemas.aio import Schemas

__all__ = ["Client", "Queue", "QueueMessage", "Redrive", "Schemas", "Stream", "Topics", "Transaction"]
