"""Clients that push metrics of theirs to the brokers (KIP-714), and the subscriptions that ask them to."""

import msgspec

from headrace.admin.errors import AdminError
from headrace.admin.pages import Listing, Page, PageQuery
from headrace.admin.routes import DESCRIBE_CLUSTER, DESCRIBE_CLUSTER_CONFIGS, AdminReply, AdminRequest, route
from headrace.monitor.clients.subscriptions import subscription_of
from headrace.monitor.clients.view import ClientStat


class ClientEntry(msgspec.Struct, frozen=True):
    client_instance_id: str
    client_id: str
    software: str
    address: str
    principal: str
    broker_id: int
    """The broker that it pushes to."""
    requested: list[str]
    """Prefixes of the metrics that it is asked for; one empty one for all."""
    interval_ms: int
    pushes: int
    pushed_bytes: int
    values: int
    dropped: int
    heard_ms_ago: int


class ClientMetricValue(msgspec.Struct, frozen=True):
    name: str
    attributes: dict[str, str]
    value: float
    """Of a counter: what was added since the broker knows the client. Of a histogram: the mean of the last push."""
    unit: str


class ClientView(msgspec.Struct, frozen=True):
    client: ClientEntry
    metrics: list[ClientMetricValue]


class ClientSubscriptionEntry(msgspec.Struct, frozen=True):
    name: str
    metrics: list[str]
    interval_ms: int
    match: list[str]


def _entry(found: ClientStat) -> ClientEntry:
    return ClientEntry(**msgspec.structs.asdict(found))


_CLIENTS: Listing[ClientStat, ClientEntry] = Listing(ClientEntry, _entry, name="client_id")


@route("GET", "/clients", needs=DESCRIBE_CLUSTER, query=PageQuery, answer=Page[ClientEntry])
async def list_clients(request: AdminRequest) -> AdminReply:
    """The clients that ask which metrics to push, with what they have pushed."""
    return AdminReply(_CLIENTS.page(await request.services.monitor.clients(), request.query(PageQuery)))


@route("GET", "/clients/{client_instance_id}", needs=DESCRIBE_CLUSTER, answer=ClientView)
async def describe_client(request: AdminRequest) -> AdminReply:
    """A client with the metrics that it pushed last."""
    found = await request.services.monitor.client(request.parameters["client_instance_id"])
    if found is None:
        raise AdminError(404, "unknown_client", "no client with this instance id has pushed lately")
    values = [ClientMetricValue(each.name, each.attributes, each.value, each.unit) for each in found.values]
    return AdminReply(ClientView(_entry(found.stat), values))


@route("GET", "/client-subscriptions", needs=DESCRIBE_CLUSTER_CONFIGS, answer=list[ClientSubscriptionEntry])
async def list_subscriptions(request: AdminRequest) -> AdminReply:
    """The subscriptions to metrics of clients."""
    shown = []
    for name, texts in sorted(request.services.metadata.image.client_metrics.items()):
        found, match = subscription_of(texts), texts.get("match", "")
        patterns = [each for each in match.split(",") if each]
        shown.append(ClientSubscriptionEntry(name, sorted(found.metrics), found.interval_ms, patterns))
    return AdminReply(shown)
