"""A group whose members change from one protocol to the other and back, under anything that may happen to it.

Clients of the classic protocol, eager or cooperative, and of the consumer protocol come and go, answers get lost,
clients vanish, partitions are added, and the broker starts anew from its log, compacted or cut in the middle of what it
was writing. Whoever would be heard reads nothing that another one reads, committed offsets never go back, and left
alone the group comes to rest with every partition read.
"""

import pytest
from hypothesis import settings
from tests.property.groups.mixed_clients import REBALANCE_MS, TOPIC, ClassicClient, ConsumerClient, subscription
from tests.property.groups.mixed_world import World

from headrace.groups.classic import ClassicGroup
from headrace.groups.consumer import ConsumerGroup, Heartbeat
from headrace.groups.subscription import MemberSubscription, read_subscription
from headrace.model.errors import UnknownMember
from headrace.runtime.deferred import Deferred


def test_subscriptions_are_read() -> None:
    assert read_subscription(subscription(frozenset({3}))) == MemberSubscription(
        1, frozenset({TOPIC}), ((TOPIC, (3,)),)
    )
    assert read_subscription(subscription(frozenset())) == MemberSubscription(1, frozenset({TOPIC}))
    assert read_subscription(subscription(frozenset({3}))[:-1]) is None


TestMixedGroups = World.TestCase
TestMixedGroups.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def world(*, cooperates: bool = False, policy: str = "both") -> World:
    made = World()
    made.begin(cooperates, policy)
    return made


@pytest.mark.parametrize("cooperates", [False, True])
def test_a_group_is_rolled_to_the_other_protocol_and_back(cooperates: bool) -> None:
    one = world(cooperates=cooperates)
    for kinds in (["classic", "classic"], ["consumer", "consumer"], ["classic", "classic"]):
        for kind in kinds:
            before = len(one.clients)
            one.start_client(kind, None)
            one.settle()
            assert sum(len(client.owned) for client in one.clients) == 4
            assert all(client.owned for client in one.clients[-4:])
            for which in range(before):
                one.commit(which)
            if before == 2:
                one.end_client(0, "leave")
                one.settle()
        assert one.group is not None
        assert one.group.kind == kinds[0]


@pytest.mark.parametrize("kept", range(10))
@pytest.mark.parametrize("cooperates", [False, True])
@pytest.mark.parametrize("upgrades", [False, True])
def test_a_change_of_the_protocol_that_was_written_in_part_is_made_up_for(
    kept: int, cooperates: bool, upgrades: bool
) -> None:
    one = world(cooperates=cooperates)
    for _ in range(2):
        one.start_client("classic", None)
    one.settle()
    if upgrades:
        one.upgrade(rewrites=0)
    one.clients.append(ConsumerClient("late", None))
    one.crash_while_writing(2, kept, leaves=False)
    one.settle()
    one.crash_while_writing(2, kept, leaves=True)
    one.settle()
    one.restart(compacts=100, drops=True)
    one.settle()
    assert [len(client.owned) for client in one.clients] == [2, 2]


@pytest.mark.parametrize("holder", ["classic", "consumer"])
def test_a_static_member_comes_back_with_the_other_protocol(holder: str) -> None:
    one = world()
    other = "consumer" if holder == "classic" else "classic"
    for kind, instance in ((holder, "i1"), (holder, "i2")):
        one.start_client(kind, instance)
    one.settle()
    for instance in ("i1", "i2"):
        one.end_client(0, "for now" if holder == "consumer" else "crash")
        one.start_client(other, instance)
        for _ in range(20):
            for client in one.clients:
                client.step(one)
        assert sorted(len(client.owned) for client in one.clients) == [2, 2], instance
    assert one.group is not None
    assert one.group.kind == other


def test_without_downgrades_classic_members_stay_in_a_consumer_group_and_follow_its_topics() -> None:
    one = world(policy="upgrade")
    one.start_client("classic", None)
    one.start_client("consumer", None)
    one.settle()
    one.end_client(1, "leave")
    one.grow()
    one.settle()
    assert isinstance(one.group, ConsumerGroup)
    assert len(one.clients[0].owned) == 5


def test_a_classic_member_that_does_not_do_what_it_is_told_is_removed() -> None:
    one = world()
    one.start_client("classic", None)
    one.settle()
    silent = one.clients[0]
    one.start_client("consumer", None)
    assert isinstance(silent, ClassicClient)
    silent.step(one)
    assert silent.does is ClassicClient.join
    for _ in range(2):
        one.time_passes(REBALANCE_MS / 2)
        one.clients[1].step(one)
    assert len(one.clients[1].owned) == 4
    silent.step(one)
    assert not silent.owned
    one.settle()
    assert [len(client.owned) for client in one.clients] == [2, 2]


def test_what_members_still_read_in_the_middle_of_a_rebalance_is_not_given_to_others() -> None:
    one = world(cooperates=True)
    one.start_client("classic", None)
    one.settle()
    first = one.clients[0]
    # Two more join, the second of them before the first generation of the two is assigned.
    for _ in range(2):
        one.start_client("classic", None)
        one.clients[-1].step(one)
        first.step(one)
        first.step(one)
    assert isinstance(one.group, ClassicGroup)
    assert one.group.state_name != "Stable"
    assert len(first.owned) == 4
    one.start_client("consumer", None)
    for _ in range(3):
        one.clients[-1].step(one)
        one.nobody_who_is_heard_reads_what_another_reads()
    assert isinstance(one.group, ConsumerGroup)
    assert not one.clients[-1].owned
    one.settle()
    assert [len(client.owned) for client in one.clients] == [1, 1, 1, 1]


def test_the_last_claim_to_a_partition_that_nobody_was_assigned_holds() -> None:
    """The answer to the sync that took partitions from a member was lost, and nobody else has them yet."""
    one = world(cooperates=True)
    one.start_client("classic", None)
    one.settle()
    first = one.clients[0]
    one.start_client("classic", None)
    second = one.clients[1]
    second.step(one)
    first.step(one)
    first.step(one)
    one.hears = False
    first.step(one)
    one.hears = True
    second.step(one)
    assert one.group is not None
    assert (one.group.state_name, len(first.owned), len(second.owned)) == ("Stable", 4, 0)
    one.start_client("consumer", None)
    for _ in range(3):
        one.clients[-1].step(one)
        one.nobody_who_is_heard_reads_what_another_reads()
    assert not one.clients[-1].owned


def test_a_member_that_was_away_while_its_group_became_classic_brings_it_back() -> None:
    one = world()
    one.start_client("classic", None)
    one.start_client("consumer", None)
    one.settle()
    away = one.clients.pop()
    one.settle()
    assert isinstance(one.group, ClassicGroup)
    beat = Heartbeat(away.member_id, away.epoch, owned=one.places(away.owned))
    with pytest.raises(UnknownMember):
        one.heartbeat(beat, Deferred())
    one.clients.append(away)
    one.settle()
    assert isinstance(one.group, ConsumerGroup)
    assert [len(client.owned) for client in one.clients] == [2, 2]
