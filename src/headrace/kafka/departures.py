"""Brokers that have just gone, which Metadata names for a while longer.

A client that hears in one answer that a broker is gone, and that another leads what it led, may get the two mixed up:
librdkafka 2.16 takes the partitions from the new leader again while it parts from the old broker, and asks once more a
whole second later. Whoever hears of the new leader first goes on at once. Until its lease ended the broker was named
anyway, dead or not, so that clients have to cope with a name that does not answer.
"""

from headrace.model.ids import BrokerId
from headrace.model.image import ClusterImage
from headrace.runtime.clock import Clock

NAMED_FOR_MS = 5_000.0
"""Clients look for a leader that they have lost about once in a second."""


class Departures:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._gone_at_ms: dict[BrokerId, float] = {}

    def image_changed(self, old: ClusterImage, new: ClusterImage) -> None:
        """A listener of `Metadata`."""
        for broker in old.alive_brokers():
            if not new.is_alive(broker.broker_id):
                self._gone_at_ms[broker.broker_id] = self._clock.monotonic_ms()

    def recent(self) -> frozenset[BrokerId]:
        """Those that have gone a short while ago; some may be back."""
        if not self._gone_at_ms:
            return frozenset()
        since_ms = self._clock.monotonic_ms() - NAMED_FOR_MS
        self._gone_at_ms = {broker: at_ms for broker, at_ms in self._gone_at_ms.items() if at_ms > since_ms}
        return frozenset(self._gone_at_ms)
