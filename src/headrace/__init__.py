"""A durable message queue in Python that speaks the Kafka protocol. `headrace.Client` is its SDK (`docs/sdk.md`)."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.client.public import (
        BacklogFull,
        Backoff,
        CallFailed,
        Claims,
        Client,
        ClientError,
        ConsumeFailed,
        Deduplicator,
        DeliveryFailed,
        Fenced,
        HandlerFailed,
        Health,
        InvalidMessage,
        LeaseLost,
        Message,
        NewMessage,
        NoSuchQueue,
        NoSuchTopic,
        NotAuthenticated,
        Outgoing,
        PeekedMessage,
        Published,
        Queue,
        QueueFailed,
        QueueMessage,
        Redrive,
        RegisteredSchema,
        Reject,
        Retry,
        RoundRobin,
        ScheduleDescription,
        Schedules,
        SchemaFailed,
        Schemas,
        SentMessage,
        Serializer,
        Sticky,
        TaskCall,
        TopicDescription,
        TopicFailed,
        TransactionFailed,
        Unreachable,
        by_key,
    )

__all__ = [
    "BacklogFull",
    "Backoff",
    "CallFailed",
    "Claims",
    "Client",
    "ClientError",
    "ConsumeFailed",
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
    "TaskCall",
    "TopicDescription",
    "TopicFailed",
    "TransactionFailed",
    "Unreachable",
    "by_key",
]


__version__: str


def __getattr__(name: str) -> object:
    if name == "__version__":
        from headrace.version import version

        return version()
    # The broker and its commands import this package too, and must not wait for the client library.
    if name in __all__:
        from headrace.client import public

        return getattr(public, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
