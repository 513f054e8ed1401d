"""The cluster: brokers, the metadata store, settings of brokers, and draining a broker."""

from types import ModuleType
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from headrace.admin import settings
from headrace.admin.errors import AdminError, check_kafka
from headrace.admin.history import HistoryView, history_of
from headrace.admin.kafka_requests import ask
from headrace.admin.routes import (
    ALTER_CLUSTER_CONFIGS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CLUSTER_CONFIGS,
    AdminReply,
    AdminRequest,
    route,
)
from headrace.admin.settings import ChangedSettings, SettingChanges, SettingEntry
from headrace.model.ids import BrokerId
from headrace.model.image import ClusterImage
from headrace.monitor.snapshots import BrokerStat, DiskStat
from headrace.protocol.codec import make

_ALTER_CONFIGS = 44
_SET = 0
_DRAINING = "broker.draining"
_SHOWN = 5


class DiskView(msgspec.Struct, frozen=True):
    broker_id: int
    path: str
    free_bytes: int
    total_bytes: int
    full_in_s: float | None
    """When it is full at the rate of the last minutes; null if it does not fill up."""


class BrokerRow(msgspec.Struct, frozen=True):
    """A broker. What it says of itself is null if it has not answered."""

    broker_id: int
    endpoint: str
    rack: str | None
    state: str
    """starting, active, stopping or dead."""
    is_controller: bool
    is_draining: bool
    problem: str
    """Why there are no figures of it."""
    version: str | None
    leaders: int | None
    partitions: int | None
    """Replicas on this broker."""
    size_bytes: int | None
    disks: list[DiskView]
    cpu_percent: float | None
    """Of one core."""
    memory_bytes: int | None
    uptime_s: float | None
    connections: int | None
    requests_per_s: float | None
    bytes_in_per_s: float | None
    bytes_out_per_s: float | None
    loop_lag_ms: float | None
    clock_skew_ms: int | None


class StoreView(msgspec.Struct, frozen=True):
    kind: str
    """sqlite, or etcd."""
    ok: bool
    latency_ms: float | None


class ClusterAnswer(msgspec.Struct, frozen=True):
    cluster_id: str
    controller: int
    """-1 if there is none."""
    feature_level: int
    brokers: list[BrokerRow]
    store: StoreView
    reassigning: int
    """Partitions whose replicas are being moved."""
    under_replicated: int
    offline: int
    history: HistoryView


def disk_view(found: DiskStat) -> DiskView:
    return DiskView(found.broker_id, found.path, found.free_bytes, found.total_bytes, found.full_in_s)


def broker_view(found: BrokerStat, now_ms: int) -> BrokerRow:
    totals = found.totals
    process = None if totals is None else totals.process
    return BrokerRow(
        broker_id=found.broker_id,
        endpoint=found.endpoint,
        rack=found.rack,
        state=found.state,
        is_controller=found.is_controller,
        is_draining=found.is_draining,
        problem=found.problem,
        version=None if totals is None else totals.version,
        leaders=None if totals is None else totals.leaders,
        partitions=None if totals is None else totals.partitions,
        size_bytes=None if totals is None else totals.size_bytes,
        disks=[] if totals is None else [disk_view(each) for each in totals.disks],
        cpu_percent=None if process is None else process.cpu_percent,
        memory_bytes=None if process is None else process.memory_bytes,
        uptime_s=None if process is None else max(0.0, (now_ms - process.started_ms) / 1000),
        connections=None if totals is None else totals.connections,
        requests_per_s=None if totals is None else totals.requests_per_s,
        bytes_in_per_s=None if totals is None else totals.rates.bytes_in_per_s,
        bytes_out_per_s=None if totals is None else totals.rates.bytes_out_per_s,
        loop_lag_ms=None if totals is None else totals.loop_lag_ms,
        clock_skew_ms=found.clock_skew_ms,
    )


@route("GET", "/cluster", needs=DESCRIBE_CLUSTER, answer=ClusterAnswer)
async def describe_cluster(request: AdminRequest) -> AdminReply:
    """The brokers with what they have and do, the controller and the metadata store."""
    services, image = request.services, request.services.metadata.image
    store, now_ms = services.health.source.store(), services.clock.wall_ms()
    states = [each for topic in image.topics.values() for each in topic.partitions]
    return AdminReply(
        ClusterAnswer(
            cluster_id=image.cluster_id,
            controller=image.controller_id,
            feature_level=image.feature_level,
            brokers=[broker_view(each, now_ms) for each in await services.monitor.brokers()],
            store=StoreView(store.kind, store.is_reachable, store.latency_ms),
            reassigning=sum(each.is_reassigning for each in states),
            under_replicated=sum(len(each.isr) < len(each.replicas) for each in states),
            offline=sum(not image.is_alive(each.leader) for each in states),
            history=await history_of(request, "cluster"),
        )
    )


class BrokerQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    broker: Annotated[int, Meta(ge=0)] | None = None
    """Without one: the broker that answers, or for changes all brokers."""


