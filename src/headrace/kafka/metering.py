"""Which requests count towards the quotas of their client."""

from headrace.kafka.dispatch import Peer
from headrace.kafka.metered_request import MeteredRequest
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
    """A request that counts; None for those of brokers, and for APIs that are exempt."""
    if header.api_key in _EXEMPT or _is_broker(peer, services):
        return None
    now_ms = services.clock.monotonic_ms
    accounts = quotas.accounts.client(user_of(peer), header.client_id or "", int(now_ms()))
    return MeteredRequest(quotas, accounts, size_bytes, now_ms)


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
