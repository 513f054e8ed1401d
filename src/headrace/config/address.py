"""Parsing of HOST:PORT: `127.0.0.1:9092`, `:9092` (every address), `[::1]:9092`, `broker.example.org`."""

from ipaddress import ip_address

from headrace.model.errors import SettingsError
from headrace.model.image import Endpoint

EVERY_ADDRESS = frozenset({"", "*", "0.0.0.0", "::"})
"""Hosts that mean all addresses of this machine, IPv4 and IPv6."""


def parse_address(text: str, *, default_port: int | None = None) -> Endpoint:
    """Parse a host and port. A missing port is `default_port`, or a `SettingsError` if there is no default."""
    host, port_text = _split(text.strip())
    if port_text is None:
        if default_port is None:
            raise SettingsError(f"the address {text!r} has no port: write HOST:PORT")
        return Endpoint(host, default_port)
    if not (port_text.isascii() and port_text.isdigit() and int(port_text) <= 65535):
        raise SettingsError(f"the address {text!r} has no valid port: write HOST:PORT with a port from 0 to 65535")
    return Endpoint(host, int(port_text))


def is_loopback(host: str) -> bool:
    """True if the host is a loopback address or `localhost`."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _split(text: str) -> tuple[str, str | None]:
    if "/" in text or any(character.isspace() for character in text):
        raise SettingsError(f"{text!r} is not an address: write HOST:PORT, without a scheme such as PLAINTEXT://")
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or ":" not in host or (rest and not rest.startswith(":")):
            raise SettingsError(f"{text!r} is not an address: write an IPv6 address as [::1]:9092")
        return host, rest[1:] if rest else None
    if text.count(":") > 1:
        raise SettingsError(f"{text!r} is not an address: write an IPv6 address in brackets, as [::1]:9092")
    host, colon, port = text.partition(":")
    return host, port if colon else None
