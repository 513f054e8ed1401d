"""Queues on a real broker: what is sent is received, and what is acknowledged is gone."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from headrace.coordinator.machine import InternalRecord
from headrace.model.errors import (
    InvalidMessage,
    InvalidPartitions,
    InvalidReceipt,
    InvalidSettings,
    NotInFlight,
    PurgeInProgress,
    QueueExists,
    QueueUnavailable,
    UnknownQueue,
)
from headrace.model.queue_state import StateChangesPage, StatePosition
from headrace.model.queue_wire import Filter, OutgoingMessage
from headrace.queues.api import QueueEdit, ReceiveOptions
from headrace.queues.engine.stored import ACKED, LEASE
from headrace.queues.state_store import ReadStateChanges
from headrace.records.reader import Record
from headrace.replication.calls import encode_call, read_answer
from tests.unit.queues.brokers import QueueBroker
from tests.waiting import until


def test_a_queue_is_created_once_and_found(broker: QueueBroker) -> None:
    edit = QueueEdit({"visibility.timeout.ms": "1000"}, {"Policy": "none"})
    made = broker.run(broker.queues.create("defined", edit))
    assert (made.settings.type, made.settings.visibility_timeout_ms, made.attributes) == (
        "standard", 1000, {"Policy": "none"}
    )  # fmt: skip
    assert broker.run(broker.queues.create("defined", edit)).topic_id == made.topic_id
    assert broker.run(broker.queues.create("defined", QueueEdit())).topic_id == made.topic_id
    with pytest.raises(QueueExists, match=r"another visibility\.timeout\.ms"):
        broker.run(broker.queues.create("defined", QueueEdit({"visibility.timeout.ms": "2000"})))
    assert [info.name for info in broker.queues.queues("defi")] == ["defined"]


def test_a_queue_is_altered(broker: QueueBroker) -> None:
    name = broker.create(delay_ms="500")
    broker.run(broker.queues.alter(name, QueueEdit({"delay.ms": None, "max.receives": "3"}, {"a": "1", "b": "2"})))
    broker.run(broker.queues.alter(name, QueueEdit({}, {"a": None})))
    found = broker.queues.find(name)
    assert (found.settings.delay_ms, found.settings.max_receives, found.attributes) == (0, 3, {"b": "2"})
    with pytest.raises(InvalidSettings, match="type of a queue"):
        broker.run(broker.queues.alter(name, QueueEdit({"type": "fifo"})))
    with pytest.raises(InvalidSettings, match="own dead-letter queue"):
        broker.run(broker.queues.alter(name, QueueEdit({"dead.letter": name})))
    with pytest.raises(InvalidSettings, match="max"):
        broker.run(broker.queues.alter(name, QueueEdit({"max.receives": "5000"})))


def test_a_change_that_assumes_what_is_not_so_any_more(broker: QueueBroker) -> None:
    name = broker.create()
    first = QueueEdit({}, {"Policy": "1"}, expected={"Policy": None})
    broker.run(broker.queues.alter(name, first))
    with pytest.raises(QueueUnavailable, match="changed at the same time"):
        broker.run(broker.queues.alter(name, first))
    broker.run(broker.queues.alter(name, QueueEdit({}, {"Policy": "2"}, expected={"Policy": "1"})))
    assert broker.queues.find(name).attributes == {"Policy": "2"}


def test_a_topic_is_no_queue_and_a_queue_has_one_partition(broker: QueueBroker) -> None:
    metadata = broker.services.metadata
    broker.run(metadata.create_topic("plain", partitions=2))
    with pytest.raises(UnknownQueue):
        broker.queues.find("plain")
    with pytest.raises(QueueExists, match="not a queue"):
        broker.run(broker.queues.create("plain", QueueEdit()))
    with pytest.raises(InvalidPartitions, match="one partition"):
        broker.run(metadata.alter_topic_settings("plain", lambda _: {"queue.type": "standard"}))
    with pytest.raises(InvalidPartitions, match="one partition"):
        broker.run(metadata.create_topic("two", partitions=2, settings={"queue.type": "standard"}))
    with pytest.raises(InvalidPartitions, match="one partition"):
        broker.run(metadata.add_partitions(broker.create(), 2))


def test_a_topic_becomes_a_queue_with_what_it_has(broker: QueueBroker) -> None:
    metadata = broker.services.metadata
    broker.run(metadata.create_topic("becoming", partitions=1))
    broker.append("becoming", Record(0, 1, None, b"before"))
    broker.run(metadata.alter_topic_settings("becoming", lambda _: {"queue.type": "standard"}))
    now_ms = broker.services.clock.wall_ms()
    broker.append("becoming", Record(0, now_ms, None, b"after"))
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


def test_a_message_has_what_was_sent_with_it(broker: QueueBroker) -> None:
    name = broker.create()
    sent = OutgoingMessage(
        b"\x00body", "the-id", priority=7, group="g", ttl_ms=600_000, headers=(("h", b"1"), ("n", None))
    )
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
        OutgoingMessage(b"x" * 1000, "i", headers=(("h", b"y" * 100),)),
        OutgoingMessage(b"x", "i", priority=10),
        OutgoingMessage(b"x", ""),
        OutgoingMessage(b"x", "i", ttl_ms=-1),
        OutgoingMessage(b"x", "i", due_at_ms=2**53),
        OutgoingMessage(b"x", "i", group=""),
        OutgoingMessage(b"x", "i", headers=(("h", None),) * 101),
    ):
        with pytest.raises(InvalidMessage):
            broker.run(broker.queues.send(name, [OutgoingMessage(b"fine", "i"), message]))
    with pytest.raises(InvalidMessage, match="more than the 1000"):
        broker.run(broker.queues.send(name, [OutgoingMessage(b"x", "i")] * 1001))
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
        await broker.queues.send(name, [OutgoingMessage(b"1", "1"), OutgoingMessage(b"2", "2")])
        await broker.queues.send(name, [OutgoingMessage(b"3", "3")])
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

        async def slowly(queue: str, term: int, entries: Sequence[InternalRecord]) -> None:
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
        message = OutgoingMessage(body, f"id-{dedupe}-{body.decode()}", group=group, dedupe=dedupe)
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
    # They are hidden for as long as this receive says.
    longer = ReceiveOptions(1, visibility_ms=600_000, attempt_id="attempt")
    (same,) = broker.run(broker.queues.receive(name, longer))
    assert same.receipt == first.receipt
    (seen, _) = broker.run(broker.queues.peek(name, Filter()))
    assert seen.until_at_ms == same.deadline_at_ms >= first.deadline_at_ms + 500_000
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
    led = broker.queues._queues[broker.services.metadata.image.topics[name].topic_id].hosted  # type: ignore[index]
    broker.run(led.purge("this"))
    broker.send(name, "a")
    broker.run(led.purge("this"))
    assert broker.bodies(name) == ["a"]


def test_a_queue_without_receivers_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.queues.service._TRIM_EVERY_S", 0.02)
    own = QueueBroker(tmp_path / "data")
    try:
        names = [own.create(idle_delete_ms="60000"), own.create(idle_delete_ms="60000"), own.create()]
        for opened in own.queues.hosted():
            monkeypatch.setattr(opened.hosted, "_asked_ms", opened.host.now_ms() - 60_001)
        own.receive(names[0])

        async def look() -> list[str]:
            await asyncio.sleep(0)
            return [info.name for info in own.queues.queues("queue-")]

        until(lambda: own.run(look()) == [names[0], names[2]])
        with pytest.raises(InvalidSettings, match="at least 60000"):
            own.create(idle_delete_ms="100")
    finally:
        own.close()


def test_another_broker_reads_what_changed_in_the_state_of_a_queue(broker: QueueBroker) -> None:
    made = broker.run(broker.queues.create("watched", QueueEdit()))
    broker.send("watched", "a", "b")
    position = StatePosition()

    def changes() -> StateChangesPage:
        call = ReadStateChanges(f"{made.topic_id}:0:", position)
        return read_answer(broker.run(broker.queues.serve(encode_call(call))), StateChangesPage)

    (message,) = broker.receive("watched", 1)
    first = changes()
    assert (first.is_reset, first.is_last) == (True, True)
    assert any(key.startswith(LEASE) for key, _ in first.entries)
    position = first.position
    assert not changes().entries
    broker.run(broker.queues.acknowledge("watched", [message.receipt]))
    second = changes()
    assert not second.is_reset
    assert {key[:1]: value is None for key, value in second.entries} == {ACKED: False, LEASE: True}
