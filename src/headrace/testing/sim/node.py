"""The production broker, `app.node.Node`, with simulated dependencies: disk, network, store and clock are models."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from contextlib import AsyncExitStack
from random import Random
from uuid import UUID

from headrace.app.broker_home import BrokerHome
from headrace.app.node import Node
from headrace.app.node_dependencies import NodeDependencies
from headrace.cluster.metadata import Metadata
from headrace.config.broker import BrokerSettings
from headrace.kafka.services import Services
from headrace.mirror.links import Links
from headrace.model.ids import BrokerId
from headrace.model.image import Endpoint
from headrace.protocol.produce_request import ProduceRequest
from headrace.queues.service import QueueService
from headrace.replication.partition import Partition
from headrace.runtime.clock import Clock
from headrace.storage.datadir import DataDir
from headrace.testing.disks import ModelDisk
from headrace.testing.sim.disk_time import FlushTimes, InlineExecutor, SimFlusher
from headrace.testing.sim.network import Network, PeerTransport
from headrace.testing.sim.server import KafkaSession
from headrace.testing.sim.store import StoreClient
from headrace.testing.sim.world import Process


class SimNode:
    """One process of a broker, from its start to its end."""

    def __init__(
        self,
        settings: BrokerSettings,
        process: Process,
        *,
        store: StoreClient,
        network: Network,
        endpoint: Endpoint,
        cluster_id: str,
        disk: ModelDisk,
        clock: Clock,
        flush_times: FlushTimes,
        on_produced: Callable[[ProduceRequest, bytes], None],
    ) -> None:
        self._settings = settings
        self._process = process
        self._network = network
        self._endpoint = endpoint
        self._on_produced = on_produced
        random = Random(process.world.random.getrandbits(64))
        dependencies = NodeDependencies(
            clock=clock,
            disk=disk,
            workers=InlineExecutor(),
            make_pool=_inline,
            make_flusher=lambda on_failed: SimFlusher(process, flush_times, on_failed=on_failed),
            transport=PeerTransport(network, process),
            random=random,
            new_uuid=lambda: UUID(int=random.getrandbits(128), version=4),
            link_transport=lambda link, files_dir: PeerTransport(network, process),
        )
        directory_id = f"directory-of-{process.name}"
        data_dir = DataDir(disk.root, cluster_id, BrokerId(settings.broker_id), directory_id=directory_id)
        self._node = Node(settings, BrokerHome(data_dir, store, is_single_node=False), dependencies)
        self.is_started = False

    @property
    def metadata(self) -> Metadata:
        return self._node.services.metadata

    @property
    def links(self) -> Links:
        return self._node.services.links

    @property
    def queues(self) -> QueueService | None:
        """Its queues, once it has started."""
        return self._node.services.queues if self.is_started else None

    @property
    def lease_epoch(self) -> int:
        membership = self._node.membership
        return -1 if membership is None else membership.epoch

    def hosted(self) -> Iterable[Partition]:
        return self._node.services.partitions.all() if self.is_started else ()

    async def start(self) -> None:
        await self._node.start(self._bind)

    async def stop(self) -> None:
        await self._node.stop()

    async def _bind(self, services: Services, undo: AsyncExitStack) -> Mapping[str, Endpoint]:
        self.is_started = True
        process, network, endpoint = self._process, self._network, self._endpoint
        network.listen(process, endpoint, lambda end: KafkaSession(process, services, endpoint, end, self._on_produced))
        undo.callback(network.unlisten, process, endpoint)
        return {self._settings.broker_listener.name: endpoint}


def _inline(threads: int, name: str) -> Executor:
    return InlineExecutor()
