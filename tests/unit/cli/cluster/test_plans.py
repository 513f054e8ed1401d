import pytest

from headrace.cli.cluster.plans import ReplicaMove, balanced, chosen, onto, parse_replicas, parse_size, with_factor
from headrace.cli.errors import BadArgument, CommandFailed
from headrace.model.errors import HeadraceError
from headrace.wire import PartitionInfo, Topic


def part(index: int, *replicas: int, isr: tuple[int, ...] | None = None) -> PartitionInfo:
    return PartitionInfo(index, replicas[0], 0, replicas, replicas if isr is None else isr)


TOPICS = {
    "orders": Topic("orders", None, False, (part(0, 1, 2), part(1, 2, 3), part(2, 3, 1))),
    "prices": Topic("prices", None, False, (part(0, 1),)),
}
RACKS = {1: "a", 2: "a", 3: "b", 4: "b"}


def test_partitions_are_named_by_topic_and_number():
    assert set(chosen(["orders"], TOPICS)) == {("orders", 0), ("orders", 1), ("orders", 2)}
    assert set(chosen(["orders:0,2", "prices"], TOPICS)) == {("orders", 0), ("orders", 2), ("prices", 0)}


@pytest.mark.parametrize("text", ["other", "orders:3", "orders:x", "orders:"])
def test_what_is_not_there_is_a_sentence(text):
    with pytest.raises(HeadraceError, match=r"no topic other|has no partition 3|is not a number"):
        chosen([text], TOPICS)


def test_one_list_for_a_topic_makes_every_broker_lead():
    moves = onto(chosen(["orders"], TOPICS), (2, 3, 4), RACKS)
    assert [move.after for move in moves] == [(2, 3, 4), (3, 4, 2), (4, 2, 3)]
    assert moves[0] == ReplicaMove(("orders", 0), (1, 2), (2, 3, 4))
    assert (moves[0].adding, moves[0].removing) == ((3, 4), (1,))


def test_what_is_there_already_is_no_move():
    assert onto(chosen(["orders:0"], TOPICS), (1, 2), RACKS) == []


def test_an_unknown_broker_is_refused():
    with pytest.raises(CommandFailed, match="there is no broker 7"):
        onto(chosen(["orders"], TOPICS), (1, 7), RACKS)


def test_more_replicas_go_to_other_racks_and_keep_the_leader():
    (move,) = with_factor({("orders", 0): part(0, 1, 2)}, 3, RACKS, {1: 9, 2: 9, 3: 5, 4: 1})
    assert move.after == (1, 2, 4)
    (move,) = with_factor({("prices", 0): part(0, 1)}, 2, RACKS, {2: 0, 3: 5, 4: 6})
    assert move.after == (1, 3)


def test_more_replicas_than_brokers_are_refused():
    with pytest.raises(CommandFailed, match="5 replicas need 5 brokers"):
        with_factor({("prices", 0): part(0, 1)}, 5, RACKS, {})


def test_fewer_replicas_lose_those_that_are_out_of_sync_first_and_never_the_leader():
    (move,) = with_factor({("orders", 0): part(0, 1, 3, 4, isr=(1, 4))}, 2, RACKS, {})
    assert move.after == (1, 4)
    (move,) = with_factor({("orders", 0): part(0, 1, 2, 3)}, 2, RACKS, {})
    assert move.after == (1, 3)  # the other one shares a rack with the leader


def test_a_new_broker_gets_its_share():
    parts = {("orders", index): part(index, 1 + index % 2, 2 - index % 2) for index in range(12)}
    moves = balanced(parts, {1: None, 2: None, 3: None})
    assert sum(3 in move.adding for move in moves) == 8
    assert all(len(move.after) == 2 for move in moves)


@pytest.mark.parametrize(
    ("text", "size"), [("500000", 500_000), ("10M", 10 * 1024**2), ("1.5 GiB", 3 * 2**29), ("20mb/s", 20 * 1024**2)]
)
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "fast", "-1", "10X"])
def test_sizes_that_are_none(text):
    with pytest.raises(BadArgument, match="not a number of bytes"):
        parse_size(text)


def test_replicas():
    assert parse_replicas("3,1,2") == (3, 1, 2)
    with pytest.raises(BadArgument, match="twice"):
        parse_replicas("1,1")
