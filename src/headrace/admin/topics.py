"""Topics: the list, one with its partitions, its settings; created, extended and deleted."""

from types import ModuleType
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from headrace.admin import settings
from headrace.admin.errors import check_kafka
from headrace.admin.kafka_requests import ask, topic_image
from headrace.admin.messages import partition_bounds
from headrace.admin.pages import Page, PageQuery, page_of
from headrace.admin.routes import (
    ALTER_TOPIC,
    ALTER_TOPIC_CONFIGS,
    CREATE_TOPIC,
    DELETE_TOPIC,
    DESCRIBE_TOPIC,
    DESCRIBE_TOPIC_CONFIGS,
    SHOWN_TOPICS,
    AdminReply,
    AdminRequest,
    route,
)
from headrace.admin.settings import ChangedSettings, SettingChanges, SettingEntry
from headrace.model.acls import ResourceType
from headrace.model.image import ClusterImage, TopicImage
from headrace.protocol.codec import make
from headrace.protocol.units import from_ms
from headrace.queues.catalog import is_queue

_CREATE_TOPICS, _DELETE_TOPICS, _CREATE_PARTITIONS = 19, 20, 37
_DEFAULT = -1
_TIMEOUT_MS = 30_000


class TopicEntry(msgspec.Struct, frozen=True):
    name: str
    is_internal: bool
    is_queue: bool
    partitions: int
    replicas: int
    under_replicated: int
    """How many partitions have replicas that are not in sync."""
    offline: int
    """How many partitions have no leader."""


class TopicPartitionView(msgspec.Struct, frozen=True):
    partition: int
    leader: int
    """-1 if there is none."""
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    start_offset: int | None
    end_offset: int | None
    """Null while the partition has no leader."""


class TopicView(msgspec.Struct, frozen=True):
    name: str
    topic_id: str
    is_internal: bool
    is_queue: bool
    replicas: int
    under_replicated: int
    offline: int
    partitions: list[TopicPartitionView]


class TopicQuery(PageQuery, frozen=True, forbid_unknown_fields=True):
    internal: bool = False
    """Whether internal topics are listed."""
    queues: bool = True
    """Whether queues are listed."""


@route("GET", "/topics", needs=SHOWN_TOPICS, query=TopicQuery, answer=Page[TopicEntry])
async def list_topics(request: AdminRequest) -> AdminReply:
    """The topics of the cluster."""
    query, image = request.query(TopicQuery), request.services.metadata.image
    entries = [
        _entry(image, topic)
        for name, topic in image.topics.items()
        if (query.internal or not topic.is_internal)
        and (query.queues or not is_queue(topic))
        and request.shows(ResourceType.TOPIC, name)
    ]
    return AdminReply(page_of(entries, query, name="name"))


def _entry(image: ClusterImage, topic: TopicImage) -> TopicEntry:
    return TopicEntry(
        name=topic.name,
        is_internal=topic.is_internal,
        is_queue=is_queue(topic),
        partitions=len(topic.partitions),
        replicas=max((len(each.replicas) for each in topic.partitions), default=0),
        under_replicated=sum(len(each.isr) < len(each.replicas) for each in topic.partitions),
        offline=sum(not image.is_alive(each.leader) for each in topic.partitions),
    )


@route("GET", "/topics/{topic}", needs=DESCRIBE_TOPIC, answer=TopicView)
async def describe_topic(request: AdminRequest) -> AdminReply:
    """A topic with its partitions."""
    name, image = request.parameters["topic"], request.services.metadata.image
    topic = topic_image(request, name)
    found = _entry(image, topic)
    bounds = await partition_bounds(request, name, None)
    partitions = [
        TopicPartitionView(
            partition=index,
            leader=each.leader,
            leader_epoch=each.leader_epoch,
            replicas=list(each.replicas),
            isr=list(each.isr),
            start_offset=bounds[index].start if index in bounds else None,
            end_offset=bounds[index].end if index in bounds else None,
        )
        for index, each in enumerate(topic.partitions)
    ]
    return AdminReply(
        TopicView(
            name=found.name,
            topic_id=str(topic.topic_id),
            is_internal=found.is_internal,
            is_queue=found.is_queue,
            replicas=found.replicas,
            under_replicated=found.under_replicated,
            offline=found.offline,
            partitions=partitions,
        )
    )


