"""Which tasks a topology has, which topics it needs, and what is wrong with it."""

from uuid import UUID

import pytest

from headrace.groups.streams_records import InternalTopic, Subtopology, TopologyValue
from headrace.groups.streams_tasks import StreamsTask
from headrace.groups.streams_topology import StatusCode, check_topology, configure
from headrace.model.errors import InvalidTopology
from headrace.model.ids import BrokerId, LeaderEpoch, TopicId, TopicName
from headrace.model.image import ClusterImage, PartitionState, TopicImage

_STATE = PartitionState(BrokerId(0), LeaderEpoch(0), (BrokerId(0),), (BrokerId(0),))
WORDS = InternalTopic("words", settings=(("cleanup.policy", "delete"),))
COUNTED = InternalTopic("counted", replication_factor=2)


def image(**counts: int) -> ClusterImage:
    topics = {
        TopicName(name): TopicImage(TopicName(name), TopicId(UUID(int=at + 1)), (_STATE,) * count)
        for at, (name, count) in enumerate(counts.items())
    }
    return ClusterImage("c", BrokerId(0), {}, topics, {}, {}, 1)


def topology(*subtopologies: Subtopology) -> TopologyValue:
    return TopologyValue(0, subtopologies)


def word_count() -> TopologyValue:
    return topology(
        Subtopology("0", ("lines", "more"), repartition_sink_topics=("words",)),
        Subtopology("1", (), (WORDS,), (), (COUNTED,)),
    )


def join(*group: str, left: int = 0, right: int = 0) -> TopologyValue:
    """Two topics that are repartitioned, and joined with a third."""
    return topology(
        Subtopology("0", ("a",), repartition_sink_topics=("left",)),
        Subtopology("1", ("b",), repartition_sink_topics=("right",)),
        Subtopology("2", ("c",), (InternalTopic("left", left), InternalTopic("right", right)), (), (), (group,)),
    )


def test_internal_topics_are_as_large_as_what_is_read_upstream() -> None:
    configured = configure(word_count(), image(lines=3, more=5))
    assert configured.missing == (
        InternalTopic("counted", 5, 2, ()),
        InternalTopic("words", 5, 0, (("cleanup.policy", "delete"),)),
    )
    assert not configured.is_ready
    assert configured.problem is not None
    assert configured.problem.code is StatusCode.MISSING_INTERNAL_TOPICS
    assert configured.task_counts == {"0": 5, "1": 5}


def test_it_is_ready_when_all_topics_are_there() -> None:
    configured = configure(word_count(), image(lines=1, more=2, words=2, counted=2))
    assert configured.is_ready
    assert configured.tasks() == {StreamsTask("0", 0), StreamsTask("0", 1), StreamsTask("1", 0), StreamsTask("1", 1)}


def test_topics_that_are_repartitioned_twice_are_worked_out_from_the_source_on() -> None:
    configured = configure(
        topology(
            Subtopology("2", (), (InternalTopic("second"),)),
            Subtopology("1", (), (InternalTopic("first"),), ("second",)),
            Subtopology("0", ("a",), repartition_sink_topics=("first",)),
        ),
        image(a=7),
    )
    assert configured.task_counts == {"0": 7, "1": 7, "2": 7}


def test_topics_that_feed_each_other_have_a_size_too() -> None:
    configured = configure(
        topology(
            Subtopology("0", ("a",), (InternalTopic("back"),), ("forth",)),
            Subtopology("1", (), (InternalTopic("forth"),), ("back",)),
        ),
        image(a=3),
    )
    assert configured.task_counts == {"0": 3, "1": 3}


def test_missing_source_topics_are_named() -> None:
    configured = configure(word_count(), image(words=1))
    assert configured.problem == (StatusCode.MISSING_SOURCE_TOPICS, "Source topics lines, more are missing.")
    assert not configured.missing
    assert not configured.tasks()


def test_a_topic_that_exists_with_other_partitions_does_not_fit() -> None:
    configured = configure(word_count(), image(lines=1, more=2, words=3, counted=2))
    assert configured.problem is not None
    assert configured.problem.code is StatusCode.INCORRECTLY_PARTITIONED_TOPICS
    assert "words has different number of partitions: expected 2, found 3" in configured.problem.detail


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        (join("c", "left", "right"), {"left": 6, "right": 6}),
        (join("left", "right"), {"left": 4, "right": 4}),
        (join("left", "right", left=5), {"left": 5, "right": 5}),
        (join("c", "left", left=6), {"left": 6, "right": 4}),
    ],
)
def test_topics_that_must_be_partitioned_alike_are(given: TopologyValue, sizes: dict[str, int]) -> None:
    configured = configure(given, image(a=2, b=4, c=6))
    assert {topic.name: topic.partitions for topic in configured.missing} == sizes


@pytest.mark.parametrize("given", [join("c", "left", left=5), join("left", "right", left=2, right=3)])
def test_topics_that_cannot_be_partitioned_alike_are_a_problem(given: TopologyValue) -> None:
    problem = configure(given, image(a=2, b=4, c=6)).problem
    assert problem is not None
    assert problem.code is StatusCode.INCORRECTLY_PARTITIONED_TOPICS


def test_sources_that_must_be_partitioned_alike_are_checked() -> None:
    both = topology(Subtopology("0", ("a", "b"), copartition_groups=(("a", "b"),)))
    assert configure(both, image(a=2, b=2)).is_ready
    problem = configure(both, image(a=2, b=3)).problem
    assert problem is not None
    assert "a=2, b=3" in problem.detail


def test_a_changelog_that_is_a_source_is_not_created() -> None:
    table = topology(Subtopology("0", ("a",), changelog_topics=(InternalTopic("a"),)))
    assert configure(table, image(a=2)).is_ready


def test_the_hash_changes_with_what_the_topology_needs_alone() -> None:
    def hashed(**counts: int) -> bytes:
        return configure(word_count(), image(**counts)).topics_hash

    assert hashed(lines=1, more=1) == hashed(lines=1, more=1, other=3)
    assert len({hashed(lines=1, more=1), hashed(lines=1, more=2), hashed(lines=1, more=1, words=1), hashed()}) == 4


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (topology(), "no subtopologies"),
        (topology(Subtopology("0", ("a",)), Subtopology("0", ("b",))), "the same id"),
        (topology(Subtopology("0")), "reads no topic"),
        (topology(Subtopology("0", ("a",), changelog_topics=(InternalTopic("x", 3),))), "leave it at 0"),
        (topology(Subtopology("0", ("a",), copartition_groups=(("a", "z"),))), "z must be partitioned like"),
        (topology(Subtopology("0", (), (InternalTopic("orphan"),))), "orphan cannot be derived"),
        (topology(Subtopology("0", ("__consumer_offsets",))), "internal topics of the broker"),
        (topology(Subtopology("0", ("a b",))), "characters"),
    ],
)
def test_a_topology_that_can_never_run_is_refused(given: TopologyValue, reason: str) -> None:
    with pytest.raises(InvalidTopology, match=reason):
        check_topology(given)


def test_a_topology_that_can_is_not() -> None:
    check_topology(word_count())
    check_topology(join("c", "left", "right"))
