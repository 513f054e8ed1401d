from headrace.cli.cluster.status import DEGRADED, NOT_SERVING, WELL, as_dict, exit_code, rendered
from headrace.cli.cluster.view import ClusterView, Dirs, compose
from headrace.model.image import Endpoint
from headrace.wire import BrokerNode, ClusterInfo, LogDir, PartitionInfo, Reassignment, Replica, Topic

THERE = [LogDir("/data", False, 100, 60, False, {("orders", 0): Replica(1000, 0)})]


def view(
    *parts: PartitionInfo,
    away: tuple[int, ...] = (),
    min_isr: int = 1,
    controller: int = 1,
    moving: dict[tuple[str, int], Reassignment] | None = None,
    dirs: Dirs | None = None,
) -> ClusterView:
    nodes = {id_: BrokerNode(id_, Endpoint(f"b{id_}", 9092), None, id_ in away) for id_ in (1, 2, 3)}
    found = {id_: None if id_ in away else THERE for id_ in nodes} if dirs is None else dirs
    topics = {"orders": Topic("orders", None, False, parts)}
    return compose(ClusterInfo("c", controller, nodes), topics, {"orders": min_isr}, moving or {}, found)


def part(leader: int, replicas: tuple[int, ...], isr: tuple[int, ...]) -> PartitionInfo:
    return PartitionInfo(0, leader, 1, replicas, isr)


def text(shown: ClusterView) -> str:
    from rich.console import Console

    console = Console(width=200, highlight=False)
    with console.capture() as captured:
        console.print(rendered(shown))
    return captured.get()


def test_all_is_well():
    found = view(part(1, (1, 2, 3), (1, 2, 3)))
    assert exit_code(found) == WELL
    assert [(each.state, each.leads, each.hosts) for each in found.brokers] == [
        ("active", 1, 1),
        ("active", 0, 1),
        ("active", 0, 1),
    ]
    assert "all of their replicas are in sync" in text(found)


def test_a_broker_that_is_away_and_a_replica_that_is_behind():
    found = view(part(1, (1, 2, 3), (1, 2)), away=(3,), min_isr=2)
    assert exit_code(found) == DEGRADED
    assert found.under_replicated == (("orders", 0),)
    assert "Broker 3 is away" in text(found)


def test_a_partition_that_refuses_writes():
    found = view(part(1, (1, 2, 3), (1,)), away=(2, 3), min_isr=2)
    assert exit_code(found) == NOT_SERVING
    assert "refuse acks=all" in text(found)


def test_a_partition_that_nobody_leads():
    found = view(part(-1, (3,), (3,)), away=(3,))
    assert exit_code(found) == NOT_SERVING
    assert found.offline == (("orders", 0),)
    assert as_dict(found)["offline"] == [["orders", 0]]


def test_nobody_controls():
    assert exit_code(view(part(1, (1,), (1,)), controller=-1)) == NOT_SERVING


def test_a_replica_that_is_being_made_is_not_missed():
    found = view(part(1, (1, 2, 3), (1, 2)), moving={("orders", 0): Reassignment((1, 2, 3), (3,), ())})
    assert exit_code(found) == WELL
    assert "1 partition being reassigned: orders-0" in text(found)


def test_another_than_the_first_replica_leads():
    assert view(part(2, (1, 2), (1, 2))).away_from_preferred == (("orders", 0),)
    assert view(part(2, (1, 2), (2,))).away_from_preferred == ()


def test_states_of_brokers():
    draining = [THERE[0]._replace(is_cordoned=True)]
    failed = [THERE[0]._replace(has_failed=True)]
    found = view(part(1, (1,), (1,)), away=(3,), dirs={1: draining, 2: None, 3: THERE})
    assert [each.state for each in found.brokers] == ["draining", "unreachable", "starting"]
    found = view(part(1, (1,), (1,)), dirs={1: THERE, 2: THERE, 3: failed})
    assert exit_code(found) == DEGRADED
    assert "disk failed" in text(found)


def test_a_broker_that_is_only_named_as_a_replica_is_away():
    found = view(part(1, (1, 9), (1,)))
    assert [(each.broker_id, each.state, each.address) for each in found.brokers][-1] == (9, "away", "?")
