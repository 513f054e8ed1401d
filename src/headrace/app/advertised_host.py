"""Where the other brokers of a cluster find this one, when nobody has said so.

Alone, a broker names to each client the address through which it came. In a cluster there must be one address that all
others use. A broker that listens on every address takes the one that this machine has towards etcd, which all brokers
of the cluster can reach, so the network between them is most likely the same.
"""

import socket
from dataclasses import replace

from headrace.config.address import EVERY_ADDRESS, parse_address
from headrace.config.broker import BrokerSettings
from headrace.model.errors import SettingsError

_ETCD_PORT = 2379


def with_address(settings: BrokerSettings) -> BrokerSettings:
    """The settings with `advertise` filled in, where a cluster needs it and it can be found out."""
    if not settings.etcd_endpoints or settings.advertise or settings.listen.host not in EVERY_ADDRESS:
        return settings
    found = [address for text in settings.etcd_endpoints if (address := _address_towards(text))]
    outside = [address for address in found if not address.startswith(("127.", "::1"))]
    chosen = next(iter(outside or found), "")
    return replace(settings, advertise=f"[{chosen}]" if ":" in chosen else chosen) if chosen else settings


def _address_towards(endpoint: str) -> str:
    """The address of this machine from which packets to `endpoint` would leave. None is sent."""
    try:
        where = parse_address(endpoint.partition("://")[2].rstrip("/") or endpoint, default_port=_ETCD_PORT)
        family, kind, _, _, address = socket.getaddrinfo(where.host, where.port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except (OSError, UnicodeError, SettingsError):
        return ""
