"""Random clusters, and what changes make of them, for the properties of the controller."""

from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

from hypothesis import strategies as st

from headrace.cluster.controller import Changes
from headrace.model.ids import NO_LEADER, BrokerId, LeaderEpoch, TopicId, TopicName
from headrace.model.image import BrokerInfo, BrokerState, ClusterImage, Endpoint, PartitionState, TopicImage

BROKERS = [BrokerId(number) for number in range(1, 6)]


def image_of(brokers: Mapping[BrokerId, BrokerInfo], topics: Mapping[TopicName, TopicImage]) -> ClusterImage:
    names: dict[UUID, TopicName] = {topic.topic_id: name for name, topic in topics.items()}
    return ClusterImage("cluster", NO_LEADER, brokers, topics, names, {}, 1)


@st.composite
def brokers(draw: st.DrawFn) -> dict[BrokerId, BrokerInfo]:
    return {
        broker: BrokerInfo(
            broker,
            Endpoint("broker", 9092),
            draw(st.sampled_from([None, "a", "b"])),
            is_alive=draw(st.sampled_from([True, True, False])),
            epoch=7,
            state=draw(st.sampled_from([BrokerState.ACTIVE, BrokerState.ACTIVE, *BrokerState])),
            is_draining=draw(st.sampled_from([False, False, False, True])),
            data_dir="now",
            former_data_dir=draw(st.sampled_from(["", "", "", "before"])),
        )
        for broker in BROKERS[: draw(st.integers(1, 5))]
    }


@st.composite
def partition_states(draw: st.DrawFn, known: list[BrokerId]) -> PartitionState:
    """Any state that replication and reassignments can leave."""
    replicas = draw(st.lists(st.sampled_from(known), min_size=1, max_size=4, unique=True))
    isr = draw(st.lists(st.sampled_from(replicas), min_size=1, unique=True))
    removing_count = draw(st.integers(0, len(replicas) - 1))
    kept, removing = replicas[: len(replicas) - removing_count], replicas[len(replicas) - removing_count :]
    adding = draw(st.lists(st.sampled_from(kept), max_size=2, unique=True)) if removing else []
    return PartitionState(
        draw(st.sampled_from([NO_LEADER, *isr])),
        LeaderEpoch(draw(st.integers(0, 9))),
        tuple(isr),
        tuple(replicas),
        draw(st.integers(0, 20)),
        tuple(adding),
        tuple(removing),
    )


@st.composite
def images(draw: st.DrawFn) -> ClusterImage:
    known = draw(brokers())
    topics: dict[TopicName, TopicImage] = {}
    for number in range(draw(st.integers(0, 3))):
        name = TopicName(f"topic-{number}")
        states = draw(st.lists(partition_states(sorted(known)), min_size=1, max_size=6))
        topics[name] = TopicImage(name, TopicId(UUID(int=number + 1)), tuple(states))
    return image_of(known, topics)


def changed(image: ClusterImage, changes: Changes) -> ClusterImage:
    """The image when everything has been written."""
    topics = dict(image.topics)
    for (topic_id, index), state in changes.partitions.items():
        name = image.topic_names[topic_id]
        states = list(topics[name].partitions)
        states[index] = state
        topics[name] = replace(topics[name], partitions=tuple(states))
    known = {broker: info for broker, info in image.brokers.items() if broker not in changes.removed_brokers}
    known |= {broker.broker_id: broker for broker in changes.brokers}
    return replace(image, brokers=known, topics=topics)


def with_broker(image: ClusterImage, broker: BrokerInfo) -> ClusterImage:
    return replace(image, brokers={**image.brokers, broker.broker_id: broker})


def with_state(image: ClusterImage, topic: TopicImage, index: int, state: PartitionState) -> ClusterImage:
    return changed(image, Changes({(topic.topic_id, index): state}))
