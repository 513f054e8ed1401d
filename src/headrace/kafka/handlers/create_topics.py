"""CreateTopics (19), versions 2-7: create topics with partitions, replicas and settings.

- -1 partitions or replicas stand for this broker's defaults. A manual assignment goes with -1 for both, else
  INVALID_REQUEST. A name that appears twice in a request is INVALID_REQUEST and creates nothing.
- A topic is durable and usable when the answer is sent; the request's timeout is ignored.
- validate_only checks everything and changes nothing.
- Partitions count towards the quota controller_mutation_rate: from v6 on a topic beyond it is
  THROTTLING_QUOTA_EXCEEDED, before that the client is delayed.
- Permissions: CREATE on the cluster or on the topic, else TOPIC_AUTHORIZATION_FAILED. A queue with `queue.attributes`
  also needs ALTER on the topic, and one with `queue.dead.letter` WRITE on that queue. Without DESCRIBE_CONFIGS on the
  topic the answer has none of its settings, and neither partitions nor replicas: `topic_config_error_code` says so.
- From v5 on the answer has partitions, replicas and every setting of the topic; from v7 on its id.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.config.schema_aliases import own_settings
from headrace.kafka.config_entries import topic_entries
from headrace.kafka.config_permissions import require_values
from headrace.kafka.dispatch import Context, handles
from headrace.kafka.errors import error_code, error_message
from headrace.kafka.mutation_quota import MutationQuota
from headrace.kafka.permissions import ALTER_TOPIC, CREATE_CLUSTER, CREATE_TOPIC, DESCRIBE_TOPIC_CONFIGS, WRITE_TOPIC
from headrace.model.errors import HeadraceError, InvalidReplicaAssignment, InvalidSettings, ProtocolError
from headrace.model.image import TopicImage
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

if TYPE_CHECKING:
    from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
    from kio.schema.create_topics.v7.response import CreatableTopicResult, CreateTopicsResponse

KEY = 19
DEFAULT = -1
_STRICT_QUOTA_FROM = 6


@handles(KEY, 2, 7, needs=(CREATE_CLUSTER, CREATE_TOPIC, ALTER_TOPIC, WRITE_TOPIC, DESCRIBE_TOPIC_CONFIGS))
async def create_topics(ctx: Context, request: "CreateTopicsRequest") -> "CreateTopicsResponse":
    counts = Counter(topic.name for topic in request.topics)
    may_create_any = ctx.shows(CREATE_CLUSTER)
    quota = MutationQuota(ctx, strict_from=_STRICT_QUOTA_FROM)
    results = []
    for wanted in {topic.name: topic for topic in request.topics}.values():
        try:
            if counts[wanted.name] > 1:
                raise ProtocolError(f"the topic {wanted.name} appears more than once in the request")
            if not may_create_any:
                ctx.require(CREATE_TOPIC, wanted.name)
            if quota.applies:
                checked = await _create(ctx, wanted, validate_only=True)
                quota.take(len(checked.partitions))
            topic = await _create(ctx, wanted, validate_only=request.validate_only)
            results.append(_created(ctx, topic, validate_only=request.validate_only))
        except HeadraceError as failure:
            results.append(_failed(ctx, wanted.name, failure))
    return make(ctx.schema.CreateTopicsResponse, throttle_time=NO_THROTTLE, topics=tuple(results))


async def _create(ctx: Context, wanted: "CreatableTopic", *, validate_only: bool) -> TopicImage:
    assignment: dict[int, Sequence[int]] | None = None
    if wanted.assignments:
        if wanted.num_partitions != DEFAULT or wanted.replication_factor != DEFAULT:
            raise ProtocolError("with a manual assignment, partitions and replication factor must both be -1")
        assignment = {entry.partition_index: entry.broker_ids for entry in wanted.assignments}
        if len(assignment) != len(wanted.assignments):
            raise InvalidReplicaAssignment("a manual assignment names a partition more than once")
    settings = _settings(wanted)
    require_values(ctx, wanted.name, {}, settings)
    return await ctx.services.metadata.create_topic(
        wanted.name,
        partitions=None if wanted.num_partitions == DEFAULT else wanted.num_partitions,
        replication_factor=None if wanted.replication_factor == DEFAULT else wanted.replication_factor,
        assignment=assignment,
        settings=settings,
        validate_only=validate_only,
    )


def _settings(wanted: "CreatableTopic") -> dict[str, str]:
    settings: dict[str, str] = {}
    for config in wanted.configs:
        if config.value is None:
            raise InvalidSettings(f"the setting {config.name} has no value")
        if config.name in settings:
            raise ProtocolError(f"the setting {config.name} appears more than once")
        settings[config.name] = config.value
    return own_settings(settings.items())


def _created(ctx: Context, topic: TopicImage, *, validate_only: bool) -> "CreatableTopicResult":
    schema = ctx.schema
    if not ctx.shows(DESCRIBE_TOPIC_CONFIGS, topic.name):
        return make(
            schema.CreatableTopicResult,
            name=topic.name,
            topic_id=None if validate_only else topic.topic_id,
            error_code=ErrorCode.none,
            error_message=None,
            topic_config_error_code=ErrorCode.topic_authorization_failed.value,
            configs=(),
        )
    configs = ()
    if hasattr(schema, "CreatableTopicConfigs"):
        configs = tuple(
            schema.CreatableTopicConfigs(
                name=entry.setting.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=int(entry.source),
                is_sensitive=entry.is_sensitive,
            )
            for entry in topic_entries(ctx.services.metadata, topic)
        )
    return make(
        schema.CreatableTopicResult,
        name=topic.name,
        topic_id=None if validate_only else topic.topic_id,
        error_code=ErrorCode.none,
        error_message=None,
        num_partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
        configs=configs,
    )


def _failed(ctx: Context, name: str, failure: HeadraceError) -> "CreatableTopicResult":
    return make(
        ctx.schema.CreatableTopicResult,
        name=name,
        topic_id=None,
        error_code=error_code(failure),
        error_message=error_message(failure),
        configs=(),
    )
