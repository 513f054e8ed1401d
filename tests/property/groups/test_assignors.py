"""Assignors: everything assigned once, evenly, always the same, moving little."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.groups.assignors import (
    ASSIGNORS,
    Assignment,
    Assignor,
    Subscriber,
    TopicIdPartition,
    assign_range,
    assign_uniform,
)

TOPICS = [UUID(int=number) for number in range(1, 7)]

partition_counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 12))
places = st.builds(TopicIdPartition, st.sampled_from(TOPICS), st.integers(0, 14))


@st.composite
def groups(draw: st.DrawFn) -> dict[str, Subscriber]:
    """Members with any subscriptions, which held anything before, one another's partitions included."""
    return draw(
        st.dictionaries(
            st.text("abcdef", min_size=1, max_size=3),
            st.builds(
                Subscriber,
                st.frozensets(st.sampled_from(TOPICS)),
                st.frozensets(places, max_size=20),
                st.none() | st.text("xyz", min_size=1, max_size=2),
            ),
            max_size=9,
        )
    )


@pytest.mark.parametrize("assign", ASSIGNORS.values(), ids=ASSIGNORS)
@given(members=groups(), counts=partition_counts)
def test_every_partition_has_exactly_one_reader_who_subscribes_to_it(
    assign: Assignor, members: dict[str, Subscriber], counts: dict[UUID, int]
) -> None:
    assigned = assign(members, counts)
    assert set(assigned) == set(members)
    given_out = [place for held in assigned.values() for place in held]
    subscribed = {topic for member in members.values() for topic in member.topics}
    assert len(given_out) == len(set(given_out))
    assert set(given_out) == {TopicIdPartition(t, p) for t in subscribed & set(counts) for p in range(counts[t])}
    for member_id, held in assigned.items():
        assert {place.topic_id for place in held} <= members[member_id].topics


@pytest.mark.parametrize("assign", ASSIGNORS.values(), ids=ASSIGNORS)
@given(members=groups(), counts=partition_counts, order=st.randoms())
def test_the_same_group_is_always_assigned_the_same(
    assign: Assignor, members: dict[str, Subscriber], counts: dict[UUID, int], order: object
) -> None:
    shuffled = list(members.items())
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    assert assign(members, counts) == assign(dict(shuffled), counts)


@given(members=groups(), counts=partition_counts)
def test_uniform_leaves_nobody_two_more_than_one_who_could_take_it(
    members: dict[str, Subscriber], counts: dict[UUID, int]
) -> None:
    assigned = assign_uniform(members, counts)
    for giver, held in assigned.items():
        topics = {place.topic_id for place in held}
        for taker, other in assigned.items():
            if members[taker].topics & topics:
                assert len(held) - len(other) <= 1, (giver, taker)


@given(members=groups(), counts=partition_counts)
def test_uniform_is_within_one_where_all_subscribe_alike(
    members: dict[str, Subscriber], counts: dict[UUID, int]
) -> None:
    alike = {name: member._replace(topics=frozenset(TOPICS)) for name, member in members.items()}
    loads = [len(held) for held in assign_uniform(alike, counts).values()]
    assert not loads or max(loads) - min(loads) <= 1


def _remember(members: dict[str, Subscriber], assigned: dict[str, Assignment]) -> dict[str, Subscriber]:
    return {name: member._replace(held=assigned.get(name, frozenset())) for name, member in members.items()}


@given(members=groups(), counts=partition_counts)
def test_uniform_moves_nothing_when_nothing_changed(members: dict[str, Subscriber], counts: dict[UUID, int]) -> None:
    assigned = assign_uniform(members, counts)
    assert assign_uniform(_remember(members, assigned), counts) == assigned


@given(size=st.integers(1, 12), counts=partition_counts, leaver=st.integers(0, 11))
def test_uniform_keeps_what_the_others_had_when_one_leaves(size: int, counts: dict[UUID, int], leaver: int) -> None:
    members = {f"m{number:02}": Subscriber(frozenset(TOPICS)) for number in range(size)}
    before = assign_uniform(members, counts)
    members.pop(f"m{leaver % size:02}")
    after = assign_uniform(_remember(members, before), counts)
    for name in members:
        assert before[name] <= after[name]


@given(size=st.integers(1, 12), counts=partition_counts)
def test_uniform_moves_only_the_share_of_one_who_comes(size: int, counts: dict[UUID, int]) -> None:
    members = {f"m{number:02}": Subscriber(frozenset(TOPICS)) for number in range(size)}
    before = assign_uniform(members, counts)
    after = assign_uniform({**_remember(members, before), "a-new-one": Subscriber(frozenset(TOPICS))}, counts)
    for name in members:
        assert after[name] <= before[name]


@given(size=st.integers(1, 6), partitions=st.integers(1, 20))
def test_range_gives_the_same_partitions_of_topics_that_are_alike(size: int, partitions: int) -> None:
    one, two = TOPICS[:2]
    members = {f"m{number}": Subscriber(frozenset((one, two))) for number in range(size)}
    for held in assign_range(members, {one: partitions, two: partitions}).values():
        numbers = sorted(place.partition for place in held if place.topic_id == one)
        assert numbers == sorted(place.partition for place in held if place.topic_id == two)
        assert not numbers or numbers == list(range(numbers[0], numbers[-1] + 1))


def test_range_leaves_a_static_member_its_place_under_another_id() -> None:
    topic = TOPICS[0]
    others = {"b": Subscriber(frozenset((topic,)), instance_id="2"), "c": Subscriber(frozenset((topic,)))}
    first = assign_range({**others, "a": Subscriber(frozenset((topic,)), instance_id="1")}, {topic: 9})
    later = assign_range({**others, "z": Subscriber(frozenset((topic,)), instance_id="1")}, {topic: 9})
    assert first["a"] == later["z"]
    assert first["b"] == later["b"]
