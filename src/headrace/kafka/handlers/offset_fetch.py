"""OffsetFetch (9), versions 1-10: the committed offsets of groups.

- No topics (null, from v2 on) means all in which the group has offsets. A partition without one is answered with -1 and
  no error, whether or not group, topic or partition exist.
- From v7 on a client may require stable offsets: one that an open transaction may still change is
  UNSTABLE_OFFSET_COMMIT, and the client retries.
- From v8 on a request has several groups, from v9 on the member that asks, from v10 on topics by id.
- Only offsets whose record is committed are returned.
- Permissions: DESCRIBE on each group, else it is GROUP_AUTHORIZATION_FAILED; DESCRIBE on each topic, else its
  partitions are TOPIC_AUTHORIZATION_FAILED, whether or not it exists. Of all topics (null), those without it are left
  out.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from kio.schema.errors import ErrorCode

from headrace.coordinator.result import Result
from headrace.groups.machine import Fetched
from headrace.groups.records import OffsetValue
from headrace.groups.replies import done
from headrace.kafka.deferred_answers import answer_with_all
from headrace.kafka.dispatch import Context, handles
from headrace.kafka.errors import error_code
from headrace.kafka.forbidden_topics import forbidden_topics
from headrace.kafka.permissions import DESCRIBE_GROUP, DESCRIBE_TOPIC, not_authorized
from headrace.kafka.topic_keys import TopicKeys
from headrace.model.errors import HeadraceError, UnknownTopicId
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE
from headrace.runtime.deferred import Deferred

if TYPE_CHECKING:
    from kio.schema.offset_fetch.v10.request import OffsetFetchRequest, OffsetFetchRequestGroup
    from kio.schema.offset_fetch.v10.response import (
        OffsetFetchResponse,
        OffsetFetchResponsePartitions,
        OffsetFetchResponseTopics,
    )

KEY = 9
_GROUPS_FROM = 8
_TOP_ERROR_FROM = 2

Offsets = dict[str, dict[int, Fetched]]


@handles(KEY, 1, 10, needs=(DESCRIBE_GROUP, DESCRIBE_TOPIC))
def offset_fetch(ctx: Context, request: "OffsetFetchRequest") -> "OffsetFetchResponse | Deferred[OffsetFetchResponse]":
    keys = TopicKeys(ctx.services.metadata.image)
    # A request of an early version is itself the only group.
    groups = [cast("OffsetFetchRequestGroup", request)] if ctx.version < _GROUPS_FROM else list(request.groups)
    waited: list[Deferred[Result[Offsets]]] = []
    forbidden: frozenset[str] = frozenset()
    for group in groups:
        if not ctx.allows(DESCRIBE_GROUP, group.group_id):
            waited.append(done(Result(error=not_authorized(DESCRIBE_GROUP, group.group_id))))
            continue
        wanted: Mapping[str, Sequence[int]] | None = None
        if group.topics is not None:
            forbidden |= forbidden_topics(ctx, DESCRIBE_TOPIC, map(keys.name_of, group.topics))
            wanted = {
                name: topic.partition_indexes
                for topic in group.topics
                if (name := keys.name_of(topic)) and name not in forbidden
            }
        waited.append(
            ctx.services.groups.fetch(
                group.group_id,
                wanted,
                require_stable=getattr(request, "require_stable", False),
                member_id=getattr(group, "member_id", None),
                member_epoch=getattr(group, "member_epoch", -1),
            )
        )

    def answer(results: list[Result[Offsets]]) -> "OffsetFetchResponse":
        answers = [_group(ctx, keys, forbidden, group, result) for group, result in zip(groups, results, strict=True)]
        if ctx.version < _GROUPS_FROM:
            return make(ctx.schema.OffsetFetchResponse, throttle_time=NO_THROTTLE, **answers[0])
        return make(
            ctx.schema.OffsetFetchResponse,
            throttle_time=NO_THROTTLE,
            groups=tuple(
                make(ctx.schema.OffsetFetchResponseGroup, group_id=group.group_id, **fields)
                for group, fields in zip(groups, answers, strict=True)
            ),
        )

    return answer_with_all(waited, answer)


def _group(
    ctx: Context,
    keys: TopicKeys,
    forbidden: frozenset[str],
    group: "OffsetFetchRequestGroup",
    result: Result[Offsets],
) -> dict[str, object]:
    code = ErrorCode.none if result.error is None else error_code(result.error)
    if result.error is not None:
        # Before v2 only partitions have an error code.
        asked = (group.topics or ()) if ctx.version < _TOP_ERROR_FROM else ()
        topics = [
            _topic(ctx, keys.fields(topic), dict.fromkeys(topic.partition_indexes, result.error)) for topic in asked
        ]
        return {"error_code": code, "topics": tuple(topics)}
    offsets = result.get()
    if group.topics is None:
        topics = [
            _topic(ctx, keys.by_name(name), found) for name, found in offsets.items() if ctx.shows(DESCRIBE_TOPIC, name)
        ]
    else:
        topics = []
        for topic in group.topics:
            name = keys.name_of(topic)
            if name is None:
                unknown: Fetched = UnknownTopicId(f"there is no topic with the id {topic.topic_id}")
                topics.append(_topic(ctx, keys.fields(topic), dict.fromkeys(topic.partition_indexes, unknown)))
            elif name in forbidden:
                denied: Fetched = not_authorized(DESCRIBE_TOPIC, name)
                topics.append(_topic(ctx, keys.fields(topic), dict.fromkeys(topic.partition_indexes, denied)))
            else:
                found = offsets[name]
                topics.append(
                    _topic(ctx, keys.fields(topic), {index: found.get(index) for index in topic.partition_indexes})
                )
    return {"error_code": code, "topics": tuple(topics)}


def _topic(ctx: Context, key: Mapping[str, object], offsets: Mapping[int, Fetched]) -> "OffsetFetchResponseTopics":
    schema = ctx.schema
    many = ctx.version >= _GROUPS_FROM
    topic = schema.OffsetFetchResponseTopics if many else schema.OffsetFetchResponseTopic
    partition = schema.OffsetFetchResponsePartitions if many else schema.OffsetFetchResponsePartition
    parts: list[OffsetFetchResponsePartitions] = []
    for index, found in offsets.items():
        value = found if isinstance(found, OffsetValue) else None
        parts.append(
            make(
                partition,
                partition_index=index,
                committed_offset=-1 if value is None else value.offset,
                committed_leader_epoch=-1 if value is None else value.leader_epoch,
                metadata="" if value is None else value.metadata,
                error_code=error_code(found) if isinstance(found, HeadraceError) else ErrorCode.none,
            )
        )
    return make(topic, **key, partitions=tuple(parts))
