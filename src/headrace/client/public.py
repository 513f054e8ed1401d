"""The names that `headrace` exports from the SDK. Parts of the SDK are imported without loading all of it."""

from headrace.client.backoff import Backoff
from headrace.client.client import Client
from headrace.client.consume.group import Consumption
from headrace.client.consume.subscription import Subscription
from headrace.client.dedup import Claims, Deduplicator
from headrace.client.errors import (
    BacklogFull,
    CallFailed,
    ClientError,
    ConsumeFailed,
    DeliveryFailed,
    Fenced,
    HandlerFailed,
    InvalidMessage,
    LeaseLost,
    NoSuchQueue,
    NoSuchTopic,
    NotAuthenticated,
    QueueFailed,
    Reject,
    Retry,
    SchemaFailed,
    TopicFailed,
    TransactionFailed,
    Unreachable,
)
from headrace.client.health import Health, WorkerHealth
from headrace.client.kafka.publisher import Published
from headrace.client.message import Message
from headrace.client.outgoing import Outgoing
from headrace.client.partitioners import RoundRobin, Sticky, by_key
from headrace.client.queue.calls import TaskCall
from headrace.client.queue.message import NewMessage, PeekedMessage, QueueMessage, SentMessage
from headrace.client.queue.queue import Queue
from headrace.client.queue.redrive import Redrive
from headrace.client.schedules import ScheduleDescription, Schedules
from headrace.client.schemas.cache import RegisteredSchema
from headrace.client.schemas.schemas import Schemas
from headrace.client.schemas.serializer import Serializer
from headrace.client.topics import PartitionDescription, TopicDescription, Topics

__all__ = [
    "BacklogFull",
    "Backoff",
    "CallFailed",
    "Claims",
    "Client",
    "ClientError",
    "ConsumeFailed",
    "Consumption",
    "Deduplicator",
    "DeliveryFailed",
    "Fenced",
    "HandlerFailed",
    "Health",
    "InvalidMessage",
    "LeaseLost",
    "Message",
    "NewMessage",
    "NoSuchQueue",
    "NoSuchTopic",
    "NotAuthenticated",
    "Outgoing",
    "PartitionDescription",
    "PeekedMessage",
    "Published",
    "Queue",
    "QueueFailed",
    "QueueMessage",
    "Redrive",
    "RegisteredSchema",
    "Reject",
    "Retry",
    "RoundRobin",
    "ScheduleDescription",
    "Schedules",
    "SchemaFailed",
    "Schemas",
    "SentMessage",
    "Serializer",
    "Sticky",
    "Subscription",
    "TaskCall",
    "TopicDescription",
    "TopicFailed",
    "Topics",
    "TransactionFailed",
    "Unreachable",
    "WorkerHealth",
    "by_key",
]
