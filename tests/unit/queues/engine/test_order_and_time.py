from collections import Counter
from random import Random

import msgspec
import pytest
from pyroaring import BitMap64

from headrace.config.queue import QueueSettings
from headrace.model.queued import NORMAL_PRIORITY
from headrace.queues.engine.chunk_index import ChunkIndex, LogMessage, OpenChunk, levels_of
from headrace.queues.engine.levels import MessageLevels
from headrace.queues.engine.packed_times import STEP_MS, offsets_of, packed, spans_of, step_of
from headrace.queues.engine.schedule import Schedule
from headrace.queues.engine.send_times import SendTimes
from headrace.queues.engine.stored import CHUNK, INDEX, IndexValue, NarrowIndexValue, decode, entry
from tests.unit.queues.engines import SECOND, START_MS, Driven

DAY = 24 * 60 * 60 * SECOND
AGEING = QueueSettings(type="standard", priority_ageing_ms=10 * SECOND)


def test_higher_levels_come_first_and_within_one_the_oldest() -> None:
    queue = Driven()
    for priority in (4, 0, 9, 4, 9):
        queue.send(priority=priority)
    queue.restart()
    assert queue.receive(10) == [2, 4, 0, 3, 1]


def test_a_message_keeps_its_level_when_it_comes_back() -> None:
    queue = Driven()
    queue.send()
    queue.send(priority=7, due_ms=queue.now_ms + SECOND)
    queue.wait(2 * SECOND)
    for _ in range(3):
        assert queue.receive(1) == [1]
        queue.wait(31 * SECOND)
        queue.restart()


def test_without_ageing_a_level_gives_nothing_while_a_higher_one_has_anything() -> None:
    queue = Driven()
    queue.send(priority=0)
    for _ in range(100):
        queue.send(priority=1)
        queue.wait(SECOND)
        (offset,) = queue.receive(1)
        assert offset != 0
        queue.acknowledge(offset)


def test_with_ageing_nothing_starves() -> None:
    queue = Driven(AGEING)
    queue.send(priority=0)
    received = []
    while 0 not in received:
        queue.send(2, priority=9)
        queue.wait(SECOND)
        received += queue.receive(1)
        queue.acknowledge(received[-1])
    # After 90 seconds it counts as much as the most urgent, and it is the oldest.
    assert 89 <= len(received) <= 93


def test_ageing_raises_one_level_at_a_time() -> None:
    queue = Driven(AGEING)
    queue.send(priority=3)
    queue.wait(11 * SECOND)
    queue.send(priority=4)
    queue.send(priority=5)
    assert queue.receive(3) == [2, 0, 1]


def test_ageing_goes_on_after_a_restart() -> None:
    queue = Driven(AGEING)
    queue.send(5000)
    queue.send(priority=3)
    queue.wait(30 * SECOND)
    queue.send(priority=5)
    queue.restart()
    assert queue.receive(1) == [0]


def test_a_delayed_message_is_never_early_and_hardly_late() -> None:
    queue = Driven()
    queue.send(due_ms=queue.now_ms + 3 * DAY + 1)
    queue.restart()
    queue.wait(3 * DAY)
    assert queue.receive() == []
    queue.wait(1 + STEP_MS)
    assert queue.receive() == [0]


