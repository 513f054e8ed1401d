"""Sets consumer groups back to where a reversed topic parts from its new source, before its log is truncated there.

An offset past the parting was committed for messages that are set aside. The new source has others at these offsets,
which the group has not seen: it would miss them. Groups with members are left to their members, whose clients notice
the truncation by leader epochs (KIP-320).

Every broker does this for the groups that it coordinates; the one that completes the reversal asks all of them first.
A group whose coordinator moves meanwhile could be missed by both: each broker checks that it coordinates what it is
asked for, in the leader epoch that it is asked for.
"""

import logging
from collections.abc import Mapping
from typing import Protocol

from headrace.cluster.metadata import Metadata
from headrace.mirror.figures import LANE
from headrace.mirror.reports import SetGroupsBack
from headrace.mirror.source import GroupOffsets, SourceOffset
from headrace.model.errors import GroupError, MirrorNotReady
from headrace.model.ids import BrokerId
from headrace.model.image import OFFSETS_TOPIC
from headrace.model.links import Mirror, MirrorState
from headrace.replication.calls import ask
from headrace.replication.partitions import PartitionTable
from headrace.replication.peers import Peers

_log = logging.getLogger(__name__)

_TIMEOUT_S = 60.0
_NO_EPOCH = -1


class OwnGroups(Protocol):
    """The groups that this broker coordinates."""

    def names(self) -> list[str]:
        """All of them; raises an error while they are being loaded."""
        ...

    async def offsets(self, group: str) -> Mapping[tuple[str, int], int]:
        """Its committed offsets, by topic and partition."""
        ...

    async def commit(self, group: str, offsets: GroupOffsets) -> None:
        """Commit offsets for a group without members; raises an error if it has any."""
        ...


class GroupSetback:
    def __init__(self, metadata: Metadata, groups: OwnGroups, partitions: PartitionTable, peers: Peers | None) -> None:
        self._metadata = metadata
        self._groups = groups
        self._partitions = partitions
        self._peers = peers

    async def everywhere(self, mirror: Mirror) -> None:
        """Set back the groups of all brokers. Raises an error if one does not answer, or coordinators move."""
        for broker_id, shards in self._coordinators().items():
            call = SetGroupsBack(mirror.topic_id, mirror.reversed_ms, shards)
            if self._peers is None or broker_id == self._metadata.broker_id:
                await self.serve(call)
            else:
                await ask(self._peers, broker_id, call, type(None), lane=LANE, timeout_s=_TIMEOUT_S)

    def _coordinators(self) -> dict[BrokerId, dict[int, int]]:
        """By broker: the partitions of the offsets topic that it leads, with their leader epochs."""
        image = self._metadata.image
        topic = image.topics.get(OFFSETS_TOPIC)
        found: dict[BrokerId, dict[int, int]] = {}
        for index, state in enumerate(() if topic is None else topic.partitions):
            if self._peers is not None and not image.is_alive(state.leader):
                raise MirrorNotReady(f"groups cannot be set back while no broker leads {OFFSETS_TOPIC}-{index}")
            found.setdefault(state.leader, {})[index] = state.leader_epoch
        return found

    async def serve(self, call: SetGroupsBack) -> None:
        """Set back the groups of this broker. Raises an error if it does not coordinate them as asked."""
        for index, epoch in call.coordinates.items():
            shard = self._partitions.get(OFFSETS_TOPIC, index)
            shard.check_leading()
            if self._peers is not None and shard.leader_epoch != epoch:
                raise MirrorNotReady(f"{shard} is at the leader epoch {shard.leader_epoch}, not {epoch}: try again")
        for group in self._groups.names():
            try:
                await self._set_back(call, group)
            except TimeoutError:
                raise MirrorNotReady(f"the group {group} could not be set back in time") from None

    async def _set_back(self, call: SetGroupsBack, group: str) -> None:
        committed = await self._groups.offsets(group)
        image = self._metadata.image
        topic, mirror = image.topic_by_id(call.topic_id), image.mirrors.get(call.topic_id)
        if (
            topic is None
            or mirror is None
            or mirror.reversed_ms < call.reversed_ms
            or not mirror.is_set_aside(len(topic.partitions))
        ):
            raise MirrorNotReady(f"broker {self._metadata.broker_id} does not know yet what was set aside")
        lower = set_back(committed, topic.name, mirror)
        # Another broker may have completed the reversal: what was committed since then stays.
        if lower and mirror.state is MirrorState.REVERSING:
            try:
                await self._groups.commit(group, lower)
            except GroupError as error:
                _log.warning("the group %s is not set back in %s, which is reversed: %s", group, topic.name, error)


def set_back(
    committed: Mapping[tuple[str, int], int], topic: str, mirror: Mirror
) -> dict[tuple[str, int], SourceOffset]:
    """The offsets that a group gets in place of those past the parting."""
    found: dict[tuple[str, int], SourceOffset] = {}
    for parting in mirror.partings:
        offset = committed.get((topic, parting.partition))
        if offset is not None and offset > parting.offset:
            found[topic, parting.partition] = SourceOffset(parting.offset, _NO_EPOCH, "")
    return found
