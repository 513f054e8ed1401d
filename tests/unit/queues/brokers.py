"""A real broker in this process, asked for its queues directly."""

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

from headrace.app.broker import BrokerApp
from headrace.config.broker import broker_settings
from headrace.kafka.services import Services
from headrace.model.image import Endpoint
from headrace.model.queue_wire import Move, OutgoingMessage, Received
from headrace.queues.api import QueueEdit, ReceiveOptions
from headrace.queues.service import QueueService
from headrace.records.batch import read_header
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.runtime.clock import Clock

T = TypeVar("T")
PATIENCE_S = 180.0


class _App(BrokerApp):
    services: Services

    async def _listen(self, services: Services, undo: AsyncExitStack) -> Mapping[str, Endpoint]:
        self.services = services
        return await super()._listen(services, undo)


class QueueBroker:
    """Everything runs in one loop, which stands still between calls of `run`."""

    def __init__(self, folder: Path, clock: Clock | None = None) -> None:
        self._folder = folder
        self._clock = clock
        self._runner = asyncio.Runner()
        self._app: _App | None = None
        self._made = 0
        self.start()

    def start(self) -> None:
        settings = {"data.dir": str(self._folder), "kafka.listen": "127.0.0.1:0", "http.listen": "off"}
        self._app = _App(broker_settings(settings), clock=self._clock)
        self.run(self._app.start())

    def stop(self) -> None:
        if self._app is not None:
            app, self._app = self._app, None
            self.run(app.stop())

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        try:
            self.stop()
        finally:
            self._runner.close()

    @property
    def services(self) -> Services:
        assert self._app is not None
        return self._app.services

    @property
    def queues(self) -> QueueService:
        return self.services.queues

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        async def bounded() -> T:
            async with asyncio.timeout(PATIENCE_S):
                return await coroutine

        return self._runner.run(bounded())

    # -- short forms

    def create(self, _name: str = "", **settings: str) -> str:
        """A new queue with settings that are given with _ for the dots; its name."""
        self._made += 1
        name = _name or f"queue-{self._made}" + (".fifo" if settings.get("type") == "fifo" else "")
        edit = QueueEdit({key.replace("_", "."): text for key, text in settings.items()})
        self.run(self.queues.create(name, edit))
        return name

    def send(self, queue: str, *bodies: str, **others: Any) -> None:
        messages = [OutgoingMessage(body.encode(), f"id-{body}", **others) for body in bodies]
        self.run(self.queues.send(queue, messages))

    def receive(self, queue: str, most: int = 10, *, wait_ms: int = 0, visibility_ms: int = 600_000) -> list[Received]:
        return self.run(self.queues.receive(queue, ReceiveOptions(most, wait_ms, visibility_ms)))

    def bodies(self, queue: str, most: int = 10, **others: int) -> list[str]:
        return [message.body.decode() for message in self.receive(queue, most, **others)]

    def acknowledge(self, queue: str, *messages: Received) -> None:
        failures = self.run(self.queues.acknowledge(queue, [message.receipt for message in messages]))
        assert failures == [None] * len(messages)

    def append(self, topic: str, *records: Record, **others: int) -> None:
        """Write records to the log of a queue or a topic, as a Kafka client does."""

        async def run() -> None:
            partition = self.services.partitions.get(topic, 0)
            batch = build_batch(records, **others)  # type: ignore[arg-type]
            appended = partition.append(batch, read_header(batch))
            await partition.until_committed(appended.last_offset + 1)

        self.run(run())

    def ended_move(self, source: str) -> Move:
        """The last move out of a queue, once it has ended."""

        async def run() -> Move:
            while True:
                move = (await self.queues.moves(source))[0]
                if move.status not in ("RUNNING", "CANCELLING"):
                    return move
                await asyncio.sleep(0.01)

        return self.run(run())
