"""Periodically deletes expired offsets, and groups that have neither members nor offsets."""

from functools import partial

from headrace.coordinator.coordinator import Coordinator
from headrace.coordinator.shard import Shard
from headrace.groups.machine import GroupMachine
from headrace.runtime.clock import Clock

_TIMER = "retention"
_STEP_MS = 20.0


class OffsetRetention:
    def __init__(self, coordinator: Coordinator[GroupMachine], clock: Clock, interval_ms: int) -> None:
        self._coordinator = coordinator
        self._clock = clock
        self._interval_ms = interval_ms

    def start(self) -> None:
        due_ms = self._clock.monotonic_ms() + self._interval_ms
        self._coordinator.timers.set(_TIMER, due_ms, self._expire)

    def _expire(self) -> None:
        """Expire offsets shard by shard, yielding to other work in between."""
        self.start()
        due_ms = self._clock.monotonic_ms()
        for shard in self._coordinator.shards():
            self._coordinator.timers.set((_TIMER, shard.partition.index), due_ms, partial(self._expire_in, shard))
            due_ms += _STEP_MS

    def _expire_in(self, shard: Shard[GroupMachine]) -> None:
        shard.run(lambda _: shard.machine.expire_offsets(self._clock.wall_ms()))
