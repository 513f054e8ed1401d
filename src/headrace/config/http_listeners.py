"""Where brokers say that they serve HTTP: their setting `http.listeners`."""

from urllib.parse import urlsplit

LISTENERS = "http.listeners"
"""The setting of a broker that says where it listens, read only: addresses by comma; empty if it does not."""

_ANY = frozenset({"", "0.0.0.0", "::"})


def urls(listeners: str, broker_host: str) -> list[str]:
    """The addresses in a broker's setting. One that listens everywhere is reached where its Kafka side is."""
    found = []
    for each in filter(None, (text.strip() for text in listeners.split(","))):
        parts = urlsplit(each if "//" in each else f"http://{each}")
        host = broker_host if (parts.hostname or "") in _ANY else parts.hostname
        host = f"[{host}]" if ":" in str(host) else host
        found.append(f"{parts.scheme.lower()}://{host}:{parts.port}")
    return found
