"""Whether anybody is at an address at all: asked before a client library is, which would try again for seconds."""

import socket
from urllib.parse import urlsplit

from headrace.cli.errors import BadArgument, CommandFailed
from headrace.config.address import parse_address
from headrace.model.errors import SettingsError

CONNECT_TIMEOUT_S = 5.0


def check_reachable(bootstrap: str) -> None:
    """`CommandFailed` if none of these addresses accepts connections."""
    if not any(map(_accepts_connections, bootstrap.split(","))):
        raise CommandFailed(nobody_at(bootstrap))


def nobody_at(bootstrap: str) -> str:
    return f"no broker answers at {bootstrap}; `headrace doctor --bootstrap {bootstrap}` finds out why"


def check_http_reachable(urls: str) -> None:
    """`CommandFailed` if none of these addresses of queues accepts connections."""
    if not any(_accepts_connections(_host_and_port(each.strip())) for each in urls.split(",") if each.strip()):
        raise CommandFailed(f"nobody serves queues at {urls}; without --http and HEADRACE_HTTP the broker is asked")


def _host_and_port(url: str) -> str:
    parts = urlsplit(url if "//" in url else f"http://{url}")
    if parts.port is not None or parts.scheme not in ("http", "https"):
        return parts.netloc
    return f"{parts.netloc}:{443 if parts.scheme == 'https' else 80}"


def is_loopback(bootstrap: str) -> bool:
    """Whether a broker is on this machine, by its address."""
    hosts = [parse_address(each, default_port=9092).host for each in bootstrap.split(",")]
    return any(host == "localhost" or host == "::1" or host.startswith("127.") for host in hosts)


def _accepts_connections(address: str) -> bool:
    try:
        where = parse_address(address, default_port=9092)
        socket.create_connection((where.host, where.port), CONNECT_TIMEOUT_S).close()
    except SettingsError as error:
        raise BadArgument(str(error)) from None
    except OSError:
        return False
    return True
