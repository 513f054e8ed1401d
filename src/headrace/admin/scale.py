"""How many replicas of its workers a queue or a group needs, for KEDA's `metrics-api` scaler and other autoscalers.

`model/scale.py` decides, as it does for `headrace work`. An answer whose figures are not known is a 503: a scaler then
keeps the replicas that there are, where a zero would stop them.
"""

from types import ModuleType
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from headrace.admin.errors import AdminError, check_kafka, forbidden
from headrace.admin.kafka_requests import EARLIEST, GROUP, LATEST, Partition, coordinated, list_offsets, patiently
from headrace.admin.queues import DESCRIBE_QUEUE
from headrace.admin.routes import DESCRIBE_GROUP, AdminReply, AdminRequest, route
from headrace.model.acls import ResourceType
from headrace.model.ids import TopicName
from headrace.model.scale import ScaleRules, SourceLoad, WantedProcesses, wanted_processes
from headrace.monitor.snapshots import GroupDetail
from headrace.protocol.codec import make

_MAX_NAMED = 100
_MAX_UNREAD = 10_000
"""Partitions without a committed offset that are asked for."""
_SHARE = "share"
_DESCRIBE_GROUPS = 15

_Replicas = Annotated[int, Meta(ge=0, le=100_000)]


class ScaleQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    min: Annotated[int, Meta(ge=0, le=100_000, description="Never fewer replicas.")] = 0
    max: Annotated[int, Meta(ge=1, le=100_000, description="Never more replicas.")] = 100
    target_seconds: Annotated[float, Meta(ge=0.1, le=86_400, description="A backlog is to be drained in this.")] = 30.0
    per_replica_per_s: (
        Annotated[float, Meta(gt=0, le=1e9, description="Messages that one replica handles per second.")] | None
    ) = None
    """Without it, what is measured: the rate of all replicas divided by their number."""
    replicas: Annotated[_Replicas, Meta(description="How many run now; a group's members are counted.")] | None = None


class GroupScaleQuery(ScaleQuery, frozen=True, forbid_unknown_fields=True):
    topic: Annotated[
        str, Meta(max_length=10_000, description="Topics that the group reads, by comma, before it commits offsets.")
    ] = ""
    start: Literal["earliest", "latest"] = "earliest"
    """Where the group begins in a partition without a committed offset: `latest` counts nothing in those."""


QueryT = TypeVar("QueryT", bound=ScaleQuery)


class ScaleAnswer(msgspec.Struct, frozen=True):
    desired_replicas: int
    reason: str
    """A sentence with the figures that decide."""
    lag_messages: int
    """Messages that are not acknowledged, those in progress included; of a queue without the delayed ones."""
    lag_seconds: float | None
    """The age of the oldest of them."""
    drain_seconds: float | None
    """How long the replicas that run now need for the backlog; null if no rate is measured."""
    replicas: int | None
    """How many run now; null if that is not known."""
    cap: int | None
    """The partitions of a group's topics: more replicas would be idle. Null for queues and share groups."""
    min: int
    max: int
    target_seconds: float


@route("GET", "/scale/queue/{queue}", needs=DESCRIBE_QUEUE, query=ScaleQuery, answer=ScaleAnswer)
async def scale_queue(request: AdminRequest) -> AdminReply:
    """How many replicas of its workers a queue needs, and why."""
    name, query = request.parameters["queue"], _checked(request.query(ScaleQuery))
    request.services.queues.find(name)
    found = await request.services.monitor.queue(name)
    if found is None or found.visible is None or found.in_flight is None:
        raise AdminError(503, "unavailable", f"the broker of queue {name} does not answer: try again")
    load = SourceLoad(f"queue {name}", found.visible + found.in_flight, found.oldest_age_s)
    return AdminReply(_answer(load, query, query.replicas, found.deleted_per_s))


