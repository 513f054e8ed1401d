"""The cluster at a glance: health, rates, and what needs attention most.

Figures of the whole cluster need DESCRIBE on it, and are null without; groups, queues and pipelines are shown to those
who may describe them.
"""

import msgspec

from headrace.admin.cluster import BrokerRow, DiskView, broker_view, disk_view
from headrace.admin.groups import GroupEntry, group_entry
from headrace.admin.history import HistoryView, history_of
from headrace.admin.pipelines import shown_pipelines
from headrace.admin.queues import QueueEntry, queue_entry, shown_queues
from headrace.admin.routes import Access, AdminReply, AdminRequest, RouteNeed, route
from headrace.model.acls import AclOperation, ResourceType
from headrace.monitor.health.problem import HealthView
from headrace.monitor.merge import oldest_queues, worst_groups
from headrace.monitor.pipelines.entries import PipelineEntry, worst_pipelines
from headrace.monitor.snapshots import Overview

SHOWN_CLUSTER = RouteNeed(AclOperation.DESCRIBE, access=Access.SHOWN)


class OverviewTotals(msgspec.Struct, frozen=True):
    messages_in_per_s: float
    bytes_in_per_s: float
    messages_out_per_s: float
    bytes_out_per_s: float
    requests_per_s: float
    produce_p50_ms: float | None
    produce_p99_ms: float | None
    fetch_p50_ms: float | None
    fetch_p99_ms: float | None
    connections: int
    topics: int
    partitions: int
    groups: int
    queues: int
    open_transactions: int


class OverviewView(msgspec.Struct, frozen=True):
    at_ms: int
    health: HealthView | None
    totals: OverviewTotals | None
    history: HistoryView | None
    worst_groups: list[GroupEntry]
    """The five that are farthest behind."""
    queues: list[QueueEntry]
    """The five with the oldest messages."""
    brokers: list[BrokerRow]
    disks: list[DiskView]
    under_replicated: int | None
    offline: int | None
    without_data: list[int]
    """Brokers that have not answered: their part of the figures is missing."""
    pipelines: list[PipelineEntry] = []
    """The five that need attention most: failed and silent ones first, then those farthest behind."""


@route("GET", "/overview", needs=SHOWN_CLUSTER, answer=OverviewView)
async def show_overview(request: AdminRequest) -> AdminReply:
    """The cluster at a glance: health, rates, groups behind, queues, brokers and disks."""
    services = request.services
    may_see = request.allows(AclOperation.DESCRIBE, ResourceType.CLUSTER)
    found = await services.monitor.overview()
    groups, queues = found.worst_groups, found.oldest_queues
    if services.security.authorizer is not None:
        shown = (each for each in await services.monitor.groups() if request.shows(ResourceType.GROUP, each.group))
        groups, queues = worst_groups(shown), oldest_queues(await shown_queues(request))
    now_ms = services.clock.wall_ms()
    return AdminReply(
        OverviewView(
            at_ms=found.at_ms,
            health=await services.health.cluster() if may_see else None,
            totals=_totals(found) if may_see else None,
            history=await history_of(request, "cluster") if may_see else None,
            worst_groups=[group_entry(each) for each in groups],
            queues=[queue_entry(each) for each in queues],
            brokers=[broker_view(each, now_ms) for each in found.brokers] if may_see else [],
            disks=[disk_view(each) for each in found.disks] if may_see else [],
            under_replicated=found.under_replicated if may_see else None,
            offline=found.offline if may_see else None,
            without_data=found.without_data if may_see else [],
            pipelines=worst_pipelines(await shown_pipelines(request)),
        )
    )


def _totals(found: Overview) -> OverviewTotals:
    return OverviewTotals(
        messages_in_per_s=found.rates.messages_in_per_s,
        bytes_in_per_s=found.rates.bytes_in_per_s,
        messages_out_per_s=found.rates.messages_out_per_s,
        bytes_out_per_s=found.rates.bytes_out_per_s,
        requests_per_s=found.requests_per_s,
        produce_p50_ms=found.latency.produce_p50_ms,
        produce_p99_ms=found.latency.produce_p99_ms,
        fetch_p50_ms=found.latency.fetch_p50_ms,
        fetch_p99_ms=found.latency.fetch_p99_ms,
        connections=found.connections,
        topics=found.topics,
        partitions=found.partitions,
        groups=found.groups,
        queues=found.queues,
        open_transactions=found.open_transactions,
    )
