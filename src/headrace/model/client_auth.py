"""Whether a TLS listener asks its clients for a certificate."""

from enum import StrEnum


class ClientAuth(StrEnum):
    """Kafka's `ssl.client.auth`."""

    NONE = "none"
    REQUESTED = "requested"
    """A client may present a certificate; one that is presented must be trusted."""
    REQUIRED = "required"
