"""A broker that has just gone is named by Metadata for a while, and leads nothing."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from headrace.kafka.departures import NAMED_FOR_MS, Departures
from headrace.kafka.dispatch import Context, Peer
from headrace.kafka.handlers.metadata import metadata
from headrace.model.ids import BrokerId, LeaderEpoch, TopicId, TopicName
from headrace.model.image import BrokerInfo, ClusterImage, Endpoint, PartitionState, TopicImage
from headrace.protocol.codec import RequestHeader
from headrace.runtime.clock import ManualClock
from headrace.security.security import Security

ONE, TWO = BrokerId(1), BrokerId(2)
NAME, TOPIC_ID = TopicName("orders"), TopicId(UUID(int=7))


class Asked:
    """Broker 1, asked for metadata as the cluster changes."""

    def __init__(self) -> None:
        brokers = {b: BrokerInfo(b, Endpoint(f"broker-{b}", 9000 + b)) for b in (ONE, TWO)}
        state = PartitionState(TWO, LeaderEpoch(5), (ONE, TWO), (ONE, TWO))
        self.image = ClusterImage(
            "c", ONE, brokers, {NAME: TopicImage(NAME, TOPIC_ID, (state,))}, {TOPIC_ID: NAME}, {}, 1
        )
        self.clock = ManualClock()
        self.departures = Departures(self.clock)

    def change(self, broker_id: BrokerId, **fields: Any) -> None:
        brokers = {**self.image.brokers, broker_id: replace(self.image.brokers[broker_id], **fields)}
        self._show(replace(self.image, brokers=brokers))

    def forget(self, broker_id: BrokerId) -> None:
        brokers = {b: broker for b, broker in self.image.brokers.items() if b != broker_id}
        self._show(replace(self.image, brokers=brokers))

    def _show(self, new: ClusterImage) -> None:
        old, self.image = self.image, new
        self.departures.image_changed(old, new)

    def answer(self) -> Any:
        services: Any = SimpleNamespace(
            metadata=SimpleNamespace(image=self.image, broker_id=ONE),
            departures=self.departures,
            security=Security(),
        )
        context = Context(RequestHeader(3, 12, 7, None, 0), Peer("c:1", Endpoint("seen", 1)), services)
        request: Any = SimpleNamespace(topics=None)
        return metadata(context, request)

    def named(self) -> list[int]:
        return [broker.node_id for broker in self.answer().brokers]


def test_it_is_named_for_a_while_and_does_not_lead() -> None:
    asked = Asked()
    assert asked.named() == [1, 2]
    asked.change(TWO, is_alive=False)
    assert asked.named() == [1, 2]
    (partition,) = asked.answer().topics[0].partitions
    assert (partition.leader_id, partition.offline_replicas) == (-1, (2,))
    asked.clock.advance(int(NAMED_FOR_MS) - 1)
    asked.change(ONE, epoch=9)
    assert asked.named() == [1, 2]
    asked.clock.advance(1)
    assert asked.named() == [1]


def test_whoever_is_back_is_named_on() -> None:
    asked = Asked()
    asked.change(TWO, is_alive=False)
    asked.change(TWO, is_alive=True)
    asked.clock.advance(2 * int(NAMED_FOR_MS))
    assert asked.named() == [1, 2]


def test_a_broker_that_has_left_the_cluster_is_not_named() -> None:
    asked = Asked()
    asked.change(TWO, is_alive=False)
    asked.forget(TWO)
    assert asked.named() == [1]
