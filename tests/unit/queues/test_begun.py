"""Operations on queues that are done without a task: what they resolve with, and what happens when nobody waits."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from headrace.coordinator.completion import PendingResult
from headrace.coordinator.machine import InternalRecord
from headrace.model.errors import InvalidReceipt, NotInFlight, NotLeader, TooManyInFlight
from headrace.queues.api import OutgoingMessage, ReceiveOptions
from tests.unit.queues.brokers import QueueBroker


def test_sends_receives_and_deletes_need_no_task(broker: QueueBroker) -> None:
    name = broker.create()
    broker.send(name, "first")

    async def run() -> None:
        assert (await broker.queues.counts(name)).available == 1  # The queue is loaded.
        sending = broker.queues.begin_send(name, [OutgoingMessage(b"1", "one")])
        assert isinstance(sending, PendingResult)
        assert [sent.id for sent in await sending] == ["one"]
        receiving = broker.queues.begin_receive(name, ReceiveOptions(10))
        assert isinstance(receiving, PendingResult)
        messages = await receiving
        assert [message.body for message in messages] == [b"first", b"1"]
        deleting = broker.queues.begin_acknowledge(name, [message.receipt for message in messages])
        assert isinstance(deleting, PendingResult)
        assert await deleting == [None, None]
        # There is nothing: it waits for what is committed to be indexed.
        assert await broker.queues.begin_receive(name, ReceiveOptions(10)) == []

    broker.run(run())


def test_a_receive_whose_caller_is_gone_is_undone(broker: QueueBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    name = broker.create()
    broker.send(name, "1")
    state = broker.queues.state
    write = state.write

    async def run() -> None:
        assert (await broker.queues.counts(name)).available == 1
        go_on = asyncio.Event()

        async def slowly(queue: str, term: int, entries: Sequence[InternalRecord]) -> None:
            await go_on.wait()
            await write(queue, term, entries)

        monkeypatch.setattr(state, "write", slowly)
        receiving = broker.queues.begin_receive(name, ReceiveOptions(1))
        assert isinstance(receiving, PendingResult)
        results: list[Any] = []
        receiving.then(results.append)
        receiving.hurry()
        assert results[0].get() == []
        go_on.set()
        (message,) = await broker.queues.receive(name, ReceiveOptions(1, 20_000))
        assert message.body == b"1"
        assert len(results) == 1

    broker.run(run())


def test_an_operation_that_found_no_leader_is_repeated(broker: QueueBroker) -> None:
    name = broker.create()
    broker.send(name, "1")

    async def run() -> None:
        (local,) = (each for each in broker.queues.hosted() if each.hosted.name == name)
        (message,) = await broker.queues.receive(name, ReceiveOptions(1))
        deleting = broker.queues.begin_acknowledge(name, [message.receipt])
        assert isinstance(deleting, PendingResult)
        # The queue is loaded again, as after a change of the leader, before the deletion is persisted.
        broker.queues._open(local.host.partition, local.host.settings)
        assert await deleting == [None]
        sending = broker.queues.begin_send(name, [OutgoingMessage(b"2", "two")])
        local = next(each for each in broker.queues.hosted() if each.hosted.name == name)
        local.host.close(NotLeader("another broker leads"))
        assert [sent.id for sent in await sending] == ["two"]

    broker.run(run())


def test_a_receive_that_may_wait_waits_while_too_many_are_in_flight(broker: QueueBroker) -> None:
    name = broker.create(max_in_flight="1")
    broker.send(name, "1", "2")

    async def run() -> None:
        (first,) = await broker.queues.receive(name, ReceiveOptions(1))
        with pytest.raises(TooManyInFlight):
            await broker.queues.receive(name, ReceiveOptions(1))
        waiting = asyncio.ensure_future(broker.queues.begin_receive(name, ReceiveOptions(1, 20_000)))
        assert await broker.queues.acknowledge(name, [first.receipt]) == [None]
        assert [message.body for message in await waiting] == [b"2"]

    broker.run(run())


def test_each_receipt_has_its_own_outcome(broker: QueueBroker) -> None:
    name = broker.create()
    broker.send(name, "1", "2", "3")

    async def run() -> None:
        first, second, third = await broker.queues.receive(name, ReceiveOptions(3, 20_000, visibility_ms=0))
        again = await broker.queues.receive(name, ReceiveOptions(3, 20_000))
        assert {message.attempt for message in again} == {2}
        # Of the second message, the later receipt is the valid one.
        receipts = [again[0].receipt, "another", second.receipt, again[2].receipt, first.receipt[:-1] + "x"]
        assert again[1].id == second.id
        outcomes = await broker.queues.acknowledge(name, receipts)
        assert [type(outcome) for outcome in outcomes] == [
            type(None),
            InvalidReceipt,
            NotInFlight,
            type(None),
            InvalidReceipt,
        ]
        assert third.id == again[2].id

    broker.run(run())
