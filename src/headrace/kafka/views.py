"""How brokers and partitions of the cluster image look on the wire, shared by Metadata, DescribeCluster and their kin.

This broker is shown at the address through which the asking client reached it; the others at the one in the image.
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
    """The brokers that are alive, or all of the cluster, each with the endpoint to tell this client."""
    own_id = ctx.services.metadata.broker_id
    for broker in [image.brokers[each] for each in sorted(image.brokers)] if are_all else image.alive_brokers():
        yield broker, ctx.peer.local_endpoint if broker.broker_id == own_id else broker.endpoint


def partition_fields(image: ClusterImage, index: int, state: PartitionState) -> dict[str, Any]:
    """What is told of one partition, by field name."""
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
    """Why a topic asked for by name is not there: it does not exist, or it never could."""
    try:
        check_name(name)
    except HeadraceError as error:
        return error_code(error)
    return ErrorCode.unknown_topic_or_partition
