"""Metadata (3), versions 0-13: the brokers, and the partitions of some or all topics.

- Topics: in v0 an empty list means all; from v1 on null means all and an empty list means none, just the brokers.
- Auto-creation: a topic requested by name that does not exist is created, if the client allows it (a field from v4 on)
  and `auto.create.topics.enable` is on. It is usable when the answer is sent. Internal topics are not auto-created.
- Topic ids: in answers from v10 on, accepted in requests from v12 on (before: INVALID_REQUEST). An unknown id is
  UNKNOWN_TOPIC_ID and creates nothing.
- Brokers: those that are alive, and the one that answers; never empty. One whose lease has ended is listed for a few
  seconds more, leading no partition (`kafka/departures.py`).
- The controller is the broker that answers: any broker serves requests to the controller, and a client would wait for
  a controller that has died since. DescribeCluster shows the real one.
- Authorized operations: of topics from v8 on, of the cluster in v8-10; only if requested.
- Permissions: DESCRIBE on each topic. A named topic without it is TOPIC_AUTHORIZATION_FAILED whether it exists or not,
  without its id; one that is named by its id, without its name. When all topics are requested they are left out. A
  topic is auto-created with CREATE on the cluster or on the topic, else it is TOPIC_AUTHORIZATION_FAILED.

Differences from Kafka: a topic that is being auto-created is in this very answer, where Kafka says LEADER_NOT_AVAILABLE
and lets the client retry. While no broker is alive all of them are listed, where Kafka may list none.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING
from uuid import UUID

from kio.schema.errors import ErrorCode

from headrace.kafka import authorized_operations, views
from headrace.kafka.dispatch import Context, Result, handles
from headrace.kafka.errors import error_code
from headrace.kafka.mutation_quota import MutationQuota
from headrace.kafka.permissions import CREATE_CLUSTER, CREATE_TOPIC, DESCRIBE_TOPIC
from headrace.model.errors import HeadraceError, TopicExists
from headrace.model.ids import TopicName
from headrace.model.image import INTERNAL_TOPICS, ClusterImage, TopicImage
from headrace.monitor.loop_slices import sliced
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

if TYPE_CHECKING:
    from kio.schema.metadata.v13.request import MetadataRequest, MetadataRequestTopic
    from kio.schema.metadata.v13.response import MetadataResponse, MetadataResponseBroker, MetadataResponseTopic

    Topics = tuple[MetadataRequestTopic, ...]
    Answered = Iterator[MetadataResponseTopic]

KEY = 3
IDS_IN_REQUESTS_FROM = 12
_PARTITIONS_AT_ONCE = 500
"""The answer of a larger cluster is made in slices: 3 µs for a partition would be 30 ms for 10,000."""


@handles(KEY, 0, 13, needs=(DESCRIBE_TOPIC, CREATE_CLUSTER, CREATE_TOPIC))
def metadata(ctx: Context, request: "MetadataRequest") -> "Result[MetadataResponse]":
    image = ctx.services.metadata.image
    wanted = request.topics
    if wanted is None or (not wanted and ctx.version == 0):
        found: Iterable[TopicImage | None] = image.topics.values()
        topics: Answered = (_topic(ctx, request, image, topic) for topic in _shown(ctx, image))
    elif missing := _to_create(ctx, request, wanted, image):
        return _create_and_answer(ctx, request, wanted, missing)
    else:
        found = (_found(image, asked) for asked in wanted)
        topics = _wanted(ctx, request, wanted, image, {})
    if sum(len(topic.partitions) for topic in found if topic is not None) > _PARTITIONS_AT_ONCE:
        return _answer_in_slices(ctx, request, image, topics)
    return _answer(ctx, request, image, topics)


def _found(image: ClusterImage, asked: "MetadataRequestTopic") -> TopicImage | None:
    topic_id = _topic_id(asked)
    return image.topics.get(TopicName(asked.name or "")) if topic_id is None else image.topic_by_id(topic_id)


def _shown(ctx: Context, image: ClusterImage) -> Iterable[TopicImage]:
    return (topic for topic in image.topics.values() if ctx.shows(DESCRIBE_TOPIC, topic.name))


async def _answer_in_slices(
    ctx: Context, request: "MetadataRequest", image: ClusterImage, topics: "Answered"
) -> "MetadataResponse":
    """Answer with many partitions, and let other requests have their turns meanwhile."""
    return _answer(ctx, request, image, [topic async for topic in sliced(topics, checked_every=1)])


def _to_create(ctx: Context, request: "MetadataRequest", wanted: "Topics", image: ClusterImage) -> list[str]:
    """Return the requested names that do not exist and may be auto-created, without duplicates.

    The client's permission to create them is checked later, so that its lack can be answered.
    """
    if not (ctx.services.metadata.settings.auto_create_topics_enable and _allows_creation(request)):
        return []
    names = dict.fromkeys(topic.name for topic in wanted if topic.name and not _topic_id(topic))
    return [
        name
        for name in names
        if TopicName(name) not in image.topics and name not in INTERNAL_TOPICS and ctx.shows(DESCRIBE_TOPIC, name)
    ]


def _allows_creation(request: "MetadataRequest") -> bool:
    return bool(getattr(request, "allow_auto_topic_creation", True))


def _topic_id(topic: "MetadataRequestTopic") -> UUID | None:
    return getattr(topic, "topic_id", None)


async def _create_and_answer(
    ctx: Context, request: "MetadataRequest", wanted: "Topics", names: Iterable[str]
) -> "MetadataResponse":
    failures: dict[str, ErrorCode] = {}
    may_create = ctx.shows(CREATE_CLUSTER)
    quota = MutationQuota(ctx, strict_from=None)
    for name in names:
        try:
            if not may_create:
                ctx.require(CREATE_TOPIC, name)
            quota.take(ctx.services.settings.num_partitions)
            await ctx.services.metadata.create_topic(name)
        except TopicExists:
            pass  # Another request has created it.
        except HeadraceError as error:
            failures[name] = error_code(error)
    image = ctx.services.metadata.image
    return _answer(ctx, request, image, _wanted(ctx, request, wanted, image, failures))


def _wanted(
    ctx: Context, request: "MetadataRequest", wanted: "Topics", image: ClusterImage, failures: dict[str, ErrorCode]
) -> "Answered":
    """Yield the answers for the requested topics, without duplicates, in the order of the request."""
    answered: set[tuple[str | None, UUID | None]] = set()
    for asked in wanted:
        name, topic_id = asked.name, _topic_id(asked)
        if (name, topic_id) in answered:
            continue
        answered.add((name, topic_id))
        if ctx.version < IDS_IN_REQUESTS_FROM and (name is None or topic_id is not None):
            answer = _failed(ctx, name or "", topic_id, ErrorCode.invalid_request)
        elif topic_id is not None:
            found = image.topic_by_id(topic_id)
            if found is None:
                answer = _failed(ctx, None, topic_id, ErrorCode.unknown_topic_id)
            elif not ctx.allows(DESCRIBE_TOPIC, found.name):
                answer = _failed(ctx, None, topic_id, ErrorCode.topic_authorization_failed)
            else:
                answer = _topic(ctx, request, image, found)
        elif name is None:
            answer = _failed(ctx, None, None, ErrorCode.invalid_topic_exception)
        elif not ctx.allows(DESCRIBE_TOPIC, name):
            answer = _failed(ctx, name, None, ErrorCode.topic_authorization_failed)
        elif (topic := image.topics.get(TopicName(name))) is not None:
            answer = _topic(ctx, request, image, topic)
        else:
            answer = _failed(ctx, name, None, failures.get(name) or views.why_unknown(name))
        yield answer


def _failed(ctx: Context, name: str | None, topic_id: UUID | None, error: ErrorCode) -> "MetadataResponseTopic":
    return make(ctx.schema.MetadataResponseTopic, error_code=error, name=name, topic_id=topic_id, partitions=())


def _topic(ctx: Context, request: "MetadataRequest", image: ClusterImage, topic: TopicImage) -> "MetadataResponseTopic":
    schema = ctx.schema
    asked = getattr(request, "include_topic_authorized_operations", False)
    return make(
        schema.MetadataResponseTopic,
        error_code=ErrorCode.none,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=tuple(
            make(schema.MetadataResponsePartition, **views.partition_fields(image, index, state))
            for index, state in enumerate(topic.partitions)
        ),
        topic_authorized_operations=authorized_operations.on_topic(ctx, topic.name, asked),
    )


def _answer(
    ctx: Context, request: "MetadataRequest", image: ClusterImage, topics: "Iterable[MetadataResponseTopic]"
) -> "MetadataResponse":
    schema = ctx.schema
    own_id = ctx.services.metadata.broker_id
    brokers: tuple[MetadataResponseBroker, ...] = tuple(
        make(
            schema.MetadataResponseBroker,
            node_id=broker.broker_id,
            host=endpoint.host,
            port=endpoint.port,
            rack=broker.rack,
        )
        for broker, endpoint in views.reachable_brokers(ctx, image)
    )
    return make(
        schema.MetadataResponse,
        throttle_time=NO_THROTTLE,
        brokers=brokers,
        cluster_id=image.cluster_id,
        controller_id=own_id if image.is_alive(own_id) else image.controller_id,
        topics=tuple(topics),
        cluster_authorized_operations=authorized_operations.on_cluster(
            ctx, getattr(request, "include_cluster_authorized_operations", False)
        ),
        error_code=ErrorCode.none,
    )
