"""DeleteTopics (20), versions 1-6: delete topics, by name or, from v6 on, by id.

- The deletion is durable when the answer is sent, and no later request sees the topic; the request's timeout is
  ignored. Folders are removed afterwards, also if the broker is killed in between.
- A topic named twice, by name or by id, an entry with both and one with neither are INVALID_REQUEST.
- Permissions: DELETE on each topic, else TOPIC_AUTHORIZATION_FAILED whether it exists or not; without DESCRIBE on it, a
  topic that is named by its id is answered without its name. An unknown id is UNKNOWN_TOPIC_ID.
- Partitions count towards the quota controller_mutation_rate: from v5 on a topic beyond it is
  THROTTLING_QUOTA_EXCEEDED, before that the client is delayed.
- `delete.topic.enable=false`: TOPIC_DELETION_DISABLED, before v3 INVALID_REQUEST.
"""

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, cast
from uuid import UUID

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Context, handles
from headrace.kafka.errors import error_code, error_message
from headrace.kafka.mutation_quota import MutationQuota
from headrace.kafka.permissions import DELETE_TOPIC, DESCRIBE_TOPIC
from headrace.model.errors import HeadraceError
from headrace.model.ids import TopicName
from headrace.model.image import ClusterImage
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

if TYPE_CHECKING:
    from kio.schema.delete_topics.v5.request import DeleteTopicsRequest as NamingDeleteTopicsRequest
    from kio.schema.delete_topics.v6.request import DeleteTopicsRequest
    from kio.schema.delete_topics.v6.response import DeleteTopicsResponse

KEY = 20
_STRICT_QUOTA_FROM = 5


class TopicToDelete(NamedTuple):
    """A topic to delete, by the name or id in the request."""

    name: str | None
    topic_id: UUID | None


class TopicDeletion(NamedTuple):
    name: str | None
    topic_id: UUID | None
    error: ErrorCode = ErrorCode.none
    message: str | None = None


@handles(KEY, 1, 6, needs=(DELETE_TOPIC, DESCRIBE_TOPIC))
async def delete_topics(ctx: Context, request: "DeleteTopicsRequest") -> "DeleteTopicsResponse":
    if ctx.version >= 6:
        wanted = [TopicToDelete(topic.name, topic.topic_id) for topic in request.topics]
    else:
        wanted = [TopicToDelete(name, None) for name in cast("NamingDeleteTopicsRequest", request).topic_names]
    image = ctx.services.metadata.image
    counts = Counter(_resolve(image, topic) for topic in wanted)
    quota = MutationQuota(ctx, strict_from=_STRICT_QUOTA_FROM)
    outcomes = [await _delete(ctx, image, topic, counts, quota) for topic in dict.fromkeys(wanted)]
    schema = ctx.schema
    return make(
        schema.DeleteTopicsResponse,
        throttle_time=NO_THROTTLE,
        responses=tuple(
            make(
                schema.DeletableTopicResult,
                name=outcome.name,
                topic_id=outcome.topic_id,
                error_code=outcome.error,
                error_message=outcome.message,
            )
            for outcome in outcomes
        ),
    )


def _resolve(image: ClusterImage, wanted: TopicToDelete) -> str | UUID | None:
    """Return the topic's name if it exists, else the name or id in the request."""
    if wanted.topic_id is None:
        return wanted.name
    return image.topic_names.get(wanted.topic_id, wanted.topic_id)


async def _delete(
    ctx: Context,
    image: ClusterImage,
    wanted: TopicToDelete,
    counts: Counter[str | UUID | None],
    quota: MutationQuota,
) -> TopicDeletion:
    if not ctx.services.metadata.settings.delete_topic_enable:
        disabled = ErrorCode.topic_deletion_disabled if ctx.version >= 3 else ErrorCode.invalid_request
        return TopicDeletion(*wanted, disabled, "deleting topics is switched off: delete.topic.enable=false")
    if (wanted.name is None) == (wanted.topic_id is None):
        return TopicDeletion(
            *wanted, ErrorCode.invalid_request, "a topic must be named by its name or by its id, not by both"
        )
    meant = _resolve(image, wanted)
    if isinstance(meant, str) and (denial := _denial(ctx, image, wanted, TopicName(meant))) is not None:
        return denial
    if counts[meant] > 1:
        return TopicDeletion(*wanted, ErrorCode.invalid_request, "the topic appears more than once in the request")
    if isinstance(meant, UUID):
        return TopicDeletion(*wanted, ErrorCode.unknown_topic_id, f"there is no topic with the id {meant}")
    name = TopicName(str(meant))
    try:
        if name in image.topics:
            quota.take(len(image.topics[name].partitions))
        await ctx.services.metadata.delete_topic(name)
    except HeadraceError as failure:
        return TopicDeletion(*wanted, error_code(failure), error_message(failure))
    return TopicDeletion(name, image.topics[name].topic_id)


def _denial(ctx: Context, image: ClusterImage, wanted: TopicToDelete, name: TopicName) -> TopicDeletion | None:
    """Return the answer to a client that may not delete the topic, without what it may not see; else None."""
    may_describe, by_name = ctx.shows(DESCRIBE_TOPIC, name), wanted.name is not None
    if by_name and may_describe and name not in image.topics:
        return None
    if ctx.allows(DELETE_TOPIC, name) and (may_describe or not by_name):
        return None
    return TopicDeletion(
        name if by_name or may_describe else None,
        wanted.topic_id,
        ErrorCode.topic_authorization_failed,
        "this needs the permission DELETE on the topic",
    )
