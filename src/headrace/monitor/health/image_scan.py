"""What the image says about partitions, counted topic by topic. Pure.

Only topics that have changed since the last scan are counted again: most scans touch none.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from headrace.model.ids import NO_LEADER, BrokerId
from headrace.model.image import ClusterImage, PartitionState, TopicImage
from headrace.monitor.health.facts import ClusterFacts, PartitionCounts

_DEAD_LETTER = "queue.dead.letter"


class _Counted(NamedTuple):
    topic: TopicImage
    offline: tuple[int, ...]
    under_min_isr: tuple[int, ...]
    lacking: tuple[tuple[int, int], ...]
    """Brokers with the number of partitions for which they are not in sync."""
    dead_letters: str
    """The dead-letter queue of a queue."""


class ImageScan:
    def __init__(self) -> None:
        self._counted: dict[str, _Counted] = {}

    def clear(self) -> None:
        """Count all topics again: the defaults of their settings have changed."""
        self._counted.clear()

    def topics(self, image: ClusterImage, min_isr: Callable[[TopicImage], int]) -> Iterator[None]:
        """Count the topics, one with each step, so that the caller can spread the work."""
        for name in [name for name in self._counted if name not in image.topics]:
            del self._counted[name]
        for name, topic in image.topics.items():
            known = self._counted.get(name)
            if known is None or known.topic is not topic:
                self._counted[name] = _count(topic, min_isr(topic))
            yield

    def dead_letter_queues(self) -> set[str]:
        """The queues that are the dead-letter queue of another, as of the last complete count."""
        return {each.dead_letters for each in self._counted.values() if each.dead_letters}

    def facts(self, image: ClusterImage) -> ClusterFacts:
        """The facts as of the last complete count."""
        lacking: dict[int, int] = {}
        offline, under = list[_Counted](), list[_Counted]()
        for each in self._counted.values():
            for broker, count in each.lacking:
                lacking[broker] = lacking.get(broker, 0) + count
            if each.offline:
                offline.append(each)
            if each.under_min_isr:
                under.append(each)
        alive = image.alive_brokers()
        return ClusterFacts(
            broker_count=len(image.brokers),
            down=sorted(broker for broker, info in image.brokers.items() if not info.is_alive),
            has_controller=image.controller_id != NO_LEADER,
            lacking=lacking,
            under_min_isr=_listed((each.topic.name, each.under_min_isr) for each in under),
            offline=_listed((each.topic.name, each.offline) for each in offline),
            feature_level=image.feature_level,
            possible_level=min((broker.max_level for broker in alive), default=image.feature_level),
        )


def _count(topic: TopicImage, min_isr: int) -> _Counted:
    offline, under = [], []
    lacking: Counter[int] = Counter()
    for index, state in enumerate(topic.partitions):
        if state.leader == NO_LEADER:
            offline.append(index)
        elif len(state.isr) < min(min_isr, len(state.replicas)):
            under.append(index)
        if len(state.isr) != len(state.replicas):
            lacking.update(_missing(state))
    return _Counted(topic, tuple(offline), tuple(under), tuple(lacking.items()), topic.settings.get(_DEAD_LETTER, ""))


def _missing(state: PartitionState) -> set[BrokerId]:
    """The brokers that should be in sync and are not. A replica that is being added has not been in sync yet."""
    return {*state.replicas} - {*state.isr} - {*state.adding}


def _listed(found: Iterable[tuple[str, tuple[int, ...]]]) -> list[PartitionCounts]:
    """The topics with the most partitions first."""
    listed = [PartitionCounts(name, len(indexes), indexes[0]) for name, indexes in found]
    return sorted(listed, key=lambda each: (-each.partitions, each.topic))
