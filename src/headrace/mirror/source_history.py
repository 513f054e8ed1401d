"""Asks the new source of a reversed topic for its leader epochs, and compares them with those of a partition here.

Only a leader that was elected for the takeover or later is asked, and only when its first record of its own is
committed. Before that another replica, which has mirrored less, may be elected there, and the histories part earlier.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from headrace.mirror.divergence import EndOfEpoch, parting_offset
from headrace.mirror.source import CALL_TIMEOUT_S, SourceCluster, SourcePartition
from headrace.model.errors import PeerUnavailable, ProtocolError, SourceUnavailable
from headrace.model.ids import NO_LEADER
from headrace.protocol.client_codec import request_schema
from headrace.protocol.codec import make
from headrace.replication.partition import Partition

_LANE = "history"
_EPOCH_ENDS, _EPOCH_ENDS_VERSION = 23, 4
_LIST_OFFSETS, _LIST_OFFSETS_VERSION = 2, 7
_LATEST, _EARLIEST = -1, -2


class SourceHistory:
    """The history of one partition of the source. Calls raise `SourceUnavailable`."""

    def __init__(self, source: SourceCluster, topic: str, index: int) -> None:
        self._source = source
        self._topic = topic
        self._index = index

    async def committed_end(self, leader: SourcePartition) -> int:
        """The high watermark. A leader that was just elected, and does not know it yet, does not answer."""
        return await self._offset(leader, _LATEST)

    async def parting(self, partition: Partition, promoted_epoch: int, end: int) -> int:
        """The offset up to which a partition here, which ends at `end`, has the history of the source.

        All questions go to one leader epoch, so they are about one log.
        """
        log = partition.log
        leader = self._leader()
        start = await self._offset(leader, _EARLIEST)
        await self._check_promoted(leader, promoted_epoch, start)
        steps = parting_offset(
            log.epochs, start=log.start_offset, end=end, source_start=start, promoted_epoch=promoted_epoch
        )
        try:
            asked = next(steps)
            while True:
                asked = steps.send(await self._end_of(leader, asked))
        except StopIteration as found:
            return int(found.value)

    async def _check_promoted(self, leader: SourcePartition, promoted_epoch: int, start: int) -> None:
        """Raise `SourceUnavailable` unless the end of what was mirrored there is committed, or was deleted."""
        _, mirrored_end = await self._end_of(leader, promoted_epoch - 1)
        is_deleted = mirrored_end <= start != 0
        is_committed = is_deleted or await self._offset(leader, _LATEST) > mirrored_end
        if leader.leader_epoch < promoted_epoch or not is_committed:
            raise SourceUnavailable(f"{self._topic}-{self._index} is still being taken over in the other cluster")

    async def _end_of(self, leader: SourcePartition, epoch: int) -> EndOfEpoch:
        schema = request_schema(_EPOCH_ENDS, _EPOCH_ENDS_VERSION)
        part: Any = make(
            schema.OffsetForLeaderPartition,
            partition=self._index,
            current_leader_epoch=leader.leader_epoch,
            leader_epoch=epoch,
        )
        topic: Any = make(schema.OffsetForLeaderTopic, topic=self._topic, partitions=(part,))
        found = await self._call(leader, make(schema.OffsetForLeaderEpochRequest, replica_id=-1, topics=(topic,)))
        return int(found.leader_epoch), int(found.end_offset)

    async def _offset(self, leader: SourcePartition, timestamp: int) -> int:
        schema = request_schema(_LIST_OFFSETS, _LIST_OFFSETS_VERSION)
        part: Any = make(
            schema.ListOffsetsPartition,
            partition_index=self._index,
            current_leader_epoch=leader.leader_epoch,
            timestamp=timestamp,
        )
        topic: Any = make(schema.ListOffsetsTopic, name=self._topic, partitions=(part,))
        request: Any = make(schema.ListOffsetsRequest, replica_id=-1, isolation_level=0, topics=(topic,))
        return int((await self._call(leader, request)).offset)

    async def _call(self, leader: SourcePartition, request: Any) -> Any:
        try:
            answer = await self._source.peers.call(leader.leader, request, lane=_LANE, timeout_s=CALL_TIMEOUT_S)
        except (PeerUnavailable, ProtocolError) as error:
            raise SourceUnavailable(f"the source cluster of the link {self._source.link.name}: {error}") from None
        part = _only(_only(answer.topics).partitions)
        if part.error_code is not ErrorCode.none:
            raise SourceUnavailable(f"the source refuses {self._topic}-{self._index}: {part.error_code.name}")
        return part

    def _leader(self) -> SourcePartition:
        """The leader of the partition, and its leader epoch: it refuses a call of another one."""
        topic = self._source.topics.get(self._topic)
        found = None if topic is None or self._index >= len(topic.partitions) else topic.partitions[self._index]
        if found is None or found.leader == NO_LEADER:
            raise SourceUnavailable(f"no broker of the source leads {self._topic}-{self._index}")
        return found


async def behind_source(source: SourceCluster, topic: str, ends: Mapping[int, int]) -> str:
    """Why a mirror with these ends of its partitions may lack something that the source has committed; empty if it has
    everything.

    Fetches do not tell: a leader that was just elected answers them with the high watermark that it knew as a follower,
    and one that was deposed, and has not heard of it, with the end that it knew.
    """
    try:
        await source.refresh()
        leaders = await source.newest_leaders(topic)
        for index, end in ends.items():
            if index >= len(leaders) or leaders[index].leader == NO_LEADER:
                return f"no broker of the source leads partition {index}"
            if (there := await SourceHistory(source, topic, index).committed_end(leaders[index])) > end:
                return f"partition {index} ends at {there} at the source, and here at {end}"
    except SourceUnavailable as error:
        return str(error)
    return ""


def _only(answers: Iterable[Any]) -> Any:
    found = tuple(answers)
    if len(found) != 1:
        raise SourceUnavailable(f"the source answers {len(found)} entries, not the one that was asked for")
    return found[0]
