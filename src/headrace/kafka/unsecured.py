"""Answers of a broker without access control and authentication to requests about them."""

from datetime import UTC, datetime

NO_ACCESS_CONTROL = "authorization is off on this broker (authorization.enable=false): every client may do everything"
NO_AUTHENTICATION = "this broker does not authenticate its clients: connect without SASL"

USER, ANONYMOUS = "User", "ANONYMOUS"
"""Kafka's principal for a client that has not authenticated."""
NO_TIME = datetime.fromtimestamp(0, UTC)
"""The value of a required time that does not apply; Kafka sends -1, which kio cannot encode."""
