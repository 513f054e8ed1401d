"""Answers of a broker without access control and authentication to requests about them."""

from datetime import UTC, datetime

NO_ACCESS_CONTROL = "access control is not configured on this broker: every client may do everything"
NO_AUTHENTICATION = "this broker does not authenticate its clients: connect without SASL"
NO_USERS = "this broker does not authenticate its clients, so there are no users with passwords"

USER, ANONYMOUS = "User", "ANONYMOUS"
"""Kafka's principal for a client that has not authenticated."""
NO_TIME = datetime.fromtimestamp(0, UTC)
"""The value of a required time that does not apply; Kafka sends -1, which kio cannot encode."""