@route("GET", "/scale/group/{group:path}", needs=DESCRIBE_GROUP, query=GroupScaleQuery, answer=ScaleAnswer)
async def scale_group(request: AdminRequest) -> AdminReply:
    """How many replicas a group needs, and why; never more than its topics have partitions."""
    name, query = request.parameters["group"], _checked(request.query(GroupScaleQuery))
    found = await request.services.monitor.group(name)
    if found is None:
        await _check_coordinator(request, name)
    named = _named_topics(request, query)
    partitions = _partitions_of(request, named | {each.topic for each in (found.partitions if found else ())})
    committed = _committed(found)
    if found is not None and committed and found.stat.lag_messages is None:
        raise AdminError(503, "unavailable", f"no leader of the partitions of group {name} answers: try again")
    waiting, oldest_s, members, per_s = 0, None, 0, 0.0
    if found is not None:
        stat = found.stat
        waiting, oldest_s, members, per_s = stat.lag_messages or 0, stat.lag_seconds, stat.members, stat.consumed_per_s
    is_share = found is not None and found.stat.kind == _SHARE
    if query.start == "earliest" and not is_share:
        waiting += await _unread(request, [each for each in partitions if each not in committed])
    cap = None if is_share or not partitions else len(partitions)
    load = SourceLoad(f"group {name}", waiting, oldest_s, cap=cap)
    answer = _answer(load, query, members if query.replicas is None else query.replicas, per_s)
    if not committed and not answer.desired_replicas and (query.start == "latest" or not partitions):
        # Nothing would ever wake it: without a first commit there is no lag.
        why = f"group {name} has committed nothing yet, and has no lag before it does: one replica begins"
        answer = msgspec.structs.replace(answer, desired_replicas=1, reason=why)
    return AdminReply(answer)


def _checked(query: QueryT) -> QueryT:
    if query.min > query.max:
        raise AdminError(400, "invalid_request", f"min is {query.min} and max is {query.max}: min cannot be larger")
    return query


def _answer(load: SourceLoad, query: ScaleQuery, replicas: int | None, total_per_s: float) -> ScaleAnswer:
    each_per_s = query.per_replica_per_s
    if each_per_s is None and replicas and total_per_s:
        each_per_s = total_per_s / replicas
    rules = ScaleRules(query.min, query.max, query.target_seconds)
    measured = SourceLoad(load.name, load.waiting, load.oldest_s, each_per_s, load.cap)
    wanted: WantedProcesses = wanted_processes(measured, rules, replicas)
    waiting = load.waiting or 0
    return ScaleAnswer(
        desired_replicas=wanted.count,
        reason=wanted.reason,
        lag_messages=waiting,
        lag_seconds=load.oldest_s if waiting else 0.0,
        drain_seconds=0.0 if not waiting else waiting / total_per_s if total_per_s else wanted.drain_s,
        replicas=replicas,
        cap=load.cap,
        min=query.min,
        max=query.max,
        target_seconds=query.target_seconds,
    )


async def _check_coordinator(request: AdminRequest, name: str) -> None:
    """Raise the refusal if the group's coordinator does not answer: then the group is unknown, and not new."""

    def build(schema: ModuleType) -> Any:
        return make(schema.DescribeGroupsRequest, groups=(name,), include_authorized_operations=False)

    async def attempt() -> None:
        (found,) = (await coordinated(request, GROUP, name, _DESCRIBE_GROUPS, 5, build)).groups
        check_kafka(found.error_code)

    await patiently(attempt)


def _committed(found: GroupDetail | None) -> set[Partition]:
    return {(each.topic, each.partition) for each in (found.partitions if found else ()) if each.committed >= 0}


def _named_topics(request: AdminRequest, query: GroupScaleQuery) -> set[str]:
    named = {each.strip() for each in query.topic.split(",") if each.strip()}
    if len(named) > _MAX_NAMED:
        raise AdminError(400, "invalid_request", f"at most {_MAX_NAMED} topics can be named")
    for topic in sorted(named):
        if not request.shows(ResourceType.TOPIC, topic):
            raise forbidden(f"{request.subject.principal} lacks the permission describe on the topic {topic}")
    return named


def _partitions_of(request: AdminRequest, topics: set[str]) -> list[Partition]:
    image = request.services.metadata.image
    return [
        (topic, index)
        for topic in sorted(topics)
        if (found := image.topics.get(TopicName(topic))) is not None
        for index in range(len(found.partitions))
    ]


async def _unread(request: AdminRequest, partitions: list[Partition]) -> int:
    """Messages in partitions without a committed offset: the group will begin with the first of them."""
    seen = [each for each in partitions if request.shows(ResourceType.TOPIC, each[0])][:_MAX_UNREAD]
    if not seen:
        return 0
    first = await list_offsets(request, dict.fromkeys(seen, EARLIEST))
    end = await list_offsets(request, dict.fromkeys(seen, LATEST))
    return sum(max(0, end[each].offset - first[each].offset) for each in seen)