class NewTopic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, max_length=249)]
    partitions: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    replicas: Annotated[int, Meta(ge=1, le=1_000)] | None = None
    settings: dict[str, str] = {}
    dry_run: bool = False


class CreatedTopic(msgspec.Struct, frozen=True):
    name: str
    partitions: int
    replicas: int
    dry_run: bool


@route("POST", "/topics", needs=CREATE_TOPIC, body=NewTopic, answer=CreatedTopic, is_audited=False)
async def create_topic(request: AdminRequest) -> AdminReply:
    """Create a topic; it can be used when the answer comes."""
    wanted = request.read(NewTopic)

    def build(schema: ModuleType) -> Any:
        topic: Any = make(
            schema.CreatableTopic,
            name=wanted.name,
            num_partitions=wanted.partitions or _DEFAULT,
            replication_factor=wanted.replicas or _DEFAULT,
            assignments=(),
            configs=tuple(
                make(schema.CreatableTopicConfig, name=key, value=value) for key, value in wanted.settings.items()
            ),
        )
        return make(
            schema.CreateTopicsRequest, topics=(topic,), timeout=from_ms(_TIMEOUT_MS), validate_only=wanted.dry_run
        )

    (result,) = (await ask(request, _CREATE_TOPICS, 7, build)).topics
    check_kafka(result.error_code, result.error_message)
    made = CreatedTopic(wanted.name, int(result.num_partitions), int(result.replication_factor), wanted.dry_run)
    return AdminReply(made, 200 if wanted.dry_run else 201)


@route("DELETE", "/topics/{topic}", needs=DELETE_TOPIC, is_audited=False)
async def delete_topic(request: AdminRequest) -> AdminReply:
    """Delete a topic and everything in it."""
    name = request.parameters["topic"]

    def build(schema: ModuleType) -> Any:
        return make(schema.DeleteTopicsRequest, topic_names=(name,), timeout=from_ms(_TIMEOUT_MS))

    (result,) = (await ask(request, _DELETE_TOPICS, 5, build)).responses
    check_kafka(result.error_code, result.error_message)
    return AdminReply(None, 204)


class PartitionCount(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    count: Annotated[int, Meta(ge=1, le=100_000)]
    """How many partitions the topic is to have in all."""
    dry_run: bool = False


@route(
    "POST",
    "/topics/{topic}/partitions",
    needs=ALTER_TOPIC,
    body=PartitionCount,
    answer=PartitionCount,
    is_audited=False,
)
async def add_partitions(request: AdminRequest) -> AdminReply:
    """Add partitions to a topic. Keys then go to other partitions than before."""
    name, wanted = request.parameters["topic"], request.read(PartitionCount)

    def build(schema: ModuleType) -> Any:
        topic: Any = make(schema.CreatePartitionsTopic, name=name, count=wanted.count, assignments=None)
        return make(
            schema.CreatePartitionsRequest, topics=(topic,), timeout=from_ms(_TIMEOUT_MS), validate_only=wanted.dry_run
        )

    (result,) = (await ask(request, _CREATE_PARTITIONS, 3, build)).results
    check_kafka(result.error_code, result.error_message)
    return AdminReply(wanted)


@route("GET", "/topics/{topic}/settings", needs=DESCRIBE_TOPIC_CONFIGS, answer=list[SettingEntry])
async def topic_settings(request: AdminRequest) -> AdminReply:
    """All settings of a topic, with defaults and documentation."""
    return AdminReply(await settings.describe(request, settings.TOPIC, request.parameters["topic"]))


@route(
    "PATCH",
    "/topics/{topic}/settings",
    needs=ALTER_TOPIC_CONFIGS,
    body=SettingChanges,
    answer=ChangedSettings,
    is_audited=False,
)
async def change_topic_settings(request: AdminRequest) -> AdminReply:
    """Change settings of a topic, all or none; with `dry_run` only check it and show what would change."""
    wanted = request.read(SettingChanges)
    return AdminReply(await settings.alter(request, settings.TOPIC, request.parameters["topic"], wanted))
