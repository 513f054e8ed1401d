import tracemalloc

import pytest

from headrace.config.queue import QueueSettings
from headrace.model.errors import NotInFlight
from headrace.queues.engine.chunk_index import LogMessage
from headrace.queues.engine.dedupe import WINDOW_MS
from headrace.queues.engine.stored import CHUNK
from headrace.queues.state_entries import StateEntries
from tests.unit.queues.engines import SECOND, START_MS, Driven

FIFO = QueueSettings(type="fifo")


def test_a_group_gives_nothing_that_was_sent_after_a_message_in_flight() -> None:
    queue = Driven(FIFO)
    queue.send(3, group=b"a")
    queue.send(2, group=b"b")
    assert queue.receive(2) == [0, 1]
    assert queue.receive(10) == [3, 4]
    queue.acknowledge(1)
    assert queue.receive(10) == []
    queue.acknowledge(0)
    assert queue.receive(10) == [2]


def test_nothing_overtakes_a_message_that_was_given_back() -> None:
    queue = Driven(FIFO)
    queue.send(3, group=b"a")
    queue.send(1, group=b"b")
    assert queue.receive(1) == [0]
    queue.nack(0, delay_ms=5 * SECOND)
    assert queue.receive(10) == [3]
    queue.restart()
    assert queue.receive(10) == []
    queue.wait(5 * SECOND)
    assert queue.receive(10) == [0, 1, 2]


def test_a_message_that_came_back_does_not_wait_for_later_ones_in_flight() -> None:
    queue = Driven(FIFO)
    queue.send(4, group=b"a")
    queue.send(1, group=b"b")
    assert queue.receive(3) == [0, 1, 2]
    queue.extend(0, 0)
    assert queue.receive(10) == [4, 0]
    queue.nack(2, delay_ms=0)
    assert queue.receive(10) == []
    queue.acknowledge(0, attempt=2)
    queue.restart()
    assert queue.receive(10) == []
    queue.acknowledge(1)
    assert queue.receive(10) == [2, 3]


@pytest.mark.parametrize("extended", [0, 1, 2])
def test_of_messages_received_together_those_before_the_one_in_flight_come_back(extended: int) -> None:
    queue = Driven(FIFO)
    queue.send(3, group=b"a")
    assert queue.receive(5) == [0, 1, 2]
    queue.extend(extended, 60 * SECOND)
    queue.wait(31 * SECOND)
    assert queue.receive(5) == [*range(extended)]


def test_a_group_that_always_fails_keeps_no_other_from_being_received() -> None:
    queue = Driven(FIFO)
    queue.send(3, group=b"bad")
    queue.send(2, group=b"good")
    queue.send(1, group=b"other")
    received = []
    for attempt in range(1, 5):
        (offset,) = queue.receive()
        received.append(offset)
        if offset == 0:
            queue.extend(0, 0, attempt)
        else:
            queue.acknowledge(offset)
        if attempt == 1:
            assert queue.receive(2) == [3, 4]
            queue.acknowledge(3)
            queue.acknowledge(4)
            assert queue.receive(1) == [5]
    assert received == [0, 0, 0, 0]


def test_a_group_whose_lease_ends_comes_behind_the_others() -> None:
    queue = Driven(FIFO)
    queue.send(4, group=b"a")
    queue.send(1, group=b"b")
    queue.send(1, group=b"c")
    assert queue.receive(2, SECOND) == [0, 1]
    assert queue.receive(1, SECOND) == [4]
    queue.wait(2 * SECOND)
    assert queue.receive(10) == [5, 0, 1, 2, 3, 4]


def test_a_receipt_whose_lease_is_over_acknowledges_nothing() -> None:
    queue = Driven(FIFO)
    queue.send(2, group=b"a")
    queue.receive(1)
    queue.wait(31 * SECOND)
    with pytest.raises(NotInFlight):
        queue.acknowledge(0)
    assert queue.receive(2) == [0, 1]
    queue.acknowledge(0, attempt=2)
    queue.acknowledge(0, attempt=2)


