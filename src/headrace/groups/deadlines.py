"""The deadlines of the members of a group. Pure.

A heartbeat moves a member's deadline later, but not the wake-up time: that is recomputed when it is reached, so that a
heartbeat does not iterate over all members.
"""

from typing import NamedTuple

from headrace.groups.group import Now


class Deadline(NamedTuple):
    session_ms: float
    acts_by_ms: float | None = None
    """The deadline for revoking holdings; for a member of the classic protocol also for joining or syncing."""

    @property
    def next_ms(self) -> float:
        return self.session_ms if self.acts_by_ms is None else min(self.session_ms, self.acts_by_ms)


class MemberDeadlines:
    def __init__(self) -> None:
        self._by_member: dict[str, Deadline] = {}
        self._wake_ms: float | None = None
        """A lower bound of all deadlines."""

    def set(self, member_id: str, deadline: Deadline) -> None:
        self._by_member[member_id] = deadline
        if self._wake_ms is None or deadline.next_ms < self._wake_ms:
            self._wake_ms = deadline.next_ms

    def acts_by_ms(self, member_id: str) -> float | None:
        deadline = self._by_member.get(member_id)
        return None if deadline is None else deadline.acts_by_ms

    def remove(self, member_id: str) -> None:
        self._by_member.pop(member_id, None)

    def clear(self) -> None:
        self._by_member.clear()
        self._wake_ms = None

    def next_ms(self) -> float | None:
        return self._wake_ms if self._by_member else None

    def late(self, now: Now) -> list[str]:
        """The members whose deadline has passed."""
        return [member_id for member_id, deadline in self._by_member.items() if deadline.next_ms <= now.ms]

    def rewind(self) -> None:
        """Recompute the wake-up time."""
        self._wake_ms = min((deadline.next_ms for deadline in self._by_member.values()), default=None)
