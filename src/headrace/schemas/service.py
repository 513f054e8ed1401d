"""The registry of a cluster: any broker takes requests, and the leader of `_schemas` answers them.

A request to another broker is sent on to the leader, reads included: so what one broker has answered, all others know.
The leader answers a read when everything before it is committed, and only while its lease is certain; a change when its
own records are.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

import msgspec

from headrace.cluster.metadata import Metadata
from headrace.coordinator.coordinator import Coordinator
from headrace.coordinator.machine import InternalRecord, Outcome
from headrace.coordinator.result import Result
from headrace.coordinator.shard import Shard
from headrace.model.backoff import ExponentialDelay, RetryDelays
from headrace.model.errors import (
    CoordinatorError,
    HeadraceError,
    NotCoordinator,
    NotLeader,
    PeerUnavailable,
    UnsupportedFeature,
)
from headrace.model.features import SCHEMAS_LEVEL, needed
from headrace.model.image import SCHEMAS_REPLICAS, SCHEMAS_TOPIC
from headrace.replication.calls import Call, answer_to, ask, unknown_call
from headrace.replication.partitions import PartitionTable
from headrace.replication.peers import Peers
from headrace.runtime.clock import Clock
from headrace.runtime.deferred import Deferred
from headrace.schemas.checker import SchemaChecker
from headrace.schemas.errors import SchemaFault
from headrace.schemas.machine import SchemaMachine
from headrace.schemas.operations.all_operations import find_operation
from headrace.schemas.operations.table import CommitChange, RegistryCall
from headrace.schemas.requests import RegistryReply, RegistryRequest, refusal, reply

A = TypeVar("A")

Shows = Callable[[str, str], Callable[[str], bool]]
"""From a principal and its host to whether it may see a subject."""

_TOPIC_SETTINGS = {"cleanup.policy": "compact"}
_SHARD = "schemas"
_LANE = "schemas"
_TIMEOUT_S = 15.0
_PATIENCE_MS = 10_000
_RETRY_DELAY_S = ExponentialDelay(0.02, 0.5)


class RegistryForward(Call, frozen=True):
    """A request that another broker has taken, with the principal and the host of its client."""

    method: str
    parts: tuple[str, ...]
    query: dict[str, str]
    body: bytes
    principal: str
    host: str

    level = SCHEMAS_LEVEL


class RegistryNotReady(SchemaFault):
    """The leader of the registry changes, or cannot be reached."""

    status = 500
    code = 50003


_decode_call = msgspec.msgpack.Decoder(RegistryForward).decode


class RegistryService:
    def __init__(
        self,
        *,
        metadata: Metadata,
        partitions: PartitionTable,
        clock: Clock,
        workers: Executor,
        shows: Shows,
        is_certain: Callable[[], bool] = lambda: True,
        peers: Peers | None = None,
    ) -> None:
        """Without `peers` this broker is alone. `is_certain` tells whether this broker's lease is live."""
        self._metadata = metadata
        self._clock = clock
        self._peers = peers
        self._shows = shows
        self._is_certain = is_certain
        self._checker = SchemaChecker(workers)
        self._coordinator: Coordinator[SchemaMachine] = Coordinator(
            SCHEMAS_TOPIC,
            partition_count=1,
            topic_settings=_TOPIC_SETTINGS,
            replication_factor=SCHEMAS_REPLICAS,
            make_machine=lambda _: SchemaMachine(),
            metadata=metadata,
            partitions=partitions,
            clock=clock,
            workers=workers,
        )

    def start(self) -> None:
        self._coordinator.start()

    async def stop(self) -> None:
        await self._coordinator.stop()

    # -- on any broker

    async def answer(self, request: RegistryRequest, principal: str, host: str) -> RegistryReply:
        """Answer a request of a client; errors of requests are replies, too."""
        try:
            find_operation(request)
            level = self._metadata.image.feature_level
            if level < SCHEMAS_LEVEL:
                raise UnsupportedFeature(needed("the schema registry", SCHEMAS_LEVEL, level))
            return await self._routed(request, principal, host)
        except SchemaFault as error:
            return refusal(error)
        except HeadraceError as error:
            return reply({"error_code": RegistryNotReady.code, "message": str(error)}, RegistryNotReady.status)

    async def _routed(self, request: RegistryRequest, principal: str, host: str) -> RegistryReply:
        """Ask the leader. While it changes, repeat what was certainly not done, and what may be done twice."""
        deadline_ms = self._clock.monotonic_ms() + _PATIENCE_MS
        delays = RetryDelays(_RETRY_DELAY_S)
        while True:
            try:
                await self._coordinator.ensure_topic()
                return await self._on_leader(request, principal, host)
            except (CoordinatorError, NotCoordinator, NotLeader, PeerUnavailable) as error:
                # A registration is repeatable: the same schema gets the same id. So are settings; a deletion that was
                # done already is refused the second time, which a client may see after a failover.
                if self._clock.monotonic_ms() >= deadline_ms:
                    raise RegistryNotReady(f"the registry is not available now: {error}") from None
            await asyncio.sleep(delays.next())

    async def _on_leader(self, request: RegistryRequest, principal: str, host: str) -> RegistryReply:
        leader = self._coordinator.leader_for(_SHARD)
        if self._peers is None or leader == self._metadata.broker_id:
            return await self._carry_out(request, principal, host)
        call = RegistryForward(request.method, request.parts, request.query, request.body, principal, host)
        return await ask(self._peers, leader, call, RegistryReply, lane=_LANE, timeout_s=_TIMEOUT_S)

    # -- on the leader

    async def serve(self, call: bytes) -> bytes:
        """Carry out a request that another broker has sent on; the encoded answer."""
        try:
            asked = _decode_call(call)
        except msgspec.MsgspecError as error:
            return unknown_call(str(error))
        request = RegistryRequest(asked.method, asked.parts, asked.query, asked.body)
        return await answer_to(lambda: self._carry_out(request, asked.principal, asked.host))

    async def _carry_out(self, request: RegistryRequest, principal: str, host: str) -> RegistryReply:
        shard = self._coordinator.shard(_SHARD)
        shard.check()
        found = find_operation(request)
        call = RegistryCall(
            request,
            found.names,
            found.context,
            shard.machine,
            self._checker,
            _ShardCommit(shard),
            self._shows(principal, host),
        )
        try:
            answer = await found.operation.handler(call)
        except SchemaFault as error:
            answer = refusal(error)
        if request.method == "GET":
            await _committed(shard.run(lambda _: Outcome((), None)))
        if not self._is_certain():
            raise NotCoordinator("the lease of this broker is not certain")
        return answer


class _ShardCommit(CommitChange):
    def __init__(self, shard: Shard[SchemaMachine]) -> None:
        self._shard = shard

    async def __call__(self, change: Callable[[], Outcome[InternalRecord, A]]) -> A:
        return await _committed(self._shard.run(lambda _: change()))


async def _committed(deferred: Deferred[Result[A]]) -> A:
    future: asyncio.Future[Result[A]] = asyncio.get_running_loop().create_future()

    def settle(result: Result[A]) -> None:
        # The caller may have been cancelled.
        if not future.done():
            future.set_result(result)

    deferred.then(settle)
    return (await future).get()
