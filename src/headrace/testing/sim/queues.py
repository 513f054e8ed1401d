"""Queues in a simulated cluster: each has a program that sends, receives and deletes through any broker, and the checks
of what a queue promises.

- 1 lost write: every message whose sending was confirmed is received.
- 12 back after its deletion: no receive that began after a deletion was confirmed returns the message.
- A new queue is led by the broker that leads its state (invariant 99).
"""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeVar

from headrace.model.errors import HeadraceError
from headrace.model.ids import TopicName
from headrace.model.image import QUEUE_STATE_TOPIC, ClusterImage
from headrace.model.queue_wire import OutgoingMessage
from headrace.model.state_partition import state_partition
from headrace.queues.api import ReceiveOptions
from headrace.queues.service import QueueService
from headrace.testing.sim.checks import Checks, Violation
from headrace.testing.sim.cluster import SimBroker, SimCluster
from headrace.testing.sim.world import World

QUEUES = ("jobs-0", "jobs-1", "jobs-2")
SETTINGS = {
    "queue.type": "standard",
    "queue.visibility.timeout.ms": "2000",
    # Clocks jump by hours here, and that must not drop a message.
    "queue.retention.ms": str(14 * 24 * 3600 * 1000),
    "message.timestamp.after.max.ms": str(10**12),
}
_LIMIT_S = 15.0
_LOOK_EVERY_S = 0.02

T = TypeVar("T")


def check_placement(image: ClusterImage) -> None:
    """Each new queue is led by the broker that leads its state."""
    states = image.topics[QUEUE_STATE_TOPIC].partitions
    for name in QUEUES:
        topic = image.topics[TopicName(name)]
        state = states[state_partition(topic.topic_id, len(states))]
        if topic.partitions[0].replicas[0] != state.replicas[0]:
            raise Violation(f"99: {name} is led by {topic.partitions[0].replicas}, its state by {state.replicas}")


class SimQueueProgram:
    """Sends, receives and deletes the messages of one queue, at any broker, until it is stopped; then it receives until
    it has got everything whose sending was confirmed."""

    def __init__(self, name: str, cluster: SimCluster, world: World, random: Random, checks: Checks) -> None:
        self.name = name
        self.is_finished = False
        self.counts = {"sent": 0, "received": 0, "deleted": 0}
        self.last_problem = ""
        self._cluster = cluster
        self._world = world
        self._random = random
        self._checks = checks
        self._is_stopping = False
        self._next = 0
        self._confirmed: set[bytes] = set()
        self._received: set[bytes] = set()
        self._deleted_s: dict[bytes, float] = {}
        """When the deletion of each message was confirmed."""

    def __str__(self) -> str:
        missing = sorted(self._confirmed - self._received)[:5]
        return f"{self.name}: {self.counts}, not received: {missing}, last problem {self.last_problem}"

    def stop(self) -> None:
        self._is_stopping = True

    async def run(self) -> None:
        while not (self._is_stopping and self._confirmed <= self._received):
            if not self._is_stopping and self._random.random() < 0.5:
                await self._send()
            else:
                await self._receive()
            await asyncio.sleep(self._random.expovariate(1 / 0.2))
        self.is_finished = True

    async def _send(self) -> None:
        bodies = [f"{self.name}/{self._next + number}".encode() for number in range(self._random.randint(1, 3))]
        self._next += len(bodies)
        messages = [OutgoingMessage(body, body.decode()) for body in bodies]
        if await self._ask(lambda queues: queues.send(self.name, messages)) is not None:
            self._confirmed.update(bodies)
            self.counts["sent"] += len(bodies)

    async def _receive(self) -> None:
        began_s = self._world.now_s
        got = await self._ask(lambda queues: queues.receive(self.name, ReceiveOptions(5, 0)))
        for message in got or ():
            self.counts["received"] += 1
            self._checks.counts["messages"] += 1
            self._received.add(message.body)
            if self._deleted_s.get(message.body, began_s) < began_s:
                raise Violation(
                    f"12: {message.body!r} of {self.name} was deleted at {self._deleted_s[message.body]:.3f} s, and "
                    f"received by a call that began at {began_s:.3f} s"
                )
        receipts = [message.receipt for message in got or ()]
        if not receipts or self._random.random() < 0.2:
            return  # It comes back when its visibility timeout ends.
        failures = await self._ask(lambda queues: queues.acknowledge(self.name, receipts))
        for message, failure in zip(got or (), failures or (), strict=False):
            if failure is None:
                self._deleted_s.setdefault(message.body, self._world.now_s)
                self.counts["deleted"] += 1

    async def _ask(self, operation: Callable[[QueueService], Awaitable[T]]) -> T | None:
        """The result of an operation at some broker; None if it failed, or its outcome is unknown."""
        brokers = [broker for broker in self._cluster.brokers.values() if broker.queues is not None]
        if not brokers:
            return None
        broker = self._random.choice(brokers)
        process, queues = broker.process, broker.queues
        assert process is not None
        assert queues is not None

        async def work() -> T | HeadraceError:
            try:
                return await operation(queues)
            except HeadraceError as error:
                return error

        task = process.enter(lambda: process.create_task(work()))
        end_s = self._world.now_s + _LIMIT_S
        while not task.done() and _is_same(broker, process) and self._world.now_s < end_s:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_EVERY_S)
        if not task.done() or task.cancelled():
            self.last_problem = f"{broker.name} did not answer"
            return None
        result = task.result()
        if isinstance(result, HeadraceError):
            self.last_problem = f"{broker.name}: {result!r}"
            return None
        return result


def _is_same(broker: SimBroker, process: object) -> bool:
    return broker.process is process
