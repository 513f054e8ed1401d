"""The clients that are connected, those that push metrics of theirs (KIP-714), and subscriptions to such metrics."""

from collections import defaultdict

import msgspec

from headrace.admin.errors import AdminError
from headrace.admin.pages import Listing, Page, PageQuery
from headrace.admin.routes import DESCRIBE_CLUSTER, DESCRIBE_CLUSTER_CONFIGS, AdminReply, AdminRequest, route
from headrace.monitor.clients.connected import ConnectedClient
from headrace.monitor.clients.subscriptions import subscription_of
from headrace.monitor.clients.view import ClientStat

_MAX_INSTANCES = 20


class ConnectedEntry(msgspec.Struct, frozen=True):
    client_id: str
    software: str
    """Name and version, as the client gives them."""
    address: str
    principal: str
    listener: str
    connections: int
    """Open ones; those with the same client id, software, address, user and listener count together."""
    requests: int
    received_bytes: int
    """From the client, over these connections."""
    sent_bytes: int
    brokers: list[int]
    """The brokers that it is connected to."""
    client_instance_ids: list[str]
    """Of those, at most 20, that push metrics with this client id from this address."""


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


_PUSHING: Listing[ClientStat, ClientEntry] = Listing(ClientEntry, _entry, name="client_id")


@route("GET", "/clients", needs=DESCRIBE_CLUSTER, query=PageQuery, answer=Page[ConnectedEntry])
async def list_clients(request: AdminRequest) -> AdminReply:
    """The clients that are connected to any broker over Kafka's protocol, with what they have sent and received."""
    monitor = request.services.monitor
    instances: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for each in await monitor.clients():
        instances[each.client_id, each.address].append(each.client_instance_id)

    def shown(found: ConnectedClient) -> ConnectedEntry:
        pushing = instances.get((found.client_id, found.address), [])[:_MAX_INSTANCES]
        return ConnectedEntry(**msgspec.structs.asdict(found), client_instance_ids=pushing)

    listing: Listing[ConnectedClient, ConnectedEntry] = Listing(ConnectedEntry, shown, name="client_id")
    return AdminReply(listing.page(await monitor.connected_clients(), request.query(PageQuery)))


@route("GET", "/client-metrics", needs=DESCRIBE_CLUSTER, query=PageQuery, answer=Page[ClientEntry])
async def list_pushing_clients(request: AdminRequest) -> AdminReply:
    """The clients that ask which metrics to push, with what they have pushed."""
    return AdminReply(_PUSHING.page(await request.services.monitor.clients(), request.query(PageQuery)))


@route("GET", "/client-metrics/{client_instance_id}", needs=DESCRIBE_CLUSTER, answer=ClientView)
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
