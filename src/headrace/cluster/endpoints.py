"""Which address a client is told to connect to: the newcomer's trap of Kafka, with a default that needs no thought.

A client connects to a bootstrap address, asks for metadata, and from then on uses the addresses in the answer. What
it can reach is known only from where it stands. So, unless `advertise` says otherwise, a broker that listens on every
address names the one the client has just used: the local end of its connection. That is right on loopback, on each
network of a machine with several, and over IPv6. Behind NAT it is not, and `advertise` is for that.
"""

from headrace.config.address import EVERY_ADDRESS, parse_address
from headrace.model.image import Endpoint

_MAPPED = "::ffff:"


def advertised_endpoint(listen: Endpoint, advertise: str, local: Endpoint) -> Endpoint:
    """The endpoint to name to one client. `local` is the local end of its connection (getsockname)."""
    if advertise:
        return parse_address(advertise, default_port=local.port)
    if listen.host not in EVERY_ADDRESS:
        return Endpoint(listen.host, local.port)
    return Endpoint(_plain(local.host), local.port)


def default_endpoint(listen: Endpoint, advertise: str, port: int) -> Endpoint:
    """The endpoint to name where no client asks: in logs, and in the image. `port` is the one that was bound."""
    loopback = "127.0.0.1" if listen.host in EVERY_ADDRESS else listen.host
    return advertised_endpoint(listen, advertise, Endpoint(loopback, port))


def _plain(host: str) -> str:
    """An IPv4 address that came in through an IPv6 socket, as IPv4."""
    return host[len(_MAPPED) :] if host.lower().startswith(_MAPPED) and "." in host else host
