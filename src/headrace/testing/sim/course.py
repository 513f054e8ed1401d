"""A simulated cluster with its clients, and the phases of a run: start, disturb, heal, and check what was read."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from headrace.model.errors import HeadraceError
from headrace.testing.sim.checks import Checks
from headrace.testing.sim.clients import ACKS_ALL, Consumer, Place, SimClient, SimProducer
from headrace.testing.sim.cluster import SimCluster
from headrace.testing.sim.nemesis import Nemesis
from headrace.testing.sim.network import Network, SimTransport
from headrace.testing.sim.queues import QUEUES, SimQueueProgram, check_placement
from headrace.testing.sim.queues import SETTINGS as QUEUE_SETTINGS
from headrace.testing.sim.transactions import CommittedConsumer, SimTransactor
from headrace.testing.sim.world import Process, ProcessClock, World

START_LIMIT_S = 120.0
HEAL_LIMIT_S = 180.0
TOPIC = "orders"
_FIRST_PRODUCER_ID = 10**12
"""Producers without transactions choose their own ids, which the cluster will never allocate."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """The parameters of a run, derived from its seed."""

    seed: int
    brokers: int
    partitions: int
    replication_factor: int
    min_in_sync: int
    flush_policy: str
    segment_bytes: int
    lag_max_ms: int
    has_transactions: bool
    faults_s: float
    """How long faults are injected, in virtual time."""
    has_queues: bool = False
    """Three queues, each with a program that works through it. Not in runs of two clusters."""

    @classmethod
    def of_seed(cls, seed: int) -> "Scenario":
        random = Random(seed * 7919 + 1)
        brokers = random.choice((3, 3, 3, 4, 5))
        return cls(
            seed,
            brokers=brokers,
            partitions=random.choice((1, 2, 2, 3)),
            replication_factor=random.choice((2, 3, 3, 3)),
            min_in_sync=random.choice((1, 2, 2)),
            flush_policy=random.choice(("ack", "ack", "os")),
            segment_bytes=random.choice((600, 2000, 1_000_000)),
            lag_max_ms=random.choice((1000, 2000, 4000)),
            has_transactions=random.random() < 0.4,
            faults_s=random.uniform(5, 25),
            has_queues=random.random() < 1 / 3,
        )


class Course:
    """The phases of a run of one cluster."""

    def __init__(
        self,
        world: World,
        checks: Checks,
        scenario: Scenario,
        *,
        name: str = "",
        network: Network | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`name` tells clusters of a run apart; `settings` are further ones of the brokers."""
        self.world = world
        self.checks = checks
        self.scenario = scenario
        common = {
            "broker.session.timeout.ms": "3000",
            "replica.lag.time.max.ms": str(scenario.lag_max_ms),
            "leader.imbalance.check.interval.seconds": "5",
            "transaction.state.log.num.partitions": "1",
            "offsets.topic.num.partitions": "1",
        }
        self.cluster = SimCluster(
            world,
            checks,
            brokers=scenario.brokers,
            settings={**common, **(settings or {})},
            loses_unsynced=scenario.flush_policy == "ack",
            name=name,
            network=network,
        )
        self._producers: list[SimProducer] = []
        self._consumers: list[Consumer] = []
        self._transactors: list[SimTransactor] = []
        self._queue_programs: list[SimQueueProgram] = []
        self._clients: Process | None = None
        self._generation = 0

    @property
    def driver(self) -> Process:
        return self.cluster.driver

    @property
    def counts(self) -> dict[str, int]:
        return self.checks.counts

    async def run(self) -> None:
        await self.start()
        await self.create_topic()
        if self.scenario.has_queues:
            await self._create_queues()
        self.start_clients()
        if self.scenario.has_queues:
            self._start_queue_programs()
        nemesis = Nemesis(self.cluster)
        await nemesis.run(self.scenario.faults_s)
        nemesis.heal()
        await self.until_in_sync()
        await self.finish_writes()
        for program in self._queue_programs:
            program.stop()
        await self.cluster.until(
            lambda: all(program.is_finished for program in self._queue_programs),
            HEAL_LIMIT_S,
            "not all messages of queues were received",
        )
        await self.check_all_read()

    async def start(self) -> None:
        """Start the brokers, and wait until all of them are admitted."""
        for broker in self.cluster.brokers.values():
            broker.start()
        await self.cluster.until(self.cluster.are_all_active, START_LIMIT_S, "not all brokers were admitted")

    async def until_in_sync(self) -> None:
        await self.cluster.until(self.cluster.are_all_in_sync, HEAL_LIMIT_S, "not all replicas were in sync")

    async def finish_writes(self) -> None:
        """Send nothing new, and wait until everything sent is acknowledged."""
        writers: list[SimProducer | SimTransactor] = [*self._producers, *self._transactors]
        for writer in writers:
            writer.stop()
        await self.cluster.until(
            lambda: all(writer.is_finished for writer in writers), HEAL_LIMIT_S, "not all sends were acked"
        )

    async def check_all_read(self) -> None:
        """Wait until everything is replicated and read, and check it."""
        cluster = self.cluster
        # Both at once: an open transaction may be aborted at any time, which appends one more record.
        await cluster.until(
            lambda: self._is_all_read() and cluster.are_replicas_caught_up(),
            HEAL_LIMIT_S,
            "not all replicas were caught up, or not all committed records were read",
        )
        self.checks.check_end(cluster.brokers)

    def describe(self) -> None:
        """Add the final state of the cluster and the clients to the trace."""
        clients = (*self._producers, *self._transactors, *self._queue_programs)
        for line in (*self.cluster.describe(), *map(str, clients)):
            self.world.trace.note("-", "%s", line)

    def places(self) -> list[Place]:
        return [(TOPIC, index) for index in range(self.scenario.partitions)]

    async def create_topic(self) -> None:
        """Create the topic that clients write to and read."""
        scenario = self.scenario
        settings = {
            "min.insync.replicas": str(scenario.min_in_sync),
            "flush.policy": scenario.flush_policy,
            "segment.bytes": str(scenario.segment_bytes),
            # Clocks jump by hours here, and that must not make a broker refuse a record.
            "message.timestamp.after.max.ms": str(10**12),
        }
        await self._create(TOPIC, scenario.partitions, scenario.replication_factor, settings)

    async def _create(self, name: str, partitions: int, replication_factor: int, settings: Mapping[str, str]) -> None:
        broker = self.cluster.brokers[1]
        process, node = broker.process, broker.node
        assert process is not None
        assert node is not None

        async def create() -> None:
            while name not in node.metadata.image.topics:
                try:
                    await node.metadata.create_topic(
                        name, partitions=partitions, replication_factor=replication_factor, settings=settings
                    )
                except HeadraceError:
                    # Its metadata may not have all brokers yet.
                    await asyncio.sleep(0.1)

        creating = process.enter(lambda: process.create_task(create()))
        await self.cluster.until(creating.done, START_LIMIT_S, f"the topic {name} was not created")
        creating.result()

    async def _create_queues(self) -> None:
        for name in QUEUES:
            await self._create(name, 1, 3, {**QUEUE_SETTINGS, "flush.policy": self.scenario.flush_policy})
        check_placement(self.checks.image)

    def _start_queue_programs(self) -> None:
        clients = self._clients
        assert clients is not None
        for name in QUEUES:
            program = SimQueueProgram(
                name, self.cluster, self.world, Random(f"{self.scenario.seed} {name}"), self.checks
            )
            self._queue_programs.append(program)
            clients.enter(lambda program=program: clients.create_task(self._run_client(clients, program)))  # type: ignore[misc]

    def stop_clients(self) -> None:
        """Kill the clients, whatever they are waiting for."""
        if self._clients is not None:
            self._clients.die()
            self._clients.reap()
            self._clients = None
        self._producers.clear()
        self._consumers.clear()
        self._transactors.clear()

    def start_clients(self) -> None:
        """Start the producers and consumers of all partitions. Those after `stop_clients` have other names."""
        cluster = self.cluster
        clients = self._clients = self.world.process(cluster.clients_name)
        random, clock = self.world.random, ProcessClock(self.world)
        prefix = cluster.name + "again-" * self._generation
        for number, place in enumerate(self.places() * 2):
            name = f"{prefix}p{number}"
            acks = 1 if random.random() < 0.2 else ACKS_ALL
            self._producers.append(
                SimProducer(
                    name,
                    place,
                    self._client(clients),
                    clock,
                    random,
                    self.checks,
                    first_producer_id=_FIRST_PRODUCER_ID * (number + 1),
                    acks=acks,
                )
            )
        for number, place in enumerate(self.places()):
            self._consumers.append(Consumer(f"{prefix}c{number}", place, self._client(clients), random, self.checks))
        if self.scenario.has_transactions and not self._generation:
            self._start_transactions(clients, clock)
        self._generation += 1
        for client in (*self._producers, *self._consumers, *self._transactors):
            clients.enter(lambda client=client: clients.create_task(self._run_client(clients, client)))  # type: ignore[misc]

    def _start_transactions(self, clients: Process, clock: ProcessClock) -> None:
        random, cluster = self.world.random, self.cluster
        self._transactors.append(
            SimTransactor(
                "t0",
                self.places(),
                clients,
                SimTransport(cluster.network, clients),
                clock,
                random,
                self.checks,
                leader_of=cluster.leader_of,
                endpoint_of=cluster.endpoint_of,
                brokers=sorted(cluster.brokers),
            )
        )
        for number, place in enumerate(self.places()):
            self._consumers.append(CommittedConsumer(f"r{number}", place, self._client(clients), random, self.checks))

    async def _run_client(
        self, process: Process, client: SimProducer | Consumer | SimTransactor | SimQueueProgram
    ) -> None:
        try:
            await client.run()
        except Exception as error:
            self.world.failed(process, f"{client.name} failed", error)

    def _client(self, process: Process) -> SimClient:
        transport = SimTransport(self.cluster.network, process)
        return SimClient(process, transport, self.cluster.leader_of, self.cluster.endpoint_of)

    def _is_all_read(self) -> bool:
        return all(consumer.position == self.checks.truth(consumer.place).end for consumer in self._consumers)
