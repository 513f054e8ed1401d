"""The figures of mirror partitions: those that this broker leads, and those of the other leaders, by a call."""

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Protocol
from uuid import UUID

from msgspec.structs import replace

from headrace.cluster.metadata import Metadata
from headrace.mirror.last_known import FigureKey, LastKnown
from headrace.mirror.progress import MirrorProgress, StateProgress
from headrace.mirror.reports import AskMirrorFigures, PartitionFigures
from headrace.model.errors import HeadraceError
from headrace.model.ids import BrokerId
from headrace.replication.calls import ask
from headrace.replication.partitions import PartitionTable
from headrace.replication.peers import Peers

LANE = "links"
_TIMEOUT_S = 2.0
_TOPICS_PER_CALL = 1_000


class Copying(Protocol):
    """What copies records into the mirror partitions that this broker leads."""

    def progress(self, topic_id: UUID, index: int) -> MirrorProgress | None:
        """The progress of a partition, as it was if nothing is copied now; None if nothing was copied here."""
        ...


class NothingCopied:
    """A broker without fetchers of links."""

    def progress(self, topic_id: UUID, index: int) -> MirrorProgress | None:
        return None


class Figures:
    def __init__(
        self,
        metadata: Metadata,
        partitions: PartitionTable,
        copying: Copying,
        peers: Peers | None,
        known: LastKnown | None = None,
    ) -> None:
        """`known` has the figures of partitions whose leaders do not answer."""
        self._metadata = metadata
        self._partitions = partitions
        self._copying = copying
        self._peers = peers
        self.state_progress: Callable[[UUID], StateProgress | None] = lambda _: None
        """How far the state of the mirror of a queue is, by topic; None for others."""
        self._known = known or LastKnown()

    def own(self, topic_ids: Iterable[UUID]) -> list[PartitionFigures]:
        """Those of the partitions of mirror topics that this broker leads."""
        image = self._metadata.image
        found: list[PartitionFigures] = []
        for topic_id in topic_ids:
            topic, mirror = image.topic_by_id(topic_id), image.mirrors.get(topic_id)
            if topic is None or mirror is None:
                continue
            for partition in self._partitions.of_topic(topic.name):
                if partition.topic_id == topic_id and partition.is_leader:
                    found_here = self._copying.progress(topic_id, partition.index) if mirror.is_read_only else None
                    log, progress = partition.log, found_here or MirrorProgress()
                    state = (self.state_progress(topic_id) if mirror.is_read_only else None) or StateProgress()
                    found.append(
                        PartitionFigures(
                            topic_id,
                            partition.index,
                            log.high_watermark,
                            log.epochs.latest,
                            progress.source_end,
                            progress.caught_up_ms,
                            progress.contact_ms,
                            progress.bytes_copied,
                            progress.lost_messages,
                            progress.error,
                            progress.is_faulted,
                            progress.undecided,
                            progress.since_ms,
                            progress.looked_ms,
                            state.copied_ms,
                            state.error,
                            progress.is_inherited,
                            state.end,
                        )
                    )
        return found

    async def of(self, topic_ids: Collection[UUID]) -> dict[FigureKey, PartitionFigures]:
        """Those of all partitions: of those whose leaders do not answer the last known ones, if there are any."""
        image, own_id = self._metadata.image, self._metadata.broker_id
        wanted: dict[BrokerId, dict[UUID, None]] = {}
        for topic_id in topic_ids:
            topic = image.topic_by_id(topic_id)
            for state in () if topic is None else topic.partitions:
                if image.is_alive(state.leader):
                    wanted.setdefault(state.leader, {})[topic_id] = None
        rows = self.own(wanted.pop(own_id, ()))
        for others in await asyncio.gather(*(self.ask(broker_id, list(ids)) for broker_id, ids in wanted.items())):
            rows += others
        found = {(row.topic_id, row.partition): row for row in rows}
        for topic_id in topic_ids:
            topic = image.topic_by_id(topic_id)
            for index in range(0 if topic is None else len(topic.partitions)):
                known = self._known.get((topic_id, index))
                if known is not None and (topic_id, index) not in found:
                    found[topic_id, index] = replace(known, error="its leader does not answer", is_inherited=True)
        return found

    async def ask(self, broker_id: BrokerId, topic_ids: list[UUID]) -> list[PartitionFigures]:
        """Those of the partitions of these topics that another broker leads; none if it does not answer."""
        rows: list[PartitionFigures] = []
        try:
            for first in range(0, len(topic_ids), _TOPICS_PER_CALL):
                call = AskMirrorFigures(topic_ids[first : first + _TOPICS_PER_CALL])
                if self._peers is not None:
                    rows += await ask(
                        self._peers, broker_id, call, list[PartitionFigures], lane=LANE, timeout_s=_TIMEOUT_S
                    )
        except HeadraceError:
            pass  # The broker is shown without figures.
        return rows
