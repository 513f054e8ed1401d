"""The bound on a backlog, and what happens to records beyond it. Pure."""

from enum import StrEnum
from typing import NamedTuple


class BacklogPolicy(StrEnum):
    BLOCK = "block"
    """Producers wait until there is room."""
    REFUSE = "refuse"
    """Producers get an error that they do not retry."""
    DROP_OLDEST = "drop-oldest"
    """The oldest are dropped to make room."""


class BacklogBound(NamedTuple):
    """How much a backlog may have at most; 0 is no bound. At least one of the three is not 0."""

    messages: int
    size_bytes: int
    age_ms: int
    policy: BacklogPolicy

    @property
    def drops(self) -> bool:
        return self.policy is BacklogPolicy.DROP_OLDEST

    @property
    def blocks(self) -> bool:
        return self.policy is BacklogPolicy.BLOCK


def backlog_bound(messages: int, size_bytes: int, age_ms: int, policy: str) -> BacklogBound | None:
    """None if nothing is bounded."""
    if not (messages or size_bytes or age_ms):
        return None
    return BacklogBound(messages, size_bytes, age_ms, BacklogPolicy(policy))
