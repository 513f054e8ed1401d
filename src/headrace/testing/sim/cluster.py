"""A simulated cluster: production brokers, each a process on a machine with its own disk."""

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from headrace.cluster.partition_requests import reassign
from headrace.cluster.store import Change
from headrace.config.broker import BrokerSettings, broker_settings
from headrace.model.errors import HeadraceError
from headrace.model.ids import BrokerId, PartitionIndex, TopicName, TopicPartition
from headrace.model.image import Endpoint
from headrace.protocol.produce_request import ProduceRequest
from headrace.queues.service import QueueService
from headrace.replication.partition import Partition
from headrace.testing.disks import ModelDisk, PowerLoss, TornWrite
from headrace.testing.sim.checks import Checks, Violation
from headrace.testing.sim.clients import ACKS_ALL, Place, read_produced_all
from headrace.testing.sim.disk_time import FlushTimes
from headrace.testing.sim.network import Network
from headrace.testing.sim.node import SimNode
from headrace.testing.sim.store import StoreClient, StoreModel
from headrace.testing.sim.world import Process, ProcessClock, World

_RESTART_S = 1.0


class SimBroker:
    """A machine with a broker: its disk and clock survive the broker's processes."""

    def __init__(self, cluster: "SimCluster", broker_id: int) -> None:
        self.cluster = cluster
        self.broker_id = BrokerId(broker_id)
        self.name = f"{cluster.name}b{broker_id}"
        self.endpoint = Endpoint(self.name, 9092)
        world = cluster.world
        self.disk = ModelDisk(Path("/") / self.name)
        self.clock = ProcessClock(world, skew_ms=world.random.randint(-200, 200))
        self.flush_times = FlushTimes(world.random)
        self.process: Process | None = None
        self.node: SimNode | None = None
        self.store: StoreClient | None = None
        self._dies_by = "kill"
        self._is_stopping = False
        self._has_failed = False

    @property
    def queues(self) -> QueueService | None:
        """The queues of its process; None while it is down or starting."""
        return None if self.process is None or self.node is None else self.node.queues

    # For the checks

    @property
    def is_up(self) -> bool:
        return self.process is not None

    @property
    def lease_epoch(self) -> int:
        return -1 if self.node is None else self.node.lease_epoch

    def hosted(self) -> Iterable[Partition]:
        return () if self.node is None else self.node.hosted()

    # Starting and killing

    def start(self) -> None:
        assert self.process is None
        cluster = self.cluster
        self._is_stopping = self._has_failed = False
        cluster.world.trace.note(self.name, "starts")
        process = self.process = cluster.world.process(self.name)
        process.on_reaped.append(self._after_death)
        store = self.store = StoreClient(cluster.store, cluster.network, process)
        node = self.node = process.enter(
            lambda: SimNode(
                cluster.broker_settings(self),
                process,
                store=store,
                network=cluster.network,
                endpoint=self.endpoint,
                cluster_id=cluster.cluster_id,
                disk=self.disk,
                clock=self.clock,
                flush_times=self.flush_times,
                on_produced=cluster.produced,
            )
        )
        process.enter(lambda: process.create_task(self._run(process, node)))

    async def _run(self, process: Process, node: SimNode) -> None:
        try:
            await node.start()
        except HeadraceError as error:
            self.cluster.world.trace.note(self.name, "cannot start: %s", error)
            self._die("kill")
            self.cluster.world.post(self.cluster.driver, _RESTART_S, self._restart)
        except Exception as error:
            self.cluster.world.failed(process, "the broker cannot start", error)

    def _restart(self) -> None:
        if self.process is None:
            self.start()

    def kill(self, how: str) -> None:
        """End the process now. `how`: "kill" preserves everything written; "power" everything synced and some of the
        rest, "power-bare" only what was synced."""
        if self.process is not None:
            self.cluster.world.trace.note("nemesis", "kills %s (%s)", self.name, how)
            self._die(how)

    def kill_at_step(self, steps: int, torn_share: float, how: str) -> None:
        """End the process at its n-th disk operation from now; a write is then torn."""
        left = steps

        def hook(step: str, path: Path) -> None:
            nonlocal left
            left -= 1
            if left > 0:
                return
            self.cluster.world.trace.note("nemesis", "kills %s (%s) at %s of %s", self.name, how, step, path.name)
            self._die(how)
            lost = PowerLoss(f"{step} {path}")
            raise TornWrite(torn_share, lost) if step == "write" else lost

        self.disk.hook = hook

    def _die(self, how: str) -> None:
        process = self.process
        assert process is not None
        self._dies_by = how
        self.disk.hook = _refuse
        process.die()
        if asyncio._get_running_loop() is not process:
            process.reap()

    def _after_death(self) -> None:
        self.process = self.node = self.store = None
        if self._dies_by == "kill":
            self.disk = self.disk.after_process_kill()
        else:
            self.disk = self.disk.after_power_loss(self.cluster.world.random if self._dies_by == "power" else None)

    async def stop(self, limit_s: float = 20.0) -> None:
        """Stop as an operator does: with SIGTERM, and with SIGKILL if that takes too long. For the nemesis."""
        process, node, world = self.process, self.node, self.cluster.world
        if process is None or node is None:
            return
        self._is_stopping = True
        stopping = process.enter(lambda: process.create_task(node.stop()))
        end_s = world.now_s + limit_s
        while not stopping.done() and self.process is process and world.now_s < end_s:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        if self.process is process:
            world.trace.note("nemesis", "%s has stopped" if stopping.done() else "%s does not stop", self.name)
            self._die("kill")

    def fail_disk(self) -> None:
        """Make every sync fail from now on. Only a restart of the process recovers from it."""

        def hook(step: str, path: Path) -> None:
            if step == "sync":
                self._has_failed = True
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

        self.disk.hook = hook

    def move(self, place: Place, replicas: Sequence[int] | None) -> None:
        """Request a reassignment, or its cancellation, without waiting for the result."""
        process, node = self.process, self.node
        if process is not None and node is not None and node.is_started:
            partition = TopicPartition(TopicName(place[0]), PartitionIndex(place[1]))
            process.enter(
                lambda: process.create_task(
                    _ignoring_refusal(lambda: reassign(node.metadata, {partition: replicas})),
                )
            )

    def pause(self) -> None:
        if self.process is not None:
            self.process.pause()

    def resume(self) -> None:
        if self.process is not None and self.process.is_paused:
            self.process.resume()

    # Healing

    def heal(self) -> None:
        if (self._is_stopping or self._has_failed) and self.process is not None:
            self._die("kill")
        self.resume()
        self.heal_store()
        self.heal_disk()
        self.disk.hook = None

    def heal_store(self) -> None:
        if self.store is not None:
            self.store.failing = 0.0
            self.store.lag_watches(0.0)

    def heal_disk(self) -> None:
        self.flush_times.slow_share = 0.05
        self.flush_times.slow_s = 0.1


