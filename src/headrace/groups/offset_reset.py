"""Computes the new offsets of a group that is reset. Pure."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ResetTarget:
    """Exactly one of these is given."""

    to_earliest: bool = False
    to_latest: bool = False
    to_time_ms: int | None = None
    to_offset: int | None = None
    shift_by: int | None = None


@dataclass(frozen=True, slots=True)
class Bounds:
    """The start and end of a partition, and its first offset at or after the wanted time (its end if there is none)."""

    first: int
    end: int
    at_time: int | None = None


@dataclass(frozen=True, slots=True)
class OffsetMove:
    topic: str
    partition: int
    before: int | None
    after: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def new_offset(target: ResetTarget, bounds: Bounds, committed: int | None) -> int:
    """The offset to commit. A group that has committed nothing is shifted from the beginning."""
    if target.to_earliest:
        return bounds.first
    if target.to_latest:
        return bounds.end
    if target.to_offset is not None:
        wanted = target.to_offset
    elif target.shift_by is not None:
        wanted = (bounds.first if committed is None else committed) + target.shift_by
    else:
        wanted = bounds.end if bounds.at_time is None else bounds.at_time
    return min(max(wanted, bounds.first), bounds.end)
