"""Who makes a request, as access control and the audit log see it."""

from typing import NamedTuple

from headrace.model.users import ANONYMOUS

NOT_AUTHENTICATED = "none"


class Subject(NamedTuple):
    """An authenticated client; one object for each connection, replaced when it authenticates again."""

    principal: str = ANONYMOUS
    """`User:alice`."""
    host: str = "unknown"
    """The IP address of the client, without its port."""
    mechanism: str = NOT_AUTHENTICATED
    """How it authenticated: none, TLS, a SASL mechanism, or SigV4."""
    listener: str = ""


UNKNOWN = Subject()
