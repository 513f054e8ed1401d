"""Times of requests that a connection handles together, and the errors in answers."""

from datetime import timedelta

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.heartbeat.v4.response import HeartbeatResponse
from kio.schema.offset_commit.v8.response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kio.schema.types import TopicName
from kio.static.primitive import i32, i32Timedelta

from headrace.kafka.request_meter import KafkaRequestMeter, error_name, note_errors
from headrace.kafka.request_turn import TurnTimer
from headrace.observe.request_metrics import KindMetrics

PRODUCE, FETCH = 0, 1


class Stopwatch:
    def __init__(self) -> None:
        self.meter = KafkaRequestMeter()
        self.now_ms = 1000.0
        self.timer = TurnTimer(self.meter, lambda: self.now_ms)

    def read(self) -> None:
        self.timer.received_ms, self.timer.has_waited = self.now_ms, False

    def sums_ms(self, key: int) -> dict[str, float]:
        return {phase: round(times.total * 1000, 6) for phase, times in self.meter.api(key).times().items()}


def test_a_request_alone_has_exactly_its_times() -> None:
    watch = Stopwatch()
    watch.read()
    turn = watch.timer.begin(PRODUCE, False)
    watch.now_ms += 2
    watch.timer.end()
    watch.now_ms += 5
    turn.ready_ms = watch.now_ms
    watch.timer.note_unsent(turn)
    turn.unsent += 1
    watch.now_ms += 1
    watch.timer.sent()
    assert watch.sums_ms(PRODUCE) == {"queue": 0, "local": 2, "remote": 5, "response": 1, "total": 8}
    assert watch.meter.requests.count == 1


def test_requests_that_come_together_share_their_times() -> None:
    watch = Stopwatch()
    watch.read()
    turn = watch.timer.begin(PRODUCE, False)
    turn.count += 3
    watch.now_ms += 8
    watch.timer.end()
    watch.timer.note_unsent(turn)
    turn.unsent = 4
    watch.timer.sent()
    # The second waits for the first, and so on: 0 + 2 + 4 + 6 ms.
    assert watch.sums_ms(PRODUCE) == {"queue": 12, "local": 8, "remote": 0, "response": 0, "total": 20}
    assert watch.meter.api(PRODUCE).count == 4


def test_answers_of_one_turn_may_be_sent_at_different_times() -> None:
    watch = Stopwatch()
    watch.read()
    turn = watch.timer.begin(FETCH, False)
    turn.count = 2
    watch.timer.end()
    for waited_ms in (10, 20):
        watch.now_ms += waited_ms
        turn.ready_ms = watch.now_ms
        watch.timer.note_unsent(turn)
        turn.unsent += 1
        watch.timer.sent()
    assert watch.sums_ms(FETCH)["remote"] == 10 + 30
    assert watch.meter.api(FETCH).count == 2


def test_a_request_that_was_queued_has_waited() -> None:
    watch = Stopwatch()
    watch.read()
    watch.timer.has_waited = True
    watch.now_ms += 7
    turn = watch.timer.begin(PRODUCE, False)
    other = watch.timer.begin(FETCH, True)
    watch.timer.end()
    for each in (turn, other):
        watch.timer.note_unsent(each)
        each.unsent = 1
    watch.timer.sent()
    assert watch.sums_ms(PRODUCE)["queue"] == 7
    assert watch.meter.follower_fetches.count == 1
    assert watch.meter.api(FETCH).count == 0


def test_a_coroutine_is_timed_apart() -> None:
    watch = Stopwatch()
    watch.read()
    turn = watch.timer.begin(PRODUCE, False)
    turn.count += 1
    watch.now_ms += 4
    alone = watch.timer.alone(turn)
    assert alone is not turn
    watch.now_ms += 100
    alone.close(watch.now_ms)
    for each in (turn, alone):
        watch.timer.note_unsent(each)
        each.unsent = 1
    watch.timer.sent()
    assert watch.sums_ms(PRODUCE)["local"] == 104
    assert watch.timer.current is None


def test_an_answer_that_leaves_before_its_turn_ends_closes_it() -> None:
    watch = Stopwatch()
    watch.read()
    turn = watch.timer.begin(PRODUCE, False)
    watch.now_ms += 3
    watch.timer.note_unsent(turn)
    turn.unsent = 1
    watch.timer.sent()
    assert watch.timer.current is None
    assert watch.sums_ms(PRODUCE) == {"queue": 0, "local": 3, "remote": 0, "response": 0, "total": 3}


@pytest.mark.parametrize(
    ("code", "expected"), [(ErrorCode.none, {}), (ErrorCode.not_coordinator, {"NOT_COORDINATOR": 1})]
)
def test_the_error_of_an_answer(code: ErrorCode, expected: dict[str, int]) -> None:
    kind = KindMetrics()
    note_errors(kind, HeartbeatResponse(throttle_time=i32Timedelta.parse(timedelta(0)), error_code=code))
    assert kind.errors == expected


def test_the_errors_of_partitions_count_one_by_one() -> None:
    codes = [ErrorCode.none, ErrorCode.illegal_generation, ErrorCode.illegal_generation]
    partitions = tuple(
        OffsetCommitResponsePartition(partition_index=i32(index), error_code=code) for index, code in enumerate(codes)
    )
    topics = tuple(OffsetCommitResponseTopic(name=TopicName(name), partitions=partitions) for name in "ab")
    kind = KindMetrics()
    note_errors(kind, OffsetCommitResponse(throttle_time=i32Timedelta.parse(timedelta(0)), topics=topics))
    assert kind.errors == {"ILLEGAL_GENERATION": 4}


def test_errors_that_have_no_name() -> None:
    assert error_name(0) == "NONE"
    assert error_name(9999) == "CODE_9999"
