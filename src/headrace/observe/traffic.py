"""Messages and bytes in and out of a topic on this broker. Pure.

One object for each topic, on which its partitions count: a sum over partitions would fall when one of them moves away.
"""


class TopicTraffic:
    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "messages_dropped",
        "messages_in",
        "messages_out",
        "replicated_in",
        "replicated_out",
        "schema_refusals",
    )

    def __init__(self) -> None:
        self.messages_in = 0
        """Records that were appended by the leader here."""
        self.bytes_in = 0
        """Bytes of their batches, as they were sent."""
        self.messages_out = 0
        """Offsets that consumers were sent, records that share groups and messages that receivers were."""
        self.bytes_out = 0
        """Bytes of batches that consumers were sent, as they are stored. Of messages of a queue the bodies."""
        self.bytes_rejected = 0
        """Bytes of batches that were refused."""
        self.messages_dropped = 0
        """Offsets that were dropped because the backlog was at its bound."""
        self.replicated_in = 0
        """Bytes that this broker has fetched as a follower."""
        self.replicated_out = 0
        """Bytes that followers were sent."""
        self.schema_refusals = 0
        """Records that did not fit their schema, in batches that were refused for it."""

    def add(self, other: "TopicTraffic") -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class TrafficTable:
    """The traffic of all topics that this broker has partitions of."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicTraffic] = {}
        self._former = TopicTraffic()
        """The sum over topics that are gone, so that the total never falls."""

    def of(self, topic: str) -> TopicTraffic:
        found = self.topics.get(topic)
        if found is None:
            found = self.topics[topic] = TopicTraffic()
        return found

    def forget(self, topic: str) -> None:
        """Drop a topic of which this broker has no partition any more."""
        gone = self.topics.pop(topic, None)
        if gone is not None:
            self._former.add(gone)

    def total(self) -> TopicTraffic:
        found = TopicTraffic()
        found.add(self._former)
        for traffic in self.topics.values():
            found.add(traffic)
        return found
