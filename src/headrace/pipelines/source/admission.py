"""How much a micro-batch of a stream may take, and when there is one. Time is given, so tests turn the clock."""

from collections.abc import Callable, Mapping

from headrace.pipelines.source.offsets import Offsets, Partition, in_turn, limited, limited_bytes
from headrace.pipelines.source.options import SourceOptions
from headrace.runtime.clock import Clock

Weigh = Callable[[], Mapping[Partition, float]]


class Admission:
    def __init__(self, options: SourceOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._last_batch_ms: float | None = None
        self._after: Partition | None = None
        """Who was first the last time: the next one is whoever comes behind."""

    def admit(
        self, begin: Offsets, latest: Offsets, *, everything: bool, is_last: bool, weigh: Weigh
    ) -> dict[Partition, int] | None:
        """Where the next micro-batch ends, or None if it is to wait for more.

        `everything` ignores all limits, as `Trigger.Once` wants. `is_last` says that nothing will come any more: then
        too little is not waited for. `weigh` tells what an offset of each partition weighs, if that is needed.
        """
        if everything:
            return dict(latest)
        if self._is_too_little(begin, latest) and not is_last:
            return None
        end = dict(latest)
        if self._options.max_offsets is not None:
            end = limited(begin, end, self._options.max_offsets, self._after)
        if self._options.max_bytes is not None:
            end = limited_bytes(begin, end, self._options.max_bytes, weigh(), self._after)
        self._after = next(iter(in_turn(begin, end, self._after)), None)
        return end

    def _is_too_little(self, begin: Offsets, latest: Offsets) -> bool:
        """Less than minOffsetsPerTrigger, and not waited for as long as maxTriggerDelay yet."""
        if self._options.min_offsets is None:
            return False
        now_ms = self._clock.monotonic_ms()
        waited = self._last_batch_ms is None or now_ms - self._last_batch_ms >= self._options.max_trigger_delay_ms
        size = sum(max(0, end - begin[partition]) for partition, end in latest.items())
        if size < self._options.min_offsets and not waited:
            return True
        self._last_batch_ms = now_ms
        return False
