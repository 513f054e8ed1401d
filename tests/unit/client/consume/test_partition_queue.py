from hypothesis import given
from hypothesis import strategies as st

from headrace.client.consume.partition_queue import PartitionQueue
from headrace.client.message import NOT_BEFORE, Message


def message(offset: int, not_before_ms: int | None = None) -> Message:
    headers = () if not_before_ms is None else ((NOT_BEFORE, str(not_before_ms).encode()),)
    return Message("t", 0, offset, b"", headers=headers)


def lane_with(*offsets: int) -> PartitionQueue:
    lane = PartitionQueue()
    lane.put(message(offset) for offset in offsets)
    return lane


def test_one_at_a_time_in_order() -> None:
    lane = lane_with(3, 4)
    first = lane.start(0)
    assert first is not None
    assert first.offset == 3
    assert lane.start(0) is None
    assert lane.to_commit() is None
    lane.finish()
    assert lane.to_commit() == 4
    second = lane.start(0)
    assert second is not None
    assert second.offset == 4


def test_a_failure_holds_the_lane_until_its_time() -> None:
    lane = lane_with(0, 1)
    lane.start(100)
    lane.hold(150)
    assert lane.failures == 1
    assert lane.next_due_ms() == 150
    assert lane.start(149) is None
    again = lane.start(150)
    assert again is not None
    assert again.offset == 0
    lane.finish()
    assert lane.failures == 0
    assert lane.next_due_ms() == 0


def test_a_message_set_aside_waits_for_its_time() -> None:
    lane = PartitionQueue()
    lane.put([message(0, not_before_ms=500)])
    assert lane.next_due_ms() == 500
    assert lane.start(499) is None
    assert lane.start(500) is not None


def test_a_closed_lane_hands_out_nothing_and_still_finishes() -> None:
    lane = lane_with(0, 1)
    lane.start(0)
    lane.is_closed = True
    lane.finish()
    assert lane.to_commit() == 1
    assert lane.start(0) is None


def test_the_base_is_where_undone_work_starts() -> None:
    lane = lane_with(7, 8, 9)
    for _ in range(2):
        lane.start(0)
        lane.finish()
    assert lane.base == 7
    lane.committed(9)
    assert lane.base == 9
    assert lane.to_commit() is None


def test_what_was_handled_is_done_only_when_it_is_settled_and_can_be_taken_back() -> None:
    lane = lane_with(5, 6, 7, 8)
    for _ in range(3):
        lane.start(0)
        lane.advance()
    assert lane.to_commit() is None
    lane.settle()
    assert lane.to_commit() == 6
    lane.take_back()
    again = lane.start(0)
    assert again is not None
    assert again.offset == 6
    assert len(lane) == 3
    assert lane.to_commit() == 6


def test_failures_to_publish_are_counted_until_the_message_is_done() -> None:
    lane = lane_with(0, 1)
    for failures in (1, 2):
        lane.start(0)
        lane.advance()
        assert lane.take_back() == 1
        lane.hold(0)
        assert lane.failures == failures
    lane.start(0)
    lane.finish()
    assert lane.failures == 0


STEPS = st.lists(st.tuples(st.sampled_from(["put", "start", "finish", "hold", "wait", "commit"]), st.integers(0, 9)))


@given(st.sets(st.integers(0, 100), min_size=1, max_size=20), STEPS)
def test_whatever_happens_order_is_kept_and_nothing_is_skipped(offsets: set[int], steps: list[tuple[str, int]]) -> None:
    lane = PartitionQueue()
    waiting = sorted(offsets)
    finished: list[int] = []
    now_ms = 0
    to_the_end = [("put", 0)] * len(offsets) + [("wait", 9), ("start", 0), ("finish", 0)] * (len(offsets) + 1)
    for step, amount in steps + to_the_end:
        if step == "put" and waiting:
            lane.put([message(waiting.pop(0))])
        elif step == "start":
            was_in_flight = lane.in_flight
            started = lane.start(now_ms)
            assert started is None or was_in_flight is None
        elif step == "finish" and lane.in_flight is not None:
            finished.append(lane.in_flight.offset)
            lane.finish()
        elif step == "hold" and lane.in_flight is not None:
            lane.hold(now_ms + amount)
        elif step == "wait":
            now_ms += amount
        elif step == "commit" and (position := lane.to_commit()) is not None and finished:
            assert position == finished[-1] + 1
            lane.committed(position)
    assert finished == sorted(offsets)
    assert lane.position == max(offsets) + 1
