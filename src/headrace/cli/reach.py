"""Whether anybody is at an address at all: asked before a client library is, which would try again for seconds."""

import socket

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


def _accepts_connections(address: str) -> bool:
    try:
        where = parse_address(address, default_port=9092)
        socket.create_connection((where.host, where.port), CONNECT_TIMEOUT_S).close()
    except SettingsError as error:
        raise BadArgument(str(error)) from None
    except OSError:
        return False
    return True
