"""Sending when the lead is lost meanwhile: nobody is told that something is there which may be lost."""

import asyncio
from collections.abc import Callable, Iterator

import pytest

from headrace.model.errors import BacklogBlocked, BacklogFull, DiskFull, NotLeader, QueueUnavailable
from headrace.model.queue_wire import OutgoingMessage, Sent
from headrace.queues.api import ReceiveOptions
from headrace.replication.partition import Partition
from tests.unit.queues.brokers import QueueBroker
from tests.waiting import until_async

Callback = Callable[[BaseException | None], None]


async def _watch_nothing(*_: object) -> None:
    await asyncio.Event().wait()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueueBroker]:
    with pytest.MonkeyPatch.context() as patch:
        # A test says how much room there is, and the disk of this machine is not looked at meanwhile.
        patch.setattr("headrace.app.broker.watch_disk", _watch_nothing)
        broker = QueueBroker(tmp_path_factory.mktemp("data"))
        try:
            yield broker
        finally:
            broker.close()


@pytest.fixture
def uncommitted(monkeypatch: pytest.MonkeyPatch) -> dict[str, Callback]:
    """Who waits for what is appended to a queue to be committed, by its name. That never happens by itself."""
    waiting: dict[str, Callback] = {}
    when_committed = Partition.when_committed

    def wait(partition: Partition, offset: int, callback: Callback) -> bool:
        if partition.topic.startswith("__"):
            return when_committed(partition, offset, callback)
        waiting[partition.topic] = callback
        return False

    monkeypatch.setattr(Partition, "when_committed", wait)
    return waiting


async def _send_and_lose_the_lead(
    broker: QueueBroker, name: str, uncommitted: dict[str, Callback]
) -> "asyncio.Task[list[Sent]]":
    """As for a leader whom nobody has told yet of the next one, but the keeper of its state has."""
    sending = asyncio.create_task(broker.queues.send(name, [OutgoingMessage(b"x", "id")]))
    await until_async(lambda: name in uncommitted)
    host = broker.queues._queues[broker.services.partitions.get(name, 0).topic_id].hosted.host
    host.close(QueueUnavailable("another broker leads"))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not sending.done()
    return sending


def test_what_is_not_committed_when_the_lead_is_lost_is_not_acknowledged(
    broker: QueueBroker, uncommitted: dict[str, Callback]
) -> None:
    name = broker.create()

    async def run() -> None:
        sending = await _send_and_lose_the_lead(broker, name, uncommitted)
        uncommitted[name](NotLeader("another broker leads"))
        with pytest.raises(QueueUnavailable, match="may have been sent"):
            await sending

    broker.run(run())


def test_what_is_committed_all_the_same_is_acknowledged(broker: QueueBroker, uncommitted: dict[str, Callback]) -> None:
    name = broker.create()

    async def run() -> None:
        sending = await _send_and_lose_the_lead(broker, name, uncommitted)
        uncommitted[name](None)
        assert [sent.id for sent in await sending] == ["id"]

    broker.run(run())


@pytest.mark.parametrize("policy", ["block", "refuse"])
def test_a_retry_into_a_full_fifo_queue_gets_the_first_answer(broker: QueueBroker, policy: str) -> None:
    name = broker.create(type="fifo", max_backlog_messages="1", max_backlog_policy=policy)
    first = OutgoingMessage(b"x", "a", group="g", dedupe="1")

    async def run() -> None:
        sent = await broker.queues.send(name, [first])
        assert await asyncio.wait_for(broker.queues.send(name, [first]), 2) == sent
        with pytest.raises((BacklogBlocked, BacklogFull), match="Nothing was written"):
            await broker.queues.send(name, [OutgoingMessage(b"y", "b", group="g", dedupe="2")])

    broker.run(run())
    assert broker.bodies(name) == ["x"]


def test_sends_leave_the_reserve_of_a_disk_that_is_nearly_full(broker: QueueBroker) -> None:
    name, disk = broker.create(), broker.services.quotas.disk
    mib = 1024 * 1024

    async def run() -> None:
        disk.update(10 * mib, 10_000 * mib, slow_below_bytes=0, refuse_below_bytes=20 * mib)
        with pytest.raises(DiskFull, match="nearly full"):
            await broker.queues.send(name, [OutgoingMessage(b"x", "a")])
        disk.update(90 * mib, 10_000 * mib, slow_below_bytes=100 * mib, refuse_below_bytes=20 * mib)
        delays = disk.throttled_count
        await broker.queues.send(name, [OutgoingMessage(b"y", "b")])
        assert disk.throttled_count == delays, "it is not delayed by as much as a millisecond"
        await broker.queues.send(name, [OutgoingMessage(b"z" * 40_000, "c")])
        assert disk.throttled_count == delays + 1

    try:
        broker.run(run())
    finally:
        disk.update(10_000 * mib, 10_000 * mib, slow_below_bytes=0, refuse_below_bytes=0)
    assert broker.bodies(name) == ["y", "z" * 40_000]


@pytest.mark.parametrize(
    "limit", ["headrace.queues.host.send.BLOCKED_MAX_BYTES", "headrace.replication.backlog.WAITING_MAX"]
)
def test_sends_that_wait_for_room_leave_memory_to_other_queues(
    broker: QueueBroker, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    full, other = broker.create(max_backlog_messages="1"), broker.create()
    broker.send(full, "first")
    monkeypatch.setattr(limit, 150 if limit.endswith("BYTES") else 1)

    async def run() -> None:
        waiting = asyncio.create_task(broker.queues.send(full, [OutgoingMessage(b"waits", "a")]))
        guard = broker.services.partitions.get(full, 0).backlog
        assert guard is not None
        await until_async(lambda: bool(guard._waiting))
        with pytest.raises(BacklogBlocked, match="is full"):
            await broker.queues.send(full, [OutgoingMessage(b"refused", "b")])
        assert not waiting.done()
        await broker.queues.send(other, [OutgoingMessage(b"x", "c")])
        (message,) = await broker.queues.receive(full, ReceiveOptions(1))
        await broker.queues.acknowledge(full, [message.receipt])
        await waiting

    broker.run(run())
    assert broker.bodies(full) == ["waits"]
