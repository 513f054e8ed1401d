"""Where replicas go: on different brokers and racks, evenly, always the same, moving little when a broker comes."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from headrace.cluster.placement import Replicas, even_out, place, replaced
from headrace.model.ids import BrokerId, PartitionIndex, TopicName, TopicPartition

TOPIC = TopicName("orders")

broker_ids = st.integers(0, 40).map(BrokerId)
any_racks = st.dictionaries(broker_ids, st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=9)
no_racks = st.dictionaries(broker_ids, st.none(), min_size=1, max_size=9)


@st.composite
def even_racks(draw: st.DrawFn) -> dict[BrokerId, str | None]:
    """As many brokers on one rack as on another."""
    racks, each = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    return {BrokerId(number): f"rack {number % racks}" for number in range(racks * each)}


def spread(counts: Counter[BrokerId], racks: dict[BrokerId, str | None]) -> int:
    return max(counts[broker] for broker in racks) - min(counts[broker] for broker in racks)


def rack_count(racks: dict[BrokerId, str | None], replicas: Replicas) -> int:
    return len({racks[broker] or broker for broker in replicas})


@given(racks=any_racks, count=st.integers(1, 60), wanted=st.integers(1, 5), data=st.data())
def test_replicas_are_on_different_brokers_and_on_as_many_racks_as_can_be(
    racks: dict[BrokerId, str | None], count: int, wanted: int, data: st.DataObject
) -> None:
    factor = min(wanted, len(racks))
    load = data.draw(st.dictionaries(broker_ids, st.integers(0, 500), max_size=9))
    placed = place(racks, TOPIC, count, factor, load=load)
    assert len(placed) == count
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == factor
        assert rack_count(racks, replicas) == min(factor, len({rack or broker for broker, rack in racks.items()}))
    assert spread(Counter(replicas[0] for replicas in placed), racks) <= 1


@given(racks=no_racks | even_racks(), count=st.integers(1, 80), wanted=st.integers(1, 4))
def test_replicas_are_even_where_racks_allow_it(racks: dict[BrokerId, str | None], count: int, wanted: int) -> None:
    placed = place(racks, TOPIC, count, min(wanted, len(racks)))
    assert spread(Counter(broker for replicas in placed for broker in replicas), racks) <= 2


@given(racks=any_racks, first=st.integers(1, 20), more=st.integers(1, 20), wanted=st.integers(1, 3))
def test_more_partitions_go_where_they_would_have_gone_at_first(
    racks: dict[BrokerId, str | None], first: int, more: int, wanted: int
) -> None:
    factor = min(wanted, len(racks))
    begun = place(racks, TOPIC, first, factor)
    load = Counter(broker for replicas in begun for broker in replicas)
    added = place(racks, TOPIC, more, factor, existing=begun, load=load)
    assert begun + added == place(racks, TOPIC, first + more, factor)


@given(racks=no_racks, topics=st.integers(1, 60))
def test_topics_of_one_partition_are_even_over_the_cluster(racks: dict[BrokerId, str | None], topics: int) -> None:
    load: Counter[BrokerId] = Counter()
    for number in range(topics):
        load.update(place(racks, TopicName(f"topic-{number}"), 1, 1, load=load)[0])
    assert spread(load, racks) <= 1


def spread_out(racks: dict[BrokerId, str | None], count: int, factor: int) -> dict[TopicPartition, Replicas]:
    placed = place(racks, TOPIC, count, factor)
    return {TopicPartition(TOPIC, PartitionIndex(index)): replicas for index, replicas in enumerate(placed)}


@given(racks=no_racks | even_racks(), count=st.integers(1, 120), wanted=st.integers(1, 3))
def test_a_new_broker_gets_its_share_and_nothing_else_moves(
    racks: dict[BrokerId, str | None], count: int, wanted: int
) -> None:
    factor = min(wanted, len(racks))
    before = spread_out(racks, count, factor)
    newcomer = BrokerId(99)
    grown = {**racks, newcomer: None}
    after = before | even_out(grown, before)
    share = count * factor // len(grown)
    moved = 0
    for partition, replicas in after.items():
        assert len(set(replicas)) == factor
        assert rack_count(grown, replicas) >= rack_count(grown, before[partition])
        moved += len(set(replicas) - set(before[partition]))
        assert set(replicas) - set(before[partition]) <= {newcomer}
    assert moved == share
    assert even_out(grown, after) == {}, "once is enough"


@given(racks=any_racks, count=st.integers(1, 60), wanted=st.integers(1, 3), data=st.data())
def test_evening_out_never_makes_it_worse(
    racks: dict[BrokerId, str | None], count: int, wanted: int, data: st.DataObject
) -> None:
    factor = min(wanted, len(racks))
    some = data.draw(st.lists(st.permutations(list(racks)), min_size=count, max_size=count))
    before = {TopicPartition(TOPIC, PartitionIndex(index)): tuple(order[:factor]) for index, order in enumerate(some)}
    after = before | even_out(racks, before)
    was = Counter(broker for replicas in before.values() for broker in replicas)
    now = Counter(broker for replicas in after.values() for broker in replicas)
    assert spread(now, racks) <= spread(was, racks)
    for partition, replicas in after.items():
        assert len(set(replicas)) == factor
        assert rack_count(racks, replicas) >= rack_count(racks, before[partition])


@given(racks=any_racks, count=st.integers(1, 20), wanted=st.integers(1, 3), data=st.data())
def test_a_broker_that_leaves_is_replaced_on_its_own_place(
    racks: dict[BrokerId, str | None], count: int, wanted: int, data: st.DataObject
) -> None:
    factor = min(wanted, len(racks))
    leaving = data.draw(st.sampled_from(sorted(racks)))
    left = {broker: rack for broker, rack in racks.items() if broker != leaving}
    for partition, replicas in spread_out(racks, count, factor).items():
        if leaving not in replicas:
            continue
        now = replaced(left, partition, replicas, leaving, {})
        if len(left) < factor:
            assert now is None
            continue
        assert now is not None
        assert leaving not in now
        assert len(set(now)) == factor
        assert [one == other for one, other in zip(now, replicas, strict=True)].count(False) == 1
