"""The default of `advertise` in a cluster.

A single node advertises to each client the address the client connected to. In a cluster all brokers need one address.
A broker that listens on every address advertises this machine's address on the route to etcd: all brokers reach etcd,
so they most likely share that network.
"""

import socket
from dataclasses import replace

from headrace.config.address import EVERY_ADDRESS, parse_address
from headrace.config.broker import BrokerSettings
from headrace.model.errors import SettingsError

_ETCD_PORT = 2379


def with_advertised_host(settings: BrokerSettings) -> BrokerSettings:
    """The settings with `advertise` filled in, if a cluster needs it and it can be determined."""
    if not settings.etcd_endpoints or settings.advertise or settings.listen.host not in EVERY_ADDRESS:
        return settings
    found = [address for text in settings.etcd_endpoints if (address := _address_towards(text))]
    outside = [address for address in found if not address.startswith(("127.", "::1"))]
    chosen = next(iter(outside or found), "")
    return replace(settings, advertise=f"[{chosen}]" if ":" in chosen else chosen) if chosen else settings


def _address_towards(endpoint: str) -> str:
    """This machine's source address for packets to `endpoint`; no packet is sent. Empty if unknown."""
    try:
        where = parse_address(endpoint.partition("://")[2].rstrip("/") or endpoint, default_port=_ETCD_PORT)
        family, kind, _, _, address = socket.getaddrinfo(where.host, where.port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except (OSError, UnicodeError, SettingsError):
        return ""
