"""Rate limits of a stream: where the next micro-batch ends, and whether it starts yet. The clock is injected."""

from collections.abc import Callable, Mapping

from headrace.pipelines.source.offsets import Offsets, Partition, in_turn, limited, limited_bytes
from headrace.pipelines.source.options import SourceOptions
from headrace.runtime.clock import Clock

Weigh = Callable[[], Mapping[Partition, float]]


class BatchAdmission:
    """Applies maxOffsetsPerTrigger, maxBytesPerTrigger, minOffsetsPerTrigger and maxTriggerDelay."""

    def __init__(self, options: SourceOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._last_batch_ms: float | None = None
        self._after: Partition | None = None
        """The partition that was served first last time; the next micro-batch starts with the one after it."""

    def admit(
        self, begin: Offsets, latest: Offsets, *, everything: bool, is_last: bool, weigh: Weigh
    ) -> dict[Partition, int] | None:
        """Where the next micro-batch ends, or None if it has to wait for more records.

        `everything` ignores all limits, for `Trigger.Once`. With `is_last` no more records will come, so the minimum
        does not apply. `weigh` is called for the bytes per offset of each partition, if a limit needs them.
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
        """Fewer than minOffsetsPerTrigger, and maxTriggerDelay has not passed yet."""
        if self._options.min_offsets is None:
            return False
        now_ms = self._clock.monotonic_ms()
        waited = self._last_batch_ms is None or now_ms - self._last_batch_ms >= self._options.max_trigger_delay_ms
        size = sum(max(0, end - begin[partition]) for partition, end in latest.items())
        if size < self._options.min_offsets and not waited:
            return True
        self._last_batch_ms = now_ms
        return False
