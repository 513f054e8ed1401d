"""Which topic of another cluster a former source becomes the mirror of."""

from uuid import UUID

import pytest

from headrace.mirror.reversal_plan import chosen
from headrace.mirror.source import SourcePartition, SourceSettings, SourceTopic
from headrace.model.errors import InvalidLink
from headrace.model.ids import BrokerId, LeaderEpoch, TopicId, TopicName
from headrace.model.image import PartitionState, TopicImage
from headrace.model.provenance import Promotion, read_promotion

HERE = TopicImage(
    TopicName("orders"),
    TopicId(UUID(int=5)),
    tuple(PartitionState(BrokerId(0), LeaderEpoch(0), (), ()) for _ in range(2)),
)
PROMOTION = Promotion("a/b", UUID(int=5), 200)


def topic(name: str, partitions: int = 2) -> SourceTopic:
    return SourceTopic(name, UUID(int=9), (SourcePartition(BrokerId(0), 200),) * partitions, False)


def test_a_promotion_survives_as_text_and_nothing_else_is_one() -> None:
    assert read_promotion(PROMOTION.text()) == PROMOTION
    for text in ("", "a", "a/b/c", f"a/{UUID(int=5)}/x", "a/orders"):
        assert read_promotion(text) is None


def test_the_topic_that_was_promoted_from_this_one_is_chosen_whatever_its_name() -> None:
    topics = {name: topic(name) for name in ("orders", "eu.orders")}
    settings = {"orders": SourceSettings({}, ""), "eu.orders": SourceSettings({}, "", (), PROMOTION.text())}
    plan = chosen("a/b", HERE, topics, settings, "us")
    assert (plan.source.name, plan.promotion) == ("eu.orders", PROMOTION)


@pytest.mark.parametrize(
    "promotion", ["", PROMOTION._replace(cluster_id="x").text(), PROMOTION._replace(topic_id=UUID(int=6)).text()]
)
def test_other_topics_are_refused(promotion: str) -> None:
    with pytest.raises(InvalidLink, match="promoted from a mirror of this orders"):
        chosen("a/b", HERE, {"orders": topic("orders")}, {"orders": SourceSettings({}, "", (), promotion)}, "us")


def test_a_mirror_that_is_still_read_only_is_refused() -> None:
    with pytest.raises(InvalidLink, match="headrace link failover orders"):
        chosen("a", HERE, {"orders": topic("orders")}, {"orders": SourceSettings({}, "a/orders")}, "us")


def test_a_topic_with_fewer_partitions_is_refused() -> None:
    settings = {"orders": SourceSettings({}, "", (), PROMOTION.text())}
    with pytest.raises(InvalidLink, match="add partitions there"):
        chosen("a/b", HERE, {"orders": topic("orders", 1)}, settings, "us")
