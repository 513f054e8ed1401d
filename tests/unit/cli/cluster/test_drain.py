"""What keeps a broker from being drained."""

from headrace.cli.cluster.drain import obstacles
from headrace.wire import PartitionInfo


def part(leader: int, *replicas: int) -> PartitionInfo:
    return PartitionInfo(0, leader, 1, replicas, replicas)


def test_a_partition_that_every_other_broker_has_is_in_the_way():
    found = obstacles({("a", 0): part(3, 1, 2, 3), ("b", 0): part(3, 3)}, {1, 2})
    assert found.tight == (("a", 0),)
    assert found.lost == ()


def test_a_replica_on_a_broker_that_is_away_needs_no_place():
    # Broker 4 is away: broker 2 takes the replica of broker 3, and the one of broker 4 stays where it is.
    assert obstacles({("a", 0): part(1, 1, 3, 4)}, {1, 2}).tight == ()


def test_a_partition_that_nobody_leads_cannot_be_copied():
    found = obstacles({("a", 0): part(-1, 3)}, {1, 2})
    assert found.lost == (("a", 0),)
    assert found.tight == ()
