"""A broker without sockets and logs: real metadata on a real store, and handlers called through the wire format."""

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, TypeVar
from uuid import UUID

from kio.index import load_payload_module, load_response_schema
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

import headrace.kafka.handlers  # noqa: F401  (registers the handlers)
from headrace.app.link_groups import LinkGroups
from headrace.app.link_queues import LinkQueues
from headrace.app.link_schemas import LinkSchemas
from headrace.cluster.access import AccessControl
from headrace.cluster.metadata import Metadata
from headrace.cluster.producer_ids import ProducerIds
from headrace.cluster.sqlite import SqliteStore
from headrace.config.broker import broker_settings
from headrace.groups.service import GroupService
from headrace.kafka.audit_topic import AuditTopic
from headrace.kafka.backlog_waits import BacklogWaits
from headrace.kafka.departures import Departures
from headrace.kafka.dispatch import APIS, Context, Peer, Raw
from headrace.kafka.fetch_sessions import FetchSessions
from headrace.kafka.recompression import Recompressor
from headrace.kafka.schema_checks import SchemaChecks
from headrace.kafka.services import Services
from headrace.kafka.share_sessions import ShareSessions
from headrace.mirror.divergent_topic import DivergentTopics
from headrace.mirror.figures import Figures, NothingCopied
from headrace.mirror.group_setback import GroupSetback
from headrace.mirror.link_audit import LinkAudit
from headrace.mirror.link_task import LinkTasks
from headrace.mirror.link_transport import LinkTransport
from headrace.mirror.links import Links
from headrace.mirror.reversals import Reversals
from headrace.mirror.schema_sync import SchemaSync
from headrace.mirror.sources import Sources
from headrace.model.image import Endpoint
from headrace.monitor.canary import Canary
from headrace.monitor.clients.instances import ClientInstances
from headrace.monitor.monitor import Monitor, MonitoredParts
from headrace.monitor.pipelines.service import PipelineReports
from headrace.protocol.codec import RequestHeader, write_response
from headrace.queues.service import QueueService
from headrace.replication.partitions import PartitionTable
from headrace.runtime.clock import Clock, ManualClock
from headrace.runtime.deferred import Deferred
from headrace.runtime.expiries import Expiries
from headrace.schemas.service import RegistryService
from headrace.security.audit.log import AuditLog
from headrace.transactions.markers import MarkerWriter
from headrace.transactions.service import TransactionService

CLIENT_SEES = Endpoint("192.168.1.5", 9092)
_T = TypeVar("_T")


class Harness:
    def __init__(self, runner: asyncio.Runner, services: Services, store: SqliteStore) -> None:
        self._runner = runner
        self.services = services
        self.store = store
        self.metadata = services.metadata
        self.peer = Peer("10.1.2.3:5555", CLIENT_SEES)
        self._waiting: set[Deferred[Any]] = set()

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        return self._runner.run(coroutine)

    def create(self, name: str, partitions: int = 1, **settings: str) -> UUID:
        """Create a topic; settings are given with _ for the dots."""
        texts = {key.replace("_", "."): text for key, text in settings.items()}
        return self.run(self.metadata.create_topic(name, partitions=partitions, settings=texts)).topic_id

    def call(self, key: int, version: int, build: Callable[[Any], Any]) -> Any:
        """The answer to the request that `build` makes from its schema. Both go through bytes, as on a connection."""
        return self.run(self.ask(*self.received(key, version, build)))

    def received(self, key: int, version: int, build: Callable[[Any], Any]) -> tuple[RequestHeader, Any]:
        """A request as the broker reads it off the wire."""
        request = build(load_payload_module(key, version, EntityType.request))
        header = RequestHeader(key, version, 7, "test", 0)
        frame = BytesIO()
        entity_writer(type(request))(frame, request)
        return header, APIS[key].read(frame.getvalue(), header)

    def hurried(self) -> int:
        """Tell every answer that waits that waiting is no use, as a lost connection or a stopping broker does."""
        waiting = tuple(self._waiting)
        for answer in waiting:
            answer.hurry()
        return len(waiting)

    async def ask(self, header: RequestHeader, received: Any) -> Any:
        answer: Any = APIS[header.api_key].handler(Context(header, self.peer, self.services), received)
        if asyncio.iscoroutine(answer):
            answer = await answer
        if isinstance(answer, Deferred):
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            answer.then(future.set_result)
            self._waiting.add(answer)
            try:
                answer = await future
            finally:
                self._waiting.clear()
        schema = load_response_schema(header.api_key, header.api_version)
        is_raw = isinstance(answer, Raw)
        written = b"".join(answer.buffers) if is_raw else write_response(header, answer)
        body_at = 5 if schema.__flexible__ else 4
        read_back, size = entity_reader(schema)(written, body_at)
        assert size == len(written) - body_at
        assert is_raw or read_back == answer
        return read_back


