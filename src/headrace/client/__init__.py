"""The SDK: publish, subscribe, consume and acknowledge in the words of the field, on librdkafka.

A tree of its own: it talks to any Kafka broker over the wire and knows nothing of ours.
"""

from headrace.client.backoff import Backoff
from headrace.client.client import Client
from headrace.client.consumption import Consumption
from headrace.client.dedup import Claims, Deduplicator
from headrace.client.errors import (
    ClientError,
    ConsumeFailed,
    DeliveryFailed,
    Fenced,
    HandlerFailed,
    Reject,
    TransactionFailed,
    Unreachable,
)
from headrace.client.message import Message
from headrace.client.outgoing import Outgoing
from headrace.client.partitioners import RoundRobin, Sticky, by_key
from headrace.client.publisher import Published
from headrace.client.subscription import Subscription

__all__ = [
    "Backoff",
    "Claims",
    "Client",
    "ClientError",
    "ConsumeFailed",
    "Consumption",
    "Deduplicator",
    "DeliveryFailed",
    "Fenced",
    "HandlerFailed",
    "Message",
    "Outgoing",
    "Published",
    "Reject",
    "RoundRobin",
    "Sticky",
    "Subscription",
    "TransactionFailed",
    "Unreachable",
    "by_key",
]
