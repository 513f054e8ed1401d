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
from headrace.kafka.request_turn import RequestTurn, TurnTimer
from headrace.observe.request_metrics import KindMetrics

PRODUCE, FETCH = 0, 1


class Stopwatch:
    """A timer, used as a connection does."""

    def __init__(self) -> None:
        self.meter = KafkaRequestMeter()
        self.now_ms = 1000.0
        self.timer = TurnTimer(self.meter, lambda: self.now_ms / 1000)

    def read(self) -> None:
        self.timer.received_ms = self.timer.begun_ms = self.now_ms

    def handle(self, key: int, took_ms: float = 0, *, is_follower: bool = False) -> None:
        if self.timer.key != key:
            self.timer.switch(key, is_follower)
        self.timer.count += 1
        self.now_ms += took_ms

    def answer(self, *turns: RequestTurn, ready: bool = True) -> None:
        """Make an answer of each turn ready, and in order."""
        for turn in turns:
            if ready and not turn.unsent:
                turn.ready_ms = self.now_ms
            if not turn.unsent:
                self.timer.unsent.append(turn)
            turn.unsent += 1

    def end(self) -> None:
        if self.timer.count:
            self.timer.end()
        self.timer.begun_ms = 0.0

    def sums_ms(self, key: int) -> dict[str, float]:
        return {phase: round(times.total * 1000, 6) for phase, times in self.meter.api(key).times().items()}


def test_a_request_alone_has_exactly_its_times() -> None:
    watch = Stopwatch()
    watch.read()
    watch.handle(PRODUCE, 2)
    turn = watch.timer.later()
    watch.end()
    watch.now_ms += 5
    watch.answer(turn)
    watch.now_ms += 1
    watch.timer.sent()
    assert watch.sums_ms(PRODUCE) == {"queue": 0, "local": 2, "remote": 5, "response": 1, "total": 8}
    assert watch.meter.requests.count == 1


@pytest.mark.parametrize("took_ms", [0.125, 2])
def test_a_request_that_is_answered_at_once_has_local_time_only(took_ms: float) -> None:
    watch = Stopwatch()
    watch.read()
    watch.handle(PRODUCE, took_ms)
    watch.end()
    assert watch.sums_ms(PRODUCE) == {"queue": 0, "local": took_ms, "remote": 0, "response": 0, "total": took_ms}
    assert watch.meter.requests.count == 1


def test_requests_that_come_together_share_their_times() -> None:
    watch = Stopwatch()
    watch.read()
    for _ in range(4):
        watch.handle(PRODUCE, 2)
    watch.end()
    # The second waits for the first, and so on: 0 + 2 + 4 + 6 ms.
    assert watch.sums_ms(PRODUCE) == {"queue": 12, "local": 8, "remote": 0, "response": 0, "total": 20}
    assert watch.meter.api(PRODUCE).count == 4


def test_some_requests_of_a_turn_are_answered_at_once_and_others_later() -> None:
    watch = Stopwatch()
    watch.read()
    watch.handle(PRODUCE, 4)
    watch.handle(PRODUCE)
    turn = watch.timer.later()
    watch.end()
    assert watch.meter.api(PRODUCE).count == 1
    watch.now_ms += 3
    watch.answer(turn)
    watch.timer.sent()
    assert watch.sums_ms(PRODUCE) == {"queue": 2, "local": 4, "remote": 3, "response": 0, "total": 9}
    assert watch.meter.api(PRODUCE).count == 2


def test_an_answer_behind_an_earlier_one_waits_for_its_response() -> None:
    watch = Stopwatch()
    watch.read()
    watch.handle(FETCH)
    first = watch.timer.later()
    watch.handle(PRODUCE)
    second = watch.timer.later()
    watch.end()
    watch.now_ms += 10
    watch.answer(first)
    watch.answer(second, ready=False)
    watch.timer.sent()
    assert watch.sums_ms(FETCH)["remote"] == 10
    assert watch.sums_ms(PRODUCE)["response"] == 10


def test_answers_of_one_turn_may_be_sent_at_different_times() -> None:
    watch = Stopwatch()
    watch.read()
    for _ in range(2):
        watch.handle(FETCH)
        turn = watch.timer.later()
    watch.end()
    for waited_ms in (10, 20):
        watch.now_ms += waited_ms
        watch.answer(turn)
        watch.timer.sent()
    assert watch.sums_ms(FETCH)["remote"] == 10 + 30
    assert watch.meter.api(FETCH).count == 2


@pytest.mark.parametrize("queued_ms", [0.125, 7])
def test_a_request_that_was_queued_has_waited(queued_ms: float) -> None:
    watch = Stopwatch()
    watch.read()
    watch.now_ms += queued_ms
    watch.timer.begun_ms = watch.now_ms
    watch.handle(PRODUCE)
    watch.end()
    assert watch.sums_ms(PRODUCE)["queue"] == queued_ms


def test_the_fetches_of_a_follower_are_apart() -> None:
    watch = Stopwatch()
    watch.read()
    watch.handle(FETCH)
    for _ in range(2):
        watch.handle(FETCH, is_follower=True)
    watch.end()
    assert watch.meter.api(FETCH).count == 1, "the first one, by which it turns out to be one"
    assert watch.meter.follower_fetches.count == 2


def test_a_coroutine_is_timed_apart() -> None:
    watch = Stopwatch()
    watch.read()
    watch.handle(PRODUCE, 4)
    watch.handle(PRODUCE)
    alone = watch.timer.alone()
    watch.end()
    watch.now_ms += 100
    alone.close(watch.now_ms)
    watch.answer(alone)
    watch.timer.sent()
    assert watch.sums_ms(PRODUCE)["local"] == 104
    assert watch.meter.api(PRODUCE).count == 2


def test_answers_that_leave_before_their_turn_ends_end_it() -> None:
    watch = Stopwatch()
    watch.read()
    watch.handle(PRODUCE)
    watch.answer(watch.timer.later())
    watch.now_ms += 3
    watch.timer.sent()
    watch.handle(PRODUCE, 5)
    watch.end()
    assert watch.sums_ms(PRODUCE) == {"queue": 3, "local": 8, "remote": 0, "response": 0, "total": 11}


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
