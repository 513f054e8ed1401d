"""Who leads the partitions of a source: brokers hear of elections at different times."""

import asyncio
from collections.abc import Mapping
from random import Random
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from kio.schema.errors import ErrorCode

from headrace.mirror.source import SourceCluster, SourcePartition
from headrace.model.errors import PeerUnavailable
from headrace.model.ids import NO_LEADER, BrokerId
from headrace.model.image import BrokerInfo, ClusterImage, Endpoint
from headrace.model.links import Link

Seen = tuple[tuple[int, int], ...]
"""The leader and leader epoch of each partition, as a broker knows them."""


class Brokers:
    """Brokers that answer Metadata about one topic; those without an entry cannot be reached."""

    def __init__(self, seen: Mapping[int, Seen | None]) -> None:
        self._seen = seen

    async def call(self, broker_id: int, request: Any, **_: Any) -> Any:
        if broker_id not in self._seen:
            raise PeerUnavailable(f"broker {broker_id} is gone")
        assert [each.name for each in request.topics] == ["orders"]
        seen = self._seen[broker_id]
        if seen is None:
            unknown = SimpleNamespace(error_code=ErrorCode.unknown_topic_or_partition, topic_id=None, name="orders")
            return SimpleNamespace(topics=(unknown,))
        partitions = [
            SimpleNamespace(partition_index=index, leader_id=leader, leader_epoch=epoch)
            for index, (leader, epoch) in enumerate(seen)
        ]
        topic = SimpleNamespace(
            error_code=ErrorCode.none, topic_id=UUID(int=1), name="orders", partitions=partitions, is_internal=False
        )
        return SimpleNamespace(topics=(topic,))


def newest(seen: Mapping[int, Seen | None]) -> tuple[SourcePartition, ...]:
    link = Link("eu", UUID(int=2), ("b1:9092",))
    source = SourceCluster(link, cast(Any, None), Random(1), BrokerId(0))
    brokers = {BrokerId(each): BrokerInfo(BrokerId(each), Endpoint(f"b{each}", 9092)) for each in range(1, 5)}
    source.image = ClusterImage("there", NO_LEADER, brokers, {}, {}, {}, 0)
    source.peers = cast(Any, Brokers(seen))
    return asyncio.run(source.newest_leaders("orders"))


def test_a_leader_that_has_not_heard_that_it_was_deposed_does_not_count() -> None:
    deposed: Seen = ((2, 0), (2, 4))
    elected: Seen = ((1, 1), (2, 4))
    assert newest({2: deposed, 1: elected, 4: deposed}) == ((1, 1), (2, 4))
    assert newest({1: deposed, 2: elected}) == ((1, 1), (2, 4))


def test_brokers_that_do_not_answer_or_do_not_know_the_topic_yet_are_left_out() -> None:
    assert newest({3: None, 4: ((4, 7),)}) == ((4, 7),)
    assert newest({3: None}) == newest({}) == ()


def test_an_election_without_a_leader_counts() -> None:
    assert newest({1: ((2, 5),), 2: ((int(NO_LEADER), 6),)}) == ((NO_LEADER, 6),)
