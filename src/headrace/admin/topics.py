"""Topics: the list, one with its partitions, its settings; created, extended and deleted."""

from operator import attrgetter
from types import ModuleType
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from headrace.admin import settings
from headrace.admin.errors import AdminError, check_kafka
from headrace.admin.history import HistoryView, history_of
from headrace.admin.kafka_requests import ask, topic_image
from headrace.admin.pages import AT_ONCE, Listing, Page, PageQuery
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
from headrace.monitor.loop_slices import sliced
from headrace.monitor.snapshots import UNKNOWN_OFFSET, PartitionStat, TopicStat
from headrace.protocol.codec import make
from headrace.protocol.units import from_ms

_CREATE_TOPICS, _DELETE_TOPICS, _CREATE_PARTITIONS = 19, 20, 37
_DEFAULT = -1
_TIMEOUT_MS = 30_000


class TopicEntry(msgspec.Struct, frozen=True):
    name: str
    is_internal: bool
    is_queue: bool
    partitions: int
    replicas: int
    size_bytes: int
    """Of the leaders' replicas."""
    messages: int
    messages_in_per_s: float
    bytes_in_per_s: float
    messages_out_per_s: float
    bytes_out_per_s: float
    groups: int
    """Groups that have committed offsets in it."""
    lag_messages_max: int | None
    lag_seconds_max: float | None
    under_replicated: int
    """How many partitions have replicas that are not in sync."""
    offline: int
    """How many partitions have no leader."""
    unknown: int
    """How many partitions are missing in the sums, because their brokers have not answered."""


class TopicPartitionView(msgspec.Struct, frozen=True):
    partition: int
    leader: int
    """-1 if there is none."""
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    start_offset: int | None
    end_offset: int | None
    """The high watermark; null, as the others, if no leader has answered."""
    last_stable_offset: int | None
    size_bytes: int
    messages_in_per_s: float
    bytes_in_per_s: float
    bytes_out_per_s: float


class TopicGroupView(msgspec.Struct, frozen=True):
    group: str
    type: str
    state: str
    lag_messages: int | None
    lag_seconds: float | None


class TopicView(msgspec.Struct, frozen=True):
    name: str
    topic_id: str
    is_internal: bool
    is_queue: bool
    is_encrypted: bool
    replicas: int
    size_bytes: int
    messages: int
    messages_in_per_s: float
    bytes_in_per_s: float
    messages_out_per_s: float
    bytes_out_per_s: float
    under_replicated: int
    offline: int
    partitions: list[TopicPartitionView]
    groups: list[TopicGroupView]
    history: HistoryView


class TopicQuery(PageQuery, frozen=True, forbid_unknown_fields=True):
    internal: bool = False
    """Whether internal topics are listed."""
    queues: bool = True
    """Whether queues are listed."""


def _entry(found: TopicStat) -> TopicEntry:
    return TopicEntry(
        name=found.name,
        is_internal=found.is_internal,
        is_queue=found.is_queue,
        partitions=found.partitions,
        replicas=found.replicas,
        size_bytes=found.size_bytes,
        messages=found.messages,
        messages_in_per_s=found.rates.messages_in_per_s,
        bytes_in_per_s=found.rates.bytes_in_per_s,
        messages_out_per_s=found.rates.messages_out_per_s,
        bytes_out_per_s=found.rates.bytes_out_per_s,
        groups=found.groups,
        lag_messages_max=found.lag_messages_max,
        lag_seconds_max=found.lag_seconds_max,
        under_replicated=found.under_replicated,
        offline=found.offline,
        unknown=found.unknown,
    )


_TOPICS: Listing[TopicStat, TopicEntry] = Listing(
    TopicEntry,
    _entry,
    name="name",
    values={
        "messages_in_per_s": attrgetter("rates.messages_in_per_s"),
        "bytes_in_per_s": attrgetter("rates.bytes_in_per_s"),
        "messages_out_per_s": attrgetter("rates.messages_out_per_s"),
        "bytes_out_per_s": attrgetter("rates.bytes_out_per_s"),
    },
)


@route("GET", "/topics", needs=SHOWN_TOPICS, query=TopicQuery, answer=Page[TopicEntry])
async def list_topics(request: AdminRequest) -> AdminReply:
    """The topics of the cluster, with sizes, rates and the lag of their groups."""
    query = request.query(TopicQuery)
    shown = [
        each
        async for each in sliced(await request.services.monitor.topics(), AT_ONCE)
        if (query.internal or not each.is_internal)
        and (query.queues or not each.is_queue)
        and request.shows(ResourceType.TOPIC, each.name)
    ]
    return AdminReply(_TOPICS.page(shown, query))


@route("GET", "/topics/{topic}", needs=DESCRIBE_TOPIC, answer=TopicView)
async def describe_topic(request: AdminRequest) -> AdminReply:
    """A topic with its partitions, the groups that read it, and its last hour."""
    name = request.parameters["topic"]
    topic = topic_image(request, name)
    found = await request.services.monitor.topic(name)
    if found is None:
        raise AdminError(404, "unknown_topic", f"there is no topic {name}")
    stat = found.stat
    return AdminReply(
        TopicView(
            name=name,
            topic_id=str(topic.topic_id),
            is_internal=stat.is_internal,
            is_queue=stat.is_queue,
            is_encrypted=topic.topic_id in request.services.metadata.image.data_keys,
            replicas=stat.replicas,
            size_bytes=stat.size_bytes,
            messages=stat.messages,
            messages_in_per_s=stat.rates.messages_in_per_s,
            bytes_in_per_s=stat.rates.bytes_in_per_s,
            messages_out_per_s=stat.rates.messages_out_per_s,
            bytes_out_per_s=stat.rates.bytes_out_per_s,
            under_replicated=stat.under_replicated,
            offline=stat.offline,
            partitions=[_partition(each) for each in found.partitions],
            groups=[
                TopicGroupView(each.group, each.kind, each.state, each.lag_messages, each.lag_seconds)
                for each in found.groups
                if request.shows(ResourceType.GROUP, each.group)
            ],
            history=await history_of(request, "topic", name),
        )
    )


def _partition(found: PartitionStat) -> TopicPartitionView:
    return TopicPartitionView(
        partition=found.partition,
        leader=found.leader,
        leader_epoch=found.leader_epoch,
        replicas=list(found.replicas),
        isr=list(found.isr),
        start_offset=known_offset(found.start_offset),
        end_offset=known_offset(found.end_offset),
        last_stable_offset=known_offset(found.last_stable_offset),
        size_bytes=found.size_bytes,
        messages_in_per_s=found.rates.messages_in_per_s,
        bytes_in_per_s=found.rates.bytes_in_per_s,
        bytes_out_per_s=found.rates.bytes_out_per_s,
    )


def known_offset(offset: int) -> int | None:
    return None if offset == UNKNOWN_OFFSET else offset


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