def test_many_delays_and_times_to_live_of_their_own_are_kept_to_across_restarts() -> None:
    queue = Driven()
    rng = Random(5)
    for _ in range(2 * CHUNK + 500):
        due_ms = queue.now_ms + rng.randrange(1, 600 * SECOND)
        queue.send(due_ms=due_ms, expires_ms=due_ms + 5 * SECOND if rng.random() < 0.2 else None)
    received: dict[int, int] = {}
    while queue.now_ms < START_MS + 620 * SECOND:
        queue.wait(20 * SECOND)
        received |= dict.fromkeys(queue.receive(CHUNK, 3600 * SECOND), queue.now_ms)
        if rng.random() < 0.2:
            queue.restart()
    for arrival in queue.log:
        assert arrival.due_ms is not None
        due_ms, expires_ms, at_ms = arrival.due_ms, arrival.expires_ms, received.get(arrival.offset)
        # The first time that was looked after it was due.
        first_ms = START_MS + -(-(due_ms + STEP_MS - START_MS) // (20 * SECOND)) * 20 * SECOND
        if expires_ms is None:
            assert at_ms is not None
            assert due_ms <= at_ms <= first_ms
        else:
            assert at_ms is None or due_ms <= at_ms < expires_ms + STEP_MS


def test_the_queues_delay_is_for_messages_that_say_nothing() -> None:
    queue = Driven(QueueSettings(type="standard", delay_ms=5 * SECOND))
    queue.send(2)
    queue.send(due_ms=0)
    assert queue.receive(10) == [2]
    assert queue.counts() == (0, 1, 2)
    queue.wait(5 * SECOND + STEP_MS)
    assert queue.receive(10) == [0, 1]


def test_a_message_goes_when_its_time_to_live_is_over_but_not_from_under_its_receiver() -> None:
    queue = Driven()
    queue.send(2, expires_ms=queue.now_ms + SECOND)
    queue.receive(1, 10 * SECOND)
    queue.wait(SECOND + STEP_MS)
    assert queue.counts() == (0, 1, 0)
    queue.extend(0, 20 * SECOND)
    queue.restart()
    queue.wait(21 * SECOND)
    assert queue.counts() == (0, 0, 0)


def test_what_nobody_deleted_goes_with_retention_wherever_it_is() -> None:
    queue = Driven(QueueSettings(type="standard", retention_ms=60 * SECOND))
    queue.send(4)
    queue.receive(1, 3600 * SECOND)
    queue.wait(30 * SECOND)
    queue.send(1)
    queue.restart()
    queue.wait(29 * SECOND)
    assert queue.counts() == (4, 1, 0)
    queue.wait(2 * SECOND)
    assert queue.counts() == (1, 0, 0)
    assert queue.receive(10) == [4]
    queue.wait(3600 * SECOND)
    queue.keep()
    assert queue.engine.log_start == 5


@pytest.mark.parametrize("kind", ["standard", "fifo"])
def test_retention_counts_from_when_a_message_is_due(kind: str) -> None:
    queue = Driven(QueueSettings(type=kind, retention_ms=64 * SECOND))
    queue.send(2)
    for group in (b"a", b"b", b"c"):
        queue.send(due_ms=queue.now_ms + DAY, group=group)
        queue.send(group=group)
    queue.wait(3600 * SECOND)
    assert queue.counts() == (0, 0, 3)
    queue.restart()
    assert queue.counts() == (0, 0, 3)
    queue.wait(DAY - 3600 * SECOND + STEP_MS)
    assert queue.receive(1, DAY) == [2]
    queue.restart()
    assert queue.receive(1) == [4]
    queue.acknowledge(4)
    queue.wait(63 * SECOND)
    assert queue.counts() == (1, 1, 0)
    queue.wait(3 * SECOND)
    assert queue.counts() == (0, 0, 0)
    queue.keep()
    assert queue.engine.log_start == 8


def test_a_message_that_was_due_while_nobody_led_the_queue_is_there_for_its_retention() -> None:
    queue = Driven(QueueSettings(type="standard", retention_ms=64 * SECOND))
    sent_ms, queue.now_ms = queue.now_ms, queue.now_ms + DAY
    queue.log.append(LogMessage(0, sent_ms, due_ms=queue.now_ms - 60 * SECOND))
    queue.log.append(LogMessage(1, sent_ms))
    for _ in range(2):
        queue.restart()
        assert queue.counts() == (1, 0, 0)
    queue.wait(6 * SECOND)
    assert queue.counts() == (0, 0, 0)


def test_retention_counts_from_the_end_of_the_queues_delay() -> None:
    queue = Driven(QueueSettings(type="standard", retention_ms=64 * SECOND, delay_ms=DAY))
    queue.engine.index_plain(0, 9, queue.now_ms, queue.now_ms)
    queue.wait(DAY + STEP_MS)
    assert queue.counts() == (10, 0, 0)
    queue.wait(63 * SECOND)
    assert queue.counts() == (10, 0, 0)
    queue.wait(3 * SECOND)
    assert queue.counts() == (0, 0, 0)


def test_a_record_with_a_time_to_come_does_not_keep_others_from_going() -> None:
    queue = Driven(QueueSettings(type="standard", retention_ms=60 * SECOND))
    queue.engine.index_plain(0, 0, queue.now_ms + 100 * DAY, queue.now_ms)
    queue.wait(62 * SECOND)
    assert queue.counts() == (0, 0, 0)


def test_messages_that_were_sent_nearly_together_go_together_and_none_too_early() -> None:
    ages = SendTimes(1000)
    for offset in range(20):
        ages.add(offset, 300 * offset)
    for time in range(0, 7000, 100):
        last = ages.sent_by(time)
        assert last is None or 300 * last <= time
        assert (-1 if last is None else last) >= min(19, (time - 1000) // 300)
    assert all(300 * offset <= ages.sent_ms(offset) < 300 * offset + 1000 for offset in range(20))


def test_a_schedule_gives_each_once_in_time_however_many_come_due_together() -> None:
    schedule = Schedule()
    start = 1_000_000 * STEP_MS
    due_ms = {offset: start + (500 if offset % 7 else 10_000_000 + offset % 1000) for offset in range(5 * CHUNK)}
    for chunk in range(5):
        first, end = chunk * CHUNK, (chunk + 1) * CHUNK
        for offset in range(first, end):
            schedule.add(offset, offset, due_ms[offset])
        spans = [(step_of(due_ms[offset]), offset - first, offset - first) for offset in range(first, end)]
        schedule.close(chunk, packed(spans))
    schedule.add(5 * CHUNK, 6 * CHUNK - 2, start + 10_000_500)
    due_ms |= dict.fromkeys(range(5 * CHUNK, 6 * CHUNK - 1), start + 10_000_500)
    times: Counter[int] = Counter()
    now = start
    while (soon := schedule.next_ms) is not None:
        now = max(now, soon)
        for offset in schedule.due(now, 1000) or ():
            times[offset] += 1
            assert due_ms[offset] <= now < due_ms[offset] + STEP_MS
    assert times == Counter(due_ms.keys())


def test_what_was_due_before_its_chunk_was_whole_is_not_given_again() -> None:
    schedule = Schedule()
    start = 1_000_000 * STEP_MS
    for offset in range(CHUNK):
        schedule.add(offset, offset, start + offset // 8 * STEP_MS)
    early = set(schedule.due(start + 100 * STEP_MS, CHUNK) or ())
    schedule.close(0, packed([(start // STEP_MS + offset // 8, offset, offset) for offset in range(CHUNK)]))
    assert schedule.next_ms == start + 101 * STEP_MS
    assert early.isdisjoint(schedule.due(start + CHUNK * STEP_MS, CHUNK) or ())


def test_the_times_of_chunks_whose_messages_are_done_are_forgotten() -> None:
    schedule = Schedule()
    for chunk in range(3):
        schedule.add(chunk * CHUNK, chunk * CHUNK, chunk * DAY)
        schedule.close(chunk, packed([(step_of(chunk * DAY), 0, 0)]))
    schedule.forget_before(2 * CHUNK - 1)
    assert schedule.next_ms == DAY
    schedule.forget_before(2 * CHUNK)
    assert list(schedule.due(9 * DAY, CHUNK) or ()) == [2 * CHUNK]


@pytest.mark.parametrize("spread_ms", [0, 1000, 4 * DAY, 40_000 * DAY])
def test_times_are_packed_and_read_again(spread_ms: int) -> None:
    rng = Random(spread_ms)
    singles = [
        (step_of(1_700_000_000_000 + rng.randrange(spread_ms + 1)), number, number) for number in range(0, CHUNK, 3)
    ]
    assert list(spans_of(packed(singles))) == sorted(singles)
    ranges = [(step, number, number + 2) for step, number, _ in singles]
    found = [(step, number) for step, first, last in spans_of(packed(ranges)) for number in range(first, last + 1)]
    assert sorted(found) == sorted((step, first + more) for step, first, _ in ranges for more in range(3))
    assert offsets_of(packed(ranges), 7 * CHUNK) == [7 * CHUNK + number for _, number in found]


@pytest.mark.parametrize("may_be_narrow", [True, False])
@pytest.mark.parametrize("spread_ms", [0, 1, STEP_MS, 5 * SECOND, 4 * DAY, 8 * DAY, 365 * DAY, 40_000 * DAY])
def test_times_of_every_width_are_read_as_they_were_written(spread_ms: int, *, may_be_narrow: bool) -> None:
    rng = Random(spread_ms)
    spans = [(step_of(DAY + rng.randrange(spread_ms + 1)), number, number) for number in range(CHUNK)]
    spans[17] = (step_of(DAY + 30_000 * DAY), 17, 17)
    times = packed(spans, may_be_narrow=may_be_narrow)
    assert may_be_narrow or times.item_bytes == 4
    read = [(step, number) for step, first, last in spans_of(times) for number in range(first, last + 1)]
    assert sorted(read) == sorted((step, number) for step, number, _ in spans)
    assert offsets_of(times, 0) == [number for _, number in read]


def test_a_time_costs_two_to_four_bytes() -> None:
    rng = Random(1)
    for spread_ms, most_bytes in ((DAY // 96, 2.1), (4 * DAY, 3.2), (8 * DAY, 3.7), (30 * DAY, 4.1), (365 * DAY, 4.1)):
        spans = [(step_of(rng.randrange(spread_ms)), number, number) for number in range(CHUNK)]
        assert packed(spans).times.nbytes < most_bytes * CHUNK
        assert packed(spans, may_be_narrow=False).times.nbytes < 4.1 * CHUNK
    assert packed([(step_of(DAY), 0, CHUNK - 1)]).times.nbytes == 2


def test_levels_are_those_of_a_dictionary() -> None:
    rng = Random(3)
    levels, model = MessageLevels(), dict[int, int]()
    for offset in range(3000):
        levels.set(offset, level := rng.choice((9, 4, 0, 5, 4, 7, 1, 2, 3, 6, 8)))
        model[offset] = level
    levels.set_all(BitMap64(range(5000, 6000)), 2)
    model |= dict.fromkeys(range(5000, 6000), 2)
    for offset in rng.sample(sorted(model), 500):
        assert levels.forget(offset) == model[offset]
        model[offset] = 4
    assert all(levels.of(offset) == level for offset, level in model.items())
    wanted = set(rng.sample(sorted(model), 700))
    parts = [(offset, level) for level, part in levels.parts(BitMap64(wanted)) for offset in part]
    assert sorted(parts) == sorted((offset, model[offset]) for offset in wanted)
    assert len(levels.planes) == 4


@pytest.mark.parametrize("used", [(9,), (0, 9), tuple(range(10))])
@pytest.mark.parametrize("may_be_narrow", [True, False])
def test_levels_are_read_as_they_were_written(used: tuple[int, ...], *, may_be_narrow: bool) -> None:
    rng = Random(5)
    chunk, levels = OpenChunk(0, CHUNK), dict[int, int]()
    for number in range(0, CHUNK, 3):
        level = rng.choice(used)
        if level != NORMAL_PRIORITY:
            chunk.add_level(number, level)
            levels[level] = levels.get(level, 0) | 1 << number
    made = entry(INDEX, 0, chunk.value(may_be_narrow=may_be_narrow))
    _, _, value = decode(made)
    assert isinstance(value, IndexValue)
    assert isinstance(value, NarrowIndexValue) == (may_be_narrow and len(used) > 4)
    assert dict(levels_of(value)) == levels
    again = OpenChunk.load(0, value).value(may_be_narrow=may_be_narrow)
    assert dict(levels_of(again)) == levels
    assert made.value is not None
    assert len(made.value) < (2100 if may_be_narrow else 4700)


def index_of(feature_level: int) -> tuple[bytes, IndexValue]:
    """An index of a chunk of delayed messages, as it is persisted and as it is told."""
    closed: list[IndexValue] = []
    index = ChunkIndex(0, lambda _, value: closed.append(value), lambda: feature_level)
    for number in range(CHUNK):
        index.at(number).add_delayed(number, number, number * SECOND)
        index.at(number).end = number + 1
    index.at(CHUNK)
    (made,) = index.take(0)
    assert made.value is not None
    return made.value, closed[0]


def test_below_feature_level_2_an_index_is_one_that_0_1_reads() -> None:
    class TimesOf01(msgspec.Struct, array_like=True, frozen=True):
        start: int
        times: bytes
        lengths: bytes

    class IndexOf01(msgspec.Struct, array_like=True, frozen=True, tag="index-1"):
        end: int
        ages: list[tuple[int, int]]
        levels: list[tuple[int, bytes]]
        delayed: TimesOf01
        expiring: TimesOf01
        groups: list[bytes]
        members: bytes

    old, _ = index_of(1)
    assert len(msgspec.msgpack.decode(old, type=IndexOf01).delayed.times) == 4 * CHUNK
    new, told = index_of(2)
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(new, type=IndexOf01)
    assert isinstance(told, NarrowIndexValue)
    assert len(new) < 3.1 * CHUNK


def test_times_are_read_where_they_are_kept_and_not_copied() -> None:
    """What a message costs in memory, `bench/queue_memory.py` measures."""
    closed: list[IndexValue] = []
    index = ChunkIndex(0, lambda _, value: closed.append(value))
    for number in range(CHUNK):
        index.at(number).add_delayed(number, number, number * SECOND)
        index.at(number).end = number + 1
    index.at(CHUNK)
    (kept,) = index.take(0)
    assert kept.value is not None
    assert closed[0].delayed.times.obj is kept.value
    assert len(kept.value) < 3.1 * CHUNK
