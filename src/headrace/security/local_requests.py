"""Which HTTP requests come from a program on the broker's machine, and not from a web page or through a proxy. Pure."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from headrace.config.address import is_loopback

_PROXY_HEADERS = ("forwarded", "x-forwarded-for", "x-real-ip", "via")
_MAPPED = "::ffff:"

Headers = Mapping[str, str]
"""By name in lower case."""


def is_local(headers: Headers, scheme: str, client: str) -> bool:
    """Whether a program on this machine has sent a request to it under a name of this machine."""
    return is_direct(headers, scheme) and is_loopback(client) and is_loopback(host_name(headers))


def is_direct(headers: Headers, scheme: str) -> bool:
    """Whether neither a page of another site nor a proxy has sent a request."""
    return is_same_origin(headers, scheme) and not any(name in headers for name in _PROXY_HEADERS)


def is_same_origin(headers: Headers, scheme: str) -> bool:
    """Whether no page of another site has sent a request."""
    own = f"{scheme}://{headers.get('host', 'localhost')}"
    return headers.get("origin", own) == own and headers.get("sec-fetch-site", "none") in ("none", "same-origin")


def host_name(headers: Headers) -> str:
    """The name in the `Host` header, without its port."""
    try:
        return urlsplit(f"//{headers.get('host', 'localhost')}").hostname or ""
    except ValueError:
        return ""


def client_of(client: tuple[str, int] | None) -> str:
    """The address of a client, as ASGI gives it."""
    return str(client[0]).removeprefix(_MAPPED) if client else "unknown"
