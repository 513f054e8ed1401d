"""Checks that a topic can be reversed: that a topic of the other cluster was a mirror of this very one, and is writable
there."""

from collections.abc import Mapping
from typing import NamedTuple

from headrace.cluster.metadata import Metadata
from headrace.mirror.source import SourceCluster, SourceSettings, SourceTopic
from headrace.model.errors import InvalidLink, UnknownTopic
from headrace.model.ids import TopicName
from headrace.model.image import TopicImage
from headrace.model.provenance import Promotion, read_promotion


class ReversalPlan(NamedTuple):
    topic: TopicImage
    source: SourceTopic
    """The topic of the other cluster that was promoted from a mirror of `topic`."""
    promotion: Promotion
    older_origins: tuple[str, ...]
    """Other clusters whose records the topic of the source may have."""


async def reversal_plan(metadata: Metadata, source: SourceCluster, name: str) -> ReversalPlan:
    """The topics of a reversal. Raises `InvalidLink` with the reason why there is none, and `SourceUnavailable`."""
    image = metadata.image
    topic = image.topics.get(TopicName(name))
    if topic is None:
        raise UnknownTopic(f"there is no topic {name}")
    if topic.is_internal:
        raise InvalidLink(f"{name} is an internal topic: only topics of applications are mirrored")
    is_queue = metadata.topic_settings(topic).queue.is_queue
    link = source.link.name
    if is_queue and not image.links[link].sync.queues:
        raise InvalidLink(
            f"{name} is a queue, and the link {link} does not copy the state of queues: change that first, with "
            f"headrace link alter {link} --sync queues"
        )
    await source.refresh()
    prefix = source.link.prefix
    likely = [each for each in (name, name.removeprefix(prefix)) if each in source.topics]
    settings = await source.settings_of(likely)
    if not any(_is_of(each, image.cluster_id, topic) for each in settings.values()):
        settings |= await source.settings_of([each for each in source.topics if each not in settings])
    plan = chosen(image.cluster_id, topic, source.topics, settings, source.link.name)
    if is_queue and settings[plan.source.name].overrides.get("queue.type", "none") == "none":
        raise InvalidLink(
            f"{name} is a queue, and {plan.source.name} in the cluster of the link {source.link.name} is a topic: make "
            "it a queue there first"
        )
    return plan


def chosen(
    cluster_id: str,
    topic: TopicImage,
    topics: Mapping[str, SourceTopic],
    settings: Mapping[str, SourceSettings],
    link: str,
) -> ReversalPlan:
    """The plan, from what the other cluster says of its topics. Raises `InvalidLink`."""
    found = next((name for name, each in settings.items() if _is_of(each, cluster_id, topic)), None)
    if found is None:
        still = next((name for name, each in settings.items() if _copied_from(each) == (cluster_id, topic.name)), None)
        if still is not None:
            raise InvalidLink(
                f"{still} is still a read-only mirror in the cluster of the link {link}: make it writable there first, "
                f"with headrace link failover {still}"
            )
        raise InvalidLink(
            f"no topic in the cluster of the link {link} was promoted from a mirror of this {topic.name}: only the "
            f"source of a mirror can be reversed. To copy another topic, delete {topic.name} here, and the link "
            "mirrors it from the beginning"
        )
    promotion, source = read_promotion(settings[found].promotion), topics[found]
    assert promotion is not None
    if len(source.partitions) < len(topic.partitions):
        raise InvalidLink(
            f"{topic.name} has {len(topic.partitions)} partitions, and {found} in the other cluster only "
            f"{len(source.partitions)}: add partitions there first"
        )
    others = tuple(each for each in settings[found].origins if each != cluster_id)
    return ReversalPlan(topic, source, promotion, others)


def _is_of(settings: SourceSettings, cluster_id: str, topic: TopicImage) -> bool:
    promotion = read_promotion(settings.promotion)
    return promotion is not None and (promotion.cluster_id, promotion.topic_id) == (cluster_id, topic.topic_id)


def _copied_from(settings: SourceSettings) -> tuple[str, str]:
    cluster_id, _, topic = settings.mirror_source.partition("/")
    return cluster_id, topic