@route("GET", "/cluster/settings", needs=DESCRIBE_CLUSTER_CONFIGS, query=BrokerQuery, answer=list[SettingEntry])
async def cluster_settings(request: AdminRequest) -> AdminReply:
    """All settings of a broker, with defaults and documentation; passwords are hidden."""
    broker = request.query(BrokerQuery).broker
    broker_id = request.services.metadata.broker_id if broker is None else known_broker(request, str(broker))
    return AdminReply(await settings.describe(request, settings.BROKER, str(broker_id), broker_id))


@route(
    "PATCH",
    "/cluster/settings",
    needs=ALTER_CLUSTER_CONFIGS,
    query=BrokerQuery,
    body=SettingChanges,
    answer=ChangedSettings,
    is_audited=False,
)
async def change_cluster_settings(request: AdminRequest) -> AdminReply:
    """Change live settings of all brokers, or of one; with `dry_run` only check it and show what would change."""
    broker, wanted = request.query(BrokerQuery).broker, request.read(SettingChanges)
    name = "" if broker is None else str(known_broker(request, str(broker)))
    return AdminReply(await settings.alter(request, settings.BROKER, name, wanted))


def known_broker(request: AdminRequest, text: str) -> BrokerId:
    image = request.services.metadata.image
    broker_id = BrokerId(int(text)) if text.isdecimal() and len(text) < 10 else BrokerId(-1)
    if broker_id not in image.brokers:
        raise AdminError(404, "unknown_broker", f"there is no broker {text}")
    return broker_id


# -- draining


class DrainState(msgspec.Struct, frozen=True):
    broker_id: int
    is_draining: bool
    partitions: int
    """Replicas that are still on the broker."""


@route("GET", "/cluster/brokers/{broker_id}/drain", needs=DESCRIBE_CLUSTER, answer=DrainState)
async def describe_drain(request: AdminRequest) -> AdminReply:
    """Whether a broker is being drained, and how many replicas it still has."""
    return AdminReply(_drain_state(request, known_broker(request, request.parameters["broker_id"])))


@route(
    "POST",
    "/cluster/brokers/{broker_id}/drain",
    needs=ALTER_CLUSTER_CONFIGS,
    answer=DrainState,
    is_audited=False,
)
async def begin_drain(request: AdminRequest) -> AdminReply:
    """Move all replicas off a broker, and place no new ones on it. Refused if it could not end."""
    broker_id, image = known_broker(request, request.parameters["broker_id"]), request.services.metadata.image
    _check_drain(image, broker_id)
    await _set_draining(request, broker_id, "true")
    return AdminReply(_drain_state(request, broker_id), 202)


@route(
    "DELETE",
    "/cluster/brokers/{broker_id}/drain",
    needs=ALTER_CLUSTER_CONFIGS,
    answer=DrainState,
    is_audited=False,
)
async def end_drain(request: AdminRequest) -> AdminReply:
    """Allow replicas on a broker again."""
    broker_id = known_broker(request, request.parameters["broker_id"])
    await _set_draining(request, broker_id, "false")
    return AdminReply(_drain_state(request, broker_id))


def _drain_state(request: AdminRequest, broker_id: BrokerId) -> DrainState:
    image = request.services.metadata.image
    replicas = sum(broker_id in each.replicas for topic in image.topics.values() for each in topic.partitions)
    return DrainState(broker_id, image.brokers[broker_id].is_draining, replicas)


def _check_drain(image: ClusterImage, broker_id: BrokerId) -> None:
    """Refuse a drain that could not end, before anything is changed."""
    others = {each for each, broker in image.brokers.items() if broker.can_lead and not broker.is_draining} - {
        broker_id
    }
    if not others:
        raise AdminError(409, "no_other_broker", "no other broker is active to take the partitions: start one")
    hosted = [
        (f"{topic.name}-{index}", each)
        for topic in image.topics.values()
        for index, each in enumerate(topic.partitions)
        if broker_id in each.replicas
    ]
    lost = [name for name, each in hosted if not image.is_alive(each.leader)]
    if lost:
        raise AdminError(409, "no_leader", f"no broker that is up has all of {_listed(lost)}: start the missing ones")
    tight = [name for name, each in hosted if others <= set(each.replicas)]
    if tight:
        raise AdminError(
            409,
            "too_few_brokers",
            f"every other broker has a replica of {_listed(tight)} already: start another broker, or lower their "
            "replication factor",
        )


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


async def _set_draining(request: AdminRequest, broker_id: BrokerId, value: str) -> None:
    def build(schema: ModuleType) -> Any:
        config: Any = make(schema.AlterableConfig, name=_DRAINING, config_operation=_SET, value=value)
        resource: Any = make(
            schema.AlterConfigsResource,
            resource_type=settings.BROKER,
            resource_name=str(broker_id),
            configs=(config,),
        )
        return make(schema.IncrementalAlterConfigsRequest, resources=(resource,), validate_only=False)

    (result,) = (await ask(request, _ALTER_CONFIGS, 1, build)).responses
    check_kafka(result.error_code, result.error_message)
