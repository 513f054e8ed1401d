"""OffsetCommit (8), versions 2-10: commit a group's offsets.

- Members commit with their generation; a client that is not a member (generation -1, no member id) may commit for a
  group without members. All others are refused, fenced static members in particular.
- Answered when the offsets are persisted by the `flush.policy` of `__consumer_offsets`: an acknowledged commit survives
  a crash.
- Partitions that do not exist, and metadata longer than `offset.metadata.max.bytes`, are refused individually; the rest
  is committed. A partition named twice gets the last offset. From v10 on topics are named by id.
- A retention time (v2-4) overrides `offsets.retention.minutes`.
- Permissions: READ on the group, else every partition is GROUP_AUTHORIZATION_FAILED; READ on each topic, else its
  partitions are TOPIC_AUTHORIZATION_FAILED, whether or not it exists, and the rest is committed. An unknown id is
  UNKNOWN_TOPIC_ID.
"""

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.coordinator.result import Result
from headrace.groups.machine import Refused
from headrace.groups.offsets import Committer, OffsetCommit, Place
from headrace.kafka.deferred_answers import answer_with
from headrace.kafka.dispatch import Context, handles
from headrace.kafka.errors import error_code
from headrace.kafka.forbidden_topics import forbidden_topics
from headrace.kafka.permissions import READ_GROUP, READ_TOPIC, not_authorized
from headrace.kafka.topic_keys import TopicKeys
from headrace.model.errors import GroupNotAuthorized
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE, to_ms
from headrace.runtime.deferred import Deferred

if TYPE_CHECKING:
    from kio.schema.offset_commit.v10.request import OffsetCommitRequest, OffsetCommitRequestTopic
    from kio.schema.offset_commit.v10.response import OffsetCommitResponse

KEY = 8
_NONE: frozenset[str] = frozenset()


@handles(KEY, 2, 10, needs=(READ_GROUP, READ_TOPIC))
def offset_commit(
    ctx: Context, request: "OffsetCommitRequest"
) -> "OffsetCommitResponse | Deferred[OffsetCommitResponse]":
    keys = TopicKeys(ctx.services.metadata.image)
    if not ctx.allows(READ_GROUP, request.group_id):
        return _answer(ctx, request, keys, _NONE, Result(error=not_authorized(READ_GROUP, request.group_id)))
    forbidden = forbidden_topics(ctx, READ_TOPIC, map(keys.name_of, request.topics))
    commits: dict[Place, OffsetCommit] = {}
    for topic in request.topics:
        name = keys.name_of(topic) or ""
        for one in topic.partitions:
            index = one.partition_index
            if name not in forbidden and keys.problem(topic, index) is None:
                epoch = getattr(one, "committed_leader_epoch", -1)
                commits[name, index] = OffsetCommit(
                    name, index, one.committed_offset, epoch, one.committed_metadata or ""
                )
    if forbidden and not commits:
        return _answer(ctx, request, keys, forbidden, Result({}))
    by = Committer(
        request.member_id, getattr(request, "group_instance_id", None), request.generation_id_or_member_epoch
    )
    retention = getattr(request, "retention_time", None)
    committed = ctx.services.groups.commit(
        request.group_id, by, tuple(commits.values()), retention_ms=-1 if retention is None else to_ms(retention)
    )
    return answer_with(committed, lambda result: _answer(ctx, request, keys, forbidden, result))


def _answer(
    ctx: Context,
    request: "OffsetCommitRequest",
    keys: TopicKeys,
    forbidden: frozenset[str],
    result: Result[Refused],
) -> "OffsetCommitResponse":
    schema = ctx.schema
    is_denied = isinstance(result.error, GroupNotAuthorized)
    refused = {} if result.error is not None else result.get()

    def outcome(topic: "OffsetCommitRequestTopic", index: int) -> ErrorCode:
        if is_denied:
            return ErrorCode.group_authorization_failed
        name = keys.name_of(topic) or ""
        if name in forbidden:
            return ErrorCode.topic_authorization_failed
        problem = keys.problem(topic, index) or result.error or refused.get((name, index))
        return ErrorCode.none if problem is None else error_code(problem)

    return make(
        schema.OffsetCommitResponse,
        throttle_time=NO_THROTTLE,
        topics=tuple(
            make(
                schema.OffsetCommitResponseTopic,
                **keys.fields(topic),
                partitions=tuple(
                    make(
                        schema.OffsetCommitResponsePartition,
                        partition_index=one.partition_index,
                        error_code=outcome(topic, one.partition_index),
                    )
                    for one in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )
