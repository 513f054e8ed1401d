"""What is said about mirror topics."""

from uuid import uuid4

from headrace.mirror.reports import PartitionFigures, PartitionReport, is_copied, mirror_report, seconds_behind
from headrace.model.links import Mirror

TOPIC_ID = uuid4()
LEADER, OTHER = 1, 2


def report(
    caught_up_ms: float | None,
    *,
    source_end: int = 10,
    leader: int = LEADER,
    undecided: int = 0,
    looked_ms: float = 5000.0,
) -> PartitionReport:
    figures = PartitionFigures(
        TOPIC_ID, 0, 10, 3, source_end, caught_up_ms, caught_up_ms, undecided=undecided, looked_ms=looked_ms
    )
    return PartitionReport(0, leader, figures)


def test_a_partition_is_copied_once_it_was_caught_up_after_the_first_look() -> None:
    first: dict[tuple[int, int], float] = {}
    assert not is_copied(PartitionReport(0, LEADER, None), first)
    assert not is_copied(report(None), first)
    assert not is_copied(report(4900.0), first), "a leader whose clock is ahead may say so of a time before the call"
    assert not is_copied(report(4950.0, looked_ms=5300.0), first), "it was asked before, and answered after the look"
    assert not is_copied(report(5001.0, source_end=11), first), "not in all replicas"
    assert not is_copied(report(5001.0, undecided=1), first), "what follows an open transaction is not copied"
    assert not is_copied(report(8900.0, leader=OTHER, looked_ms=9000.0), first), "times of two clocks are not compared"
    assert is_copied(report(5001.0), first)
    assert is_copied(report(9001.0, leader=OTHER), first)


def test_a_queue_is_copied_with_the_state_of_all_that_is_here() -> None:
    def is_copied_with(state_copied_ms: float | None, state_end: int | None) -> bool:
        figures = PartitionFigures(
            TOPIC_ID,
            0,
            10,
            3,
            10,
            5001.0,
            5001.0,
            looked_ms=5000.0,
            state_copied_ms=state_copied_ms,
            state_end=state_end,
        )
        return is_copied(PartitionReport(0, LEADER, figures), {}, is_queue=True)

    assert not is_copied_with(None, None)
    assert not is_copied_with(5000.0, 10)
    assert not is_copied_with(5001.0, 9), "of a message that was copied later nothing is stored yet"
    assert is_copied_with(5001.0, 10)
    assert is_copied_with(5001.0, None), "a leader of an older version does not say"


def test_a_mirror_that_was_never_caught_up_is_behind_since_its_leader_tries() -> None:
    never = PartitionFigures(TOPIC_ID, 0, 10, 3, since_ms=1000.0)
    assert never.lag_seconds(61_000.0) is None
    assert seconds_behind(never, 61_000.0) == 60
    once = PartitionFigures(TOPIC_ID, 0, 10, 3, 10, 31_000.0, 31_000.0, since_ms=1000.0)
    assert seconds_behind(once, 61_000.0) == 30
    assert seconds_behind(PartitionFigures(TOPIC_ID, 0, 10, 3), 61_000.0) == 0


def test_what_waits_for_a_transaction_would_be_missing() -> None:
    mirror = Mirror(TOPIC_ID, "eu", "orders", uuid4(), "other")
    found = mirror_report("orders", mirror, (report(0.0, source_end=14, undecided=3), report(0.0, undecided=1)), 0.0)
    assert (found.lag_messages, found.undecided, found.missing_messages) == (4, 4, 8)
    unknown = mirror_report("orders", mirror, (PartitionReport(0, LEADER, None),), 0.0)
    assert unknown.missing_messages is None


def test_messages_since_the_last_contact_may_be_missing_though_the_mirror_is_not_behind() -> None:
    mirror = Mirror(TOPIC_ID, "eu", "orders", uuid4(), "other")
    found = mirror_report("orders", mirror, (report(1000.0), report(3000.0)), 4000.0)
    assert (found.lag_seconds, found.missing_seconds) == (0.0, 3.0)
    unknown = mirror_report("orders", mirror, (report(1000.0), report(None)), 4000.0)
    assert unknown.missing_seconds is None
