"""Kafka's `SampledStat`, `Rate` and `QuotaUtils`, statement by statement: what the engine is compared with."""

from dataclasses import dataclass, field
from math import floor


@dataclass
class _Sample:
    start_ms: int
    last_event_ms: int
    value: float = 0.0


@dataclass
class JavaRate:
    samples_max: int = 11
    window_ms: int = 1000
    samples: list[_Sample] = field(default_factory=list)
    current: int = 0

    def record(self, value: float, now_ms: int) -> None:
        if not self.samples:
            self.samples.append(_Sample(now_ms, now_ms))
        sample = self.samples[self.current]
        if now_ms - sample.start_ms >= self.window_ms:
            self.current = (self.current + 1) % (self.samples_max + 1)
            if self.current >= len(self.samples):
                self.samples.append(_Sample(now_ms, now_ms))
            else:
                self.samples[self.current] = _Sample(now_ms, now_ms)
            sample = self.samples[self.current]
        sample.value += value
        sample.last_event_ms = now_ms

    def _purge(self, now_ms: int) -> None:
        for sample in self.samples:
            if now_ms - sample.last_event_ms >= self.samples_max * self.window_ms:
                sample.start_ms = sample.last_event_ms = now_ms
                sample.value = 0.0

    def window_size(self, now_ms: int) -> int:
        self._purge(now_ms)
        if not self.samples:
            self.samples.append(_Sample(now_ms, now_ms))
        elapsed = now_ms - min(sample.start_ms for sample in self.samples)
        full = elapsed // self.window_ms
        if full < self.samples_max - 1:
            elapsed += (self.samples_max - 1 - full) * self.window_ms
        return max(elapsed, 1)

    def measure(self, now_ms: int) -> float:
        self._purge(now_ms)
        return sum(sample.value for sample in self.samples) / (self.window_size(now_ms) / 1000)

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        rate = self.measure(now_ms)
        return 0 if rate <= bound else floor((rate - bound) / bound * self.window_size(now_ms) + 0.5)
