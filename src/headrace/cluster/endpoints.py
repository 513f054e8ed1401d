"""The advertised listener: which address a client is to connect to, with a default that rarely needs configuration.

A client connects to a bootstrap address, requests metadata, and from then on uses the addresses in the response. Which
of them it can reach depends on its network. So, unless `advertise` is set, a broker that listens on every address
advertises the one the client has just used: the local end of its connection. That works on loopback, on each network of
a multi-homed machine, and over IPv6. Behind NAT it does not: set `advertise`.
"""

from headrace.config.address import EVERY_ADDRESS, parse_address
from headrace.model.image import Endpoint

_MAPPED = "::ffff:"


def advertised_endpoint(listen: Endpoint, advertise: str, local: Endpoint) -> Endpoint:
    """The endpoint to advertise to one client. `local` is the local end of its connection (getsockname)."""
    if advertise:
        return parse_address(advertise, default_port=local.port)
    if listen.host not in EVERY_ADDRESS:
        return Endpoint(listen.host, local.port)
    return Endpoint(_plain(local.host), local.port)


def default_endpoint(listen: Endpoint, advertise: str, port: int) -> Endpoint:
    """The endpoint to advertise without a client connection: in logs and in the image. `port` is the bound one."""
    loopback = "127.0.0.1" if listen.host in EVERY_ADDRESS else listen.host
    return advertised_endpoint(listen, advertise, Endpoint(loopback, port))


def _plain(host: str) -> str:
    """The host, as IPv4 if it is an IPv4-mapped IPv6 address."""
    return host[len(_MAPPED) :] if host.lower().startswith(_MAPPED) and "." in host else host
