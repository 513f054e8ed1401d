"""Which requests count towards the quotas of their client."""

from headrace.kafka.dispatch import Peer
from headrace.kafka.metered_request import ClientMeter, MeteredRequest
from headrace.kafka.services import Services
from headrace.model.acls import CLUSTER_NAME, AclOperation, ResourceType
from headrace.model.users import USER_TYPE
from headrace.protocol.codec import RequestHeader
from headrace.quotas.broker_quotas import BrokerQuotas
from headrace.replication.peers import BROKER_SOFTWARE

_EXEMPT = frozenset({17, 27, 36, 58})
"""SaslHandshake, WriteTxnMarkers, SaslAuthenticate and Envelope: exempt in Kafka, too."""
_PRINCIPAL_PREFIX = f"{USER_TYPE}:"


def metered_request(
    quotas: BrokerQuotas, header: RequestHeader, peer: Peer, services: Services, size_bytes: int
) -> MeteredRequest | None:
    """A request that counts; None for those of brokers and of clients without a quota, and for APIs that are exempt."""
    meter = peer.meter
    if (
        meter is None
        or meter.generation != quotas.accounts.generation
        or meter.client_id != header.client_id
        or meter.principal != peer.subject.principal
        or meter.software is not peer.client_software
        or meter.quotas is not quotas
    ):
        meter = peer.meter = _meter(quotas, header, peer, services)
    accounts = meter.accounts
    if accounts is None or header.api_key in _EXEMPT:
        return None
    return MeteredRequest(meter, accounts, size_bytes)


def _meter(quotas: BrokerQuotas, header: RequestHeader, peer: Peer, services: Services) -> ClientMeter:
    now_ms = services.clock.monotonic_ms
    accounts = None
    if not _is_broker(peer, services):
        found = quotas.accounts.client(user_of(peer), header.client_id or "", int(now_ms()))
        accounts = found if any(found.all()) else None
    return ClientMeter(quotas, peer.subject.principal, peer.client_software, header.client_id, accounts, now_ms)


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