@contextmanager
def broker(data_dir: Path, **settings: str) -> Iterator[Harness]:
    """A harness on `data_dir`; settings are given with _ for the dots."""
    texts = {key.replace("_", "."): text for key, text in settings.items()}
    with asyncio.Runner() as runner, ThreadPoolExecutor(1) as workers:
        clock = ManualClock()
        own = broker_settings({"data.dir": str(data_dir), **texts})

        async def start() -> tuple[SqliteStore, Metadata, ProducerIds]:
            store = await SqliteStore.open(data_dir / "metadata.db", clock)
            metadata = Metadata(store, own, Endpoint("10.0.0.1", 1))
            await metadata.open()
            return store, metadata, ProducerIds(store)

        async def stop() -> None:
            await metadata.close()
            await store.close()

        store, metadata, producer_ids = runner.run(start())
        partitions = PartitionTable()
        groups = GroupService(own, metadata=metadata, partitions=partitions, clock=clock, workers=workers)
        transactions = TransactionService(
            own,
            metadata=metadata,
            partitions=partitions,
            producer_ids=producer_ids,
            markers=MarkerWriter(partitions, lambda *_: None),
            clock=clock,
            workers=workers,
        )
        queues = QueueService(metadata=metadata, partitions=partitions, clock=clock, workers=workers, random=Random(1))
        monitor = Monitor(
            MonitoredParts(
                metadata=metadata,
                partitions=partitions,
                groups=groups,
                transactions=transactions,
                queues=queues,
                clock=clock,
                workers=workers,
            )
        )
        registry = RegistryService(
            metadata=metadata,
            partitions=partitions,
            clock=clock,
            workers=workers,
            shows=lambda *_: lambda _: True,
        )
        services = Services(
            clock=clock,
            metadata=metadata,
            partitions=partitions,
            producer_ids=producer_ids,
            fetch_sessions=FetchSessions(10, itertools.count(1).__next__),
            expiries=Expiries(),
            workers=workers,
            recompressor=Recompressor(metadata, partitions, workers),
            schema_checks=SchemaChecks(metadata, partitions, registry.lookup, workers),
            backlog_waits=BacklogWaits(metadata, partitions, clock),
            groups=groups,
            transactions=transactions,
            queues=queues,
            share_sessions=ShareSessions(lambda: 10),
            departures=Departures(clock),
            access=AccessControl(metadata),
            audit_topic=AuditTopic(metadata, partitions, None),
            canary=Canary(metadata, partitions, queues, clock, workers),
            pipelines=PipelineReports(metadata=metadata, partitions=partitions, clock=clock, workers=workers),
            registry=registry,
            links=_links(metadata, partitions, clock, groups, queues, workers, registry),
            monitor=monitor,
            clients=ClientInstances(lambda: metadata.image.client_metrics),
            coordinators={0: groups.coordinator, 1: transactions.coordinator},
        )
        try:
            yield Harness(runner, services, store)
        finally:
            runner.run(stop())


def _links(
    metadata: Metadata,
    partitions: PartitionTable,
    clock: Clock,
    groups: GroupService,
    queues: QueueService,
    workers: ThreadPoolExecutor,
    registry: RegistryService,
) -> Links:
    sources = Sources(LinkTransport, Random(1), metadata.broker_id)
    figures = Figures(metadata, partitions, NothingCopied(), None)
    divergent = DivergentTopics(metadata, partitions, None)
    setback = GroupSetback(metadata, LinkGroups(groups), partitions, None)
    reversals = Reversals(
        metadata, partitions, sources, divergent, setback, clock, workers, LinkQueues(queues, workers)
    )
    audit = LinkAudit(AuditLog(clock.wall_ms))
    schemas = SchemaSync(metadata, sources, LinkSchemas(registry, audit), clock)
    tasks = LinkTasks(metadata, sources, clock, audit)
    return Links(metadata, figures, sources, tasks, clock, None, reversals, schemas)


def hosted(topic: str, index: int, size_bytes: int) -> Any:
    """What the partition table needs to know of a partition."""
    return SimpleNamespace(
        topic=topic,
        index=index,
        topic_id=UUID(int=1),
        log=SimpleLog(size_bytes),
        is_leader=True,
        copier=SimpleNamespace(lag=0),
    )


class SimpleLog:
    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
