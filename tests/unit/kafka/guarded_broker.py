"""A real broker with access control in this process: handlers are called through the wire format, for any principal."""

import asyncio
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from kio.index import load_request_schema
from kio.serial import entity_writer

from headrace.app.broker import BrokerApp
from headrace.config.broker import broker_settings
from headrace.kafka.dispatch import Context, Peer, route
from headrace.kafka.permissions import Need
from headrace.kafka.services import Services
from headrace.model.acls import CLUSTER_NAME, Acl, PatternType, Permission
from headrace.model.ids import TopicName
from headrace.model.image import Endpoint, SecurityImage
from headrace.protocol.codec import RequestHeader, read_request, write_response
from headrace.records.batch import read_header
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.runtime.deferred import Deferred
from headrace.security.denial import Denial
from headrace.security.subject import Subject
from tests.entities import build
from tests.waiting import until_async

ADMIN, ALICE, BOB = "User:admin", "User:alice", "User:bob"
_HOST = "10.1.2.3"
_T = TypeVar("_T")
_SETTINGS = {
    "kafka.listen": "127.0.0.1:0",
    "http.listen": "off",
    "authorization.enable": "true",
    "super.users": ADMIN,
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
}


class _App(BrokerApp):
    services: Services

    async def _listen(self, services: Services, undo: AsyncExitStack) -> Mapping[str, Endpoint]:
        self.services = services
        return await super()._listen(services, undo)


class GuardedBroker:
    """Everything runs in one loop, which stands still between calls of `run`. A super user is `ADMIN`."""

    def __init__(self, runner: asyncio.Runner, app: _App) -> None:
        self._runner = runner
        self._app = app
        self._peers: dict[str, Peer] = {}
        self._acls: frozenset[Acl] = frozenset()
        self.services = app.services
        self.denials: list[Denial] = []
        self.services.security.on_denied.append(self.denials.append)

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        return self._runner.run(coroutine)

    # -- rules

    def allow(self, principal: str, need: Need, name: str = CLUSTER_NAME) -> None:
        self._acls |= {_rule(principal, need, name)}
        self._decide()

    def revoke(self, principal: str, need: Need, name: str = CLUSTER_NAME) -> None:
        self._acls -= {_rule(principal, need, name)}
        self._decide()

    def revoke_all(self) -> None:
        self._acls = frozenset()
        self._decide()

    def _decide(self) -> None:
        """Decide by the rules of the test. They are not stored, and the next change of metadata undoes this."""
        self.services.security.update(SecurityImage(acls=self._acls), self._app.settings)

    # -- requests

    def call(self, principal: str, key: int, version: int, /, **fields: Any) -> Any:
        """The answer to a request of this principal."""
        return self.run(self.ask(principal, key, version, fields))

    async def ask(self, principal: str, key: int, version: int, fields: Mapping[str, Any]) -> Any:
        self._decide()
        request = build(load_request_schema(key, version), fields)
        header = RequestHeader(key, version, 7, "test", 0)
        frame = BytesIO()
        entity_writer(type(request))(frame, request)
        served = route(key, version)
        assert served is not None
        context = Context(header, self._peer(principal), self.services)
        answer = served.handler(context, read_request(frame.getvalue(), header))
        if asyncio.iscoroutine(answer):
            answer = await answer
        if isinstance(answer, Deferred):
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            answer.then(future.set_result)
            answer = await future
        assert write_response(header, answer)
        return answer

    def _peer(self, principal: str) -> Peer:
        peer = self._peers.get(principal)
        if peer is None:
            listener = self._app.settings.broker_listener.name
            subject = Subject(principal, _HOST, "PLAIN", listener)
            endpoint = self._app.kafka_endpoint
            peer = self._peers[principal] = Peer(f"{_HOST}:5555", endpoint, subject=subject, listener=listener)
        return peer

    # -- topics

    def create(self, name: str, partitions: int = 1) -> UUID:
        """Create a topic; returns when this broker leads its partitions."""
        self.run(self.services.metadata.create_topic(name, partitions=partitions))
        for index in range(partitions):
            self.wait_led(name, index)
        return self.topic_id(name)

    def wait_led(self, topic: str, index: int = 0) -> None:
        def is_led() -> bool:
            return any((each.topic, each.index) == (topic, index) and each.is_leader for each in table.all())

        table = self.services.partitions
        self.run(until_async(is_led))

    def topic_id(self, name: str) -> UUID:
        return self.services.metadata.image.topics[TopicName(name)].topic_id

    def append(self, topic: str, *values: bytes) -> None:
        async def run() -> None:
            partition = self.services.partitions.get(topic, 0)
            batch = build_batch([Record(at, 0, None, value) for at, value in enumerate(values)])
            appended = partition.append(batch, read_header(batch))
            await partition.until_committed(appended.last_offset + 1)

        self.run(run())


async def _coordinating(services: Services) -> None:
    """Return when this broker coordinates groups and transactions."""
    for coordinator in (services.groups.coordinator, services.transactions.coordinator):
        await coordinator.ensure_topic()
        await until_async(lambda shards=coordinator.shards: any(shard.is_active for shard in shards()))  # type: ignore[misc]


def _rule(principal: str, need: Need, name: str) -> Acl:
    return Acl(need.kind, PatternType.LITERAL, name, principal, "*", need.operation, Permission.ALLOW)


@contextmanager
def guarded_broker(folder: Path) -> Iterator[GuardedBroker]:
    with asyncio.Runner() as runner:
        app = _App(broker_settings({"data.dir": str(folder), **_SETTINGS}))
        runner.run(app.start())
        try:
            runner.run(_coordinating(app.services))
            yield GuardedBroker(runner, app)
        finally:
            runner.run(app.stop())
