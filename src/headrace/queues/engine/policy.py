"""How the engines of queues and of share groups differ: what they persist, and where dead messages go. Pure."""

from dataclasses import dataclass

from headrace.config.queue import MAX_VISIBILITY_MS


@dataclass(frozen=True, slots=True)
class EnginePolicy:
    persist_leases: bool = True
    """Whether leases survive a restart. If not, only the attempts do, and an attempt that a restart cut short does not
    count towards the receive limit: its receiver may not have failed."""
    persist_index: bool = True
    """Whether the index of the log survives a restart. If not, the log is indexed again from the head on, which is
    possible for plain messages only."""
    limit_needs_dead_letter: bool = True
    """Whether the receive limit holds only where the settings name a dead-letter queue."""
    longest_lease_ms: int | None = MAX_VISIBILITY_MS
    """From the receive on, including all extensions."""
    rejected_reason: str | None = None
    """A message that is returned with this reason is dead, however often it was received."""


QUEUE_POLICY = EnginePolicy()
