"""Which committed offsets of the source's groups are committed here."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast
from uuid import UUID, uuid4

import pytest

from headrace.mirror.group_sync import GroupSync
from headrace.mirror.reports import PartitionFigures
from headrace.mirror.source import GroupOffsets, SourceOffset
from headrace.model.errors import SourceUnavailable
from headrace.model.ids import NO_LEADER, BrokerId, LeaderEpoch, TopicId, TopicName
from headrace.model.image import ClusterImage, PartitionState, TopicImage
from headrace.model.links import Link, Mirror, MirrorState, Parting

EU = Link("eu", uuid4(), ("a:9092",), ("orders",), prefix="eu.")
ORDERS = TopicImage(
    TopicName("eu.orders"),
    TopicId(uuid4()),
    tuple(PartitionState(BrokerId(0), LeaderEpoch(0), (), ()) for _ in range(3)),
)
MIRROR = Mirror(ORDERS.topic_id, "eu", "orders", uuid4(), "other")
END = 100
"""Of every local partition."""


class Cluster:
    """The source with its one group, and the groups, figures and metadata of this cluster."""

    cluster_id = "other"

    def __init__(self, at_source: Mapping[int, int], here: Mapping[int, int]) -> None:
        self.at_source = at_source
        self.here = {("eu.orders", partition): offset for partition, offset in here.items()}
        self.before_commit: Callable[[], object] = lambda: None
        topics, names = {ORDERS.name: ORDERS}, {ORDERS.topic_id: ORDERS.name}
        self.image = ClusterImage("here", NO_LEADER, {}, topics, cast(Any, names), {}, 0, links={"eu": EU})
        self.set_state(MirrorState.MIRRORING)

    def set_state(self, state: MirrorState) -> None:
        self.image = replace(self.image, mirrors={ORDERS.topic_id: replace(MIRROR, state=state)})

    def sync(self) -> None:
        this = cast(Any, self)
        asyncio.run(GroupSync(this, this, this, this).sync(EU))

    # -- the source

    def of(self, what: Any) -> Any:
        return self if isinstance(what, Link) else self._figures(what)

    async def refresh(self) -> None:
        pass

    async def group_names(self) -> dict[str, BrokerId]:
        return {"shop": BrokerId(7)}

    async def group_offsets(self, coordinators: Mapping[str, BrokerId]) -> dict[str, GroupOffsets]:
        offsets = {("orders", each): SourceOffset(offset, 3, "m") for each, offset in self.at_source.items()}
        return {group: {**offsets, ("unknown", 0): SourceOffset(5, 3, "")} for group in coordinators}

    # -- here

    def _figures(self, topic_ids: Collection[UUID]) -> Awaitable[dict[tuple[UUID, int], PartitionFigures]]:
        async def answer() -> dict[tuple[UUID, int], PartitionFigures]:
            return {(each, index): PartitionFigures(each, index, END, 3) for each in topic_ids for index in range(3)}

        return answer()

    async def prepare(self) -> None:
        pass

    def is_here(self, group: str) -> bool:
        return True

    async def offsets(self, group: str) -> Mapping[tuple[str, int], int]:
        found = dict(self.here)
        self.before_commit()
        return found

    async def commit(self, group: str, offsets: GroupOffsets) -> None:
        self.here |= {place: each.offset for place, each in offsets.items()}


def test_offsets_are_copied_up_to_the_end_of_the_mirror() -> None:
    cluster = Cluster({0: 0, 1: END, 2: END + 1}, {})
    cluster.sync()
    assert cluster.here == {("eu.orders", 0): 0, ("eu.orders", 1): END, ("eu.orders", 2): END}


def test_a_group_that_went_on_here_is_not_set_back() -> None:
    cluster = Cluster({0: 10, 1: 10}, {0: 50, 1: 5})
    cluster.sync()
    assert cluster.here == {("eu.orders", 0): 50, ("eu.orders", 1): 10}


def test_a_reversed_topic_that_is_not_truncated_yet_has_nothing_past_the_parting() -> None:
    reversed_ = replace(MIRROR, source_promoted_epoch=4, partings=(Parting(0, 40, END, END), Parting(1, 40, END, END)))
    cluster = Cluster({0: 70, 1: 20}, {})
    cluster.image = replace(cluster.image, mirrors={ORDERS.topic_id: reversed_})
    cluster.sync()
    assert cluster.here == {("eu.orders", 0): 40, ("eu.orders", 1): 20}
    # Its log has records of the new source: 70 is an offset of both.
    truncated = replace(reversed_, source_promoted_epoch=3)
    cluster.image = replace(cluster.image, mirrors={ORDERS.topic_id: truncated})
    cluster.sync()
    assert cluster.here == {("eu.orders", 0): 70, ("eu.orders", 1): 20}


def test_a_topic_that_is_promoted_meanwhile_is_left_alone() -> None:
    for state in (MirrorState.PROMOTING, MirrorState.STOPPED, MirrorState.FAULTED):
        cluster = Cluster({0: 10}, {0: 5})
        cluster.before_commit = partial(cluster.set_state, state)
        cluster.sync()
        assert cluster.here == {("eu.orders", 0): 5}


def test_a_problem_is_logged_once_and_its_end(caplog: pytest.LogCaptureFixture) -> None:
    cluster: Any = Cluster({0: 7}, {})
    sync, of = GroupSync(cluster, cluster, cluster, cluster), cluster.of

    def refused(link: Link) -> Any:
        raise SourceUnavailable("the source answers GROUP_AUTHORIZATION_FAILED")

    with caplog.at_level("INFO", "headrace.mirror.group_sync"):
        for source in (refused, refused, of, of):
            cluster.of = source
            asyncio.run(sync._sync_or_log(EU))
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "GROUP_AUTHORIZATION_FAILED" in caplog.text
    assert cluster.here == {("eu.orders", 0): 7}
