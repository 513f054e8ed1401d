"""Client quotas as the cluster stores them: entities with a limit for each kind of use."""

from collections.abc import Mapping
from enum import StrEnum

USER = "user"
CLIENT_ID = "client-id"
CLIENT_ID_PREFIX = "client-id-prefix"
"""Not in Kafka: every client whose id begins with the name; they share one quota."""
IP = "ip"
ENTITY_TYPES = (USER, CLIENT_ID, CLIENT_ID_PREFIX, IP)
MAX_NAME_CHARS = 1024
"""Of the name of an entity."""


class QuotaKind(StrEnum):
    """What a quota limits; the value is Kafka's name of the quota."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    MUTATION = "controller_mutation_rate"
    CONNECTION = "connection_creation_rate"


QuotaEntity = tuple[tuple[str, str | None], ...]
"""Pairs of an entity type and a name, in the order of the types; the name None is the default of its type."""

QuotaValues = Mapping[str, float]
"""Limits by the name of the quota."""

ClusterQuotas = Mapping[QuotaEntity, QuotaValues]


def entity_text(entity: QuotaEntity) -> str:
    """The entity as people read it: `user alice, client-id <default>`."""
    return ", ".join(f"{kind} {'<default>' if name is None else name}" for kind, name in entity)
