"""Sending when the lead is lost meanwhile: nobody is told that something is there which may be lost."""

import asyncio
from collections.abc import Callable, Iterator

import pytest

from headrace.model.errors import NotLeader, QueueUnavailable
from headrace.model.queue_wire import OutgoingMessage, Sent
from headrace.replication.partition import Partition
from tests.unit.queues.brokers import QueueBroker
from tests.waiting import until_async

Callback = Callable[[BaseException | None], None]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueueBroker]:
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
