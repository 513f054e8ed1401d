"""What has happened to the messages of one queue on the broker that leads it, since it does. Pure."""


class QueueCounts:
    __slots__ = (
        "dead_lettered",
        "deleted",
        "dropped",
        "empty_receives",
        "last_received_ms",
        "received",
        "redelivered",
        "returned",
        "sent",
    )

    def __init__(self) -> None:
        self.sent = 0
        """Through any protocol; a message that de-duplication dropped does not count."""
        self.received = 0
        self.redelivered = 0
        """Of those received, those that had been received before."""
        self.empty_receives = 0
        """Receives that ended without messages."""
        self.deleted = 0
        self.dropped = 0
        """Because the backlog was at its bound."""
        self.returned = 0
        self.dead_lettered = 0
        self.last_received_ms: int | None = None
        """When messages were last received."""