def test_nothing_overtakes_a_message_that_is_delayed() -> None:
    queue = Driven(FIFO)
    queue.send(1, group=b"a")
    queue.send(1, group=b"a", due_ms=queue.now_ms + SECOND)
    queue.send(1, group=b"a")
    assert queue.receive(10) == [0]
    queue.acknowledge(0)
    assert queue.receive(10) == []
    queue.wait(SECOND + 64)
    assert queue.receive(10) == [1, 2]


def test_messages_without_a_group_are_one_group() -> None:
    queue = Driven(FIFO)
    queue.send(2)
    assert queue.receive(1) == [0]
    assert queue.receive(1) == []


def test_a_dead_message_lets_its_group_go_on() -> None:
    queue = Driven(QueueSettings(type="fifo", max_receives=1, dead_letter="letters"))
    queue.send(2, group=b"a")
    assert queue.receive(1) == [0]
    queue.wait(30 * SECOND)
    assert queue.engine.has_dead
    assert queue.receive(10) == [1]


def test_a_message_that_goes_out_of_the_middle_of_its_group_does_not_hold_it_up() -> None:
    queue = Driven(FIFO)
    queue.send(4, group=b"a")
    queue.engine.acknowledge([(1, 0)], queue.now_ms, any_attempt=True)
    queue.engine.acknowledge([(0, 0)], queue.now_ms, any_attempt=True)
    assert queue.receive(10) == [2, 3]


def test_a_queue_with_as_many_in_flight_as_may_be_gives_nothing_and_no_error() -> None:
    queue = Driven(QueueSettings(type="fifo", max_in_flight=1))
    queue.send(1, group=b"a")
    queue.send(1, group=b"b")
    assert queue.receive(10) == [0]
    assert queue.receive(10) == []


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_duplicate_is_done_at_once_and_tells_the_first(is_restarted: bool) -> None:
    queue = Driven(FIFO)
    queue.send(1, dedupe=b"x", id="first")
    queue.receive(1)
    queue.acknowledge(0)
    if is_restarted:
        queue.restart()
    queue.wait(WINDOW_MS - 1)
    if is_restarted:
        queue.restart()
    assert queue.send(1, dedupe=b"x", id="second") == [(1, 0, "first")]
    assert queue.counts() == (0, 0, 0)
    queue.wait(1)
    assert queue.send(1, dedupe=b"x", id="third") == []
    assert queue.receive(10) == [2]


def test_ids_are_remembered_also_when_their_records_are_gone_from_the_log() -> None:
    queue = Driven(FIFO)
    queue.engine.due(queue.now_ms)
    queue.send(1, dedupe=b"x", id="first")
    queue.engine.acknowledge([(0, 0)], queue.now_ms, any_attempt=True)
    queue.keep()
    assert queue.engine.log_start == 0
    queue.wait(61 * SECOND)
    queue.keep()
    assert queue.engine.log_start == 1
    queue.restart()
    assert queue.send(1, dedupe=b"x", id="second") == [(1, 0, "first")]


def test_ids_are_remembered_of_messages_that_were_done_when_the_head_was_kept() -> None:
    queue = Driven(FIFO)
    queue.send(CHUNK)
    queue.receive()
    queue.keep()
    queue.send(1, dedupe=b"x", id="first")
    queue.wait(31 * SECOND)
    for lease in queue.engine.receive(CHUNK + 1, queue.now_ms):
        queue.acknowledge(lease.offset, lease.attempt)
    queue.restart()
    assert queue.send(1, dedupe=b"x", id="second") == [(CHUNK + 1, CHUNK, "first")]


