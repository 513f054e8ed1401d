"""Queues and their log on a real broker: what others wrote, what a restart finds, what may go."""

import pytest

from headrace.model import queued
from headrace.model.errors import PurgeInProgress
from headrace.model.queue_wire import Filter, OutgoingMessage
from headrace.queues.api import ReceiveOptions
from headrace.records.markers import Marker
from headrace.records.reader import Record
from tests.unit.queues.brokers import QueueBroker
from tests.waiting import until_async


def test_records_of_kafka_clients_are_messages(broker: QueueBroker) -> None:
    name = broker.create()
    now_ms = broker.services.clock.wall_ms()
    own = ((queued.PRIORITY, b"9"), (queued.ID, b"mine"), ("x", b"y"))
    broker.append(name, Record(0, now_ms, b"k", b"plain"), Record(0, now_ms, None, b"urgent", own))
    broker.send(name, "ours")
    urgent, plain, ours = broker.receive(name)
    assert (urgent.body, urgent.id, urgent.headers) == (b"urgent", "mine", (("x", b"y"),))
    assert (plain.body, plain.offset, ours.body) == (b"plain", 0, b"ours")
    assert len(plain.id) == 36


def test_messages_of_transactions_count_when_they_are_committed(broker: QueueBroker) -> None:
    name = broker.create()
    now_ms = broker.services.clock.wall_ms()

    def write(body: bytes, producer_id: int) -> None:
        broker.append(name, Record(0, now_ms, None, body),
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


def test_everything_is_there_after_a_restart(own: QueueBroker) -> None:
    name, dead = own.create("jobs", max_receives="5", dead_letter="dead"), own.create("dead")
    own.send(name, *map(str, range(10)))
    own.send(name, "urgent", priority=9)
    own.send(name, "delayed", delay_ms=600_000)
    leased = own.receive(name, 4)
    own.acknowledge(name, *leased[:2])
    own.run(own.queues.nack(name, [(leased[2].receipt, 600_000, "not now")]))
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
    ended = own.ended_move(dead)
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
        own.run(own.queues.send(name, [OutgoingMessage(b"x", str(first + number)) for number in range(1000)]))

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
