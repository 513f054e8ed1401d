"""The current leader in error answers (KIP-951), so that a client can retry there without a metadata refresh."""

from collections.abc import Iterable

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Context
from headrace.kafka.views import endpoint_for
from headrace.model.ids import NO_LEADER, BrokerId, TopicName
from headrace.protocol.fast import NodeEndpoint, TopicKey

LEADER_ERRORS = frozenset((ErrorCode.not_leader_or_follower.value, ErrorCode.fenced_leader_epoch.value))
"""The error codes that are sent with the current leader."""


def current_leader(ctx: Context, topic: TopicKey | None, index: int) -> tuple[int, int] | None:
    """Return broker id and leader epoch; None if the partition has no live leader or does not exist."""
    image = ctx.services.metadata.image
    if topic is None:
        return None
    found = image.topics.get(TopicName(topic)) if isinstance(topic, str) else image.topic_by_id(topic)
    if found is None or not 0 <= index < len(found.partitions):
        return None
    state = found.partitions[index]
    return (state.leader, state.leader_epoch) if image.is_alive(state.leader) else None


def endpoints_of(ctx: Context, leaders: Iterable[tuple[int, int] | None]) -> list[NodeEndpoint]:
    """Return the endpoints of these leaders, without duplicates."""
    services = ctx.services
    nodes = []
    for broker_id in dict.fromkeys(leader[0] for leader in leaders if leader is not None):
        broker = services.metadata.image.brokers.get(BrokerId(broker_id))
        if broker is None or broker_id == NO_LEADER:
            continue
        is_own = broker_id == services.metadata.broker_id
        endpoint = ctx.peer.local_endpoint if is_own else endpoint_for(ctx, broker)
        if endpoint is None:
            continue
        nodes.append(NodeEndpoint(broker_id, endpoint.host, endpoint.port, broker.rack))
    return nodes