@pytest.mark.parametrize("is_saved", [False, True])
def test_what_is_sent_after_a_purge_is_no_duplicate_of_what_was_sent_before(is_saved: bool) -> None:
    queue = Driven(FIFO)
    queue.engine.due(queue.now_ms)
    queue.send(1, dedupe=b"x", id="first")
    if is_saved:
        queue.wait(61 * SECOND)
        queue.restart()
    queue.engine.purge()
    assert queue.send(1, dedupe=b"x", id="second") == []
    queue.restart()
    queue.wait(61 * SECOND)
    queue.restart()
    assert queue.send(1, dedupe=b"x", id="third") == [(2, 1, "second")]
    assert queue.receive(10) == [1]


def test_an_id_that_is_used_again_later_makes_no_duplicate_of_the_messages_before() -> None:
    queue = Driven(FIFO)
    queue.send(1, dedupe=b"x", id="first")
    queue.wait(WINDOW_MS)
    queue.send(1, dedupe=b"x", id="second")
    queue.restart(most=1)
    assert queue.counts() == (2, 0, 0)
    assert queue.send(1, dedupe=b"x", id="third") == [(2, 1, "second")]


def test_duplicates_are_looked_for_in_the_group_where_the_queue_says_so() -> None:
    for scope, duplicates in (("queue", [(1, 0, "")]), ("messageGroup", [])):
        queue = Driven(QueueSettings(type="fifo", dedupe_scope=scope))
        queue.send(1, group=b"a", dedupe=b"x")
        assert queue.send(1, group=b"b", dedupe=b"x") == duplicates


def test_ids_that_nobody_needs_are_forgotten() -> None:
    queue = Driven(FIFO)
    for number in range(20):
        queue.send(1000, group=b"a")
        queue.send(1, dedupe=b"%d" % number)
        queue.keep()
        queue.engine.purge()
        queue.wait(2 * 60 * SECOND)
    queue.keep()
    assert sum(key.startswith(b"u") for key in queue.kept) <= 3


def test_the_order_holds_after_a_restart_with_thousands_of_messages() -> None:
    queue = Driven(FIFO)
    for number in range(5000):
        queue.send(1, group=b"%d" % (number % 7))
    queue.receive(3)
    queue.restart()
    assert queue.counts() == (4997, 3, 0)
    queue.wait(31 * SECOND)
    assert queue.receive(3) == [1, 8, 15]
    assert queue.receive(2) == [2, 9]
    queue.engine.acknowledge([(offset, 0) for offset in range(5000) if offset % 7], queue.now_ms, any_attempt=True)
    assert queue.receive(4) == [0, 7, 14, 21]


@pytest.mark.parametrize(("groups", "each", "most_bytes"), [(20_000, 1, 250), (1_000, 20, 500)])
def test_a_group_takes_a_bounded_amount_of_memory(groups: int, each: int, most_bytes: int) -> None:
    queue, kept = Driven(FIFO), StateEntries()
    names = [b"customer-%d" % number for number in range(groups)]
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    offset = 0
    for _ in range(each):
        for first in range(0, groups, 500):
            queue.engine.index(
                [LogMessage(offset + at, START_MS, group=name) for at, name in enumerate(names[first : first + 500])],
                START_MS,
            )
            offset += 500
            for key, value in queue.engine.take_changes():
                assert value is not None
                kept[key] = value
    taken_bytes = (tracemalloc.get_traced_memory()[0] - before) / groups
    tracemalloc.stop()
    assert taken_bytes < most_bytes


def test_nothing_is_left_of_groups_that_have_ended() -> None:
    queue = Driven(FIFO)
    for turn in range(3):
        for name in (b"a", b"b", b"c%d" % turn):
            queue.send(2, group=name)
        leases = queue.engine.receive(6, queue.now_ms)
        assert [lease.offset - 6 * turn for lease in leases] == [0, 1, 2, 3, 4, 5]
        # The last ones first: a group goes on behind a message that is acked before those in front of it.
        for lease in reversed(leases):
            queue.acknowledge(lease.offset, lease.attempt)
    groups = queue.engine._inventory.groups
    assert groups is not None
    assert (groups._groups.by_hash, list(groups._groups.last), list(groups._fronts)) == ({}, [], [])
