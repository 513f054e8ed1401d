"""`headrace.aio.Client`: the SDK for asyncio. See `headrace.client.aio`."""

from headrace.client.aio import Client, Stream, Transaction
from headrace.client.aio_schedules import Schedules
from headrace.client.aio_topics import Topics
from headrace.client.queue.aio import Queue
from headrace.client.queue.aio_message import QueueMessage
from headrace.client.queue.aio_tasks import Redrive, TaskCall
from headrace.client.schemas.aio import Schemas

__all__ = [
    "Client",
    "Queue",
    "QueueMessage",
    "Redrive",
    "Schedules",
    "Schemas",
    "Stream",
    "TaskCall",
    "Topics",
    "Transaction",
]
