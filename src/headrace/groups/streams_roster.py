"""The members of a streams group (KIP-1071). Pure."""

from collections.abc import Iterable

from headrace.groups.epoch_roster import EpochRoster
from headrace.groups.group import GroupLimits
from headrace.groups.records import GroupRecord
from headrace.groups.streams_member import StreamsMember
from headrace.groups.streams_records import StreamsValue
from headrace.groups.streams_state import StreamsDraft, StreamsState
from headrace.groups.streams_tasks import TaskSet


class StreamsRoster(EpochRoster[StreamsValue, StreamsMember, TaskSet]):
    max_size_setting = "group.streams.max.size"
    holdings_name = "tasks"

    def __init__(self, group_id: str, limits: GroupLimits) -> None:
        self.state = StreamsState(group_id)
        super().__init__(self.state, limits.streams.max_size)
        self._limits = limits.streams

    def draft(self) -> StreamsDraft:
        return StreamsDraft(self.state)

    @property
    def session_timeout_ms(self) -> int:
        return self._limits.session_timeout_of(self.group_id)

    def remove(self, member_ids: Iterable[str]) -> list[GroupRecord]:
        """Remove members: others get their tasks at their next heartbeats."""
        draft = self.draft()
        for member_id in member_ids:
            draft.remove(member_id)
            self.deadlines.remove(member_id)
        draft.bump()
        return draft.records()
