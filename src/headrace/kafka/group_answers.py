"""Answers that consumer groups (KIP-848) and share groups (KIP-932) have in common.

`response` is the class of the answer, which differs between the two and between versions.
"""

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, TypeVar

from kio.schema.errors import ErrorCode

from headrace.coordinator.result import Result
from headrace.groups.consumer_records import StoredPlaces, stored
from headrace.groups.group import Beat
from headrace.kafka import authorized_operations
from headrace.kafka.dispatch import Context
from headrace.kafka.errors import error_code, error_message
from headrace.kafka.forbidden_topics import check_described, forbidden_topics
from headrace.kafka.permissions import DESCRIBE_GROUP, DESCRIBE_TOPIC, READ_GROUP, not_authorized
from headrace.model.errors import HeadraceError, NotAuthorized
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

R = TypeVar("R")

_NOT_DESCRIBED = {"group_state": "", "group_epoch": 0, "assignment_epoch": 0, "assignor_name": "", "members": ()}


def heartbeat_answer(ctx: Context, response: type[R], result: Result[Beat], interval_ms: int) -> R:
    """Build the answer to a member's heartbeat."""
    if result.error is not None:
        return heartbeat_refused(response, error_code(result.error), error_message(result.error))
    beat, assignment = result.get(), None
    if beat.assignment is not None:
        topics: tuple[Any, ...] = tuple(
            make(ctx.schema.TopicPartitions, topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in stored(beat.assignment)
        )
        assignment = ctx.schema.Assignment(topic_partitions=topics)
    return make(
        response,
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        error_message=None,
        member_id=beat.member_id,
        member_epoch=beat.epoch,
        heartbeat_interval=timedelta(milliseconds=interval_ms),
        assignment=assignment,
    )


def heartbeat_refused(response: type[R], error: ErrorCode, message: str | None) -> R:
    return make(
        response,
        throttle_time=NO_THROTTLE,
        error_code=error,
        error_message=message,
        member_id=None,
        member_epoch=0,
        heartbeat_interval=timedelta(0),
        assignment=None,
    )


def check_member(ctx: Context, group_id: str, topics: Iterable[str] | None) -> None:
    """Refuse the heartbeat of a member that lacks a permission, by `NotAuthorized`: READ on the group, or DESCRIBE on a
    topic of its subscription."""
    ctx.require(READ_GROUP, group_id)
    for name in sorted(forbidden_topics(ctx, DESCRIBE_TOPIC, topics or ())):
        raise not_authorized(DESCRIBE_TOPIC, name)


def describe_groups(ctx: Context, response: type[R], request: Any, describe: Callable[[str], dict[str, object]]) -> R:
    """Describe each requested group by the fields that `describe` returns, or the error that it raises."""
    groups: list[Any] = []
    for group_id in request.group_ids:
        operations = authorized_operations.on_group(ctx, group_id, request.include_authorized_operations)
        try:
            ctx.require(DESCRIBE_GROUP, group_id)
            fields = {"error_code": ErrorCode.none, "error_message": None, **describe(group_id)}
        except NotAuthorized as error:
            groups.append(_denied(ctx, group_id, error))
            continue
        except HeadraceError as error:
            fields = {"error_code": error_code(error), "error_message": error_message(error), **_NOT_DESCRIBED}
        groups.append(make(ctx.schema.DescribedGroup, group_id=group_id, authorized_operations=operations, **fields))
    return make(response, throttle_time=NO_THROTTLE, groups=tuple(groups))


def _denied(ctx: Context, group_id: str, error: NotAuthorized) -> Any:
    return make(
        ctx.schema.DescribedGroup,
        group_id=group_id,
        authorized_operations=authorized_operations.NOT_ASKED,
        error_code=error_code(error),
        error_message=error_message(error),
        **_NOT_DESCRIBED,
    )


def check_assignments(ctx: Context, assignments: Iterable[StoredPlaces]) -> None:
    """Refuse to describe a group whose members have topics that the client may not describe, by `NotAuthorized`."""
    if ctx.services.security.authorizer is not None:
        names = ctx.services.metadata.image.topic_names
        ids = {topic_id for places in assignments for topic_id, _ in places}
        check_described(ctx, [names[topic_id] for topic_id in ids if topic_id in names])


def described_assignment(ctx: Context, places: StoredPlaces) -> Any:
    """Return a member's assignment, without topics that no longer exist."""
    schema, names = ctx.schema, ctx.services.metadata.image.topic_names
    return make(
        schema.Assignment,
        topic_partitions=tuple(
            make(schema.TopicPartitions, topic_id=topic_id, topic_name=names[topic_id], partitions=partitions)
            for topic_id, partitions in places
            if topic_id in names
        ),
    )
