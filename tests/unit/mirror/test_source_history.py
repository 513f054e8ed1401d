"""Where a partition parts from its new source is asked only of a leader that is sure of it."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from headrace.mirror.source import SourcePartition, SourceTopic
from headrace.mirror.source_history import SourceHistory, behind_source
from headrace.model.errors import SourceUnavailable
from headrace.model.ids import NO_LEADER, BrokerId
from headrace.storage.epochs import Epochs

PROMOTED = 100


class NewSource:
    """A broker that leads the only partition, with its epochs and offsets; it answers as Kafka's API does."""

    link = SimpleNamespace(name="us")

    def __init__(self, epochs: Epochs, *, epoch: int, end: int, committed: int, start: int = 0) -> None:
        self._epochs, self._epoch, self._end = epochs, epoch, end
        self._committed, self._start = committed, start
        self.known_epoch = epoch
        self.knows_committed = True
        self.leader = BrokerId(1)
        self.peers = self

    @property
    def topics(self) -> dict[str, SourceTopic]:
        partition = SourcePartition(self.leader, self.known_epoch)
        return {"orders": SourceTopic("orders", UUID(int=1), (partition,), is_internal=False)}

    async def refresh(self) -> None:
        pass

    async def newest_leaders(self, name: str) -> tuple[SourcePartition, ...]:
        return self.topics[name].partitions

    async def call(self, broker_id: int, request: Any, *, lane: str, timeout_s: float) -> Any:
        part = request.topics[0].partitions[0]
        error = ErrorCode.none if part.current_leader_epoch == self._epoch else ErrorCode.fenced_leader_epoch
        if hasattr(part, "timestamp"):
            if part.timestamp == -1 and not self.knows_committed:
                error = ErrorCode.offset_not_available
            answer = SimpleNamespace(error_code=error, offset=self._start if part.timestamp == -2 else self._committed)
        else:
            epoch, end = self._epochs.end_offset_for(part.leader_epoch, self._end)
            if part.leader_epoch > self._epochs.latest:
                epoch, end = self._epochs.latest, self._end
            answer = SimpleNamespace(error_code=error, leader_epoch=epoch, end_offset=end)
        return SimpleNamespace(topics=[SimpleNamespace(partitions=[answer])])


def parting(source: NewSource) -> int:
    log = SimpleNamespace(epochs=Epochs.from_entries([(3, 0)]), start_offset=0)
    history = SourceHistory(cast(Any, source), "orders", 0)
    return asyncio.run(history.parting(cast(Any, SimpleNamespace(log=log)), PROMOTED, 90))


def test_the_histories_part_where_the_source_was_promoted() -> None:
    source = NewSource(Epochs.from_entries([(3, 0), (100, 50)]), epoch=100, end=60, committed=60)
    assert parting(source) == 50


def test_a_promotion_that_is_not_committed_says_nothing() -> None:
    """Another replica of the new source may be elected, which has mirrored less than this leader."""
    epochs = Epochs.from_entries([(3, 0), (100, 50)])
    for committed in (40, 50):
        with pytest.raises(SourceUnavailable, match="still being taken over"):
            parting(NewSource(epochs, epoch=100, end=51, committed=committed))
    assert parting(NewSource(epochs, epoch=100, end=51, committed=51)) == 50


def test_a_leader_from_before_the_promotion_says_nothing() -> None:
    with pytest.raises(SourceUnavailable, match="still being taken over"):
        parting(NewSource(Epochs.from_entries([(3, 0)]), epoch=7, end=60, committed=60))


def test_a_leader_of_another_epoch_refuses() -> None:
    source = NewSource(Epochs.from_entries([(3, 0), (100, 50)]), epoch=100, end=60, committed=60)
    source.known_epoch = 101
    with pytest.raises(SourceUnavailable, match="fenced_leader_epoch"):
        parting(source)


def test_a_source_without_a_leader_is_not_available() -> None:
    source = NewSource(Epochs.from_entries([(3, 0), (100, 50)]), epoch=100, end=60, committed=60)
    source.leader = NO_LEADER
    with pytest.raises(SourceUnavailable, match="no broker of the source leads orders-0"):
        parting(source)


def test_everything_is_set_aside_if_the_source_has_deleted_the_parting() -> None:
    source = NewSource(Epochs.from_entries([(104, 70)]), epoch=104, end=70, committed=70, start=70)
    assert parting(source) == 0


def test_a_leader_that_does_not_know_what_is_committed_does_not_say_that_all_is_copied() -> None:
    source = NewSource(Epochs.from_entries([(3, 0)]), epoch=7, end=60, committed=60)

    def why(end: int) -> str:
        return asyncio.run(behind_source(cast(Any, source), "orders", {0: end}))

    assert why(60) == ""
    assert why(59) == "partition 0 ends at 60 at the source, and here at 59"
    source.knows_committed = False
    assert "offset_not_available" in why(60)
    source.leader = NO_LEADER
    assert why(60) == "no broker of the source leads partition 0"
