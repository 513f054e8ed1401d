"""Client quotas as the cluster stores them: entities with a limit for each kind of use."""

from collections.abc import Mapping
from enum import StrEnum

USER = "user"
CLIENT_ID = "client-id"
CLIENT_ID_PREFIX = "client-id-prefix"
"""Not in Kafka: every client whose id begins with the name; they share one quota."""
IP = "ip"
QUEUE = "queue"
"""Not in Kafka: a queue, for requests over SQS."""
ACCESS_KEY = "access-key"
"""Not in Kafka: the access key that requests over SQS are signed with."""
TOPIC_PREFIX = "topic-prefix"
"""Not in Kafka: all topics and queues whose names begin with the name, together."""
ENTITY_TYPES = (USER, CLIENT_ID, CLIENT_ID_PREFIX, IP, QUEUE, ACCESS_KEY, TOPIC_PREFIX)
MAX_NAME_CHARS = 1024
"""Of the name of an entity."""


class QuotaKind(StrEnum):
    """What a quota limits; the value is Kafka's name of the quota."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    MUTATION = "controller_mutation_rate"
    CONNECTION = "connection_creation_rate"
    SQS_REQUESTS = "sqs_request_rate"
    """Not in Kafka: requests over SQS each second."""
    SQS_MESSAGES = "sqs_message_rate"
    """Not in Kafka: messages sent over SQS each second."""
    STORED = "stored_bytes"
    """Not in Kafka: bytes in the logs of leaders, in the whole cluster."""


QuotaEntity = tuple[tuple[str, str | None], ...]
"""Pairs of an entity type and a name, in the order of the types; the name None is the default of its type."""

QuotaValues = Mapping[str, float]
"""Limits by the name of the quota."""

ClusterQuotas = Mapping[QuotaEntity, QuotaValues]


def entity_text(entity: QuotaEntity) -> str:
    """The entity as people read it: `user alice, client-id <default>`."""
    return ", ".join(f"{kind} {'<default>' if name is None else name}" for kind, name in entity)
