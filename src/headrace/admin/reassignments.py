"""Reassignments: which partitions are being moved to other brokers, and how far they are; begun and cancelled."""

from types import ModuleType
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from headrace.admin.errors import check_kafka
from headrace.admin.kafka_requests import ask, topic_image
from headrace.admin.routes import ALTER_CLUSTER, DESCRIBE_CLUSTER, AdminReply, AdminRequest, route
from headrace.model.ids import by_topic
from headrace.protocol.codec import make
from headrace.protocol.units import from_ms

_ALTER_REASSIGNMENTS = 45
_TIMEOUT_MS = 30_000
_MAX_PARTITIONS = 1_000


class ReassignmentRow(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    replicas: list[int]
    """All replicas, those that are added and removed included."""
    adding: list[int]
    removing: list[int]
    in_sync: list[int]
    """Of those that are added, the ones that have caught up."""
    lag_messages: int | None
    """How far the slowest of those that are added is behind; null if it is not known."""


@route("GET", "/cluster/reassignments", needs=DESCRIBE_CLUSTER, answer=list[ReassignmentRow])
async def list_reassignments(request: AdminRequest) -> AdminReply:
    """The partitions that are being moved, at most 1,000."""
    image, monitor = request.services.metadata.image, request.services.monitor
    found: list[ReassignmentRow] = []
    for name, topic in sorted(image.topics.items()):
        moving = [(index, each) for index, each in enumerate(topic.partitions) if each.is_reassigning]
        if not moving or len(found) >= _MAX_PARTITIONS:
            continue
        detail = await monitor.topic(name)
        behind = {} if detail is None else {each.partition: dict(each.follower_lag) for each in detail.partitions}
        for index, each in moving:
            lags = [behind.get(index, {}).get(broker) for broker in each.adding]
            known = [lag for lag in lags if lag is not None]
            found.append(
                ReassignmentRow(
                    topic=name,
                    partition=index,
                    replicas=list(each.replicas),
                    adding=list(each.adding),
                    removing=list(each.removing),
                    in_sync=[broker for broker in each.adding if broker in each.isr],
                    lag_messages=max(known, default=None),
                )
            )
    return AdminReply(found[:_MAX_PARTITIONS])


class PartitionMove(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    topic: str
    partition: Annotated[int, Meta(ge=0)]
    replicas: Annotated[list[int], Meta(min_length=1, max_length=100)] | None
    """The brokers that are to have it, the preferred leader first; null cancels a reassignment."""


class ReassignmentRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    partitions: Annotated[list[PartitionMove], Meta(min_length=1, max_length=_MAX_PARTITIONS)]


class ReassignmentResult(msgspec.Struct, frozen=True):
    partitions: int
    """How many reassignments were begun or cancelled."""


@route(
    "POST",
    "/cluster/reassignments",
    needs=ALTER_CLUSTER,
    body=ReassignmentRequest,
    answer=ReassignmentResult,
    is_audited=False,
)
async def reassign(request: AdminRequest) -> AdminReply:
    """Move partitions to other brokers; it goes on in the background."""
    wanted = request.read(ReassignmentRequest).partitions
    moves = {(each.topic, each.partition): each.replicas for each in wanted}
    for topic, _ in moves:
        topic_image(request, topic)

    def build(schema: ModuleType) -> Any:
        topics: tuple[Any, ...] = tuple(
            make(
                schema.ReassignableTopic,
                name=topic,
                partitions=tuple(
                    make(schema.ReassignablePartition, partition_index=index, replicas=_brokers(moves[topic, index]))
                    for index in indexes
                ),
            )
            for topic, indexes in by_topic(moves).items()
        )
        return make(schema.AlterPartitionReassignmentsRequest, timeout=from_ms(_TIMEOUT_MS), topics=topics)

    answer = await ask(request, _ALTER_REASSIGNMENTS, 0, build)
    check_kafka(answer.error_code, answer.error_message)
    for topic in answer.responses:
        for part in topic.partitions:
            check_kafka(part.error_code, part.error_message)
    return AdminReply(ReassignmentResult(len(moves)), 202)


def _brokers(replicas: list[int] | None) -> tuple[int, ...] | None:
    return None if replicas is None else tuple(replicas)
