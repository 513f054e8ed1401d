"""Brokers whose lease has just ended, which Metadata lists for a while longer.

A client that learns in one answer both that a broker is gone and that its partitions have a new leader may confuse the
two: librdkafka 2.16 removes the partitions from the new leader again while it drops the old broker, and refreshes its
metadata only a second later. A client that learns of the new leader first continues at once. The broker was listed
until its lease ended anyway, dead or not, so clients must handle a listed broker that does not answer.
"""

from headrace.model.ids import BrokerId
from headrace.model.image import ClusterImage
from headrace.runtime.clock import Clock

NAMED_FOR_MS = 5_000.0
"""Clients that have lost a leader refresh their metadata about once per second."""


class Departures:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._gone_at_ms: dict[BrokerId, float] = {}

    def image_changed(self, old: ClusterImage, new: ClusterImage) -> None:
        """Record brokers whose lease has ended. A listener of `Metadata`."""
        for broker in old.alive_brokers():
            if not new.is_alive(broker.broker_id):
                self._gone_at_ms[broker.broker_id] = self._clock.monotonic_ms()

    def recent(self) -> frozenset[BrokerId]:
        """Return the brokers that left recently; some may have registered again."""
        if not self._gone_at_ms:
            return frozenset()
        since_ms = self._clock.monotonic_ms() - NAMED_FOR_MS
        self._gone_at_ms = {broker: at_ms for broker, at_ms in self._gone_at_ms.items() if at_ms > since_ms}
        return frozenset(self._gone_at_ms)
