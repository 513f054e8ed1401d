"""Client quotas, and who uses how much of what."""

import msgspec

from headrace.admin.pages import Listing, Page, PageQuery
from headrace.admin.routes import DESCRIBE_CLUSTER, DESCRIBE_CLUSTER_CONFIGS, AdminReply, AdminRequest, route
from headrace.monitor.quota_use import QuotaUseStat


class QuotaEntry(msgspec.Struct, frozen=True):
    entity: dict[str, str | None]
    """By type (user, client-id, client-id-prefix, ip, queue, access-key or topic-prefix); null is the default."""
    quotas: dict[str, float]


class QuotaUseEntry(msgspec.Struct, frozen=True):
    quota: str
    user: str
    """Empty: whatever the user."""
    client_id: str
    """Empty: whatever the client id."""
    is_prefix: bool
    used: float
    """Each second, of all brokers together; percent of an event loop for request_percentage, bytes for stored_bytes."""
    limit: float | None
    """Of each broker, or of all brokers together if `parts` has any; null without a quota."""
    most_used: float
    """On the broker where it uses the most."""
    share: float
    """The part of its limit that it uses, there or on all brokers together; 0 without a quota."""
    throttled_count: int
    throttled_ms: int
    brokers: list[int]
    parts: dict[int, float]
    """The part of the limit that each broker has now, if they share it (quota.scope = cluster; stored_bytes)."""


def _entry(found: QuotaUseStat) -> QuotaUseEntry:
    fields = msgspec.structs.asdict(found)
    return QuotaUseEntry(quota=fields.pop("kind"), share=found.share, **fields)


_USE: Listing[QuotaUseStat, QuotaUseEntry] = Listing(
    QuotaUseEntry, _entry, name="client_id", values={"quota": lambda found: found.kind}
)


@route("GET", "/quotas", needs=DESCRIBE_CLUSTER_CONFIGS, answer=list[QuotaEntry])
async def list_quotas(request: AdminRequest) -> AdminReply:
    """The client quotas of the cluster."""
    quotas = request.services.metadata.image.quotas
    return AdminReply([QuotaEntry(dict(entity), dict(values)) for entity, values in quotas.items()])


@route("GET", "/quotas/use", needs=DESCRIBE_CLUSTER, query=PageQuery, answer=Page[QuotaUseEntry])
async def list_quota_use(request: AdminRequest) -> AdminReply:
    """Who uses how much of what, on all brokers. Clients without a quota are counted from the first request on."""
    return AdminReply(_USE.page(await request.services.monitor.quota_use(), request.query(PageQuery)))
