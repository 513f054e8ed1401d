"""What a broker without access control and authentication says to requests about them."""

from datetime import UTC, datetime

NO_ACCESS_CONTROL = "access control is not configured on this broker: everybody may do everything"
NO_AUTHENTICATION = "this broker does not authenticate its clients: connect without SASL"
NO_USERS = "this broker does not authenticate its clients, so there are no users with passwords"

USER, ANONYMOUS = "User", "ANONYMOUS"
"""Who a client is that has not authenticated, as Kafka names it."""
NO_TIME = datetime.fromtimestamp(0, UTC)
"""Where the protocol wants a time and there is none; Kafka sends -1, which kio does not write."""
