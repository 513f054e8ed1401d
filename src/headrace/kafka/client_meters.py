"""Which accounts count what a client uses."""

from headrace.kafka.dispatch import Context, Peer
from headrace.kafka.metered_request import PRODUCE, ClientMeter, MeteredRequest
from headrace.kafka.services import Services
from headrace.model.acls import CLUSTER_NAME, AclOperation, ResourceType
from headrace.model.users import USER_TYPE
from headrace.protocol.codec import RequestHeader
from headrace.quotas.broker_quotas import BrokerQuotas
from headrace.replication.peers import BROKER_SOFTWARE

_PRINCIPAL_PREFIX = f"{USER_TYPE}:"


def client_meter(quotas: BrokerQuotas, header: RequestHeader, peer: Peer, services: Services) -> ClientMeter:
    """What counts the use of a client; nothing is counted for brokers and for clients without a quota."""
    clock, accounts = services.clock, None
    if not _is_broker(peer, services):
        found = quotas.accounts.client(user_of(peer), header.client_id or "", int(clock.monotonic_ms()))
        accounts = found if any(found.all()) else None
    return ClientMeter(quotas, header.client_id, accounts, clock.monotonic_s)


def begin_metered(
    quotas: BrokerQuotas,
    header: RequestHeader,
    peer: Peer,
    services: Services,
    size_bytes: int,
    now_ms: float,
    *,
    is_known: bool,
) -> MeteredRequest | None:
    """Begin to count a request; None if nothing is to count, or all was counted. `is_known` is whether the client has
    authenticated: before, nothing counts."""
    meter = peer.meter
    if meter is None or meter.generation.is_over or meter.client_id != header.client_id:
        if not is_known:
            return None
        before, meter = meter, client_meter(quotas, header, peer, services)
        peer.meter = meter
        if before is not None:
            before.close(before.now_s() * 1000.0)
    if header.api_key == PRODUCE and size_bytes <= meter.quick_bytes(header.client_id, now_ms):
        meter.count_quick(size_bytes, now_ms)
        return None
    return meter.begin(header.api_key, size_bytes, now_ms)


def timed_later(context: Context) -> Context:
    """The context of a request that goes on: of a Produce whose bytes were counted at once, the time counts now."""
    meter = context.peer.meter
    if meter is None or not meter.is_timed or context.header.api_key != PRODUCE:
        return context
    return context._replace(metered=meter.current)


def user_of(peer: Peer) -> str:
    """The user that quotas name: the principal without its type."""
    return peer.subject.principal.removeprefix(_PRINCIPAL_PREFIX)


def _is_broker(peer: Peer, services: Services) -> bool:
    """Whether the client is a broker of the cluster: it says so, on the listener of brokers, and may act as one."""
    if peer.listener != services.broker_listener or not peer.client_software.startswith(BROKER_SOFTWARE):
        return False
    security = services.security
    return security.authorizer is None or security.allows(
        peer.subject, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
    )
