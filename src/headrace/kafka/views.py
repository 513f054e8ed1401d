"""Brokers and partitions of the cluster image as answers show them, for Metadata, DescribeCluster and similar APIs.

This broker is shown at the address at which the client reached it; the others at their address of the same listener.
"""

from collections.abc import Iterator
from typing import Any

from kio.schema.errors import ErrorCode

from headrace.cluster.topics import check_name
from headrace.kafka.dispatch import Context
from headrace.kafka.errors import error_code
from headrace.model.errors import HeadraceError
from headrace.model.ids import NO_LEADER
from headrace.model.image import BrokerInfo, ClusterImage, Endpoint, PartitionState


def brokers(ctx: Context, image: ClusterImage, *, are_all: bool = False) -> Iterator[tuple[BrokerInfo, Endpoint]]:
    """Yield the live brokers, or all of the cluster, each with its endpoint for this client."""
    own_id = ctx.services.metadata.broker_id
    for broker in [image.brokers[each] for each in sorted(image.brokers)] if are_all else image.alive_brokers():
        endpoint = ctx.peer.local_endpoint if broker.broker_id == own_id else endpoint_for(ctx, broker)
        if endpoint is not None:
            yield broker, endpoint


def endpoint_for(ctx: Context, broker: BrokerInfo) -> Endpoint | None:
    """Return the address of another broker for this client: that of the listener the client uses.

    None if that broker has no listener of this name: the client could not connect to any other.
    """
    if ctx.peer.listener and broker.listeners:
        return broker.listeners.get(ctx.peer.listener)
    return broker.endpoint


def reachable_brokers(ctx: Context, image: ClusterImage) -> Iterator[tuple[BrokerInfo, Endpoint]]:
    """Yield the brokers to list for a client: those that are alive and this one; all if none is alive.

    A client forgets brokers that are not listed. An empty list, while all brokers acquire new leases, would leave it
    without any: librdkafka with `metadata.recovery.strategy=none` then hangs for ever. Brokers whose lease has just
    ended are listed, too: `departures.py` says why.
    """
    own_id = ctx.services.metadata.broker_id
    own = image.brokers.get(own_id) or BrokerInfo(own_id, ctx.peer.local_endpoint)
    departed = ctx.services.departures.recent()
    is_any_alive = any(broker.is_alive for broker in image.brokers.values())
    by_id = {
        broker_id: broker
        for broker_id, broker in image.brokers.items()
        if broker.is_alive or broker_id in departed or not is_any_alive
    }
    by_id[own_id] = own
    for broker_id in sorted(by_id):
        endpoint = ctx.peer.local_endpoint if broker_id == own_id else endpoint_for(ctx, by_id[broker_id])
        if endpoint is not None:
            yield by_id[broker_id], endpoint


def partition_fields(image: ClusterImage, index: int, state: PartitionState) -> dict[str, Any]:
    """Return the answer's fields of one partition."""
    has_leader = image.is_alive(state.leader)
    return {
        "error_code": ErrorCode.none if has_leader else ErrorCode.leader_not_available,
        "partition_index": index,
        "leader_id": state.leader if has_leader else NO_LEADER,
        "leader_epoch": state.leader_epoch,
        "replica_nodes": state.replicas,
        "isr_nodes": state.isr,
        "offline_replicas": tuple(replica for replica in state.replicas if not image.is_alive(replica)),
    }


def why_unknown(name: str) -> ErrorCode:
    """Return the error for a topic name that was not found: the topic does not exist, or the name is invalid."""
    try:
        check_name(name)
    except HeadraceError as error:
        return error_code(error)
    return ErrorCode.unknown_topic_or_partition