async def _ignoring_refusal(ask: Callable[[], Awaitable[object]]) -> None:
    with suppress(HeadraceError):
        await ask()


def _place(partition: Partition) -> Place:
    return str(partition.topic), int(partition.index)


def _refuse(step: str, path: Path) -> None:
    raise PowerLoss(f"{step} {path}: the process is dead")


class SimCluster:
    """The brokers, the store and the network between them. The checks run at every step."""

    def __init__(
        self,
        world: World,
        checks: Checks,
        *,
        brokers: int,
        settings: Mapping[str, str],
        loses_unsynced: bool,
        session_timeout_s: float = 3.0,
        name: str = "",
        network: Network | None = None,
    ) -> None:
        """`loses_unsynced`: machines may lose power, and with it unsynced data. Clusters with a network in common have
        names, with which those of their processes begin."""
        self.world = world
        self.name = name
        self.checks = checks
        self.settings = dict(settings)
        self.loses_unsynced = loses_unsynced
        self.session_timeout_s = session_timeout_s
        self.network = network or Network(world)
        self.store = StoreModel(world, f"{name}store")
        self.driver = world.process(f"{name}driver")
        """The process of the nemesis and of the run's main task; it never fails."""
        self.brokers = {broker_id: SimBroker(self, broker_id) for broker_id in range(1, brokers + 1)}
        self._by_process: dict[str, SimBroker] = {broker.name: broker for broker in self.brokers.values()}
        self._answered_alone: list[tuple[Place, int]] = []
        checks.brokers = self.brokers
        self.store.on_commit.append(self._note_states)
        self.store.on_commit.append(checks.committed_in_store)
        world.on_step.append(self._stepped)

    def _stepped(self, process: Process) -> None:
        broker = self._by_process.get(process.name)
        if broker is not None and broker.process is process:
            self.checks.stepped(broker)
            answered, self._answered_alone = self._answered_alone, []
            for place, offset in answered:
                self.checks.answered_alone(broker, place, offset)

    def broker_settings(self, broker: SimBroker) -> BrokerSettings:
        own = {
            "broker.id": str(broker.broker_id),
            "kafka.listen": str(broker.endpoint),
            "insecure": "true",
            "advertise": str(broker.endpoint),
        }
        return broker_settings({**self.settings, **own})

    def produced(self, request: ProduceRequest, frame: bytes) -> None:
        """Note acknowledgements that did not wait for other replicas, to be checked after this step."""
        if request.acks == ACKS_ALL:
            return
        for topic, index, code, offset in read_produced_all(frame):
            if code == 0:
                self._answered_alone.append(((topic, index), offset))

    @property
    def cluster_id(self) -> str:
        return self.name + "sim"

    @property
    def clients_name(self) -> str:
        """The name of the process in which its clients run."""
        return self.name + "clients"

    # For clients

    def endpoint_of(self, broker_id: int) -> Endpoint:
        return self.brokers[broker_id].endpoint

    def leader_of(self, place: Place) -> int:
        """The leader according to a client's metadata: mostly right, sometimes another broker."""
        if self.world.random.random() < 0.05:
            return self.world.random.choice(sorted(self.brokers))
        state = self.checks.state_of(place)
        return -1 if state is None else state.leader

    def places(self) -> Iterator[Place]:
        for name, topic in self.checks.image.topics.items():
            if name in self.checks.topics:
                yield from ((name, index) for index in range(len(topic.partitions)))

    # Conditions for the driver

    async def until(self, is_done: Callable[[], bool], limit_s: float, what: str) -> None:
        end_s = self.world.now_s + limit_s
        while not is_done():
            if self.world.now_s > end_s:
                raise Violation(f"2: {what} within {limit_s:g} s after everything was healed")
            await asyncio.sleep(0.05)

    def are_all_active(self) -> bool:
        image = self.checks.image
        return all(image.can_lead(broker.broker_id) for broker in self.brokers.values())

    def are_all_in_sync(self) -> bool:
        return self.are_all_active() and all(
            state.leader in self.brokers and set(state.isr) == set(state.replicas) and not state.is_reassigning
            for name, topic in self.checks.image.topics.items()
            if name in self.checks.topics
            for state in topic.partitions
        )

    def are_replicas_caught_up(self) -> bool:
        """True if every replica is in sync, has every committed record, and has the final high watermark."""
        if not self.are_all_in_sync():
            return False
        hosted = {
            (broker.broker_id, partition.topic, partition.index)
            for broker in self.brokers.values()
            for partition in broker.hosted()
            if partition.topic in self.checks.topics
            and partition.high_watermark == partition.log.end_offset == self.checks.truth(_place(partition)).end
        }
        return all(
            (replica, name, index) in hosted
            for name, topic in self.checks.image.topics.items()
            if name in self.checks.topics
            for index, state in enumerate(topic.partitions)
            for replica in state.replicas
        )

    def describe(self) -> Iterator[str]:
        """The state of every replica, for debugging a failure."""
        for broker in self.brokers.values():
            if not broker.is_up:
                yield f"{broker.name} is down"
            for partition in broker.hosted():
                log = partition.log
                yield (
                    f"{broker.name} {partition} {partition.role.name} epoch {partition.leader_epoch}: log from "
                    f"{log.start_offset} to {log.end_offset}, on disk to {log.flushed_offset}, committed to "
                    f"{partition.high_watermark}"
                )

    def _note_states(self, revision: int, changes: tuple[Change, ...]) -> None:
        for change in changes:
            text = "gone" if change.value is None else change.value.decode("utf-8", "replace")
            self.world.trace.note(self.store.process.name, "%d: %s = %s", revision, change.key, text)
