"""Queues on a real broker: what is sent is received, what is acknowledged is gone, and all of it after a restart."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.unit.queues.brokers import QueueBroker
from tests.waiting import until_async

from headrace.coordinator.machine import Entry
from headrace.model import queued
from headrace.model.errors import (
    InvalidMessage,
    InvalidPartitions,
    InvalidReceipt,
    InvalidSettings,
    NotInFlight,
    PurgeInProgress,
    QueueExists,
    UnknownMove,
    UnknownQueue,
)
from headrace.model.queue_wire import Filter, Move, Outgoing
from headrace.queues.api import Edit, ReceiveOptions
from headrace.queues.messages import read_origin
from headrace.records.batch import read_header
from headrace.records.builder import build_batch
from headrace.records.markers import Marker
from headrace.records.reader import Record


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueueBroker]:
    made = QueueBroker(tmp_path_factory.mktemp("queues") / "data")
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[QueueBroker]:
    """A broker that a test may restart."""
    made = QueueBroker(tmp_path / "data")
    try:
        yield made
    finally:
        made.close()


# -- what queues there are


def test_a_queue_is_created_once_and_found(broker: QueueBroker) -> None:
    edit = Edit({"visibility.timeout.ms": "1000"}, {"Policy": "none"})
    made = broker.run(broker.queues.create("defined", edit))
    assert (made.settings.type, made.settings.visibility_timeout_ms, made.attributes) == (
        "standard", 1000, {"Policy": "none"}
    )  # fmt: skip
    assert broker.run(broker.queues.create("defined", edit)).topic_id == made.topic_id
    assert broker.run(broker.queues.create("defined", Edit())).topic_id == made.topic_id
    with pytest.raises(QueueExists, match=r"another visibility\.timeout\.ms"):
        broker.run(broker.queues.create("defined", Edit({"visibility.timeout.ms": "2000"})))
    assert [info.name for info in broker.queues.queues("defi")] == ["defined"]


def test_a_queue_is_altered(broker: QueueBroker) -> None:
    name = broker.create(delay_ms="500")
    broker.run(broker.queues.alter(name, Edit({"delay.ms": None, "max.receives": "3"}, {"a": "1", "b": "2"})))
    broker.run(broker.queues.alter(name, Edit({}, {"a": None})))
    found = broker.queues.find(name)
    assert (found.settings.delay_ms, found.settings.max_receives, found.attributes) == (0, 3, {"b": "2"})
    with pytest.raises(InvalidSettings, match="type of a queue"):
        broker.run(broker.queues.alter(name, Edit({"type": "fifo"})))
    with pytest.raises(InvalidSettings, match="own dead-letter queue"):
        broker.run(broker.queues.alter(name, Edit({"dead.letter": name})))
    with pytest.raises(InvalidSettings, match="max"):
        broker.run(broker.queues.alter(name, Edit({"max.receives": "5000"})))


def test_a_topic_is_no_queue_and_a_queue_has_one_partition(broker: QueueBroker) -> None:
    metadata = broker.services.metadata
    broker.run(metadata.create_topic("plain", partitions=2))
    with pytest.raises(UnknownQueue):
        broker.queues.find("plain")
    with pytest.raises(QueueExists, match="no queue"):
        broker.run(broker.queues.create("plain", Edit()))
    with pytest.raises(InvalidPartitions, match="one partition"):
        broker.run(metadata.alter_topic_settings("plain", lambda _: {"queue.type": "standard"}))
    with pytest.raises(InvalidPartitions, match="one partition"):
        broker.run(metadata.create_topic("two", partitions=2, settings={"queue.type": "standard"}))
    with pytest.raises(InvalidPartitions, match="one partition"):
        broker.run(metadata.add_partitions(broker.create(), 2))


def test_a_topic_becomes_a_queue_with_what_it_has(broker: QueueBroker) -> None:
    metadata = broker.services.metadata
    broker.run(metadata.create_topic("becoming", partitions=1))
    _append(broker, "becoming", Record(0, 1, None, b"before"))
    broker.run(metadata.alter_topic_settings("becoming", lambda _: {"queue.type": "standard"}))
    now_ms = broker.services.clock.wall_ms()
    _append(broker, "becoming", Record(0, now_ms, None, b"after"))
    # What was sent in 1970 is past its retention.
    assert broker.bodies("becoming", wait_ms=20_000) == ["after"]


def test_a_queue_that_is_deleted_is_gone_and_comes_back_empty(broker: QueueBroker) -> None:
    name = broker.create()
    broker.send(name, "a")
    (message,) = broker.receive(name)
    broker.run(broker.queues.delete(name))
    for asked in (broker.queues.counts(name), broker.queues.delete(name), broker.queues.send(name, [])):
        with pytest.raises(UnknownQueue):
            broker.run(asked)
    broker.create(name)
    assert broker.bodies(name) == []
    (failure,) = broker.run(broker.queues.acknowledge(name, [message.receipt]))
    assert isinstance(failure, InvalidReceipt)


# -- messages


def test_a_message_has_what_was_sent_with_it(broker: QueueBroker) -> None:
    name = broker.create()
    sent = Outgoing(b"\x00body", "the-id", priority=7, group="g", ttl_ms=600_000, headers=(("h", b"1"), ("n", None)))
    (answer,) = broker.run(broker.queues.send(name, [sent]))
    (got,) = broker.receive(name)
    assert (got.body, got.id, got.priority, got.group, got.headers) == (b"\x00body", "the-id", 7, "g", sent.headers)
    assert (got.offset, got.attempt, answer.id, answer.offset) == (answer.offset, 1, "the-id", got.offset)
    assert got.deadline_at_ms - got.first_received_at_ms == 600_000


def test_what_is_sent_is_found_at_once(broker: QueueBroker) -> None:
    name = broker.create()
    for number in range(20):
        broker.send(name, str(number))
        assert broker.bodies(name) == [str(number)]


def test_a_message_that_is_received_is_hidden_and_one_that_is_acknowledged_is_gone(broker: QueueBroker) -> None:
    name = broker.create()
    broker.send(name, "a", "b")
    first, second = broker.receive(name)
    assert broker.bodies(name) == []
    assert broker.run(broker.queues.counts(name)).in_flight == 2
    broker.acknowledge(name, first)
    broker.acknowledge(name, first)
    assert broker.run(broker.queues.extend(name, [(second.receipt, 0)])) == [None]
    (again,) = broker.receive(name)
    assert (again.body, again.attempt) == (b"b", 2)
    (failure,) = broker.run(broker.queues.acknowledge(name, [second.receipt]))
    assert isinstance(failure, NotInFlight)


def test_a_message_is_there_again_after_its_deadline_and_not_before(broker: QueueBroker) -> None:
    name = broker.create()
    broker.send(name, "a")
    (first,) = broker.receive(name, visibility_ms=300)
    (again,) = broker.receive(name, wait_ms=20_000)
    assert again.attempt == 2
    assert again.deadline_at_ms - 600_000 >= first.deadline_at_ms
    assert again.first_received_at_ms == first.first_received_at_ms


def test_priorities_and_what_is_hidden(broker: QueueBroker) -> None:
    name = broker.create()
    broker.send(name, "later", delay_ms=600_000, priority=9)
    broker.send(name, "low", priority=1)
    broker.send(name, "high", priority=9)
    assert broker.run(broker.queues.counts(name)).delayed == 1
    assert broker.bodies(name) == ["high", "low"]


def test_a_delayed_message_comes_by_itself_and_not_too_early(broker: QueueBroker) -> None:
    name = broker.create()
    broker.send(name, "later", delay_ms=300)
    (late,) = broker.receive(name, wait_ms=20_000)
    assert late.body == b"later"
    assert late.first_received_at_ms >= late.sent_at_ms + 300


def test_a_queue_refuses_what_is_no_message(broker: QueueBroker) -> None:
    name = broker.create(max_message_bytes="1024")
    for message in (
        Outgoing(b"x" * 1000, "i", headers=(("h", b"y" * 100),)),
        Outgoing(b"x", "i", priority=10),
        Outgoing(b"x", ""),
        Outgoing(b"x", "i", ttl_ms=-1),
        Outgoing(b"x", "i", delay_ms=5 * 24 * 60 * 60 * 1000),
        Outgoing(b"x", "i", due_at_ms=2**50),
        Outgoing(b"x", "i", group=""),
        Outgoing(b"x", "i", headers=(("h", None),) * 101),
    ):
        with pytest.raises(InvalidMessage):
            broker.run(broker.queues.send(name, [Outgoing(b"fine", "i"), message]))
    with pytest.raises(InvalidMessage, match="more than the 1000"):
        broker.run(broker.queues.send(name, [Outgoing(b"x", "i")] * 1001))
    assert broker.bodies(name) == []


def test_receipts_of_nobody(broker: QueueBroker) -> None:
    name, other = broker.create(), broker.create()
    broker.send(other, "a")
    (message,) = broker.receive(other)
    wanted = ["", "x" * 40, "\x00", message.receipt]
    failures = broker.run(broker.queues.acknowledge(name, wanted))
    assert [type(failure) for failure in failures] == [InvalidReceipt] * 4


def test_receives_wait_in_turn_and_wake_at_once(broker: QueueBroker) -> None:
    name = broker.create()

    async def run() -> None:
        got: list[str] = []
        # From here on the queue is loaded, and whoever asks first is the first to wait.
        await broker.queues.counts(name)

        async def receive(who: str) -> None:
            (message,) = await broker.queues.receive(name, ReceiveOptions(1, 20_000))
            got.append(f"{who}{message.body.decode()}")

        receivers = []
        for who in "abc":
            receivers.append(asyncio.ensure_future(receive(who)))
            await asyncio.sleep(0.02)
        await broker.queues.send(name, [Outgoing(b"1", "1"), Outgoing(b"2", "2")])
        await broker.queues.send(name, [Outgoing(b"3", "3")])
        await asyncio.gather(*receivers)
        assert sorted(got) == ["a1", "b2", "c3"]

    broker.run(run())


def test_what_a_receiver_that_went_away_would_have_got_is_there_for_others(
    broker: QueueBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = broker.create()
    broker.send(name, "1")
    state = broker.queues.state
    write = state.write

    async def run() -> None:
        began, go_on = asyncio.Event(), asyncio.Event()

        async def slowly(queue: str, term: int, entries: Sequence[Entry]) -> None:
            began.set()
            await go_on.wait()
            await write(queue, term, entries)

        monkeypatch.setattr(state, "write", slowly)
        gone = asyncio.ensure_future(broker.queues.receive(name, ReceiveOptions(1)))
        await began.wait()
        gone.cancel()
        await asyncio.wait([gone])
        assert gone.cancelled()
        go_on.set()
        (message,) = await broker.queues.receive(name, ReceiveOptions(1, 20_000))
        assert message.body == b"1"

    broker.run(run())


def test_a_fifo_queue_knows_duplicates_and_gives_groups_in_order(broker: QueueBroker) -> None:
    name = broker.create(type="fifo")

    def sent(body: bytes, group: str, dedupe: str) -> tuple[str, int]:
        message = Outgoing(body, f"id-{dedupe}-{body.decode()}", group=group, dedupe=dedupe)
        (answer,) = broker.run(broker.queues.send(name, [message]))
        return answer.id, answer.offset

    first = sent(b"1", "g", "one")
    assert sent(b"again", "g", "one") == first
    sent(b"2", "g", "two")
    sent(b"3", "h", "three")
    got = broker.receive(name, 1)
    assert [message.body for message in got] == [b"1"]
    assert [message.body for message in broker.receive(name)] == [b"3"]
    broker.acknowledge(name, *got)
    assert [(message.body, message.group, message.dedupe) for message in broker.receive(name)] == [(b"2", "g", "two")]


def test_the_same_attempt_at_receiving_gets_the_same_messages(broker: QueueBroker) -> None:
    name = broker.create(type="fifo")
    broker.send(name, "1", "2", group="g")
    wanted = ReceiveOptions(1, attempt_id="attempt")
    (first,) = broker.run(broker.queues.receive(name, wanted))
    (same,) = broker.run(broker.queues.receive(name, wanted))
    assert (same.receipt, same.attempt) == (first.receipt, 1)
    broker.acknowledge(name, first)
    (other,) = broker.run(broker.queues.receive(name, wanted))
    assert other.body == b"2"


def test_peek_looks_and_changes_nothing(broker: QueueBroker) -> None:
    name = broker.create()
    broker.send(name, "a", "b", "c")
    broker.send(name, "d", delay_ms=600_000)
    broker.receive(name, 1)
    seen = broker.run(broker.queues.peek(name, Filter()))
    assert [(each.body, each.state, each.attempt) for each in seen] == [
        (b"a", "in flight", 1), (b"b", "available", 0), (b"c", "available", 0), (b"d", "delayed", 0)
    ]  # fmt: skip
    assert seen[3].until_at_ms is not None
    assert seen[3].until_at_ms >= seen[3].sent_at_ms + 600_000
    assert [each.body for each in broker.run(broker.queues.peek(name, Filter(limit=1), seen[1].offset))] == [b"c"]
    assert [each.body for each in broker.run(broker.queues.peek(name, Filter(body_contains=b"b")))] == [b"b"]
    assert [each.body for each in broker.run(broker.queues.peek(name, Filter(ids=["id-c", "id-x"])))] == [b"c"]
    assert broker.bodies(name) == ["b", "c"]


def test_purge(broker: QueueBroker) -> None:
    name = broker.create()
    broker.send(name, "a", "b")
    broker.receive(name, 1)
    broker.run(broker.queues.purge(name))
    counts = broker.run(broker.queues.counts(name))
    assert (counts.available, counts.in_flight) == (0, 0)
    with pytest.raises(PurgeInProgress):
        broker.run(broker.queues.purge(name))
    broker.send(name, "c")
    assert broker.bodies(name) == ["c"]


def test_a_purge_that_is_asked_for_again_is_done_once(broker: QueueBroker) -> None:
    name = broker.create()
    led = broker.queues._queues[broker.services.metadata.image.topics[name].topic_id].led  # type: ignore[index]
    broker.run(led.purge("this"))
    broker.send(name, "a")
    broker.run(led.purge("this"))
    assert broker.bodies(name) == ["a"]


# -- dead letters, and moving them


def test_a_message_that_fails_too_often_goes_to_the_dead_letter_queue_and_back(broker: QueueBroker) -> None:
    dead = broker.create()
    name = broker.create(max_receives="2", dead_letter=dead)
    broker.send(name, "poison", priority=6, headers=(("h", b"1"),))
    for reason in ("first", "last"):
        (message,) = broker.receive(name, wait_ms=20_000)
        assert broker.run(broker.queues.give_back(name, [(message.receipt, 0, reason)])) == [None]
    (letter,) = broker.receive(dead, wait_ms=20_000)
    assert (letter.id, letter.body, letter.priority, letter.attempt) == ("id-poison", b"poison", 6, 1)
    assert ("h", b"1") in letter.headers
    assert (queued.ATTEMPT, b"2") in letter.headers
    assert letter.origin is not None
    origin = read_origin(letter.origin)
    assert (origin["queue"], origin["reason"], origin["attempts"]) == (name, "last", 2)
    assert letter.sent_at_ms == message.sent_at_ms
    assert broker.run(broker.queues.extend(dead, [(letter.receipt, 0)])) == [None]
    assert len(broker.run(broker.queues.peek(dead, Filter(reason_contains="las")))) == 1
    assert broker.run(broker.queues.peek(dead, Filter(reason_contains="other"))) == []
    broker.run(broker.queues.start_move(dead, None, Filter()))
    (back,) = broker.receive(name, wait_ms=20_000)
    assert (back.id, back.body, back.attempt) == ("id-poison", b"poison", 1)
    broker.acknowledge(name, back)
    assert broker.run(broker.queues.counts(dead)).available == 0


def test_a_message_that_is_never_deleted_goes_to_the_dead_letter_queue(broker: QueueBroker) -> None:
    dead = broker.create()
    name = broker.create(max_receives="1", dead_letter=dead)
    broker.send(name, "a")
    broker.receive(name, visibility_ms=50)
    (letter,) = broker.receive(dead, wait_ms=20_000)
    assert letter.origin is not None
    assert read_origin(letter.origin)["reason"] == "received 1 times without being deleted"


def test_dead_letters_wait_for_their_queue(broker: QueueBroker) -> None:
    name = broker.create(max_receives="1", dead_letter="not-there-yet")
    broker.send(name, "a")
    broker.receive(name, visibility_ms=1)

    async def run() -> None:
        led = broker.queues._queues[broker.services.metadata.image.topics[name].topic_id].led  # type: ignore[index]
        await until_async(lambda: led.host.engine.has_dead)
        await broker.queues.create("not-there-yet", Edit())
        (letter,) = await broker.queues.receive("not-there-yet", ReceiveOptions(1, 20_000))
        assert letter.body == b"a"

    broker.run(run())


def _ended(broker: QueueBroker, source: str) -> Move:
    async def run() -> Move:
        while True:
            move = (await broker.queues.moves(source))[0]
            if move.status not in ("RUNNING", "CANCELLING"):
                return move
            await asyncio.sleep(0.01)

    return broker.run(run())


def test_moves_take_what_a_filter_means(broker: QueueBroker) -> None:
    source, destination = broker.create(), broker.create()
    broker.send(source, *(f"{kind}{number}" for number in range(150) for kind in "ab"))
    broker.receive(source, 1)
    broker.run(broker.queues.start_move(source, destination, Filter(body_contains=b"a")))
    move = _ended(broker, source)
    # The first one is in flight.
    assert (move.status, move.moved) == ("COMPLETED", 149)
    assert broker.run(broker.queues.counts(destination)).available == 149
    assert broker.run(broker.queues.counts(source)).available == 150
    broker.run(broker.queues.start_move(source, destination, Filter(limit=20)))
    assert _ended(broker, source).moved == 20
    assert len(broker.run(broker.queues.moves(source))) == 2


def test_a_move_is_paced_and_can_be_cancelled(broker: QueueBroker) -> None:
    source, destination = broker.create(), broker.create()
    broker.send(source, *map(str, range(100)))
    move = broker.run(broker.queues.start_move(source, destination, Filter(), per_second=1))
    assert (move.status, move.to_move, move.per_second) == ("RUNNING", 100, 1)
    assert broker.run(broker.queues.cancel_move(move.id)).status == "CANCELLING"
    ended = _ended(broker, source)
    assert ended.status == "CANCELLED"
    assert ended.moved < 100
    counts = broker.run(broker.queues.counts(source)).available, broker.run(broker.queues.counts(destination)).available
    assert counts == (100 - ended.moved, ended.moved)
    for unknown in ("x", "0" * 32 + "-1", f"{move.id}0"):
        with pytest.raises(UnknownMove):
            broker.run(broker.queues.cancel_move(unknown))


def test_a_move_to_a_queue_that_is_gone_fails(broker: QueueBroker) -> None:
    source, destination = broker.create(), broker.create()
    with pytest.raises(UnknownQueue):
        broker.run(broker.queues.start_move(source, "nowhere", Filter()))
    broker.send(source, "a")

    async def run() -> None:
        await broker.queues.delete(destination)
        led = broker.queues._queues[broker.services.metadata.image.topics[source].topic_id]  # type: ignore[index]
        await led.moves.start(destination, Filter(), None)

    broker.run(run())
    move = _ended(broker, source)
    assert move.status == "FAILED"
    assert move.failure is not None
    assert destination in move.failure
    assert broker.bodies(source) == ["a"]


# -- records of others


def _append(broker: QueueBroker, topic: str, *records: Record, **others: int) -> None:
    async def run() -> None:
        partition = broker.services.partitions.get(topic, 0)
        batch = build_batch(records, **others)  # type: ignore[arg-type]
        appended = partition.append(batch, read_header(batch))
        await partition.until_committed(appended.last_offset + 1)

    broker.run(run())


def test_records_of_kafka_clients_are_messages(broker: QueueBroker) -> None:
    name = broker.create()
    now_ms = broker.services.clock.wall_ms()
    own = ((queued.PRIORITY, b"9"), (queued.ID, b"mine"), ("x", b"y"))
    _append(broker, name, Record(0, now_ms, b"k", b"plain"), Record(0, now_ms, None, b"urgent", own))
    broker.send(name, "ours")
    urgent, plain, ours = broker.receive(name)
    assert (urgent.body, urgent.id, urgent.headers) == (b"urgent", "mine", (("x", b"y"),))
    assert (plain.body, plain.offset, ours.body) == (b"plain", 0, b"ours")
    assert len(plain.id) == 36


def test_messages_of_transactions_count_when_they_are_committed(broker: QueueBroker) -> None:
    name = broker.create()
    now_ms = broker.services.clock.wall_ms()

    def write(body: bytes, producer_id: int) -> None:
        _append(
            broker, name, Record(0, now_ms, None, body),
            producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True,
        )  # fmt: skip

    def end(producer_id: int, *, committed: bool) -> None:
        async def run() -> None:
            partition = broker.services.partitions.get(name, 0)
            appended = partition.append_marker(producer_id, 0, Marker(committed, 0))
            await partition.until_committed(appended.last_offset + 1)

        broker.run(run())

    write(b"committed", 901)
    write(b"aborted", 902)
    broker.send(name, "behind")
    assert broker.bodies(name) == []
    end(902, committed=False)
    end(901, committed=True)
    assert broker.bodies(name, wait_ms=20_000) == ["committed", "behind"]
    assert broker.run(broker.queues.counts(name)).available == 0


# -- restarts


def test_everything_is_there_after_a_restart(own: QueueBroker) -> None:
    name, dead = own.create("jobs", max_receives="5", dead_letter="dead"), own.create("dead")
    own.send(name, *map(str, range(10)))
    own.send(name, "urgent", priority=9)
    own.send(name, "delayed", delay_ms=600_000)
    leased = own.receive(name, 4)
    own.acknowledge(name, *leased[:2])
    own.run(own.queues.give_back(name, [(leased[2].receipt, 600_000, "not now")]))
    own.send(dead, *map(str, range(50)))
    move = own.run(own.queues.start_move(dead, name, Filter(), per_second=1))
    before = own.run(own.queues.counts(name))
    own.restart()
    after = own.run(own.queues.counts(name))
    assert (after.in_flight, after.delayed) == (before.in_flight, before.delayed) == (1, 2)
    # The move goes on.
    found = own.run(own.queues.moves(dead))
    assert [(each.id, each.status) for each in found] == [(move.id, "RUNNING")]
    own.run(own.queues.cancel_move(move.id))
    ended = _ended(own, dead)
    assert own.run(own.queues.counts(dead)).available == 50 - ended.moved
    # Nobody gets what is leased, nor what is done; its receiver can still say that it is done.
    got = own.receive(name, 100)
    assert [message.body.decode() for message in got if message.origin is None] == ["3", "4", "5", "6", "7", "8", "9"]
    # One that was copied when the broker stopped may be there without being counted.
    assert ended.moved <= sum(message.origin is not None for message in got) <= ended.moved + 1
    own.acknowledge(name, leased[3], *got)
    own.restart()
    assert own.run(own.queues.counts(name)) == own.run(own.queues.counts(name))
    assert own.bodies(name, 100) == []
    own.run(own.queues.purge(dead))
    own.restart()
    with pytest.raises(PurgeInProgress):
        own.run(own.queues.purge(dead))
    seen = own.run(own.queues.peek(name, Filter()))
    assert [(each.body, each.state, each.attempt) for each in seen] == [
        (b"1", "delayed", 1),
        (b"delayed", "delayed", 0),
    ]


def test_the_log_lets_go_of_what_is_done(own: QueueBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.queues.service._TRIM_EVERY_S", 0.02)
    own.restart()
    name = own.create()
    # Several chunks of the engine, whose index is kept, and a part of one.
    total = 9_000
    for first in range(0, total, 1000):
        own.run(own.queues.send(name, [Outgoing(b"x", str(first + number)) for number in range(1000)]))

    async def run() -> None:
        for _ in range(total // 1000):
            got = await own.queues.receive(name, ReceiveOptions(1000))
            assert await own.queues.acknowledge(name, [message.receipt for message in got]) == [None] * 1000
        partition = own.services.partitions.get(name, 0)
        await until_async(lambda: partition.log.start_offset >= 8192)

    own.run(run())
    own.send(name, "last")
    own.restart()
    assert own.bodies(name) == ["last"]
    assert own.run(own.queues.counts(name)).in_flight == 1
