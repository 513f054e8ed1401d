"""Decides when the active segment of a log is rolled: when it is full or old enough."""

from zlib import crc32

from headrace.config.topic import TopicSettings
from headrace.runtime.clock import Clock
from headrace.storage.segment import Segment

MAX_OFFSET_DELTA = 2**31 - 1
"""The largest relative offset: indexes store offsets relative to the segment's base, in 32 bits."""
_NEVER = 2**63 - 1


class RollLimits:
    """The limits of the active segment as plain numbers, for `Appender.append` to compare with."""

    __slots__ = (
        "_clock",
        "_index_bytes",
        "_roll_age_ms",
        "after_ms",
        "after_offset",
        "interval_bytes",
        "segment_bytes",
        "settings",
    )

    def __init__(self, settings: TopicSettings, clock: Clock, active: Segment) -> None:
        self._clock = clock
        self.configure(settings, active)

    def configure(self, settings: TopicSettings, active: Segment) -> None:
        self.settings = settings
        self._index_bytes = settings.segment_index_bytes
        self.segment_bytes = settings.segment_bytes
        self.interval_bytes = settings.index_interval_bytes
        self.update(active)

    def update(self, active: Segment) -> None:
        """Compute the limits of this segment."""
        settings = self.settings
        # A segment always gets the same share of the jitter; it differs between partitions.
        jitter_ms = min(settings.segment_jitter_ms, settings.segment_ms)
        self._roll_age_ms = settings.segment_ms - int(jitter_ms * crc32(str(active.path).encode()) / 2**32)
        first = active.first_timestamp
        self.after_ms = _NEVER if first is None else first + self._roll_age_ms if first >= 0 else -1
        is_full = self.is_index_full(active)
        self.after_offset = -1 if is_full else active.base_offset + MAX_OFFSET_DELTA

    def is_index_full(self, active: Segment) -> bool:
        """Whether one more index entry would exceed `segment.index.bytes`."""
        return active.next_index_bytes > self._index_bytes

    def is_due(self, segment: Segment, timestamp: int, last_offset: int) -> bool:
        """Whether a batch belongs into a new segment for another reason than size, as Kafka decides it."""
        first = segment.first_timestamp
        if timestamp >= 0 and first is not None and first >= 0:
            age_ms = timestamp - first
        else:
            age_ms = self._clock.wall_ms() - segment.created_ms
        return age_ms > self._roll_age_ms or last_offset > self.after_offset
