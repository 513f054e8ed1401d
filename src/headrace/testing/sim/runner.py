"""One run of one seed: a cluster is started, disturbed by faults and healed, and all results of clients are checked."""

import asyncio
import logging
import traceback
from dataclasses import dataclass, field
from random import Random

from headrace.model.errors import HeadraceError
from headrace.testing.sim.checks import Checks
from headrace.testing.sim.clients import ACKS_ALL, Consumer, Place, SimClient, SimProducer
from headrace.testing.sim.cluster import SimCluster
from headrace.testing.sim.nemesis import Nemesis
from headrace.testing.sim.network import SimTransport
from headrace.testing.sim.transactions import CommittedConsumer, SimTransactor
from headrace.testing.sim.world import Process, ProcessClock, World

_START_LIMIT_S = 120.0
_HEAL_LIMIT_S = 180.0
_RUN_LIMIT_S = 1800.0
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
        )


@dataclass(slots=True)
class SimOutcome:
    seed: int
    scenario: Scenario
    counts: dict[str, int] = field(default_factory=dict)
    virtual_s: float = 0.0
    events: int = 0
    digest: int = 0
    failure: str | None = None
    trace: str = ""


class SeedFailed(AssertionError):
    """A run has failed; the message has the seed, the violation, and the end of the trace."""


def run_seed(seed: int, *, scenario: Scenario | None = None, keep_trace: bool = False) -> SimOutcome:
    """Run a seed; a failure is in the outcome."""
    scenario = scenario or Scenario.of_seed(seed)
    world = World(seed)
    checks = Checks([TOPIC])
    outcome = SimOutcome(seed, scenario)
    logger = logging.getLogger("headrace")
    was = logger.level, logger.propagate
    logger.addHandler(world.trace)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    course = _Course(world, checks, scenario)
    try:
        world.run(course.cluster.driver, course.run(), limit_s=_RUN_LIMIT_S)
    except AssertionError as error:
        outcome.failure = f"{type(error).__name__}: {error}"
        world.trace.note("-", "%s", "".join(traceback.format_exception(error)[-30:]))
        course.describe()
    finally:
        world.close()
        logger.removeHandler(world.trace)
        logger.level, logger.propagate = was
    if outcome.failure is None and world.trace.alarms:
        outcome.failure = f"an unexpected error was logged: {world.trace.alarms[0]}"
    outcome.counts, outcome.virtual_s, outcome.events = checks.counts, world.now_s, world.events
    outcome.digest = world.trace.digest
    if outcome.failure is not None or keep_trace:
        outcome.trace = world.trace.text()
    return outcome


def check_seed(seed: int) -> SimOutcome:
    """Run a seed; raises `SeedFailed`."""
    outcome = run_seed(seed)
    if outcome.failure is not None:
        raise SeedFailed(
            f"seed {seed} failed after {outcome.virtual_s:.3f} s of virtual time\n{outcome.scenario}\n"
            f"{outcome.trace}\nseed {seed}: {outcome.failure}\n"
            f"again: python -m headrace.testing.sim --first-seed {seed} --seeds 1"
        )
    return outcome


class _Course:
    """The phases of a run."""

    def __init__(self, world: World, checks: Checks, scenario: Scenario) -> None:
        self.world = world
        self.checks = checks
        self.scenario = scenario
        settings = {
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
            settings=settings,
            loses_unsynced=scenario.flush_policy == "ack",
        )
        self._producers: list[SimProducer] = []
        self._consumers: list[Consumer] = []
        self._transactors: list[SimTransactor] = []

    async def run(self) -> None:
        cluster, scenario = self.cluster, self.scenario
        for broker in cluster.brokers.values():
            broker.start()
        await cluster.until(cluster.are_all_active, _START_LIMIT_S, "not all brokers were admitted")
        await self._create_topic()
        self._start_clients()
        nemesis = Nemesis(cluster)
        await nemesis.run(scenario.faults_s)
        nemesis.heal()
        await cluster.until(cluster.are_all_in_sync, _HEAL_LIMIT_S, "not all replicas were in sync")
        writers: list[SimProducer | SimTransactor] = [*self._producers, *self._transactors]
        for writer in writers:
            writer.stop()
        await cluster.until(
            lambda: all(writer.is_finished for writer in writers), _HEAL_LIMIT_S, "not all sends were acked"
        )
        # Both at once: an open transaction may be aborted at any time, which appends one more record.
        await cluster.until(
            lambda: self._is_all_read() and cluster.are_replicas_caught_up(),
            _HEAL_LIMIT_S,
            "not all replicas were caught up, or not all committed records were read",
        )
        self.checks.check_end(cluster.brokers)

    def describe(self) -> None:
        """Add the final state of the cluster and the clients to the trace."""
        for line in (*self.cluster.describe(), *map(str, self._producers), *map(str, self._transactors)):
            self.world.trace.note("-", "%s", line)

    def _places(self) -> list[Place]:
        return [(TOPIC, index) for index in range(self.scenario.partitions)]

    async def _create_topic(self) -> None:
        scenario = self.scenario
        settings = {
            "min.insync.replicas": str(scenario.min_in_sync),
            "flush.policy": scenario.flush_policy,
            "segment.bytes": str(scenario.segment_bytes),
            # Clocks jump by hours here, and that must not make a broker refuse a record.
            "message.timestamp.after.max.ms": str(10**12),
        }
        broker = self.cluster.brokers[1]
        process, node = broker.process, broker.node
        assert process is not None
        assert node is not None

        async def create() -> None:
            while TOPIC not in node.metadata.image.topics:
                try:
                    await node.metadata.create_topic(
                        TOPIC,
                        partitions=scenario.partitions,
                        replication_factor=scenario.replication_factor,
                        settings=settings,
                    )
                except HeadraceError:
                    # Its metadata may not have all brokers yet.
                    await asyncio.sleep(0.1)

        creating = process.enter(lambda: process.create_task(create()))
        await self.cluster.until(creating.done, _START_LIMIT_S, "the topic was not created")
        creating.result()

    def _start_clients(self) -> None:
        clients = self.world.process("clients")
        random, clock = self.world.random, ProcessClock(self.world)
        for number, place in enumerate(self._places() * 2):
            name = f"p{number}"
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
        for number, place in enumerate(self._places()):
            self._consumers.append(Consumer(f"c{number}", place, self._client(clients), random, self.checks))
        if self.scenario.has_transactions:
            self._start_transactions(clients, clock)
        for client in (*self._producers, *self._consumers, *self._transactors):
            clients.enter(lambda client=client: clients.create_task(self._run_client(clients, client)))  # type: ignore[misc]

    def _start_transactions(self, clients: Process, clock: ProcessClock) -> None:
        random, cluster = self.world.random, self.cluster
        self._transactors.append(
            SimTransactor(
                "t0",
                self._places(),
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
        for number, place in enumerate(self._places()):
            self._consumers.append(CommittedConsumer(f"r{number}", place, self._client(clients), random, self.checks))

    async def _run_client(self, process: Process, client: SimProducer | Consumer | SimTransactor) -> None:
        try:
            await client.run()
        except Exception as error:
            self.world.failed(process, f"{client.name} failed", error)

    def _client(self, process: Process) -> SimClient:
        transport = SimTransport(self.cluster.network, process)
        return SimClient(process, transport, self.cluster.leader_of, self.cluster.endpoint_of)

    def _is_all_read(self) -> bool:
        return all(consumer.position == self.checks.truth(consumer.place).end for consumer in self._consumers)
