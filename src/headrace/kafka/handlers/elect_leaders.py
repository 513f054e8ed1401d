"""ElectLeaders (43), versions 0-2: elect the preferred leader (the first replica) of partitions.

- PREFERRED (the only type in v0): the first replica is elected, if it is in sync, up and not being drained; else
  PREFERRED_LEADER_NOT_AVAILABLE. If it leads already: ELECTION_NOT_NEEDED.
- UNCLEAN: a replica that is not in sync is never elected, since acknowledged records would be lost. If there is a
  leader: ELECTION_NOT_NEEDED; if there is none: ELIGIBLE_LEADERS_NOT_AVAILABLE, with the brokers to start.
- Null stands for all partitions; then those that need no election are left out of the answer.
- Permissions: ALTER on the cluster, else CLUSTER_AUTHORIZATION_FAILED for the request (v1 on) and each partition.
- An unknown type is INVALID_REQUEST, an unknown partition UNKNOWN_TOPIC_OR_PARTITION.

Any broker answers. The new leaders are durable when the answer is sent; the request's timeout is ignored.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from types import ModuleType
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.cluster import partition_requests
from headrace.cluster.partition_requests import Outcomes
from headrace.kafka.dispatch import Context, handles
from headrace.kafka.errors import error_code, error_message
from headrace.kafka.permissions import ALTER_CLUSTER, not_authorized
from headrace.model.errors import ElectionNotNeeded, HeadraceError
from headrace.model.ids import PartitionIndex, TopicName, TopicPartition
from headrace.model.image import ClusterImage
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

if TYPE_CHECKING:
    from kio.schema.elect_leaders.v2.request import ElectLeadersRequest, TopicPartitions
    from kio.schema.elect_leaders.v2.response import ElectLeadersResponse, PartitionResult

KEY = 43
PREFERRED, UNCLEAN = 0, 1


@handles(KEY, 0, 2, needs=(ALTER_CLUSTER,))
async def elect_leaders(ctx: Context, request: "ElectLeadersRequest") -> "ElectLeadersResponse":
    metadata = ctx.services.metadata
    kind = getattr(request, "election_type", PREFERRED)
    if not ctx.allows(ALTER_CLUSTER):
        denied = not_authorized(ALTER_CLUSTER)
        return _answer(ctx, error_code(denied), dict.fromkeys(_asked_for(request.topic_partitions or ()), denied))
    if kind not in (PREFERRED, UNCLEAN):
        return _answer(ctx, ErrorCode.invalid_request, {})
    topics = request.topic_partitions
    asked = dict.fromkeys(_all(metadata.image) if topics is None else _asked_for(topics))
    try:
        if kind == UNCLEAN:
            outcomes = partition_requests.refuse_unclean(metadata.image, asked)
        else:
            outcomes = await partition_requests.elect_preferred(metadata, asked)
    except HeadraceError as failure:
        return _answer(ctx, error_code(failure), {})
    if topics is None:
        outcomes = {each: error for each, error in outcomes.items() if not isinstance(error, ElectionNotNeeded)}
    return _answer(ctx, ErrorCode.none, outcomes)


def _asked_for(topics: "Iterable[TopicPartitions]") -> Iterator[TopicPartition]:
    for topic in topics:
        for index in topic.partitions:
            yield TopicPartition(TopicName(topic.topic), PartitionIndex(index))


def _all(image: ClusterImage) -> Iterable[TopicPartition]:
    for topic in image.topics.values():
        for index in range(len(topic.partitions)):
            yield TopicPartition(topic.name, PartitionIndex(index))


def _answer(ctx: Context, error: ErrorCode, outcomes: Outcomes) -> "ElectLeadersResponse":
    schema = ctx.schema
    return make(
        schema.ElectLeadersResponse,
        throttle_time=NO_THROTTLE,
        error_code=error,
        replica_election_results=tuple(
            make(
                schema.ReplicaElectionResult,
                topic=topic,
                partition_result=tuple(_result(schema, each, outcomes[each]) for each in partitions),
            )
            for topic, partitions in groupby(outcomes, key=lambda partition: partition.topic)
        ),
    )


def _result(schema: ModuleType, partition: TopicPartition, failure: HeadraceError | None) -> "PartitionResult":
    return make(
        schema.PartitionResult,
        partition_id=partition.partition,
        error_code=ErrorCode.none if failure is None else error_code(failure),
        error_message=None if failure is None else error_message(failure),
    )
