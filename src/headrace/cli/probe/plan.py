"""What a probe is asked to do."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProbePlan:
    bootstrap: str
    http: str
    """Where queues are served; empty if brokers are to be asked."""
    count: int
    """0 for no end."""
    interval_s: float
    lost_after_s: float
    max_ms: float | None
    paths: tuple[str, ...]
    """topic, queue, or both."""
    topic: str
    queue: str
